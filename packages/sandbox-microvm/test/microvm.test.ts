import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { Backend, BackendFactory, Disk } from '../src/backend.ts'
import { createMicroVm, type ExecResult, MicroVmError, type MicroVmOptions } from '../src/index.ts'
import { bench, removeFolders } from './helpers.ts'

afterAll(removeFolders)

const result = (exitCode: number): ExecResult => ({
  exitCode,
  cancelled: false,
  timedOut: false,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  stdoutBytes: 0,
  stderrBytes: 0,
  leftRunning: [],
  durationMs: 0,
})

/** A backend in memory: what is shared by all of them is judged by what it asks of one. */
function memory(
  script: {
    readonly boot?: (signal: AbortSignal) => Promise<void>
    readonly exec?: (argv: readonly string[]) => Promise<ExecResult>
  } = {},
) {
  const asked: string[] = []
  let kept: Disk | undefined
  let end: (error: MicroVmError) => void = () => undefined
  const factory: BackendFactory = (): Backend => ({
    name: 'qemu',
    cleanUp: async () => void asked.push('cleanUp'),
    findDisk: async () => kept,
    createDisk: async (fingerprint) => {
      asked.push('create')
      return { name: fingerprint }
    },
    keepDisk: async (disk) => {
      asked.push('keep')
      kept = disk
    },
    discardDisk: async () => void asked.push('discard'),
    removeDisks: async () => {
      asked.push('remove')
      kept = undefined
    },
    boot: async (_disk, signal, onEnd) => {
      asked.push('boot')
      end = onEnd
      await script.boot?.(signal)
      return {
        pid: process.pid,
        diskBytes: async () => 4096,
        exec: async ({ argv }) => {
          if (argv[0] !== 'mkdir') asked.push(argv.join(' '))
          return argv[0] === 'mkdir' ? result(0) : ((await script.exec?.(argv)) ?? result(0))
        },
        readFile: async ({ path, onChunk }) => {
          asked.push(`read ${String(path)}`)
          for (const text of ['one ', 'two']) await onChunk(Buffer.from(text))
        },
        writeFile: async ({ path }) => void asked.push(`write ${String(path)}`),
        stop: async () => void asked.push('stop'),
      }
    },
  })
  return { asked, factory, end: (error: MicroVmError) => end(error) }
}

/** A boot that lasts until it is given up. */
const endless = (signal: AbortSignal): Promise<void> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('told to')), { once: true }))

/** A clock that stands still until it is moved. */
function clock() {
  let time = 0
  const due = new Set<{ readonly at: number; readonly callback: () => void }>()
  return {
    after: (ms: number, callback: () => void): (() => void) => {
      const call = { at: time + ms, callback }
      due.add(call)
      return () => void due.delete(call)
    },
    pass: async (ms: number): Promise<void> => {
      time += ms
      for (const call of due) {
        if (call.at > time) continue
        due.delete(call)
        call.callback()
      }
      await new Promise((done) => setTimeout(done, 20))
    },
  }
}

const made = (backend: ReturnType<typeof memory>, options: MicroVmOptions = {}, spec = {}) => {
  const { spec: whole, host, events } = bench({ idleStopMs: 30_000, ...spec })
  return { vm: createMicroVm(whole, host, { factory: backend.factory, ...options }), spec: whole, host, events }
}

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'worked',
    (error: unknown) => (error instanceof MicroVmError ? error.code : String(error)),
  )

describe('idle stop', () => {
  test('comes 30 s after the last release, and not before', async () => {
    const [backend, time] = [memory(), clock()]
    const { vm } = made(backend, { after: time.after })
    const [one, two] = [await vm.acquire(), await vm.acquire()]
    await time.pass(100_000)
    one.release()
    one.release()
    await time.pass(100_000)
    expect(vm.status().state).toBe('running')
    two.release()
    await time.pass(29_999)
    expect(vm.status().state).toBe('running')
    await time.pass(1)
    expect(vm.status().state).toBe('stopped')
    expect(backend.asked).toEqual(['cleanUp', 'create', 'boot', 'keep', 'stop'])
  })

  test('begins anew with each command, and with a start that nobody uses', async () => {
    const [backend, time] = [memory(), clock()]
    const { vm } = made(backend, { after: time.after })
    await vm.start()
    await time.pass(29_000)
    await vm.exec({ argv: ['true'] })
    await time.pass(29_000)
    expect(vm.status().state).toBe('running')
    await time.pass(1000)
    expect(vm.status().state).toBe('stopped')
    await vm.exec({ argv: ['again'] })
    expect(backend.asked.filter((what) => what === 'boot')).toHaveLength(2)
    expect(backend.asked.filter((what) => what === 'create')).toHaveLength(1)
    await vm.stop()
  })

  test('does not come while a command runs that needs longer', async () => {
    const time = clock()
    const finish = Promise.withResolvers<ExecResult>()
    const { vm } = made(memory({ exec: () => finish.promise }), { after: time.after })
    await vm.start()
    const running = vm.exec({ argv: ['long'] })
    await time.pass(1_000_000)
    expect(vm.status().state).toBe('running')
    finish.resolve(result(3))
    expect((await running).exitCode).toBe(3)
    await vm.stop()
  })
})

