import { badArchive, parseHeader, parsePax, readNumber, TAR_BLOCK, type TarHeader } from './tar-header.ts'

/** A part of a file that is not a hole. Bytes. */
export type SparsePart = { readonly offset: number; readonly length: number }

/** One member of an archive. Text is latin1: one character for each byte. */
export type TarEntry = {
  readonly path: string
  readonly kind: 'file' | 'link' | 'symlink' | 'char' | 'block' | 'folder' | 'fifo'
  /** The permission bits, with setuid, setgid and sticky. */
  readonly mode: number
  readonly uid: number
  readonly gid: number
  /** Seconds since 1970, with a fraction. */
  readonly mtime: number
  /** What a link points at. */
  readonly target: string
  /** Bytes of the whole file, holes included. */
  readonly size: number
  /** Bytes that follow in the archive, and where they start in it. */
  readonly stored: number
  readonly at: number
  /** Where the stored bytes belong in the file; undefined: it has no holes. */
  readonly sparse?: readonly SparsePart[]
  readonly devMajor: number
  readonly devMinor: number
  readonly xattrs: ReadonlyMap<string, Buffer>
}

/** Bounds that no honest archive reaches. */
const MAX_EXTENDED_BYTES = 4 * 2 ** 20
const MAX_SPARSE_PARTS = 200_000
const MAX_PATH = 4096
const KINDS: Readonly<Record<string, TarEntry['kind']>> = {
  '0': 'file',
  '7': 'file',
  S: 'file',
  '1': 'link',
  '2': 'symlink',
  '3': 'char',
  '4': 'block',
  '5': 'folder',
  '6': 'fifo',
}
const NOTHING: ReadonlyMap<string, Buffer> = new Map()

/** What an archive's reader is told. */
export type TarHandler = {
  /** A member begins; `data` gets its stored bytes next, in pieces that are valid only until it returns. */
  entry(entry: TarEntry): void | Promise<void>
  data(chunk: Buffer): void | Promise<void>
  /** All stored bytes of the member were given. */
  end(): void | Promise<void>
}

/**
 * Reads an archive: ustar, PAX and GNU, with long names, extended attributes and sparse files. The packages for this all
 * decode names and attributes as text, which loses bytes, and know no sparse files.
 *
 * @throws MicroVmError `image_failed` for what is not an archive, is cut short or breaks its format.
 */
export async function readTar(source: AsyncIterable<Uint8Array>, handler: TarHandler): Promise<void> {
  const input = new Input(source)
  let local = NOTHING
  let longName: string | undefined
  let longLink: string | undefined
  for (;;) {
    const block = await input.take(TAR_BLOCK)
    // A missing end of zeroes is tolerated where a header would start, as every reader does.
    if (block === undefined) break
    const header = parseHeader(block)
    if (header === undefined) break
    switch (header.type) {
      case 'x':
        local = new Map([...local, ...parsePax(await extended(input, header))])
        continue
      case 'g':
        // Those who write images read nothing out of it, so neither may this.
        await extended(input, header)
        continue
      case 'L':
        longName = untilZero(await extended(input, header))
        continue
      case 'K':
        longLink = untilZero(await extended(input, header))
        continue
      default:
    }
    const entry = await entryOf(input, header, block, local, longName, longLink)
    local = NOTHING
    longName = longLink = undefined
    await handler.entry(entry)
    for (let left = entry.stored; left > 0;) {
      const chunk = await input.some(left)
      left -= chunk.length
      await handler.data(chunk)
    }
    await handler.end()
    await input.skipPadding()
  }
  if (local.size > 0 || longName !== undefined || longLink !== undefined)
    throw badArchive('it ends after the extended header of a member that does not come')
  // What follows is not ours, but whoever writes it must not wait for a reader.
  await input.drain()
}

async function extended(input: Input, header: TarHeader): Promise<Buffer> {
  if (header.size > MAX_EXTENDED_BYTES) throw badArchive(`an extended header of ${header.size} bytes`)
  const data = Buffer.from((await input.take(header.size)) ?? Buffer.alloc(0))
  if (data.length !== header.size) throw badArchive('it is cut short')
  await input.skipPadding()
  return data
}

const untilZero = (data: Buffer): string => {
  const end = data.indexOf(0)
  return data.toString('latin1', 0, end < 0 ? data.length : end)
}

