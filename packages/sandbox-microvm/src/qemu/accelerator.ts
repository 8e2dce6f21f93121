import { accessSync, constants, statSync } from 'node:fs'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '@reve/base'
import * as v from 'valibot'
import { MicroVmError } from '../errors.ts'
import { DEFAULT_SEARCH_PATH, findProgram } from '../host-process.ts'
import type { Progress } from '../progress.ts'
import { remembered } from '../remembered.ts'
import type { Accelerator, MicroVmHost } from '../spec.ts'
import { boxWorks } from './box.ts'
import type { Kernel } from './kernel.ts'
import { startQemu } from './process.ts'

/** How the guest's processor is made, and why so. */
export type Found = { readonly accelerator: Accelerator; readonly reason: string }

const Remembered = v.strictObject({ accelerator: v.picklist(['kvm', 'tcg']), reason: v.string() })

/** A device that is there and does not work must not cost more than this; one that works takes a second. */
const PROBE_MS = { kvm: 8000, tcg: 120_000 } as const
const PROBE_MIB = 256

type Search = {
  readonly host: MicroVmHost
  readonly kernel: Kernel
  readonly progress: Progress
  readonly now: () => number
  readonly signal?: AbortSignal
}

/** Why KVM need not be tried, if so: `/dev/kvm` may be there on machines whose processor cannot run an ordinary guest. */
export function kvmImpossible(cpuinfo: string, device: 'usable' | 'missing' | 'forbidden'): string | undefined {
  if (device === 'missing') return 'there is no /dev/kvm'
  if (!/^flags\s*:.*\b(vmx|svm)\b/m.test(cpuinfo))
    return 'the processor shows this machine no virtualisation (vmx or svm)'
  return device === 'forbidden' ? '/dev/kvm may not be opened by this user; add it to the group kvm' : undefined
}

/** The same of this machine. */
export const whyNoKvm = async (): Promise<string | undefined> =>
  kvmImpossible(await readFile('/proc/cpuinfo', 'utf8'), kvmDevice())

function kvmDevice(): 'usable' | 'missing' | 'forbidden' {
  try {
    accessSync('/dev/kvm', constants.R_OK | constants.W_OK)
    return 'usable'
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ENOENT' ? 'missing' : 'forbidden'
  }
}

/**
 * KVM if a boot with it reaches the agent within seconds, else emulation. What a boot found out is remembered in the cache
 * for this host, its boot, this QEMU and this kernel.
 */
export async function findAccelerator(search: Search): Promise<Found> {
  const impossible = await whyNoKvm()
  if (impossible !== undefined) return { accelerator: 'tcg', reason: impossible }
  return keep(search, 'kvm', async () => {
    const failure = await tryBoot(search, 'kvm')
    return failure === undefined
      ? { accelerator: 'kvm', reason: 'a trial boot reached the guest agent' }
      : { accelerator: 'tcg', reason: `a trial boot with KVM failed: ${failure}` }
  })
}

/** Like `findAccelerator`, and emulation too is only said to work when a boot did. For `reve doctor`. */
export async function proveAccelerator(search: Search): Promise<Found> {
  const found = await findAccelerator(search)
  if (found.accelerator === 'kvm') return found
  return keep(search, 'tcg', async () => {
    const failure = await tryBoot(search, 'tcg')
    if (failure !== undefined) throw new MicroVmError('no_backend', `a trial boot failed: ${failure}`)
    return found
  })
}

async function tryBoot(search: Search, accelerator: Accelerator): Promise<string | undefined> {
  const searchPath = search.host.searchPath ?? DEFAULT_SEARCH_PATH
  await mkdir(search.host.runtimeDir, { recursive: true, mode: 0o700 })
  try {
    const vm = await search.progress.stage(
      'accelerator',
      `try ${accelerator === 'kvm' ? 'KVM' : 'emulation'}`,
      async () =>
        startQemu({
          machine: {
            name: 'reve-probe',
            accelerator,
            cpus: 1,
            memoryMiB: PROBE_MIB,
            vmlinux: search.kernel.vmlinux,
            initrd: search.kernel.initrd,
            shares: [],
          },
          socketDir: join(search.host.runtimeDir, `probe-${process.pid}-${accelerator}`),
          box: await boxWorks(searchPath),
          searchPath,
          now: search.now,
          bootMs: PROBE_MS[accelerator],
          onLost: () => undefined,
          ...(search.signal === undefined ? {} : { signal: search.signal }),
        }),
    )
    await vm.stop()
    return undefined
  } catch (error) {
    if (error instanceof MicroVmError && error.code === 'boot_failed') return messageOf(error)
    throw error
  }
}

async function keep(search: Search, what: string, find: () => Promise<Found>): Promise<Found> {
  const qemu = findProgram('qemu-system-x86_64', search.host.searchPath)
  const file = qemu === undefined ? undefined : statSync(qemu)
  return remembered({
    cacheDir: search.host.cacheDir,
    key: [what, qemu, file?.mtimeMs, file?.size, search.kernel.version],
    schema: Remembered,
    find,
  })
}
