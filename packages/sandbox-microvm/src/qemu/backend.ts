import { createHash } from 'node:crypto'
import { mkdir, realpath, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Backend, BackendContext, Disk, RunningVm } from '../backend.ts'
import { diskFiles } from '../disks.ts'
import { MicroVmError } from '../errors.ts'
import type { GuestConnection } from '../guest-connection.ts'
import { networkPlan } from '../guest-network.ts'
import { readGuestFile, writeGuestFile } from '../guest-files.ts'
import { DEFAULT_SEARCH_PATH } from '../host-process.ts'
import { requireHost } from '../host-packages.ts'
import { missingPackages } from '../images/provision.ts'
import { noteImageUse, readRecord } from '../images/store.ts'
import type { Accelerator } from '../spec.ts'
import { findAccelerator } from './accelerator.ts'
import { boxWorks } from './box.ts'
import { prepareImage, prepareKernel } from './prepare.ts'
import { type QemuProcess, startQemu } from './process.ts'
import { removeStaleTemplates } from './template.ts'
import { isDiskInUse, startWarm } from './warm-start.ts'

/** A dead owner's QEMU goes within a moment; until then its hold on the disk is another's. */
const LOCKED_TRIES = 20
const LOCKED_MS = 250
/** How long a first boot may take before a second one is tried: many times what the slowest one seen took. A boot that hangs is guarded against, not explained. */
const FIRST_BOOT_MS = 30_000
const STATE_DIR_MODE = 0o700

/** QEMU as a backend. */
export function qemuBackend(context: BackendContext): Backend {
  const { spec, host, progress, network, now, randomBytes } = context
  const searchPath = host.searchPath ?? DEFAULT_SEARCH_PATH
  // One owner at a time has this folder, and two VMs never share a name.
  const socketDir = join(host.runtimeDir, createHash('sha256').update(spec.stateDir).digest('hex').slice(0, 16))
  const memoryFile = `${socketDir}.memory`
  const disks = diskFiles(context, {
    prefix: '',
    prepare: async (signal) => {
      requireHost(host, 'run')
      // The kernel downloads while the image builds.
      const [image] = await Promise.all([
        prepareImage(spec.image, host, { progress, signal }),
        prepareKernel(host, { progress, signal }),
      ])
      return image
    },
    // QEMU is told which image it is.
    followsHeader: false,
  })

  type Start = {
    readonly disk: Disk
    readonly signal: AbortSignal
    readonly onEnd: (error: MicroVmError) => void
    /** How the guest's network is set up. */
    readonly plan: Uint8Array | undefined
  }
  type Started = { readonly vm: QemuProcess; readonly accelerator: Accelerator; readonly isRestored: boolean }

  const startOnce = async (
    { disk, signal, onEnd, plan }: Start,
    way: { readonly warm: boolean; readonly bootMs?: number },
  ): Promise<Started> => {
    const kernel = await prepareKernel(host, { progress, signal })
    const { accelerator, reason } = await findAccelerator({ host, kernel, progress, now, signal })
    if (accelerator === 'tcg')
      progress.notice(`the VM's processor is emulated (${reason}): slower, and a weaker boundary than hardware`)
    const box = await boxWorks(searchPath)
    if (!box)
      progress.notice(
        'bubblewrap is missing or may make no namespaces here: QEMU runs without a box of its own, kept by its own sandbox only',
      )
    const shares = await Promise.all(
      spec.mounts.map(async (mount, index) => ({
        tag: `share${index}`,
        path: await realpath(mount.host),
        readonly: mount.readonly ?? false,
      })),
    )
    await mkdir(host.runtimeDir, { recursive: true, mode: STATE_DIR_MODE })
    const size = { accelerator, cpus: spec.cpus, memoryMiB: spec.memoryMiB }
    const machine = {
      ...size,
      name: `reve-${spec.name}`,
      vmlinux: kernel.vmlinux,
      initrd: kernel.initrd,
      disk: { overlay: disks.path(disk), base: disks.image(disk) },
      shares,
    }
    const options = {
      machine,
      socketDir,
      box,
      searchPath,
      now,
      signal,
      onLost: onEnd,
      begin: async (guest: GuestConnection): Promise<void> => {
        // Nothing of the guest that needs chance or the time comes before these.
        await Promise.all([guest.seed(randomBytes(64)), guest.setTime(now()), guest.root()])
      },
    }
    const shape = { ...size, shares: shares.length, network: plan }
    const template = { host, kernel, shape, box, socketDir, memoryFile, progress, now, bootMs: FIRST_BOOT_MS, signal }
    const warm = way.warm ? await startWarm(options, template) : undefined
    if (warm?.vm !== undefined) return { vm: warm.vm, accelerator, isRestored: true }
    if (warm !== undefined) progress.notice(`"${spec.name}" is booted, which takes longer: ${warm.reason}`)
    const vm = await progress.stage('boot', `boot ${spec.name}`, () =>
      startQemu({ ...options, ...(way.bootMs === undefined ? {} : { bootMs: way.bootMs }) }),
    )
    // The disk is not at fault then.
    await warm?.blame()
    return { vm, accelerator, isRestored: false }
  }

  const start = async (what: Start): Promise<Started> => {
    let warm = host.warmStart ?? true
    let triedAgain = false
    for (let attempt = 1; ; attempt++) {
      try {
        return await startOnce(what, { warm, ...(triedAgain ? {} : { bootMs: FIRST_BOOT_MS }) })
      } catch (error) {
        if (!(error instanceof MicroVmError) || error.code !== 'boot_failed') throw error
        const locked = isDiskInUse(error) && attempt < LOCKED_TRIES
        if (!locked && triedAgain) throw error
        if (!locked) {
          triedAgain = true
          warm = false
          progress.notice(`a boot of "${spec.name}" failed and is tried once more: ${error.message}`)
        }
        await new Promise((done) => setTimeout(done, LOCKED_MS))
      }
    }
  }

  return {
    name: 'qemu',
    ...disks,
    cleanUp: async () => {
      await disks.discardNew()
      for (const left of [socketDir, memoryFile]) await rm(left, { recursive: true, force: true })
      await removeStaleTemplates(host, now())
    },
    boot: async (disk, signal, onEnd): Promise<RunningVm> => {
      requireHost(host, 'run')
      await noteImageUse(host.cacheDir, disks.imageId(disk), disks.path(disk))
      const record = await readRecord(host.cacheDir, disks.imageId(disk))
      const reach = await network?.()
      const plan = reach === undefined ? undefined : networkPlan(reach)
      const { vm, accelerator, isRestored } = await start({ disk, signal, onEnd, plan })
      const { guest } = vm
      try {
        for (const [index, mount] of spec.mounts.entries())
          await progress.stage('mount', `mount ${mount.guest}`, () =>
            guest.mount(`share${index}`, mount.guest, mount.readonly ?? false),
          )
        if (reach !== undefined) await guest.openNetwork(reach, { isSetUp: isRestored })
      } catch (error) {
        await vm.stop()
        throw error
      }
      return {
        accelerator,
        pid: vm.pid,
        diskBytes: () => disks.bytes(disk),
        env: record?.env ?? {},
        missing: missingPackages(record, spec.image.packages),
        exec: (command) => guest.exec(command),
        readFile: (read) => readGuestFile(guest, read),
        writeFile: (write) => writeGuestFile(guest, write, Buffer.from(randomBytes(8)).toString('hex')),
        stop: () => vm.stop(),
      }
    },
  }
}