async function entryOf(
  input: Input,
  header: TarHeader,
  block: Buffer,
  pax: ReadonlyMap<string, Buffer>,
  longName: string | undefined,
  longLink: string | undefined,
): Promise<TarEntry> {
  const text = (key: string): string | undefined => pax.get(key)?.toString('latin1')
  const number = (key: string, otherwise: number): number => {
    const value = text(key)
    if (value === undefined) return otherwise
    const parsed = Number(value)
    if (!/^-?\d+(\.\d+)?$/.test(value) || Math.abs(parsed) > Number.MAX_SAFE_INTEGER)
      throw badArchive(`an extended header whose ${key} is not a number`)
    return parsed
  }
  const whole = (key: string, otherwise: number): number => {
    const value = number(key, otherwise)
    if (!Number.isSafeInteger(value) || value < 0) throw badArchive(`a ${key} of ${value}`)
    return value
  }
  const path = text('GNU.sparse.name') ?? text('path') ?? longName ?? header.name
  const target = text('linkpath') ?? longLink ?? header.linkname
  if (path.length > MAX_PATH || target.length > MAX_PATH || path.includes('\0') || target.includes('\0'))
    throw badArchive('a name that is too long or holds a zero byte')
  // Before POSIX, a folder was a file whose name ended so.
  const kind = header.type === '0' && path.endsWith('/') ? 'folder' : KINDS[header.type]
  if (kind === undefined) throw badArchive(`"${path}" is of the unknown type ${JSON.stringify(header.type)}`)
  // Only files have contents; what a header of something else says of its size means nothing.
  const stored = header.type === '0' || kind === 'file' ? whole('size', header.size) : 0
  const sparse = await sparseOf(input, header, block, pax, kind === 'file' ? stored : 0)
  const xattrs = new Map<string, Buffer>()
  for (const [key, value] of pax)
    if (key.startsWith('SCHILY.xattr.')) xattrs.set(key.slice('SCHILY.xattr.'.length), value)
    else if (key.startsWith('LIBARCHIVE.xattr.') && !xattrs.has(key.slice('LIBARCHIVE.xattr.'.length)))
      xattrs.set(decodeName(key.slice('LIBARCHIVE.xattr.'.length)), Buffer.from(value.toString('latin1'), 'base64'))
  return {
    path,
    kind,
    mode: header.mode & 0o7777,
    uid: whole('uid', header.uid),
    gid: whole('gid', header.gid),
    mtime: number('mtime', header.mtime),
    target,
    size: sparse?.size ?? stored,
    stored: sparse?.stored ?? stored,
    at: input.position,
    ...(sparse === undefined ? {} : { sparse: sparse.parts }),
    devMajor: header.devMajor,
    devMinor: header.devMinor,
    xattrs,
  }
}

const decodeName = (name: string): string =>
  name.replaceAll(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))

type Sparse = { readonly size: number; readonly stored: number; readonly parts: readonly SparsePart[] }

/** The map of a file with holes: GNU's old form, or one of the three that stand in extended headers. */
async function sparseOf(
  input: Input,
  header: TarHeader,
  block: Buffer,
  pax: ReadonlyMap<string, Buffer>,
  stored: number,
): Promise<Sparse | undefined> {
  if (header.type === 'S') return checked(await oldSparse(input, block), readNumber(block, 483, 12, 'size'), stored)
  const value = (key: string): string | undefined => pax.get(key)?.toString('latin1')
  const size = value('GNU.sparse.realsize') ?? value('GNU.sparse.size')
  if (size === undefined || header.type !== '0') return undefined
  if (value('GNU.sparse.major') === '1') {
    const map = await mapOfData(input, stored)
    return checked(map.numbers, toWhole(size), stored - map.bytes)
  }
  const map = value('GNU.sparse.map')
  // The oldest form repeats its keys, which a map of records cannot hold; no tool has written it since 2006.
  if (map === undefined) throw badArchive('a sparse file without its map')
  return checked(map === '' ? [] : map.split(',').map(toWhole), toWhole(size), stored)
}

