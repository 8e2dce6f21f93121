import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import { ownRoots, type Root } from './fsck.ts'
import { Pace } from './host-dir.ts'
import { type ObjectKind, objectKind, type Objects } from './objects.ts'
import { decodeNode } from './tree-encoding.ts'
import type { Hash } from './types.ts'

export type GarbageOptions = {
  /** Trees and blobs that other owners of the database name (an action's results, for example): they are reachable too. */
  readonly roots?: readonly { readonly what: string; readonly tree?: Hash; readonly blob?: Hash }[] | undefined
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((done: { readonly reached: number; readonly total: number }) => void) | undefined
}

/** What nothing names any more: no ref, history, snapshot, merge base or root that was given. Nothing is removed. */
export type Garbage = {
  readonly objects: number
  /** Bytes of those objects. */
  readonly bytes: number
  /** At most a thousand of them, the largest first. */
  readonly largest: readonly { readonly hash: Hash; readonly kind: 'blob' | 'tree'; readonly bytes: number }[]
  /** Blob files that no row names, with their bytes unknown to the store: left by a killed process. */
  readonly orphans: number
}

const LISTED = 1000

type Row = { readonly id: number; readonly hash: Buffer; readonly kind: ObjectKind; readonly size: number }

/**
 * Says what is unreachable: a dry run, which takes as long as reading every reachable tree. What is written meanwhile counts as
 * reachable.
 *
 * @throws StoreError `corrupt`, `not_found` for a tree that cannot be read: fsck says more.
 */
export async function findGarbage(
  {
    database,
    objects,
    emptyTree,
  }: { readonly database: Database; readonly objects: Objects; readonly emptyTree: Hash },
  options: GarbageOptions = {},
): Promise<Garbage> {
  const pace = new Pace(options.signal)
  // What comes after this is new.
  const newest = database.prepare<{ id: number | null }>('SELECT max(id) AS id FROM object').get()?.id ?? 0
  const total = database.prepare<{ n: number }>('SELECT count(*) AS n FROM object').get()?.n ?? 0
  const reached = new Set<Hash>()
  const waiting: { readonly hash: Hash; readonly kind: ObjectKind }[] = []
  const reach = (hash: Hash, kind: ObjectKind): void => {
    if (reached.has(hash)) return
    reached.add(hash)
    if (kind !== objectKind.blob) waiting.push({ hash, kind })
  }
  const given = (options.roots ?? []).map((root): Root => ({
    what: root.what,
    tree: root.tree ?? null,
    blob: root.blob ?? null,
  }))
  // The store itself keeps it.
  reach(emptyTree, objectKind.directory)
  for (const { tree, blob } of [...ownRoots(database), ...given]) {
    if (tree !== null) reach(tree, objectKind.directory)
    if (blob !== null) reach(blob, objectKind.blob)
  }
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    await pace.step()
    if (reached.size % 1000 === 0) options.onProgress?.({ reached: reached.size, total })
    const node = nodeOf(objects, next)
    if ('chunks' in node) for (const { id } of node.chunks) reach(id, objectKind.chunk)
    else
      for (const { id, kind } of node.entries)
        if (kind !== 'gitlink') reach(id, kind === 'directory' ? objectKind.directory : objectKind.blob)
  }
  const largest: { readonly hash: Hash; readonly kind: 'blob' | 'tree'; readonly bytes: number }[] = []
  let [count, bytes] = [0, 0]
  for (let after = 0; ;) {
    const rows = database
      .prepare<Row>('SELECT id, hash, kind, size FROM object WHERE id > ? AND id <= ? ORDER BY id LIMIT 500')
      .all(after, newest)
    if (rows.length === 0) break
    for (const row of rows) {
      await pace.step()
      after = row.id
      const hash = row.hash.toString('hex')
      if (reached.has(hash)) continue
      count += 1
      bytes += row.size
      largest.push({ hash, kind: row.kind === objectKind.blob ? 'blob' : 'tree', bytes: row.size })
    }
    largest.sort((a, b) => b.bytes - a.bytes || (a.hash < b.hash ? -1 : 1)).splice(LISTED)
  }
  let orphans = 0
  for (const file of objects.files()) {
    await pace.step()
    if (!/^[0-9a-f]{64}$/.test(file.id) || !objects.has(file.id, objectKind.blob)) orphans += 1
  }
  return { objects: count, bytes, largest, orphans }
}

function nodeOf(objects: Objects, { hash, kind }: { readonly hash: Hash; readonly kind: ObjectKind }) {
  try {
    return decodeNode(objects.read(hash, kind))
  } catch (error) {
    if (error instanceof StoreError) throw error
    throw new StoreError('corrupt', `tree ${hash} cannot be read`, { hash, cause: error })
  }
}
