import { createHash, type Hash } from 'node:crypto'
import { GitError } from './errors.ts'

/** Name of a git object: 40 hex digits of SHA-1. */
export type Oid = string

/** One name of a git tree. `name` has one character for each byte; `mode` is octal without zeros in front. */
export type GitEntry = { readonly mode: string; readonly name: string; readonly oid: Oid }

export type ObjectType = 'commit' | 'tree' | 'blob'

/** Bytes of an object's name. */
const oidBytes = 20

const directoryMode = '40000'

/** Deepest nesting of folders that is read and written: the store walks no deeper. */
export const maxDepth = 512

/** The tree without entries. */
export const emptyTreeOid: Oid = '4b825dc642cb6eb9a060e54bf8d69288fbee4904'

/** A hash that is fed with an object's bytes; its digest is the object's name. */
export function objectHash(type: ObjectType, size: number): Hash {
  return createHash('sha1').update(`${type} ${size}\0`)
}

export function objectId(type: ObjectType, bytes: Uint8Array): Oid {
  return objectHash(type, bytes.length).update(bytes).digest('hex')
}

/**
 * The entries of a tree object, in its order. Names are not checked.
 *
 * @throws GitError `unsupported_tree` when the bytes are not those of a tree.
 */
export function parseTree(bytes: Buffer): readonly GitEntry[] {
  const entries: GitEntry[] = []
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(0x20, at)
    const nul = bytes.indexOf(0, space)
    const end = nul + 1 + oidBytes
    const mode = bytes.toString('latin1', at, space)
    if (space === -1 || nul === -1 || end > bytes.length || !/^[0-7]{1,12}$/.test(mode))
      throw new GitError('unsupported_tree', 'the commit holds a tree whose bytes are not those of one')
    const name = bytes.toString('latin1', space + 1, nul)
    entries.push({ mode: mode.replace(/^0+/, ''), name, oid: bytes.toString('hex', nul + 1, end) })
    at = end
  }
  return entries
}

/** The one tree object of these entries, as git itself writes it. */
export function encodeTree(entries: readonly GitEntry[]): Buffer {
  const sorted = entries.map((entry) => ({ ...entry, key: sortKey(entry) })).sort((a, b) => (a.key < b.key ? -1 : 1))
  const size = sorted.reduce((sum, { mode, name }) => sum + mode.length + name.length + 2 + oidBytes, 0)
  const bytes = Buffer.allocUnsafe(size)
  let at = 0
  for (const { mode, name, oid } of sorted) {
    at += bytes.write(`${mode} ${name}\0`, at, 'latin1')
    at += bytes.write(oid, at, 'hex')
  }
  return bytes
}

/** git sorts a directory as if its name ended in a slash. */
const sortKey = ({ mode, name }: GitEntry): string => (mode === directoryMode ? `${name}/` : name)

export const isDirectory = (entry: GitEntry): boolean => entry.mode === directoryMode

const lfsPointer = /^version https:\/\/(?:git-lfs\.github|hawser\.github)\.com\/spec\/v1\n/

/** Longest Git LFS pointer, in bytes. */
export const lfsPointerLimit = 1024

/** Whether a file's bytes stand for a file that Git LFS keeps elsewhere. */
export function isLfsPointer(bytes: Buffer): boolean {
  return bytes.length < lfsPointerLimit && lfsPointer.test(bytes.toString('latin1', 0, 64))
}
