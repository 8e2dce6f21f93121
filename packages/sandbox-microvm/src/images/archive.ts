import { createHash } from 'node:crypto'
import { constants, createReadStream } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path/posix'
import { type Readable, Transform } from 'node:stream'
import { MicroVmError } from '../errors.ts'
import { unpackTo } from './layers.ts'
import {
  checkConfig,
  checkLayer,
  chooseImage,
  type Descriptor,
  digestOf,
  type ImageIndex,
  MAX_DOCUMENT_BYTES,
  parseConfig,
  parseDockerManifest,
  parseIndex,
  parseManifest,
} from './oci.ts'
import { type ImageSource, wholeName } from './reference.ts'
import type { LayeredImage } from './source.ts'
import { writeAll } from './spool.ts'
import { readTar } from './tar.ts'

/** Files by name, wherever they are. */
type Files = {
  size(name: string): Promise<number | undefined>
  open(name: string): Readable
}

const failed = (message: string): MicroVmError => new MicroVmError('image_failed', message)
const CHUNK_BYTES = 256 * 1024
const MAX_MEMBERS = 100_000

/**
 * Opens an image that lies in an archive, or in a folder of the OCI's layout.
 *
 * @param scratch path of a file that may be written: a packed archive is unpacked there
 * @throws MicroVmError `image_failed`
 */
export async function openArchive(
  source: Extract<ImageSource, { kind: 'oci-archive' | 'docker-archive' | 'oci' }>,
  scratch: string,
  limit: number,
): Promise<LayeredImage> {
  const files = source.kind === 'oci' ? folderFiles(source.path) : await archiveFiles(source.path, scratch, limit)
  return source.kind === 'docker-archive' ? dockerImage(source, files) : layoutImage(source, files)
}

/** Names of a layout are digests and two fixed ones: nothing in it leads anywhere else. */
const folderFiles = (folder: string): Files => ({
  size: async (name) => {
    try {
      const found = await stat(join(folder, name))
      return found.isFile() ? found.size : undefined
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
      throw error
    }
  },
  open: (name) => createReadStream(join(folder, name), { highWaterMark: CHUNK_BYTES }),
})

async function archiveFiles(path: string, scratch: string, limit: number): Promise<Files> {
  const plain = await plainArchive(path, scratch, limit)
  const members = new Map<string, { readonly at: number; readonly size: number } | { readonly target: string }>()
  await readTar(createReadStream(plain, { highWaterMark: CHUNK_BYTES }), {
    entry: (entry) => {
      const name = normalize(entry.path)
      if (entry.kind === 'file' && entry.sparse === undefined) members.set(name, { at: entry.at, size: entry.stored })
      // Docker wrote a layer that occurs twice as a link to the first.
      else if (entry.kind === 'symlink') members.set(name, { target: join(dirname(name), entry.target) })
      else if (entry.kind === 'link') members.set(name, { target: normalize(entry.target) })
      if (members.size > MAX_MEMBERS)
        throw failed(`${path} has more than ${MAX_MEMBERS} members, so it is not an image`)
    },
    data: () => undefined,
    end: () => undefined,
  })
  const find = (name: string): { readonly at: number; readonly size: number } | undefined => {
    const member = members.get(normalize(name))
    const final = member !== undefined && 'target' in member ? members.get(member.target) : member
    return final !== undefined && 'at' in final ? final : undefined
  }
  return {
    size: async (name) => find(name)?.size,
    open: (name) => {
      const member = find(name)
      if (member === undefined) throw failed(`${path} has no ${name}`)
      const { at, size } = member
      return size === 0
        ? createReadStream('/dev/null')
        : createReadStream(plain, { start: at, end: at + size - 1, highWaterMark: CHUNK_BYTES })
    },
  }
}

/** The archive itself, or what it was before it was packed. */
async function plainArchive(path: string, scratch: string, limit: number): Promise<string> {
  await using source = await openFile(path)
  const { buffer } = await source.read(Buffer.alloc(6), 0, 6, 0)
  if (!/^(1f8b|28b52ffd|425a68|fd377a)/.test(buffer.toString('hex'))) return path
  await using target = await open(scratch, 'wx', 0o600)
  let at = 0
  await unpackTo(createReadStream(path, { highWaterMark: CHUNK_BYTES }), limit, async (chunk) => {
    await writeAll(target, chunk, at)
    at += chunk.length
  })
  return scratch
}

async function openFile(path: string) {
  // Not to wait for a writer where somebody named a pipe.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  if ((await file.stat()).isFile()) return file
  await file.close()
  throw failed(`${path} is not a file`)
}

async function document(files: Files, name: string, what: string): Promise<Buffer> {
  const size = await files.size(name)
  if (size === undefined) throw failed(`${what} has no ${name}`)
  if (size > MAX_DOCUMENT_BYTES) throw failed(`${name} of ${what} has ${size} bytes, too many for a document`)
  const parts: Buffer[] = []
  for await (const part of files.open(name)) parts.push(part)
  return Buffer.concat(parts)
}

