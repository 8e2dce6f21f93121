import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import { Pace } from './host-dir.ts'
import { type ObjectKind, objectKind, type Objects } from './objects.ts'
import { childPath } from './path.ts'
import type { Trees } from './trees.ts'
import type { Hash, StorePath, TreeId } from './types.ts'

export type FsckOptions = {
  /** Trees and blobs that other owners of the database name (an action's results, for example). */
  readonly roots?: readonly { readonly what: string; readonly tree?: TreeId; readonly blob?: Hash }[] | undefined
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((done: { readonly checked: number; readonly total: number }) => void) | undefined
}

export type FsckProblem = {
  /** `corrupt`: its bytes do not have its hash, or break the format; `missing`: it is named but not there; `database`: SQLite's own finding. */
  readonly kind: 'corrupt' | 'missing' | 'database'
  readonly hash: Hash | null
  /** Where it is used: `ref main: src/a.ts`; null when nothing reachable uses it. */
  readonly usedBy: string | null
  readonly message: string
}

export type FsckReport = {
  readonly ok: boolean
  readonly problems: readonly FsckProblem[]
  readonly objects: number
  readonly bytes: number
  /** Blob files that no row names: left by a killed process, harmless. */
  readonly orphans: number
}

type Parts = { readonly database: Database; readonly objects: Objects; readonly trees: Trees }
type ObjectRow = { readonly id: number; readonly hash: Buffer; readonly kind: ObjectKind; readonly size: number }
export type Root = { readonly what: string; readonly tree: TreeId | null; readonly blob: Hash | null }

/** Checks every object's hash, every name in every tree, and that all that refs, histories, bases and snapshots name is there. */
export async function fsck(parts: Parts, options: FsckOptions = {}): Promise<FsckReport> {
  const { database, objects, trees } = parts
  const pace = new Pace(options.signal)
  const problems: FsckProblem[] = database
    .integrityFaults()
    .map((message) => ({ kind: 'database', hash: null, usedBy: null, message }))
  const bad = new Map<Hash, { readonly kind: 'corrupt' | 'missing'; readonly message: string }>()
  const total = database.prepare<{ n: number }>('SELECT count(*) AS n FROM object').get()?.n ?? 0
  let checked = 0
  let bytes = 0
  for (let after = 0; ;) {
    // Short reads: a long one would keep the log from being checkpointed.
    const rows = database
      .prepare<ObjectRow>('SELECT id, hash, kind, size FROM object WHERE id > ? ORDER BY id LIMIT 500')
      .all(after)
    if (rows.length === 0) break
    for (const row of rows) {
      await pace.step(1 + row.size / 65_536)
      after = row.id
      checked += 1
      bytes += row.size
      const hash = row.hash.toString('hex')
      try {
        if (row.kind === objectKind.blob) for (const _ of objects.pieces(hash)) await pace.step(16)
        else trees.check(hash, row.kind, (child, message) => bad.set(child, { kind: 'missing', message }))
      } catch (error) {
        if (!(error instanceof StoreError)) throw error
        bad.set(hash, { kind: 'corrupt', message: error.message })
      }
    }
    options.onProgress?.({ checked, total })
  }
  const roots = [
    ...ownRoots(database),
    ...(options.roots ?? []).map((root) => ({ what: root.what, tree: root.tree ?? null, blob: root.blob ?? null })),
  ]
  for (const root of roots) {
    const id = root.tree ?? root.blob
    if (id !== null && !objects.has(id, root.tree === null ? objectKind.blob : objectKind.directory) && !bad.has(id)) {
      bad.set(id, { kind: 'missing', message: `${root.what} names ${id}, which is not there` })
    }
  }
  const users = bad.size === 0 ? new Map<Hash, string>() : await findUsers(parts, roots, bad, pace)
  for (const [hash, { kind, message }] of bad) problems.push({ kind, hash, usedBy: users.get(hash) ?? null, message })
  let orphans = 0
  for (const file of objects.files()) {
    await pace.step()
    if (!/^[0-9a-f]{64}$/.test(file.id) || !objects.has(file.id, objectKind.blob)) orphans += 1
  }
  return { ok: problems.length === 0, problems, objects: checked, bytes, orphans }
}

/** Every tree that the store's own tables name. */
export function ownRoots(database: Database): readonly Root[] {
  const rows = database
    .prepare<{ what: string; tree: Buffer }>(
      `SELECT 'ref ' || name AS what, tree FROM ref
       UNION ALL SELECT 'snapshot ' || snapshot || ', ref ' || ref, tree FROM snapshot_ref
       UNION ALL SELECT 'merge base of ' || a || ' and ' || b, tree FROM base
       UNION ALL SELECT 'history of ' || ref || ', rev ' || rev, to_tree FROM move WHERE to_tree IS NOT NULL`,
    )
    .all()
  return rows.map((row) => ({ what: row.what, tree: row.tree.toString('hex'), blob: null }))
}

/** For each bad object one place that needs it. */
async function findUsers(
  { trees }: Parts,
  roots: readonly Root[],
  bad: ReadonlyMap<Hash, unknown>,
  pace: Pace,
): Promise<ReadonlyMap<Hash, string>> {
  const users = new Map<Hash, string>()
  const seen = new Set<TreeId>()
  const visit = async (tree: TreeId, what: string, path: StorePath): Promise<void> => {
    if (bad.has(tree) && !users.has(tree)) users.set(tree, `${what}: ${path || '/'}`)
    if (seen.has(tree) || bad.has(tree)) return
    seen.add(tree)
    await pace.step()
    for (const entry of trees.directory(tree)) {
      const below = childPath(path, entry.name)
      if (entry.kind === 'directory') await visit(entry.id, what, below)
      else if (bad.has(entry.id) && !users.has(entry.id)) users.set(entry.id, `${what}: ${below}`)
    }
  }
  for (const root of roots) {
    if (root.tree !== null) await visit(root.tree, root.what, '')
    else if (root.blob !== null && bad.has(root.blob)) users.set(root.blob, root.what)
  }
  return users
}
