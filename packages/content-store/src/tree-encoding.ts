import { StoreError } from './errors.ts'
import { type ByteName, nameFault } from './names.ts'
import { encodeName } from './path.ts'
import type { EntryKind, Hash, Target } from './types.ts'

/** One name of a directory inside the store. */
export type DirEntry = Target & { readonly name: ByteName }

/** A node of a large directory, as the node above names it. */
export type ChunkRef = {
  /** First name below it. */
  readonly name: ByteName
  /** Entries of the directory below it. */
  readonly count: number
  readonly id: Hash
}

/** A node: level 0 lists entries, level n names nodes of level n - 1. */
export type TreeNode =
  | { readonly level: 0; readonly entries: readonly DirEntry[] }
  | { readonly level: number; readonly chunks: readonly ChunkRef[] }

/** Version of the encoding. */
export const treeVersion = 1

/** Levels that a directory may have above its entries. */
export const maxLevel = 8

const magic = Buffer.from('kct')

const codes = { file: 1, executable: 2, symlink: 3, directory: 4, gitlink: 5 } as const satisfies Record<
  EntryKind,
  number
>
/** A gitlink into a repository that names its commits by SHA-256. */
const longGitlink = 6
const kinds: readonly (EntryKind | undefined)[] = [
  undefined,
  'file',
  'executable',
  'symlink',
  'directory',
  'gitlink',
  'gitlink',
]

/** Bytes before the first item. */
export const headerBytes = 9

const bad = (message: string): StoreError => new StoreError('corrupt', `a tree's bytes break the format: ${message}`)

/** Bytes that an entry takes. */
export const entryBytes = (entry: DirEntry): number => 3 + entry.name.length + entry.id.length / 2

/** Bytes that the name of a node takes. */
export const chunkBytes = (chunk: ChunkRef): number => 38 + chunk.name.length

/** A node with entries, which must be checked and in strict order. */
export function encodeList(entries: readonly DirEntry[]): Buffer {
  const bytes = Buffer.allocUnsafe(entries.reduce((sum, entry) => sum + entryBytes(entry), headerBytes))
  let at = writeHeader(bytes, 0, entries.length)
  for (const entry of entries) {
    bytes[at] = entry.kind === 'gitlink' && entry.id.length === 64 ? longGitlink : codes[entry.kind]
    at = bytes.writeUInt16BE(entry.name.length, at + 1)
    at += bytes.write(entry.name, at, 'latin1')
    at += bytes.write(entry.id, at, 'hex')
  }
  return bytes
}

/** A node of a level above 0. */
export function encodeIndex(level: number, chunks: readonly ChunkRef[]): Buffer {
  const bytes = Buffer.allocUnsafe(chunks.reduce((sum, chunk) => sum + chunkBytes(chunk), headerBytes))
  let at = writeHeader(bytes, level, chunks.length)
  for (const chunk of chunks) {
    at = bytes.writeUInt16BE(chunk.name.length, at)
    at += bytes.write(chunk.name, at, 'latin1')
    at = bytes.writeUInt32BE(chunk.count, at)
    at += bytes.write(chunk.id, at, 'hex')
  }
  return bytes
}

function writeHeader(bytes: Buffer, level: number, count: number): number {
  magic.copy(bytes)
  bytes[3] = treeVersion
  bytes[4] = level
  return bytes.writeUInt32BE(count, 5)
}

/** What a node's bytes say. Order, names and lengths are checked; what its level promises about others is the reader's part. */
export function decodeNode(bytes: Buffer): TreeNode {
  if (bytes.length < headerBytes || !bytes.subarray(0, 3).equals(magic)) throw bad('no header')
  const version = bytes[3]
  if (version !== treeVersion) {
    throw new StoreError('newer_format', `a tree has encoding ${version}, this program knows ${treeVersion}`, {
      hint: 'use the newer program',
    })
  }
  const level = bytes[4] ?? 0
  const count = bytes.readUInt32BE(5)
  if (level > maxLevel) throw bad(`level ${level}`)
  // The shortest item has 24 bytes: a count that the bytes cannot hold is not believed.
  if (count * 24 > bytes.length) throw bad('more items than bytes')
  return level === 0 ? { level, entries: decodeEntries(bytes, count) } : { level, chunks: decodeChunks(bytes, count) }
}

function decodeEntries(bytes: Buffer, count: number): readonly DirEntry[] {
  const entries: DirEntry[] = []
  let at = headerBytes
  let before: ByteName | undefined
  for (let index = 0; index < count; index++) {
    if (at + 3 > bytes.length) throw bad('cut short')
    const code = bytes[at] ?? 0
    const kind = kinds[code]
    if (kind === undefined) throw bad(`kind ${code} is unknown`)
    const nameEnd = at + 3 + bytes.readUInt16BE(at + 1)
    const end = nameEnd + (code === codes.gitlink ? 20 : 32)
    if (end > bytes.length) throw bad('cut short')
    const name = bytes.toString('latin1', at + 3, nameEnd)
    checkOrder(before, name)
    entries.push({ name, kind, id: bytes.toString('hex', nameEnd, end) })
    before = name
    at = end
  }
  if (at !== bytes.length) throw bad('bytes after the last entry')
  return entries
}

function decodeChunks(bytes: Buffer, count: number): readonly ChunkRef[] {
  const chunks: ChunkRef[] = []
  let at = headerBytes
  let before: ByteName | undefined
  for (let index = 0; index < count; index++) {
    if (at + 2 > bytes.length) throw bad('cut short')
    const nameEnd = at + 2 + bytes.readUInt16BE(at)
    if (nameEnd + 36 > bytes.length) throw bad('cut short')
    const name = bytes.toString('latin1', at + 2, nameEnd)
    checkOrder(before, name)
    at = nameEnd + 36
    chunks.push({ name, count: bytes.readUInt32BE(nameEnd), id: bytes.toString('hex', nameEnd + 4, at) })
    before = name
  }
  if (at !== bytes.length) throw bad('bytes after the last chunk')
  if (count < 2) throw bad('an index of fewer than two chunks')
  return chunks
}

/** Refuses a name that may not stand in a tree, or not after the one before it. */
export function checkOrder(before: ByteName | undefined, name: ByteName): void {
  const fault = nameFault(name)
  if (fault !== undefined) throw bad(`the name ${JSON.stringify(encodeName(name))} ${fault}`)
  if (before === name) throw bad(`the name ${JSON.stringify(encodeName(name))} stands twice`)
  if (before !== undefined && before > name) throw bad(`the name ${JSON.stringify(encodeName(name))} is out of order`)
}

/** Checks entries that come from a caller and puts them in order. */
export function canonicalEntries(entries: readonly DirEntry[]): readonly DirEntry[] {
  const sorted = entries.toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
  let before: ByteName | undefined
  for (const { name, kind, id } of sorted) {
    const shown = JSON.stringify(encodeName(name))
    const fault = nameFault(name)
    if (fault !== undefined)
      throw new StoreError('bad_name', `a tree cannot hold the name ${shown}: it ${fault}`, { path: encodeName(name) })
    if (before === name)
      throw new StoreError('bad_argument', `a tree cannot hold the name ${shown} twice`, { path: encodeName(name) })
    if (!isId(kind, id))
      throw new StoreError('bad_argument', `${shown}: ${JSON.stringify(id)} is not the id of a ${kind}`, {
        path: encodeName(name),
      })
    before = name
  }
  return sorted
}

const isId = (kind: EntryKind, id: Hash): boolean =>
  /^[0-9a-f]{64}$/.test(id) || (kind === 'gitlink' && /^[0-9a-f]{40}$/.test(id))
