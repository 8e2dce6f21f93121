import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Backend, BackendContext, Disk, RunningVm } from '../backend.ts'
import { MicroVmError } from '../errors.ts'
import { DEFAULT_SEARCH_PATH, runHost } from '../host-process.ts'
import { requireHost } from '../host-packages.ts'
import { findAccelerator } from './accelerator.ts'
import { boxWorks } from './box.ts'
import { imagePath } from './image.ts'
import { prepareImage, prepareKernel } from './prepare.ts'
import { type QemuProcess, startQemu } from './process.ts'

/** A dead owner's QEMU goes within a moment; until then its hold on the disk is another's. */
const LOCKED_TRIES = 20
const LOCKED_MS = 250
/** How long a first boot may take before a second one is tried: many times what the slowest one seen took. A boot that hangs is guarded against, not explained. */
const FIRST_BOOT_MS = 30_000
const STATE_DIR_MODE = 0o700

/**
 * QEMU as a backend. A disk is a file `disk-<fingerprint>-<image>.qcow2` in the spec's `stateDir`, over the read-only image
 * of that very build; while it is made its name starts with `new-`.
 */
export function qemuBackend(context: BackendContext): Backend {
  const { spec, host, progress, now, randomBytes } = context
  const searchPath = host.searchPath ?? DEFAULT_SEARCH_PATH
  // One owner at a time has this folder, and two VMs never share a name.
  const socketDir = join(host.runtimeDir, createHash('sha256').update(spec.stateDir).digest('hex').slice(0, 16))
  const path = (disk: Disk): string => join(spec.stateDir, disk.name)
  const imageOf = (disk: Disk): string =>
    imagePath(host.cacheDir, /-([0-9a-f]{16}-[0-9a-f]{16})\.qcow2$/.exec(disk.name)?.[1] ?? '')
  const disks = async (prefix: string): Promise<readonly Disk[]> =>
    (await readdir(spec.stateDir))
      .filter((name) => name.startsWith(prefix) && name.endsWith('.qcow2'))
      .map((name) => ({ name }))
  const discardDisk = (disk: Disk): Promise<void> => rm(path(disk), { force: true })

  const startOnce = async (
    disk: Disk,
    signal: AbortSignal,
    onEnd: (error: MicroVmError) => void,
    bootMs: number | undefined,
  ): Promise<{ readonly vm: QemuProcess; readonly accelerator: 'kvm' | 'tcg' }> => {
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
    const machine = {
      name: `reve-${spec.name}`,
      accelerator,
      cpus: spec.cpus,
      memoryMiB: spec.memoryMiB,
      vmlinux: kernel.vmlinux,
      initrd: kernel.initrd,
      disk: { overlay: path(disk), base: imageOf(disk) },
      shares,
    }
    const vm = await progress.stage('boot', `boot ${spec.name}`, () =>
      startQemu({
        machine,
        socketDir,
        box,
        searchPath,
        now,
        signal,
        onLost: onEnd,
        ...(bootMs === undefined ? {} : { bootMs }),
      }),
    )
    return { vm, accelerator }
  }

  const start = async (
    disk: Disk,
    signal: AbortSignal,
    onEnd: (error: MicroVmError) => void,
  ): ReturnType<typeof startOnce> => {
    let triedAgain = false
    for (let attempt = 1; ; attempt++) {
      try {
        return await startOnce(disk, signal, onEnd, triedAgain ? undefined : FIRST_BOOT_MS)
      } catch (error) {
        if (!(error instanceof MicroVmError) || error.code !== 'boot_failed') throw error
        const locked = error.message.includes('Failed to get "write" lock') && attempt < LOCKED_TRIES
        if (!locked && triedAgain) throw error
        if (!locked) {
          triedAgain = true
          progress.notice(`a boot of "${spec.name}" failed and is tried once more: ${error.message}`)
        }
        await new Promise((done) => setTimeout(done, LOCKED_MS))
      }
    }
  }

  return {
    name: 'qemu',
    cleanUp: async () => {
      for (const disk of await disks('new-')) await discardDisk(disk)
      await rm(socketDir, { recursive: true, force: true })
    },
    findDisk: async (fingerprint) => {
      const [disk] = await disks(`disk-${fingerprint.slice(0, 16)}-`)
      if (disk === undefined || existsSync(imageOf(disk))) return disk
      progress.notice(
        `the image under the disk of "${spec.name}" is gone from the cache; a new disk is made, what was installed in the VM is lost`,
      )
      return undefined
    },
    createDisk: async (fingerprint, signal) => {
      requireHost(host)
      // The kernel downloads while the image builds.
      const [image] = await Promise.all([
        prepareImage(spec.image, host, { progress, signal }),
        prepareKernel(host, { progress, signal }),
      ])
      const disk = { name: `new-${fingerprint.slice(0, 16)}-${image.id}.qcow2` }
      const made = await runHost(
        'qemu-img',
        ['create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', image.path, path(disk), `${spec.diskMiB}M`],
        { searchPath, signal },
      )
      if (made.code !== 0)
        throw new MicroVmError('image_failed', `the disk of "${spec.name}" could not be made: ${made.stderr.trim()}`)
      return disk
    },
    keepDisk: async (disk) => {
      const kept = { name: disk.name.replace(/^new-/, 'disk-') }
      await rename(path(disk), path(kept))
      for (const old of await disks('disk-')) if (old.name !== kept.name) await discardDisk(old)
    },
    discardDisk,
    removeDisks: async () => {
      for (const disk of [...(await disks('new-')), ...(await disks('disk-'))]) await discardDisk(disk)
    },
    boot: async (disk, signal, onEnd): Promise<RunningVm> => {
      requireHost(host, 'run')
      const { vm, accelerator } = await start(disk, signal, onEnd)
      const { guest } = vm
      try {
        await guest.setTime(now())
        await guest.seed(randomBytes(64))
        for (const [index, mount] of spec.mounts.entries())
          await progress.stage('mount', `mount ${mount.guest}`, () =>
            guest.mount(`share${index}`, mount.guest, mount.readonly ?? false),
          )
      } catch (error) {
        await vm.stop()
        throw error
      }
      return { accelerator, pid: vm.pid, exec: (command) => guest.exec(command), stop: () => vm.stop() }
    },
  }
}
