import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { probeBackends } from '../src/index.ts'
import { cacheDir, folder, removeFolders, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
afterAll(removeFolders)

test('a machine without QEMU gets the reason and the command', async () => {
  const reports = await probeBackends({ cacheDir: folder(), runtimeDir: folder(), searchPath: ['/no/such'] })
  expect(reports[1]).toEqual({
    backend: 'qemu',
    ok: false,
    reason: expect.stringMatching(/Install it with: .*qemu-system-x86/),
  })
})

test.skipIf(why !== undefined)('a machine that boots says with what, and remembers it', async () => {
  const runtimeDir = folder()
  const boots: string[] = []
  const report = async () =>
    (
      await probeBackends({
        cacheDir,
        runtimeDir,
        onEvent: (event) => event.type === 'stage' && event.state === 'start' && boots.push(event.stage),
      })
    )[1]
  const first = await report()
  expect(first).toMatchObject({ backend: 'qemu', ok: true, accelerator: expect.stringMatching(/^(kvm|tcg)$/) })
  boots.length = 0
  expect(await report()).toEqual(first)
  expect(boots).toEqual([])
  expect(readdirSync(join(cacheDir, 'probes')).length).toBeGreaterThan(0)
  expect(readdirSync(runtimeDir)).toEqual([])
})
