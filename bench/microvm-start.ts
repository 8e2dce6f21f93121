import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createMicroVm, type MicroVm } from '@reve/sandbox-microvm'
import type { Comparison } from './measure.ts'

const cacheDir = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'reve')
const EXECS = 20

const make = (root: string, name: string, warmStart: boolean): MicroVm =>
  createMicroVm(
    {
      name: `bench-${name}`,
      stateDir: join(root, name),
      image: { ref: 'debian:trixie-slim', packages: ['git', 'python3'] },
      cpus: 2,
      memoryMiB: 512,
      diskMiB: 4096,
      mounts: [{ host: join(root, 'workspace'), guest: '/workspace' }],
      workdir: '/workspace',
      env: {},
      egress: { kind: 'none' },
      bootstrap: [],
      idleStopMs: 60_000,
    },
    { cacheDir, runtimeDir: join(root, 'run'), warmStart },
    { backend: 'qemu' },
  )

const trueOf = async (vm: MicroVm): Promise<void> => {
  const { exitCode } = await vm.exec({ argv: ['/bin/true'] })
  if (exitCode !== 0) throw new Error(`/bin/true ended with ${exitCode}`)
}

/** Milliseconds from nothing to the end of a first command, and those of one of the next ones. */
async function run(vm: MicroVm): Promise<readonly [number, number]> {
  const started = performance.now()
  await trueOf(vm)
  const first = performance.now()
  for (let count = 0; count < EXECS; count++) await trueOf(vm)
  const ended = performance.now()
  await vm.stop()
  return [first - started, (ended - first) / EXECS]
}

async function runHere(): Promise<readonly [number]> {
  const started = performance.now()
  for (let count = 0; count < EXECS; count++) await once(spawn('/bin/true', { stdio: 'ignore' }), 'close')
  return [(performance.now() - started) / EXECS]
}

let warm: MicroVm | undefined
let cold: MicroVm | undefined
const there = (vm: MicroVm | undefined): MicroVm => {
  if (vm === undefined) throw new Error('nothing is prepared')
  return vm
}

/** Makes the image, the disks and the template, which are there at any start but the first. */
async function prepare(): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), 'bv-'))
  process.once('beforeExit', () => void rm(root, { recursive: true, force: true }))
  await mkdir(join(root, 'workspace'))
  warm = make(root, 'warm', true)
  cold = make(root, 'cold', false)
  for (const vm of [warm, cold]) {
    await trueOf(vm)
    await vm.stop()
  }
}

/** A VM that goes on from a saved machine against the same one booted, and its commands against those of this machine. */
export const comparisons: readonly Comparison[] = [
  {
    rows: [
      { name: 'a VM from nothing to the end of its first command', unit: 'ms', goal: 'at most 0.25' },
      { name: 'one command in it', unit: 'ms', goal: 'about 1' },
    ],
    peer: 'booting it',
    prepare,
    ours: () => run(there(warm)),
    theirs: () => run(there(cold)),
  },
  {
    rows: [{ name: 'one command in a VM', unit: 'ms' }],
    peer: 'the same on the host',
    prepare: () => trueOf(there(warm)),
    ours: async () => [(await run(there(warm)))[1]],
    theirs: runHere,
  },
]
