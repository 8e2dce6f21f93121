import { MicroVmError } from '../errors.ts'

/** Tar counts in blocks of this size. */
export const TAR_BLOCK = 512

/** The fields of one header block. Text is latin1: one character for each byte, whatever encoding its author had. */
export type TarHeader = {
  readonly name: string
  readonly mode: number
  readonly uid: number
  readonly gid: number
  readonly size: number
  readonly mtime: number
  /** The type flag; `\0` of old archives is `0`. */
  readonly type: string
  readonly linkname: string
  readonly devMajor: number
  readonly devMinor: number
  /** The block has room for the maps of GNU's old sparse files. */
  readonly isGnu: boolean
}

/** An archive that breaks its format, or means harm. */
export const badArchive = (what: string): MicroVmError =>
  new MicroVmError('image_failed', `the image's archive is not valid: ${what}`)

/** One block, or undefined for one of zeroes, which ends an archive. @throws MicroVmError `image_failed` */
export function parseHeader(block: Buffer): TarHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined
  const expected = readNumber(block, 148, 8, 'checksum')
  let sum = 8 * 0x20
  for (let at = 0; at < TAR_BLOCK; at++) if (at < 148 || at >= 156) sum += block[at] ?? 0
  if (sum !== expected) throw badArchive('a header has a wrong checksum')
  const magic = block.toString('latin1', 257, 265)
  const isPosix = magic.startsWith('ustar\0')
  const isGnu = magic.startsWith('ustar ')
  const prefix = isPosix ? readText(block, 345, 155) : ''
  const name = readText(block, 0, 100)
  const type = String.fromCharCode(block[156] ?? 0)
  const hasDevice = type === '3' || type === '4'
  return {
    name: prefix === '' ? name : `${prefix}/${name}`,
    mode: readNumber(block, 100, 8, 'mode'),
    uid: readNumber(block, 108, 8, 'uid'),
    gid: readNumber(block, 116, 8, 'gid'),
    size: readNumber(block, 124, 12, 'size'),
    mtime: readNumber(block, 136, 12, 'mtime', true),
    type: type === '\0' ? '0' : type,
    linkname: readText(block, 157, 100),
    devMajor: hasDevice ? readNumber(block, 329, 8, 'device') : 0,
    devMinor: hasDevice ? readNumber(block, 337, 8, 'device') : 0,
    isGnu,
  }
}

export function readText(block: Buffer, from: number, length: number): string {
  const field = block.subarray(from, from + length)
  const end = field.indexOf(0)
  return field.toString('latin1', 0, end < 0 ? length : end)
}

/** Octal digits, or a big-endian number that is marked by its first bit. */
export function readNumber(block: Buffer, from: number, length: number, what: string, signed = false): number {
  const field = block.subarray(from, from + length)
  const first = field[0] ?? 0
  if ((first & 0x80) !== 0) {
    let value = BigInt(first & 0x7f)
    for (const byte of field.subarray(1)) value = (value << 8n) | BigInt(byte)
    if (first === 0xff) value -= 1n << BigInt(8 * length - 1)
    const number = Number(value)
    if (!Number.isSafeInteger(number) || (number < 0 && !signed)) throw badArchive(`a ${what} of ${value}`)
    return number
  }
  const digits = field.toString('latin1').replaceAll('\0', ' ').trim()
  if (digits === '') return 0
  if (!/^[0-7]+$/.test(digits)) throw badArchive(`a ${what} that is not a number`)
  return Number.parseInt(digits, 8)
}

/** The records of an extended header: names as text, values as the bytes that they are. */
export function parsePax(data: Buffer): ReadonlyMap<string, Buffer> {
  const records = new Map<string, Buffer>()
  for (let at = 0; at < data.length;) {
    // Some writers fill up with zeroes.
    if (data[at] === 0) break
    const space = data.indexOf(0x20, at)
    const digits = data.toString('latin1', at, space < 0 ? at : space)
    const end = /^[1-9]\d{0,8}$/.test(digits) ? at + Number(digits) : 0
    const equals = data.indexOf(0x3d, space)
    if (end <= space || end > data.length || data[end - 1] !== 0x0a || equals < 0 || equals >= end)
      throw badArchive('an extended header whose records do not fit')
    records.set(data.toString('latin1', space + 1, equals), Buffer.from(data.subarray(equals + 1, end - 1)))
    at = end
  }
  return records
}
