import { spawn } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { createMicroVm, MicroVmError, probeBackends } from '../src/index.ts'
import { type Driver, startDriver } from '../src/microsandbox/driver-process.ts'
import { whyNoMicrosandbox } from '../src/microsandbox/probe.ts'
import { findSdk } from '../src/microsandbox/sdk.ts'
import { SecretValues } from '../src/microsandbox/secret-values.ts'
import { bench, folder, removeFolders, until } from './helpers.ts'

const sdk = findSdk()
if (!sdk.ok) console.warn(`the driver is not tried: ${sdk.why}`)
const impossible = await whyNoMicrosandbox()
if (impossible === undefined) console.warn('what is said where microsandbox cannot boot is not tried: it may boot here')

const drivers: Driver[] = []
afterAll(async () => {
  for (const driver of drivers) driver.kill()
  await Promise.all(drivers.map(({ closed }) => closed))
  removeFolders()
})

async function driven(home = folder()): Promise<Driver> {
  const driver = await startDriver({ home, onEnded: () => undefined })
  drivers.push(driver)
  return driver
}

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'worked',
    (error: unknown) => (error instanceof MicroVmError ? `${error.code} ${error.message}` : String(error)),
  )

describe.skipIf(!sdk.ok)('the process around the SDK', () => {
  test('says what went wrong in the words of the SDK, and serves on', async () => {
    const driver = await driven()
    const ask = { type: 'stop', name: 'none-of-that-name', ms: 1000 } as const
    for (let times = 0; times < 2; times++)
      expect(await codeOf(driver.request(ask, 60_000))).toMatch(
        /^boot_failed microsandbox says \(\w+\): .*none-of-that-name/i,
      )
  })

  test('has an environment of its own, which no secret is seen in', async () => {
    const home = folder()
    const driver = await driven(home)
    const values = [{ variable: 'REVE_SECRET_0', source: 'REVE_SOURCE_0', value: 'the-real-value' }]
    const said = await codeOf(driver.request({ type: 'secrets', name: 'no-such-vm', values, removed: [] }, 60_000))
    expect(said).toMatch(/^boot_failed /)
    expect(said).not.toContain('the-real-value')
    const seen = readFileSync(`/proc/${driver.pid}/environ`, 'latin1')
      .split('\0')
      .map((line) => line.replace(/=.*/s, ''))
    expect(seen.filter((name) => name !== '').toSorted()).toEqual([
      'HOME',
      'LC_ALL',
      'MSB_HOME',
      'NODE_CHANNEL_FD',
      'NODE_CHANNEL_SERIALIZATION_MODE',
      'PATH',
      'TMPDIR',
    ])
    for (const name of readdirSync(home, { recursive: true, encoding: 'utf8' })) expect(name).not.toContain('the-real')
  })

  test('that dies leaves nobody waiting', async () => {
    const driver = await driven()
    const asked = codeOf(driver.request({ type: 'stop', name: 'x', ms: 1 }, 60_000))
    driver.kill()
    expect(await asked).toMatch(/^boot_failed the process around microsandbox ended \(SIGKILL\)/)
    await driver.closed
    expect(await codeOf(driver.request({ type: 'stop', name: 'x', ms: 1 }, 1000))).toMatch(/^boot_failed /)
  })

  test('ends with its owner, however that dies', async () => {
    const script = join(folder(), 'owner.mts')
    writeFileSync(
      script,
      `import { startDriver } from ${JSON.stringify(join(import.meta.dirname, '../src/microsandbox/driver-process.ts'))}
       const driver = await startDriver({ home: ${JSON.stringify(folder())}, onEnded: () => undefined })
       console.log(driver.pid)`,
    )
    const owner = spawn(process.execPath, ['--conditions=@reve/source', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const said = Promise.withResolvers<string>()
    owner.stdout.setEncoding('utf8').once('data', said.resolve)
    const pid = (await said.promise).trim()
    expect(existsSync(`/proc/${pid}`)).toBe(true)
    owner.kill('SIGKILL')
    await until(() => !existsSync(`/proc/${pid}`), 'the driver is gone')
  })
})

describe('a machine', () => {
  test.skipIf(impossible === undefined)('where it cannot boot says why, without trying', async () => {
    const cache = folder()
    const began = performance.now()
    const [report] = await probeBackends({ cacheDir: cache, runtimeDir: folder(), searchPath: ['/no/such'] })
    expect(report).toEqual({ backend: 'microsandbox', ok: false, reason: impossible })
    expect(report?.reason).toMatch(/kvm|virtualisation|npm install microsandbox|Linux on x64/)
    expect(existsSync(join(cache, 'm'))).toBe(false)
    expect(performance.now() - began).toBeLessThan(10_000)
  })

  test.skipIf(impossible === undefined)('where it cannot boot refuses who asks for it, and makes nothing', async () => {
    const { vm, spec } = bench({}, {}, folder(), { backend: 'microsandbox' })
    const said = await codeOf(vm.start())
    expect(said).toBe(
      `backend_unavailable backend "microsandbox" does not run here: ${impossible}. Set backend = "auto" or "qemu" in sandbox.lua`,
    )
    expect(readdirSync(spec.stateDir)).toEqual(['owner.lock'])
  })

  test.skipIf(impossible === undefined)('where it cannot boot gets QEMU from "auto"', async () => {
    const { spec, host } = bench({}, { searchPath: ['/no/such'] })
    const vm = createMicroVm(spec, host)
    expect(await codeOf(vm.start())).toMatch(/^(missing_program|unsupported_host) /)
    expect(vm.status().backend).toBe('qemu')
  })

  test('without the package is told how to get it; of another kind, that it is', () => {
    const from = join(folder(), 'file.js')
    expect(findSdk({ platform: 'linux', arch: 'x64', from })).toEqual({
      ok: false,
      why: expect.stringContaining('npm install microsandbox'),
    })
    expect(findSdk({ platform: 'darwin', arch: 'arm64', from })).toEqual({
      ok: false,
      why: expect.stringContaining('this is darwin on arm64'),
    })
  })

  test('gets nothing of the SDK from an import of this package', async () => {
    const script = join(folder(), 'import.mts')
    writeFileSync(
      script,
      `import ${JSON.stringify(join(import.meta.dirname, '../src/index.ts'))}
       import { readFileSync } from 'node:fs'
       console.log(readFileSync('/proc/self/maps', 'utf8').includes('microsandbox'))`,
    )
    const child = spawn(process.execPath, ['--conditions=@reve/source', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const said = Promise.withResolvers<string>()
    child.stdout.setEncoding('utf8').once('data', said.resolve)
    expect((await said.promise).trim()).toBe('false')
  })
})

describe('values of secrets', () => {
  test('are told when they change, and revoked when they are gone', () => {
    const now: { a: string | undefined; b: string | undefined } = { a: 'one', b: 'two' }
    const rule = (name: 'a' | 'b') => ({
      name,
      placeholder: `reve-${name}`,
      hosts: ['x.example'],
      value: () => now[name],
    })
    const values = new SecretValues([rule('a'), rule('b')])
    const tell = () => {
      const change = values.change()
      if (change !== undefined) values.told(change)
      return change === undefined
        ? undefined
        : { values: change.values.map(({ variable, value }) => [variable, value]), removed: change.removed }
    }
    const [a, b] = ['REVE_SECRET_0', 'REVE_SECRET_1']
    expect(tell()).toEqual({
      values: [
        [a, 'one'],
        [b, 'two'],
      ],
      removed: [],
    })
    expect(tell()).toBeUndefined()
    now.b = 'three'
    expect(tell()).toEqual({ values: [[b, 'three']], removed: [] })
    now.a = undefined
    expect(tell()).toEqual({ values: [], removed: [a] })
    // It cannot be put back into a VM that runs.
    now.a = 'again'
    expect(tell()).toBeUndefined()
    now.b = ''
    expect(tell()).toEqual({ values: [], removed: [b] })
  })

  test('that were not taken are told again', () => {
    const values = new SecretValues([{ name: 'a', placeholder: 'reve-a', hosts: ['x.example'], value: () => 'one' }])
    expect(values.change()).toEqual(values.change())
  })
})
