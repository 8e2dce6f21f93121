import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, writeFileAtomic } from '@reve/base'
import * as v from 'valibot'
import { removeLeftovers } from '../cache-folder.ts'
import { MicroVmError } from '../errors.ts'
import { wholeName } from './reference.ts'

// <cache>/images: <id>/{root.ext4, image.json, used, users/}, refs/<hash of a reference>.json, locks/<key>

const Record = v.object({
  version: v.literal(1),
  ref: v.string(),
  digest: v.string(),
  packages: v.array(v.string()),
  env: v.record(v.string(), v.string()),
  workdir: v.string(),
  user: v.string(),
  distribution: v.object({ id: v.string(), like: v.array(v.string()), apt: v.boolean() }),
})

/** What an image says of itself, as it is kept beside it. */
export type ImageRecord = v.InferOutput<typeof Record>

const Ref = v.object({ version: v.literal(1), ref: v.string(), stamp: v.string(), image: v.string() })

/** The name of a reference and what it stood for when it was last looked up. */
export type ImageRef = v.InferOutput<typeof Ref>

/** An image of the cache, for a list. */
export type CachedImage = {
  /** Names exactly this build. */
  readonly id: string
  /** What it was asked for by; the first is what it was made as. */
  readonly refs: readonly string[]
  /** Digest of the image that it was made from; empty for one that was built here. */
  readonly digest: string
  readonly packages: readonly string[]
  /** Bytes on the disk. */
  readonly bytes: number
  /** Milliseconds since 1970. */
  readonly lastUsedMs: number
  /** Disks of VMs that are made over it. */
  readonly users: readonly string[]
}

const ID = /^[0-9a-f]{16}-[0-9a-f]{16}$/
const ROOT = 'root.ext4'
/** Letters of an id that name an image. */
const SHORTEST_ID = 4

export const imagesFolder = (cacheDir: string): string => join(cacheDir, 'images')
/** Where the image of an earlier build lies; it may have been removed from the cache. */
export const imagePath = (cacheDir: string, id: string): string => join(imagesFolder(cacheDir), id, ROOT)
export const lockPath = (cacheDir: string, key: string): string => join(imagesFolder(cacheDir), 'locks', key)
const refPath = (cacheDir: string, ref: string): string =>
  join(imagesFolder(cacheDir), 'refs', `${createHash('sha256').update(ref).digest('hex').slice(0, 32)}.json`)

/** The cache's folder, and the ids of all that it has. */
export async function imageIds(cacheDir: string): Promise<readonly string[]> {
  const folder = imagesFolder(cacheDir)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  return (await readdir(folder)).filter((name) => ID.test(name))
}

/** A value of the cache, or undefined for one that is not there, or that another version wrote. */
async function readJson<T extends v.GenericSchema>(schema: T, path: string): Promise<v.InferOutput<T> | undefined> {
  try {
    const result = v.safeParse(schema, JSON.parse(await readFile(path, 'utf8')))
    return result.success ? result.output : undefined
  } catch (error) {
    if (error instanceof SyntaxError || codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** What is known of an image; images that an earlier version built have nothing. */
export const readRecord = (cacheDir: string, id: string): Promise<ImageRecord | undefined> =>
  readJson(Record, join(imagesFolder(cacheDir), id, 'image.json'))

export const writeRecord = (folder: string, record: ImageRecord): Promise<void> =>
  writeFile(join(folder, 'image.json'), `${JSON.stringify(record)}\n`, { mode: 0o600 })

/** What a reference stood for, if that image is still here. */
export async function readRef(cacheDir: string, ref: string): Promise<ImageRef | undefined> {
  const found = await readJson(Ref, refPath(cacheDir, ref))
  return found !== undefined && ID.test(found.image) && existsSync(imagePath(cacheDir, found.image)) ? found : undefined
}

export async function writeRef(cacheDir: string, ref: Omit<ImageRef, 'version'>): Promise<void> {
  await mkdir(join(imagesFolder(cacheDir), 'refs'), { recursive: true, mode: 0o700 })
  await writeFileAtomic(refPath(cacheDir, ref.ref), `${JSON.stringify({ version: 1, ...ref })}\n`)
}

/** Whether a reference stands for another image by now than the one that a disk was made over. What was built here never moves. */
export async function hasMoved(cacheDir: string, ref: string, id: string): Promise<boolean> {
  const record = await readRecord(cacheDir, id)
  if (record === undefined || record.digest === '') return false
  const known = await readRef(cacheDir, wholeName(ref))
  return known !== undefined && known.image !== id
}

async function allRefs(cacheDir: string): Promise<readonly ImageRef[]> {
  const folder = join(imagesFolder(cacheDir), 'refs')
  const names = await readdir(folder).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return []
    throw error
  })
  const refs = await Promise.all(
    names.filter((name) => name.endsWith('.json')).map((name) => readJson(Ref, join(folder, name))),
  )
  return refs.filter((ref) => ref !== undefined)
}

/**
 * Notes that a VM's disk is made over an image, and that it is used now. Every start does it, so a disk that was moved is
 * known again after its next one.
 */
export async function noteImageUse(cacheDir: string, id: string, disk: string): Promise<void> {
  const folder = join(imagesFolder(cacheDir), id)
  const users = join(folder, 'users')
  // One that was removed meanwhile must not be there again as a folder without an image.
  if (!existsSync(imagePath(cacheDir, id))) return
  await mkdir(users, { recursive: true, mode: 0o700 })
  await writeFile(join(users, createHash('sha256').update(disk).digest('hex').slice(0, 32)), disk, { mode: 0o600 })
  await writeFile(join(folder, 'used'), '', { mode: 0o600 })
}

/** The disks that are made over an image and still there; the notes of others go. */
async function usersOf(cacheDir: string, id: string): Promise<readonly string[]> {
  const folder = join(imagesFolder(cacheDir), id, 'users')
  const names = await readdir(folder).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return []
    throw error
  })
  const users: string[] = []
  for (const name of names) {
    const disk = await readFile(join(folder, name), 'utf8')
    if (existsSync(disk)) users.push(disk)
    else await rm(join(folder, name), { force: true })
  }
  return users.toSorted()
}

