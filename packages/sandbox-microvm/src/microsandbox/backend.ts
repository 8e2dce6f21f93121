import { existsSync } from 'node:fs'
import { readdir, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '@reve/base'
import type { Backend, BackendContext, Disk } from '../backend.ts'
import { MicroVmError } from '../errors.ts'
import { missingPackages } from '../images/provision.ts'
import { imagePath, noteImageUse, readRecord } from '../images/store.ts'
import { prepareImage } from '../qemu/prepare.ts'
import { homeOf, keyOf } from './home.ts'
import { backingOf, createQcow2 } from './qcow2.ts'
import { startVm } from './vm.ts'

const MIB = 2 ** 20
const NEW = 'msb-new-'
const KEPT = 'msb-disk-'

/**
 * The microsandbox SDK as a backend. It makes the VM; commands, files and the network that the caller gives go through our
 * own guest agent, over a socket that the guest reaches as a vsock port, so that they are on every backend the same. Without
 * such a network the SDK's own serves what the spec lists, and puts the secrets in.
 *
 * A disk is a file `msb-disk-<fingerprint>-<image>.qcow2` in the spec's `stateDir`, over the read-only image of that very
 * build; while it is made its name starts with `msb-new-`. What the SDK itself keeps of a VM is thrown away with every stop
 * and made anew with every start: mounts, `allow` and secrets are always those of the spec, and a secret that was taken out
 * is gone.
 */
export function microsandboxBackend(context: BackendContext): Backend {
  const { spec, host, progress, network, now, randomBytes, secrets = [] } = context
  const home = homeOf(spec.stateDir, host)
  // One owner at a time has this folder, and two VMs never share a name.
  const socketDir = join(host.runtimeDir, keyOf(spec.stateDir))
  const path = (disk: Disk): string => join(spec.stateDir, disk.name)
  const idOf = (disk: Disk): string => /-([0-9a-f]{16}-[0-9a-f]{16})\.qcow2$/.exec(disk.name)?.[1] ?? ''
  const imageOf = (disk: Disk): string => imagePath(host.cacheDir, idOf(disk))
  const disks = async (prefix: string): Promise<readonly Disk[]> =>
    (await readdir(spec.stateDir))
      .filter((name) => name.startsWith(prefix) && name.endsWith('.qcow2'))
      .map((name) => ({ name }))
  const discardDisk = (disk: Disk): Promise<void> => rm(path(disk), { force: true })

  return {
    name: 'microsandbox',
    cleanUp: async () => {
      for (const disk of await disks(NEW)) await discardDisk(disk)
      await rm(socketDir, { recursive: true, force: true })
      await rm(join(home, 'tmp'), { recursive: true, force: true })
    },
    findDisk: async (fingerprint) => {
      const [disk] = await disks(`${KEPT}${fingerprint.slice(0, 16)}-`)
      if (disk === undefined) return undefined
      // The disk's own header is followed when it boots: it must lead to that image and to nothing else of the host.
      const isSound = existsSync(imageOf(disk)) && (await backingOf(path(disk))) === imageOf(disk)
      if (isSound) return disk
      progress.notice(
        `the image under the disk of "${spec.name}" is gone from the cache; a new disk is made, what was installed in the VM is lost`,
      )
      return undefined
    },
    createDisk: async (fingerprint, signal) => {
      const image = await prepareImage(spec.image, host, { progress, signal })
      const disk = { name: `${NEW}${fingerprint.slice(0, 16)}-${image.id}.qcow2` }
      try {
        await createQcow2(path(disk), image.path, spec.diskMiB * MIB)
      } catch (error) {
        await discardDisk(disk)
        throw new MicroVmError(
          'image_failed',
          `the disk of "${spec.name}" could not be made in ${spec.stateDir}: ${messageOf(error)}`,
          { cause: error },
        )
      }
      return disk
    },
    // A VM that runs on it has it open: the name may change under it.
    keepDisk: async (disk) => {
      const kept = { name: disk.name.replace(NEW, KEPT) }
      await rename(path(disk), path(kept))
      for (const old of await disks(KEPT)) if (old.name !== kept.name) await discardDisk(old)
    },
    discardDisk,
    removeDisks: async () => {
      for (const disk of [...(await disks(NEW)), ...(await disks(KEPT))]) await discardDisk(disk)
      await rm(home, { recursive: true, force: true })
    },
    boot: async (disk, signal, onEnd) => {
      const reach = await network?.()
      // A network of ours puts the secrets in by itself; the VM then has no card, and the SDK is told of none.
      const own = reach === undefined ? secrets : []
      const known = own.filter((secret) => (secret.value() ?? '') !== '')
      for (const secret of own)
        if (!known.includes(secret))
          progress.notice(
            `the secret ${secret.name} has no value: "${spec.name}" runs without it. Set it, and stop the VM so that it starts anew`,
          )
      await noteImageUse(host.cacheDir, idOf(disk), path(disk))
      const mounts = await Promise.all(
        spec.mounts.map(async (mount) => ({ ...mount, host: await realpath(mount.host) })),
      )
      const record = await readRecord(host.cacheDir, idOf(disk))
      const vm = await progress.stage('boot', `boot ${spec.name}`, () =>
        startVm({
          spec: { ...spec, mounts, ...(reach === undefined ? {} : { egress: { kind: 'none' } }) },
          ...(reach === undefined ? {} : { network: reach }),
          secrets: known,
          disk: path(disk),
          home,
          socketDir,
          now,
          randomBytes,
          signal,
          onLost: onEnd,
          ...(host.searchPath === undefined ? {} : { searchPath: host.searchPath }),
        }),
      )
      return { ...vm, env: record?.env ?? {}, missing: missingPackages(record, spec.image.packages) }
    },
  }
}