const blobName = ({ digest }: Descriptor): string => `blobs/sha256/${digest.slice('sha256:'.length)}`

async function checkedDocument(files: Files, descriptor: Descriptor, what: string): Promise<Buffer> {
  const bytes = await document(files, blobName(descriptor), what)
  const digest = digestOf(bytes)
  if (digest !== descriptor.digest) throw failed(`${what} is damaged: ${descriptor.digest} is ${digest}`)
  return bytes
}

async function layoutImage(
  source: { readonly path: string; readonly name?: string },
  files: Files,
): Promise<LayeredImage> {
  const what = source.path
  if ((await files.size('index.json')) === undefined)
    throw failed(
      `${what} has no index.json, so it is not in the OCI's layout; what "docker save" makes is docker-archive:`,
    )
  const index = parseIndex(await document(files, 'index.json', what), `index.json of ${what}`)
  let descriptor = chooseNamed(index, source, what)
  let found = parseManifest(await checkedDocument(files, descriptor, what), what)
  if (found.kind === 'index') {
    descriptor = chooseImage(found.index, what)
    found = parseManifest(await checkedDocument(files, descriptor, what), what)
  }
  if (found.kind === 'index') throw failed(`${what} is an index of indexes, which is not read`)
  const { manifest } = found
  const config = parseConfig(await checkedDocument(files, manifest.config, what), `the configuration of ${what}`)
  checkConfig(config, manifest.layers.length, what)
  const layers: (() => Readable)[] = []
  for (const layer of manifest.layers) {
    checkLayer(layer, what)
    if ((await files.size(blobName(layer))) === undefined) throw failed(`${what} lacks its layer ${layer.digest}`)
    layers.push(() => verified(files.open(blobName(layer)), layer.digest, what))
  }
  return { digest: descriptor.digest, config, layers }
}

/** The bytes as they are, and an error at their end if they are not those that the digest names. */
function verified(source: Readable, digest: string, what: string): Readable {
  const hash = createHash('sha256')
  const check = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      hash.update(chunk)
      done(null, chunk)
    },
    flush: (done) => {
      const found = `sha256:${hash.digest('hex')}`
      done(found === digest ? null : failed(`${what} is damaged: ${digest} is ${found}`))
    },
  })
  source.on('error', (error) => check.destroy(error))
  check.on('close', () => source.destroy())
  return source.pipe(check)
}

const NAMES = ['org.opencontainers.image.ref.name', 'io.containerd.image.name']

function chooseNamed(index: ImageIndex, source: { readonly name?: string }, what: string): Descriptor {
  const named = index.manifests.map((entry) => ({
    entry,
    names: NAMES.flatMap((key) => entry.annotations[key] ?? []),
  }))
  const { name } = source
  if (name !== undefined) {
    const fits = named.find(({ names }) => names.some((full) => full === name || full.endsWith(`:${name}`)))
    if (fits !== undefined) return fits.entry
    throw failed(`${what} has no image "${name}"; it has ${listed(named.flatMap(({ names }) => names))}`)
  }
  const different = new Set(named.flatMap(({ names }) => names.slice(0, 1)))
  if (different.size > 1)
    throw failed(`${what} has several images; say which by ":" and its name after the path: ${listed([...different])}`)
  return chooseImage(index, what)
}

const listed = (names: readonly string[]): string =>
  names.length === 0 ? 'none with a name' : names.slice(0, 20).join(', ')

async function dockerImage(
  source: { readonly path: string; readonly name?: string },
  files: Files,
): Promise<LayeredImage> {
  const what = source.path
  if ((await files.size('manifest.json')) === undefined)
    throw failed(`${what} has no manifest.json, so "docker save" did not make it; what "docker export" makes is tar:`)
  const images = parseDockerManifest(await document(files, 'manifest.json', what), `manifest.json of ${what}`)
  const { name } = source
  const tags = images.flatMap(({ RepoTags }) => RepoTags ?? [])
  const image =
    name === undefined
      ? images.length === 1
        ? images[0]
        : undefined
      : images.find(({ RepoTags }) => (RepoTags ?? []).some((tag) => wholeName(tag) === wholeName(name)))
  if (image === undefined)
    throw failed(
      name === undefined
        ? `${what} has several images; say which by ":" and its name after the path: ${listed(tags)}`
        : `${what} has no image "${name}"; it has ${listed(tags)}`,
    )
  const bytes = await document(files, image.Config, what)
  const config = parseConfig(bytes, `the configuration of ${what}`)
  checkConfig(config, image.Layers.length, what)
  for (const layer of image.Layers)
    if ((await files.size(layer)) === undefined) throw failed(`${what} lacks its layer ${layer}`)
  // Its configuration names the layers by their digests: it names the image.
  return { digest: digestOf(bytes), config, layers: image.Layers.map((layer) => () => files.open(layer)) }
}
