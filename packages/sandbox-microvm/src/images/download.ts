import { createHash, type Hash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { MicroVmError } from '../errors.ts'
import type { ImageLimits } from './layers.ts'
import {
  checkConfig,
  checkLayer,
  chooseImage,
  type Descriptor,
  digestOf,
  type ImageManifest,
  parseConfig,
  parseManifest,
} from './oci.ts'
import { DIGEST, printRegistryReference, type RegistryReference } from './reference.ts'
import type { Registry } from './registry.ts'
import type { LayeredImage } from './source.ts'
import { writeAll } from './spool.ts'

/** An image of a registry by its digest. */
export type Resolved = { readonly digest: string; readonly manifest: ImageManifest }

/** Asks which image a reference stands for now. @throws MicroVmError `image_failed`, `aborted` */
export async function resolveImage(reference: RegistryReference, registry: Registry): Promise<Resolved> {
  const what = printRegistryReference(reference)
  const first = await checkedManifest(reference.version, what, registry)
  if (first.document.kind === 'image') return { digest: first.digest, manifest: first.document.manifest }
  const chosen = chooseImage(first.document.index, what)
  const { digest, document } = await checkedManifest(chosen.digest, what, registry)
  if (document.kind === 'index')
    throw new MicroVmError('image_failed', `${what} is an index of indexes, which is not read`)
  return { digest, manifest: document.manifest }
}

async function checkedManifest(version: string, what: string, registry: Registry) {
  const bytes = await registry.manifest(version)
  const digest = digestOf(bytes)
  if (DIGEST.test(version) && digest !== version)
    throw new MicroVmError(
      'image_failed',
      `the registry sent another manifest than the one asked for: ${digest}, not ${version}`,
    )
  return { digest, document: parseManifest(bytes, what) }
}

/**
 * Downloads an image's pieces into `folder`, each checked by its digest. What an earlier try left there is used: a download
 * that was killed goes on where it stopped.
 *
 * @throws MicroVmError `image_failed`, `aborted`
 */
export async function downloadImage(
  { digest, manifest }: Resolved,
  registry: Registry,
  parts: {
    readonly folder: string
    readonly what: string
    readonly limits: ImageLimits
    readonly onLabel: (label: string) => void
  },
): Promise<LayeredImage> {
  const { folder, what, limits, onLabel } = parts
  for (const layer of manifest.layers) checkLayer(layer, what)
  const pieces = [...new Map([manifest.config, ...manifest.layers].map((piece) => [piece.digest, piece])).values()]
  const total = pieces.reduce((sum, { size }) => sum + size, 0)
  if (total > limits.packedBytes)
    throw new MicroVmError(
      'image_failed',
      `${what} has ${megabytes(total)} MB, more than the limit of ${megabytes(limits.packedBytes)} MB; use a smaller one`,
    )
  let before = 0
  for (const piece of pieces) {
    await downloadPiece(piece, registry, folder, (bytes) =>
      onLabel(`download ${what}: ${megabytes(before + bytes)} of ${megabytes(total)} MB`),
    )
    before += piece.size
  }
  const path = (piece: Descriptor): string => join(folder, piece.digest.slice('sha256:'.length))
  const bytes = await readWhole(path(manifest.config))
  const config = parseConfig(bytes, `the configuration of ${what}`)
  checkConfig(config, manifest.layers.length, what)
  return {
    digest,
    config,
    layers: manifest.layers.map((layer) => () => createReadStream(path(layer), { highWaterMark: 256 * 1024 })),
  }
}

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)

async function readWhole(path: string): Promise<Buffer> {
  await using file = await open(path, 'r')
  return file.readFile()
}

async function downloadPiece(
  piece: Descriptor,
  registry: Registry,
  folder: string,
  onBytes: (bytes: number) => void,
): Promise<void> {
  const path = join(folder, piece.digest.slice('sha256:'.length))
  const size = await sizeOf(path)
  if (size === piece.size) return onBytes(piece.size)
  const part = `${path}.part`
  // A piece that was damaged on its way is asked for once more, whole.
  for (let attempt = 1; ; attempt++) {
    const found = await fetchPart(piece, registry, part, onBytes)
    if (found === piece.digest) break
    await rm(part, { force: true })
    if (attempt === 2)
      throw new MicroVmError(
        'image_failed',
        `what the registry sends as ${piece.digest} is ${found}; it is damaged there or on its way, and was not used`,
      )
  }
  await rename(part, path)
}

async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

async function fetchPart(
  piece: Descriptor,
  registry: Registry,
  path: string,
  onBytes: (bytes: number) => void,
): Promise<string> {
  const left = await sizeOf(path)
  await using file = await open(path, left === undefined ? 'wx+' : 'r+', 0o600)
  const start = left === undefined || left > piece.size ? 0 : left
  let hash = await hashOf(file, start)
  let at = start
  if (start < piece.size || piece.size === 0)
    await registry.blob(piece, start, async (bytes, from) => {
      if (from !== at) {
        hash = createHash('sha256')
        at = from
      }
      await writeAll(file, bytes, at)
      hash.update(bytes)
      at += bytes.length
      onBytes(at)
    })
  await file.truncate(at)
  await file.sync()
  return `sha256:${hash.digest('hex')}`
}

async function hashOf(file: Awaited<ReturnType<typeof open>>, length: number): Promise<Hash> {
  const hash = createHash('sha256')
  const buffer = Buffer.alloc(256 * 1024)
  for (let at = 0; at < length;) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, length - at), at)
    if (bytesRead === 0) break
    hash.update(buffer.subarray(0, bytesRead))
    at += bytesRead
  }
  return hash
}