/** All images of the cache, the last used first. */
export async function listImages(cacheDir: string): Promise<readonly CachedImage[]> {
  const refs = await allRefs(cacheDir)
  const images = await Promise.all(
    (await imageIds(cacheDir)).map(async (id): Promise<CachedImage | undefined> => {
      const folder = join(imagesFolder(cacheDir), id)
      try {
        const root = await stat(imagePath(cacheDir, id))
        const used = await stat(join(folder, 'used')).catch(() => root)
        const record = await readRecord(cacheDir, id)
        const names = [record?.ref ?? '', ...refs.filter(({ image }) => image === id).map(({ ref }) => ref)]
        return {
          id,
          refs: [...new Set(names.filter((name) => name !== ''))],
          digest: record?.digest ?? '',
          packages: record?.packages ?? [],
          bytes: root.blocks * 512,
          lastUsedMs: used.mtimeMs,
          users: await usersOf(cacheDir, id),
        }
      } catch (error) {
        // Somebody removed it meanwhile.
        if (codeOf(error) === 'ENOENT') return undefined
        throw error
      }
    }),
  )
  return images.filter((image) => image !== undefined).toSorted((a, b) => b.lastUsedMs - a.lastUsedMs)
}

/**
 * Removes an image, by its id, the start of it, or a reference; and what killed builds and downloads left.
 *
 * @param options.force also one that disks of VMs are made over: their next start makes new ones
 * @returns the images that are gone, with the bytes that they took.
 * @throws MicroVmError `not_found` when there is none of that name; `bad_spec` when the start of an id fits several; `busy` for one in use.
 */
export async function removeImage(
  cacheDir: string,
  name: string,
  options: { readonly force?: boolean } = {},
): Promise<readonly CachedImage[]> {
  const all = await listImages(cacheDir)
  const named = all.filter(({ refs }) => refs.some((ref) => ref === name || ref === wholeName(name)))
  const fits = named.length > 0 ? named : all.filter(({ id }) => name.length >= SHORTEST_ID && id.startsWith(name))
  if (fits.length === 0)
    throw new MicroVmError('not_found', `the cache has no image "${name}"; list them to see their names and ids`)
  if (named.length === 0 && fits.length > 1)
    throw new MicroVmError('bad_spec', `"${name}" begins the ids of ${fits.length} images; give more of one`)
  const used = fits.find(({ users }) => users.length > 0)
  if (used !== undefined && options.force !== true)
    throw new MicroVmError(
      'busy',
      `image ${used.id} is in use by ${used.users.slice(0, 3).join(', ')}; without it that disk is lost and its next start makes a new one. Remove it by force, or remove the disk first`,
    )
  for (const { id } of fits) {
    for (const { ref, image } of await allRefs(cacheDir))
      if (image === id) await rm(refPath(cacheDir, ref), { force: true })
    // Out of sight in one step: nobody finds half of it.
    const removing = join(imagesFolder(cacheDir), 'locks', `.removing-${id}`)
    await mkdir(join(imagesFolder(cacheDir), 'locks'), { recursive: true, mode: 0o700 })
    await rm(removing, { recursive: true, force: true })
    await rename(join(imagesFolder(cacheDir), id), removing)
    await rm(removing, { recursive: true, force: true })
  }
  await removeLeftovers(join(imagesFolder(cacheDir), 'locks'), 0)
  return fits
}