describe('starting', () => {
  test('is shared by all who ask at once', async () => {
    const backend = memory()
    const { vm } = made(backend)
    await Promise.all([vm.start(), vm.exec({ argv: ['a'] }), vm.acquire(), vm.start()])
    expect(backend.asked.filter((what) => what === 'boot')).toHaveLength(1)
    await vm.stop()
  })

  test('goes on when one of two has had enough, and is given up with the last', async () => {
    const never = memory({ boot: endless })
    const { vm } = made(never)
    const [one, two] = [new AbortController(), new AbortController()]
    const starts = [codeOf(vm.start({ signal: one.signal })), codeOf(vm.start({ signal: two.signal }))]
    one.abort()
    expect(await starts[0]).toBe('aborted')
    expect(vm.status().state).toBe('starting')
    two.abort()
    expect(await starts[1]).toBe('aborted')
    expect(vm.status().state).toBe('stopped')
    expect(never.asked).toEqual(['cleanUp', 'create', 'discard'])
  })

  test('that is stopped midway ends', async () => {
    const { vm } = made(memory({ boot: endless }))
    const start = codeOf(vm.start())
    await vm.stop()
    expect([await start, vm.status().state]).toEqual(['aborted', 'stopped'])
  })

  test('runs the bootstrap once, in order; a failing command keeps no disk', async () => {
    const backend = memory({ exec: async (argv) => result(argv.includes('bad') ? 9 : 0) })
    const { vm, spec, host } = made(backend, {}, { bootstrap: ['good', 'bad', 'never'] })
    expect(await codeOf(vm.start())).toBe('bootstrap_failed')
    expect(backend.asked).toEqual(['cleanUp', 'create', 'boot', 'sh -lc good', 'sh -lc bad', 'stop', 'discard'])
    backend.asked.length = 0
    const mended = createMicroVm({ ...spec, bootstrap: ['good', 'better'] }, host, { factory: backend.factory })
    await mended.start()
    await mended.stop()
    await mended.start()
    await mended.stop()
    expect(backend.asked.filter((what) => what.startsWith('sh'))).toEqual(['sh -lc good', 'sh -lc better'])
  })

  test('writes the fingerprint where the spec wants it', async () => {
    const { root } = bench()
    const backend = memory()
    const { vm } = made(backend, {}, { fingerprintFile: join(root, 'print') })
    await vm.start()
    await vm.stop()
    expect(readFileSync(join(root, 'print'), 'utf8')).toMatch(/^[0-9a-f]{64}\n$/)
    writeFileSync(join(root, 'print'), 'something else')
    await vm.start()
    await vm.stop()
    expect(backend.asked.filter((what) => what === 'create')).toHaveLength(2)
  })
})

describe('files', () => {
  test('start the VM when the stream is read, and not before', async () => {
    const backend = memory()
    const { vm } = made(backend)
    const stream = vm.readFile('/etc/file')
    expect(backend.asked).toEqual([])
    expect(await new Response(stream).text()).toBe('one two')
    await vm.writeFile('/etc/file', 'text')
    await vm.stop()
    expect(backend.asked).toEqual(['cleanUp', 'create', 'boot', 'keep', 'read /etc/file', 'write /etc/file', 'stop'])
  })

  test('that are no paths are refused before anything is started', async () => {
    const backend = memory()
    const { vm } = made(backend)
    expect(() => vm.readFile('relative')).toThrow(MicroVmError)
    expect(await codeOf(vm.writeFile('/a', '', { mode: 0o10000 }))).toBe('bad_spec')
    expect(backend.asked).toEqual([])
  })
})

describe('a VM that ends by itself', () => {
  test('is started again by the next command', async () => {
    const backend = memory()
    const { vm, events } = made(backend)
    await vm.start()
    backend.end(new MicroVmError('guest_lost', 'it is gone'))
    expect(vm.status().state).toBe('stopping')
    await vm.exec({ argv: ['again'] })
    expect(backend.asked.filter((what) => what === 'boot')).toHaveLength(2)
    expect(events).toContainEqual({ type: 'notice', text: 'the VM "test" ended: it is gone' })
    await vm.stop()
  })
})

test('two VMs of one folder are one too many, also in one process', async () => {
  const { vm, spec, host } = made(memory())
  const second = createMicroVm(spec, host, { factory: memory().factory })
  await vm.start()
  expect(await codeOf(second.start())).toBe('busy')
  await vm.stop()
  await second.start()
  await second.stop()
})
