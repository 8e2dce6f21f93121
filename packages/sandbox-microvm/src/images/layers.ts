import { createHash } from 'node:crypto'
import { pipeline } from 'node:stream'
import { createGunzip, createZstdDecompress } from 'node:zlib'
import { Readable, Transform } from 'node:stream'
import { messageOf } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import type { RootTree } from './root-tree.ts'
import type { Content, Spool } from './spool.ts'
import { badArchive } from './tar-header.ts'
import { readTar, type TarEntry } from './tar.ts'

/** Bounds of what an image may unpack to. */
export type ImageLimits = {
  /** Bytes of all files, holes not counted; default 32 GiB. */
  readonly unpackedBytes: number
  /** Bytes of all layers as they are stored or sent; default 16 GiB. */
  readonly packedBytes: number
  /** Files, folders and links, over all layers; default 1 million. */
  readonly files: number
}

export const DEFAULT_LIMITS: ImageLimits = {
  unpackedBytes: 32 * 2 ** 30,
  packedBytes: 16 * 2 ** 30,
  files: 1_000_000,
}

const CHUNK_BYTES = 256 * 1024
/** An archive has headers and padding besides its files. */
const HEADROOM = 2

/**
 * Puts one layer onto the tree. Files go to the spool.
 *
 * @param expected the layer's digest when unpacked, if it is known
 * @throws MicroVmError `image_failed` when it is damaged, hostile or too large.
 */
export async function applyLayer(
  source: Readable,
  parts: {
    readonly tree: RootTree
    readonly spool: Spool
    readonly limits: ImageLimits
    readonly expected?: string
    readonly signal?: AbortSignal
  },
): Promise<void> {
  const { tree, spool, limits, expected, signal } = parts
  tree.beginLayer()
  let entry: TarEntry | undefined
  let content: Content | undefined
  let stored = 0
  await withUnpacked(
    source,
    { limit: limits.unpackedBytes * HEADROOM, ...(expected === undefined ? {} : { expected }) },
    (data) =>
      readTar(data, {
        entry: (next) => {
          if (signal?.aborted === true) throw new MicroVmError('aborted', 'the start was cancelled')
          entry = next
          content = undefined
          stored = 0
        },
        data: async (chunk) => {
          if (entry?.kind === 'file') await writeStored(spool, entry, stored, chunk)
          stored += chunk.length
        },
        end: async () => {
          if (entry?.kind === 'file') content = await spool.end(entry.size)
          if (entry !== undefined) tree.put(entry, content)
        },
      }),
  )
}

/** Stored bytes go where the map of a sparse file says. */
async function writeStored(spool: Spool, entry: TarEntry, from: number, chunk: Buffer): Promise<void> {
  if (entry.sparse === undefined) return spool.write(from, chunk)
  let start = 0
  for (const { offset, length } of entry.sparse) {
    const skip = Math.max(from - start, 0)
    const count = Math.min(start + length, from + chunk.length) - Math.max(start, from)
    if (skip < length && count > 0)
      await spool.write(offset + skip, chunk.subarray(Math.max(start - from, 0), Math.max(start - from, 0) + count))
    start += length
    if (start >= from + chunk.length) return
  }
}

/**
 * Gives the bytes of a packed stream, whichever way it is packed, and checks what they are.
 *
 * @param options.limit bytes that it may unpack to
 */
async function withUnpacked(
  source: Readable,
  options: { readonly limit: number; readonly expected?: string },
  read: (data: AsyncIterable<Buffer>) => Promise<void>,
): Promise<void> {
  const hash = createHash('sha256')
  let bytes = 0
  const counted = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      bytes += chunk.length
      if (bytes > options.limit) return done(badArchive('it unpacks to more than is allowed'))
      hash.update(chunk)
      return done(null, chunk)
    },
  })
  const [first, whole] = await peek(source)
  const unpack = unpacker(first)
  const failed = new Promise<never>((_, reject) => {
    const end = (error: Error | null | undefined): void => {
      if (error !== null && error !== undefined) reject(error)
    }
    if (unpack === undefined) pipeline(whole, counted, end)
    else pipeline(whole, unpack, counted, end)
  })
  // Whoever reads gets the same failure.
  failed.catch(() => undefined)
  try {
    await Promise.race([read(counted), failed])
  } catch (error) {
    whole.destroy()
    if (error instanceof MicroVmError) throw error
    throw isDamage(error) ? badArchive(`it cannot be unpacked (${messageOf(error)})`) : error
  } finally {
    counted.destroy()
  }
  const digest = `sha256:${hash.digest('hex')}`
  if (options.expected !== undefined && options.expected !== digest)
    throw badArchive(`a layer unpacks to ${digest}, and should to ${options.expected}`)
}

const isDamage = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && /^(Z_|ZSTD_|ERR_ZSTD|ERR_ZLIB)/.test(String(error.code))

/** By the first bytes: what they are called is often wrong. */
function unpacker(first: Buffer): Transform | undefined {
  const magic = first.toString('hex', 0, 6)
  if (magic.startsWith('1f8b')) return createGunzip({ chunkSize: CHUNK_BYTES })
  if (magic.startsWith('28b52ffd')) return createZstdDecompress({ chunkSize: CHUNK_BYTES })
  const other = magic.startsWith('425a68') ? 'bzip2' : magic.startsWith('fd377a585a00') ? 'xz' : undefined
  if (other !== undefined) throw badArchive(`a layer is packed with ${other}; gzip, zstd and plain ones can be read`)
  return undefined
}

async function peek(source: Readable): Promise<readonly [Buffer, Readable]> {
  const iterator: AsyncIterator<Buffer> = source[Symbol.asyncIterator]()
  let first: Buffer = Buffer.alloc(0)
  while (first.length < 6) {
    const next = await iterator.next()
    if (next.done === true) break
    first = Buffer.concat([first, next.value])
  }
  const all = async function* (): AsyncGenerator<Buffer> {
    yield first
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) yield next.value
  }
  return [first, Readable.from(all(), { objectMode: false })]
}

/** The same for an archive that is an image: packed or not, as it was before it was packed. */
export async function unpackTo(
  source: Readable,
  limit: number,
  write: (chunk: Buffer) => Promise<void>,
): Promise<void> {
  await withUnpacked(source, { limit }, async (data) => {
    for await (const chunk of data) await write(chunk)
  })
}
