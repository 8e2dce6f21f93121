import { realpath, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Backend, BackendContext } from '../backend.ts'
import { diskFiles } from '../disks.ts'
import { missingPackages } from '../images/provision.ts'
import { noteImageUse, readRecord } from '../images/store.ts'
import { prepareImage } from '../qemu/prepare.ts'
import { homeOf, keyOf } from './home.ts'
import { startVm } from './vm.ts'

/**
 * The microsandbox SDK as a backend. It makes the VM; commands, files and the network that the caller gives go through our
 * own guest agent, over a socket that the guest reaches as a vsock port, so that they are on every backend the same. Without
 * such a network the SDK's own serves what the spec lists, and puts the secrets in.
 *
 * What the SDK itself keeps of a VM is thrown away with every stop
 * and made anew with every start: mounts, `allow` and secrets are always those of the spec, and a secret that was taken out
 * is gone.
 */
export function microsandboxBackend(context: BackendContext): Backend {
  const { spec, host, progress, network, now, randomBytes, secrets = [] } = context
  const home = homeOf(spec.stateDir, host)
  // One owner at a time has this folder, and two VMs never share a name.
  const socketDir = join(host.runtimeDir, keyOf(spec.stateDir))
  const disks = diskFiles(context, {
    prefix: 'msb-',
    prepare: (signal) => prepareImage(spec.image, host, { progress, signal }),
    followsHeader: true,
  })

  return {
    name: 'microsandbox',
    ...disks,
    cleanUp: async () => {
      await disks.discardNew()
      await rm(socketDir, { recursive: true, force: true })
      await rm(join(home, 'tmp'), { recursive: true, force: true })
    },
    removeDisks: async () => {
      await disks.removeDisks()
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
      await noteImageUse(host.cacheDir, disks.imageId(disk), disks.path(disk))
      const mounts = await Promise.all(
        spec.mounts.map(async (mount) => ({ ...mount, host: await realpath(mount.host) })),
      )
      const record = await readRecord(host.cacheDir, disks.imageId(disk))
      const vm = await progress.stage('boot', `boot ${spec.name}`, () =>
        startVm({
          spec: { ...spec, mounts, ...(reach === undefined ? {} : { egress: { kind: 'none' } }) },
          ...(reach === undefined ? {} : { network: reach }),
          secrets: known,
          disk: disks.path(disk),
          home,
          socketDir,
          now,
          randomBytes,
          signal,
          onLost: onEnd,
          ...(host.searchPath === undefined ? {} : { searchPath: host.searchPath }),
        }),
      )
      return {
        ...vm,
        env: record?.env ?? {},
        missing: missingPackages(record, spec.image.packages),
        diskBytes: () => disks.bytes(disk),
      }
    },
  }
}