function checked(numbers: readonly number[], size: number, stored: number): Sparse {
  if (numbers.length % 2 !== 0 || numbers.length > 2 * MAX_SPARSE_PARTS)
    throw badArchive('a sparse map that does not fit')
  const parts: SparsePart[] = []
  let end = 0
  let sum = 0
  for (let at = 0; at < numbers.length; at += 2) {
    const offset = numbers[at] ?? 0
    const length = numbers[at + 1] ?? 0
    if (offset < end || !Number.isSafeInteger(offset + length)) throw badArchive('a sparse map that does not rise')
    end = offset + length
    sum += length
    if (length > 0) parts.push({ offset, length })
  }
  if (end > size || sum !== stored) throw badArchive('a sparse map that does not fit its file')
  return { size, stored, parts }
}

async function oldSparse(input: Input, block: Buffer): Promise<readonly number[]> {
  const numbers: number[] = []
  const read = (from: Buffer, at: number, count: number): void => {
    for (let index = 0; index < count; index++) {
      const offset = at + index * 24
      if (from[offset] === 0 && from[offset + 12] === 0) return
      numbers.push(readNumber(from, offset, 12, 'sparse map'), readNumber(from, offset + 12, 12, 'sparse map'))
    }
  }
  read(block, 386, 4)
  for (let more = block[482] !== 0; more;) {
    const next = await input.take(TAR_BLOCK)
    if (next === undefined || numbers.length > 2 * MAX_SPARSE_PARTS) throw badArchive('a sparse map without an end')
    read(next, 0, 21)
    more = next[504] !== 0
  }
  return numbers
}

/** The newest form: decimal numbers, one a line, in whole blocks before the data. */
async function mapOfData(input: Input, stored: number): Promise<{ numbers: readonly number[]; bytes: number }> {
  const numbers: number[] = []
  let text = ''
  let bytes = 0
  const expected = (): number => 1 + 2 * (numbers[0] ?? 0)
  while (numbers.length === 0 || numbers.length < expected()) {
    const block = bytes + TAR_BLOCK > stored ? undefined : await input.take(TAR_BLOCK)
    if (block === undefined) throw badArchive('a sparse map that is cut short')
    bytes += TAR_BLOCK
    const lines = (text + block.toString('latin1')).split('\n')
    text = lines.pop() ?? ''
    for (const line of lines) if (numbers.length === 0 || numbers.length < expected()) numbers.push(toWhole(line))
    if (text.replaceAll('\0', '').length > 20 || (numbers[0] ?? 0) > MAX_SPARSE_PARTS)
      throw badArchive('a sparse map that does not fit')
  }
  return { numbers: numbers.slice(1), bytes }
}

function toWhole(digits: string): number {
  const value = Number(digits)
  if (!/^\d{1,16}$/.test(digits) || !Number.isSafeInteger(value))
    throw badArchive('a sparse map that is not of numbers')
  return value
}

/** Bytes in pieces as they come, taken in pieces as they are needed. */
class Input {
  readonly #source: AsyncIterator<Uint8Array>
  #chunk: Buffer = Buffer.alloc(0)
  position = 0

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]()
  }

  async #more(): Promise<boolean> {
    while (this.#chunk.length === 0) {
      const next = await this.#source.next()
      if (next.done === true) return false
      this.#chunk = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength)
    }
    return true
  }

  #advance(length: number): Buffer {
    const taken = this.#chunk.subarray(0, length)
    this.#chunk = this.#chunk.subarray(length)
    this.position += taken.length
    return taken
  }

  /** Exactly so many, or undefined at the end. */
  async take(length: number): Promise<Buffer | undefined> {
    if (this.#chunk.length >= length) return this.#advance(length)
    const parts: Buffer[] = []
    for (let left = length; left > 0;) {
      if (!(await this.#more())) {
        if (left === length) return undefined
        throw badArchive('it is cut short')
      }
      const part = this.#advance(left)
      parts.push(part)
      left -= part.length
    }
    return Buffer.concat(parts)
  }

  async some(most: number): Promise<Buffer> {
    if (!(await this.#more())) throw badArchive('it is cut short')
    return this.#advance(most)
  }

  async skipPadding(): Promise<void> {
    const left = (TAR_BLOCK - (this.position % TAR_BLOCK)) % TAR_BLOCK
    if (left > 0) await this.take(left)
  }

  async drain(): Promise<void> {
    do this.#advance(this.#chunk.length)
    while (await this.#more())
  }
}
