import { existsSync } from 'node:fs'
import { readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '@reve/base'
import type { Backend, BackendContext, Disk } from './backend.ts'
import { MicroVmError } from './errors.ts'
import { hasMoved, imagePath, noteImageUse } from './images/store.ts'
import { backingOf, createQcow2, growQcow2 } from './qcow2.ts'
import type { Image } from './qemu/image.ts'

const MIB = 2 ** 20

/** The disks of one VM, as files: what a backend says of them, and what a boot needs to know. */
export type Disks = Pick<Backend, 'findDisk' | 'createDisk' | 'keepDisk' | 'discardDisk' | 'removeDisks'> & {
  readonly path: (disk: Disk) => string
  /** Name of the image under it, in the cache. */
  readonly imageId: (disk: Disk) => string
  /** Path of that image. */
  readonly image: (disk: Disk) => string
  /** Removes what a killed start left. */
  readonly discardNew: () => Promise<void>
  /** What it takes on the host. */
  readonly bytes: (disk: Disk) => Promise<number>
}

/**
 * Disks are qcow2 files `<prefix>disk-<fingerprint>-<image>.qcow2` in the spec's `stateDir`, each over the read-only image of
 * that very build; while one is made its name starts with `<prefix>new-`.
 *
 * @param options.prepare gives the image of the spec, and whatever else a new VM needs
 * @param options.followsHeader the disk's own header says which image is under it when it boots, nobody else
 */
export function diskFiles(
  { spec, host, progress }: Pick<BackendContext, 'spec' | 'host' | 'progress'>,
  options: {
    readonly prefix: string
    readonly prepare: (signal: AbortSignal) => Promise<Image>
    readonly followsHeader: boolean
  },
): Disks {
  const { prefix, prepare, followsHeader } = options
  const [fresh, kept] = [`${prefix}new-`, `${prefix}disk-`]
  const path = (disk: Disk): string => join(spec.stateDir, disk.name)
  const imageId = (disk: Disk): string => /-([0-9a-f]{16}-[0-9a-f]{16})\.qcow2$/.exec(disk.name)?.[1] ?? ''
  const image = (disk: Disk): string => imagePath(host.cacheDir, imageId(disk))
  const named = async (start: string): Promise<readonly Disk[]> =>
    (await readdir(spec.stateDir))
      .filter((name) => name.startsWith(start) && name.endsWith('.qcow2'))
      .map((name) => ({ name }))
  const discardDisk = (disk: Disk): Promise<void> => rm(path(disk), { force: true })
  const discard = async (start: string): Promise<void> => {
    for (const disk of await named(start)) await discardDisk(disk)
  }

  /** Why a disk that was kept cannot be gone on with. */
  const whyNot = async (disk: Disk): Promise<string | undefined> => {
    if (!existsSync(image(disk))) return `the image under the disk of "${spec.name}" is gone from the cache`
    // It must lead to that image and to nothing else of the host.
    if (followsHeader && (await backingOf(path(disk))) !== image(disk))
      return `the disk of "${spec.name}" is damaged, or is over an image of another cache`
    if (await hasMoved(host.cacheDir, spec.image.ref, imageId(disk))) return `${spec.image.ref} is another image by now`
    return undefined
  }

  /** A disk grows with its spec; it never shrinks. */
  const fit = async (disk: Disk): Promise<void> => {
    const has = await growQcow2(path(disk), spec.diskMiB * MIB)
    if (has === spec.diskMiB * MIB) return
    const size = has === undefined ? 'its size' : `its ${Math.floor(has / MIB)} MiB`
    progress.notice(
      `the disk of "${spec.name}" keeps ${size}, and ${spec.diskMiB} are asked for; to have a new one, delete ${path(disk)} (what was installed in the VM is lost)`,
    )
  }

  return {
    path,
    imageId,
    image,
    discardDisk,
    discardNew: () => discard(fresh),
    bytes: async (disk) => {
      // It is renamed when it is kept, under a VM that runs.
      const paths = [path(disk), path({ name: disk.name.replace(fresh, kept) })]
      const found = await Promise.all(paths.map((each) => stat(each).catch(() => undefined)))
      return (found.find((each) => each !== undefined)?.blocks ?? 0) * 512
    },
    findDisk: async (fingerprint) => {
      const [disk] = await named(`${kept}${fingerprint.slice(0, 16)}-`)
      if (disk === undefined) return undefined
      const why = await whyNot(disk)
      if (why === undefined) {
        await fit(disk)
        return disk
      }
      progress.notice(`${why}; a new disk is made for "${spec.name}", what was installed in the VM is lost`)
      return undefined
    },
    createDisk: async (fingerprint, signal) => {
      const made = await prepare(signal)
      const { size } = await stat(made.path)
      if (size > spec.diskMiB * MIB)
        throw new MicroVmError(
          'bad_spec',
          `the image "${spec.image.ref}" needs a disk of at least ${Math.ceil(size / MIB)} MiB, and "${spec.name}" has ${spec.diskMiB}; set disk in sandbox.lua`,
        )
      const disk = { name: `${fresh}${fingerprint.slice(0, 16)}-${made.id}.qcow2` }
      try {
        await createQcow2(path(disk), made.path, spec.diskMiB * MIB)
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
      const keeping = { name: disk.name.replace(fresh, kept) }
      await rename(path(disk), path(keeping))
      await noteImageUse(host.cacheDir, imageId(keeping), path(keeping))
      for (const old of await named(kept)) if (old.name !== keeping.name) await discardDisk(old)
    },
    removeDisks: async () => {
      await discard(fresh)
      await discard(kept)
    },
  }
}
