import { isUtf8 } from 'node:buffer'
import { StoreError } from './errors.ts'
import { type ByteName, nameFault } from './names.ts'
import type { StorePath } from './types.ts'

/** Deepest nesting that is walked, written or laid out. */
export const maxDepth = 512

const hex = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`

/** Length of the UTF-8 sequence that a first byte starts, or 0 when it starts none. */
const sequenceLength = (byte: number): number =>
  byte < 0x80
    ? 1
    : byte >= 0xc2 && byte < 0xe0
      ? 2
      : byte >= 0xe0 && byte < 0xf0
        ? 3
        : byte >= 0xf0 && byte < 0xf5
          ? 4
          : 0

/** One name as text: what is not UTF-8, and control characters, as `\xHH`; a backslash as `\\`. */
export function encodeName(name: ByteName): string {
  if (/^[\x20-\x5b\x5d-\x7e]*$/.test(name)) return name
  const bytes = Buffer.from(name, 'latin1')
  let text = ''
  for (let at = 0; at < bytes.length;) {
    const first = bytes[at] ?? 0
    const length = sequenceLength(first)
    const piece = bytes.subarray(at, at + length)
    if (length === 0 || piece.length < length || !isUtf8(piece)) {
      text += hex(first)
      at += 1
      continue
    }
    // C1 controls are two bytes of UTF-8 that start with 0xc2.
    const control = first < 0x20 || first === 0x7f || (first === 0xc2 && (piece[1] ?? 0) < 0xa0)
    if (control) text += [...piece].map(hex).join('')
    else text += first === 0x5c ? '\\\\' : piece.toString('utf8')
    at += length
  }
  return text
}

/** Names of a path as `StorePath`. */
export const joinNames = (names: readonly ByteName[]): StorePath => names.map(encodeName).join('/')

/** Path of a child, both as `StorePath`. */
export const childPath = (parent: StorePath, name: ByteName): StorePath =>
  parent === '' ? encodeName(name) : `${parent}/${encodeName(name)}`

/** Text of a name (or of a symlink's target) back to bytes. */
function decodeText(text: string, path: StorePath): ByteName {
  if (!text.includes('\\')) return Buffer.from(text, 'utf8').toString('latin1')
  let name = ''
  for (const piece of text.match(/\\x[0-9a-fA-F]{2}|\\\\|\\|[^\\]+/g) ?? []) {
    if (piece === '\\') {
      throw new StoreError(
        'bad_path',
        `${JSON.stringify(path)}: a backslash must be written as \\\\, a byte as \\xHH`,
        {
          path,
          hint: 'names are parted by /',
        },
      )
    }
    if (piece === '\\\\') name += '\\'
    else if (piece.startsWith('\\x')) name += String.fromCharCode(Number.parseInt(piece.slice(2), 16))
    else name += Buffer.from(piece, 'utf8').toString('latin1')
  }
  return name
}

/**
 * The names of a path, checked. `''`, `.` and `./` are the root; one leading `./` and one trailing `/` are taken as a
 * shell would.
 *
 * @throws StoreError `bad_path` for absolute paths, `..`, empty names, `.git` in any spelling.
 */
export function splitPath(path: StorePath): readonly ByteName[] {
  if (!path.isWellFormed()) throw new StoreError('bad_path', 'a path holds half of a surrogate pair', { path })
  if (path.startsWith('/')) {
    throw new StoreError(
      'bad_path',
      `${JSON.stringify(path)} is absolute: paths start at the root of the tree, without a slash`,
      { path },
    )
  }
  const trimmed = path.replace(/^(?:\.\/)+/, '').replace(/\/$/, '')
  if (trimmed === '' || trimmed === '.') return []
  const names = trimmed.split('/').map((text) => decodeText(text, path))
  for (const name of names) {
    const fault = nameFault(name)
    if (fault !== undefined)
      throw new StoreError(
        'bad_path',
        `${JSON.stringify(path)} cannot be a path: the name ${JSON.stringify(encodeName(name))} ${fault}`,
        { path },
      )
  }
  if (names.length > maxDepth)
    throw new StoreError('bad_path', `${JSON.stringify(path.slice(0, 80))}… is nested more than ${maxDepth} deep`, {
      path,
    })
  return names
}

/** A path's bytes, `/` between names, for the operating system. */
export const decodePath = (path: StorePath): Uint8Array => Buffer.from(splitPath(path).join('/'), 'latin1')

/** Bytes of a path (`/` between names) as `StorePath`; nothing is checked. */
export const encodePath = (bytes: Uint8Array): StorePath =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1').split('/').map(encodeName).join('/')
