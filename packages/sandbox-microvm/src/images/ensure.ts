import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { chmod, mkdir, open, realpath, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf } from '@reve/base'
import { buildOnce, partialFolder } from '../cache-folder.ts'
import { MicroVmError } from '../errors.ts'
import { openArchive } from './archive.ts'
import { downloadImage, resolveImage } from './download.ts'
import { writeExt4 } from './ext4.ts'
import { applyFolder, folderStamp } from './folder.ts'
import { prepareRoot } from './guest-root.ts'
import { applyLayer, type ImageLimits } from './layers.ts'
import { settingsOf } from './oci.ts'
import { type ImageSource, printRegistryReference, type RegistryReference } from './reference.ts'
import { Registry, type RegistryOptions } from './registry.ts'
import { RootTree } from './root-tree.ts'
import { type LayeredImage, NO_CONFIG } from './source.ts'
import { Spool } from './spool.ts'
import { imagePath, imagesFolder, lockPath, readRef, writeRecord, writeRef } from './store.ts'

/** Raised when what is made from the same image changes. */
const FORMAT = 1

/** What images are made with. */
export type ImageHost = RegistryOptions & {
  readonly cacheDir: string
  readonly limits: ImageLimits
  /** How far it is, in a line. */
  readonly onLabel: (label: string) => void
}

type LocalSource = Exclude<ImageSource, { kind: 'debootstrap' | 'debian' | 'registry' }>

/**
 * The id of the image that a reference of a registry stands for, pulled when the cache has none.
 *
 * @param options.refresh asks the registry even if the cache has one: a tag may stand for another image by now
 * @throws UnavailableError; MicroVmError `image_failed`, `aborted`
 */
export async function ensurePulled(
  reference: RegistryReference,
  host: ImageHost,
  options: { readonly refresh?: boolean } = {},
): Promise<string> {
  const ref = printRegistryReference(reference)
  if (options.refresh !== true) {
    const known = await readRef(host.cacheDir, ref)
    if (known !== undefined) return known.image
  }
  host.onLabel(`look ${ref} up`)
  const registry = new Registry(reference, host)
  const resolved = await resolveImage(reference, registry)
  const id = idOf(resolved.digest)
  const lock = lockPath(host.cacheDir, id)
  await buildOnce({
    lock,
    find: async () => ((await exists(imagePath(host.cacheDir, id))) ? id : undefined),
    build: async (temporary) => {
      const partial = partialFolder(lock)
      await mkdir(partial, { recursive: true, mode: 0o700 })
      try {
        const image = await downloadImage(resolved, registry, { folder: partial, what: ref, ...host })
        await assemble(ref, image, temporary, host)
      } catch (error) {
        // What is good of it serves the next try, unless it is what filled the disk.
        if (codeOf(error) === 'ENOSPC' || codeOf(error) === 'EDQUOT')
          await rm(partial, { recursive: true, force: true })
        throw error
      }
      await rm(partial, { recursive: true, force: true })
      return join(imagesFolder(host.cacheDir), id)
    },
    ...(host.signal === undefined ? {} : { signal: host.signal }),
  })
  await writeRef(host.cacheDir, { ref, stamp: '', image: id })
  return id
}

/**
 * The id of the image made from what lies on this machine; made anew when that has changed.
 *
 * @throws MicroVmError `image_failed`, `aborted`
 */
export async function ensureLocal(ref: string, source: LocalSource, host: ImageHost): Promise<string> {
  const { cacheDir } = host
  const stamp = await stampOf(source)
  const find = async (): Promise<string | undefined> => {
    const known = await readRef(cacheDir, ref)
    return known?.stamp === stamp ? known.image : undefined
  }
  return buildOnce({
    lock: lockPath(cacheDir, keyOf('local', ref, stamp)),
    find,
    build: async (temporary) => {
      host.onLabel(`read ${ref}`)
      const image = source.kind === 'dir' ? undefined : await openLocal(source, join(temporary, 'archive'), host)
      const id = idOf(image?.digest ?? `sha256:${stamp}`)
      await writeRef(cacheDir, { ref, stamp, image: id })
      // The same image may be here by another name.
      if (!(await exists(imagePath(cacheDir, id)))) await assemble(ref, image ?? source.path, temporary, host)
      return join(imagesFolder(cacheDir), id)
    },
    ...(host.signal === undefined ? {} : { signal: host.signal }),
  })
}

const keyOf = (...material: readonly string[]): string =>
  createHash('sha256')
    .update(JSON.stringify([FORMAT, ...material]))
    .digest('hex')
    .slice(0, 16)

const idOf = (digest: string): string => `${keyOf('image', digest)}-${digest.slice('sha256:'.length).slice(0, 16)}`

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path)
    return true
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false
    throw error
  }
}

/** What tells one state of a local source from another. */
async function stampOf(source: LocalSource): Promise<string> {
  if (source.kind === 'dir') return folderStamp(source.path)
  try {
    const real = await realpath(source.path)
    const found = await stat(source.kind === 'oci' ? join(real, 'index.json') : real)
    return createHash('sha256')
      .update(JSON.stringify([real, found.size, found.mtimeMs, found.ino]))
      .digest('hex')
  } catch (error) {
    const code = codeOf(error)
    if (code === undefined) throw error
    throw new MicroVmError('image_failed', `${source.path} cannot be read (${code}); is it there?`, { cause: error })
  }
}

async function openLocal(
  source: Exclude<LocalSource, { kind: 'dir' }>,
  scratch: string,
  host: ImageHost,
): Promise<LayeredImage> {
  if (source.kind !== 'tar') return openArchive(source, scratch, host.limits.unpackedBytes)
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(source.path)) hash.update(chunk)
  return {
    digest: `sha256:${hash.digest('hex')}`,
    config: NO_CONFIG,
    layers: [() => createReadStream(source.path, { highWaterMark: 256 * 1024 })],
  }
}

/** Makes the image in `temporary`: its layers, or a folder of the host, merged, made ready for a guest, and written down. */
async function assemble(ref: string, image: LayeredImage | string, temporary: string, host: ImageHost): Promise<void> {
  const { limits, onLabel, signal } = host
  const stop = signal === undefined ? {} : { signal }
  const tree = new RootTree(limits.files)
  const spoolPath = join(temporary, 'spool')
  const path = join(temporary, 'root.ext4')
  const config = typeof image === 'string' ? NO_CONFIG : image.config
  {
    await using spool = await Spool.create(spoolPath, limits.unpackedBytes)
    if (typeof image === 'string') await applyFolder(image, { tree, spool, ...stop })
    else
      for (const [index, layer] of image.layers.entries()) {
        onLabel(`unpack ${ref}: layer ${index + 1} of ${image.layers.length}`)
        const expected = config.rootfs.diff_ids?.[index]
        await applyLayer(layer(), { tree, spool, limits, ...(expected === undefined ? {} : { expected }), ...stop })
      }
    const distribution = await prepareRoot(tree, spool, ref)
    onLabel(`write ${ref}`)
    await using file = await open(path, 'wx', 0o600)
    const digest = typeof image === 'string' ? '' : image.digest
    await writeExt4(tree.root, spool, file, Buffer.from(keyOf('uuid', digest).repeat(2), 'hex'))
    await file.sync()
    await writeRecord(temporary, { version: 1, ref, digest, packages: [], ...settingsOf(config), distribution })
  }
  await chmod(path, 0o444)
  for (const left of [spoolPath, join(temporary, 'archive')]) await rm(left, { force: true })
}
