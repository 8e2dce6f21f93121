import { StoreError } from './errors.ts'
import type { ByteName } from './names.ts'
import { type ObjectKind, objectKind } from './objects.ts'
import {
  checkOrder,
  chunkBytes,
  type ChunkRef,
  decodeNode,
  type DirEntry,
  encodeIndex,
  encodeList,
  entryBytes,
  headerBytes,
  maxLevel,
  type TreeNode,
} from './tree-encoding.ts'
import type { Hash, TreeId } from './types.ts'

/** A directory's id, and the objects to store before anything names it; the root is the last of them. */
export type EncodedDirectory = {
  readonly id: TreeId
  readonly rows: readonly { readonly kind: ObjectKind; readonly hash: Buffer; readonly data: Buffer }[]
}

/** A node larger than this, in items or in bytes, is cut. */
const maxItems = 256
const maxBytes = 16_384
/** A cut by name comes after at least so many items, and then at one name in 64. */
const minItems = 16
const cutMask = 63

/**
 * Whether a node of that level likes to begin with a name. It depends on nothing else, so that an edit moves no border but those
 * beside it: FNV-1a of the name's bytes, mixed with the level.
 */
function beginsNode(name: ByteName, level: number): boolean {
  let hash = 0x811c9dc5 ^ level
  for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return ((hash ^ (hash >>> 16)) & cutMask) === 0
}

const fits = <T>(items: readonly T[], size: (item: T) => number): boolean =>
  items.length <= maxItems && items.reduce((sum, item) => sum + size(item), headerBytes) <= maxBytes

function partition<T extends { readonly name: ByteName }>(
  items: readonly T[],
  level: number,
  size: (item: T) => number,
): readonly (readonly T[])[] {
  const nodes: T[][] = []
  let node: T[] = []
  let bytes = headerBytes
  for (const item of items) {
    const full = node.length >= maxItems || bytes + size(item) > maxBytes
    if (node.length > 0 && (full || (node.length >= minItems && beginsNode(item.name, level)))) {
      nodes.push(node)
      node = []
      bytes = headerBytes
    }
    node.push(item)
    bytes += size(item)
  }
  nodes.push(node)
  return nodes
}

/** The nodes of a directory: one for most, a tree of nodes for a large one. The same entries always give the same nodes. */
export function encodeDirectory(
  entries: readonly DirEntry[],
  hashOf: (kind: ObjectKind, data: Buffer) => Buffer,
): EncodedDirectory {
  const rows: EncodedDirectory['rows'][number][] = []
  const add = (kind: ObjectKind, data: Buffer): Hash => {
    const hash = hashOf(kind, data)
    rows.push({ kind, hash, data })
    return hash.toString('hex')
  }
  if (fits(entries, entryBytes)) return { id: add(objectKind.directory, encodeList(entries)), rows }
  let chunks: readonly ChunkRef[] = partition(entries, 0, entryBytes).map((node) => ({
    name: node[0]?.name ?? '',
    count: node.length,
    id: add(objectKind.chunk, encodeList(node)),
  }))
  let level = 1
  for (; !fits(chunks, chunkBytes); level++) {
    const here = level
    if (here >= maxLevel) throw new StoreError('too_large', 'a directory has too many entries')
    chunks = partition(chunks, here, chunkBytes).map((node) => ({
      name: node[0]?.name ?? '',
      count: node.reduce((sum, chunk) => sum + chunk.count, 0),
      id: add(objectKind.chunk, encodeIndex(here, node)),
    }))
  }
  return { id: add(objectKind.directory, encodeIndex(level, chunks)), rows }
}

const bad = (message: string): StoreError => new StoreError('corrupt', `a tree's bytes break the format: ${message}`)

/** All entries below a directory's root node. */
export function decodeDirectory(root: Buffer, read: (chunk: Hash) => Buffer): readonly DirEntry[] {
  const node = decodeNode(root)
  if ('entries' in node) return node.entries
  const entries: DirEntry[] = []
  collect(node, read, entries)
  return entries
}

function collect(node: TreeNode, read: (chunk: Hash) => Buffer, into: DirEntry[]): void {
  if ('entries' in node) {
    for (const entry of node.entries) {
      checkOrder(into.at(-1)?.name, entry.name)
      into.push(entry)
    }
    return
  }
  for (const chunk of node.chunks) {
    const start = into.length
    const below = decodeNode(read(chunk.id))
    if (below.level !== node.level - 1) throw bad(`a node of level ${below.level} below one of level ${node.level}`)
    collect(below, read, into)
    if (into.length - start !== chunk.count) throw bad('a node has another number of entries than is said above it')
    if (into[start]?.name !== chunk.name) throw bad('a node begins with another name than is said above it')
  }
}
