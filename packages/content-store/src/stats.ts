import { statSync } from 'node:fs'
import type { Database } from './database.ts'
import { objectKind } from './objects.ts'

/** How much a store holds. */
export type StoreStats = {
  readonly blobs: { readonly count: number; readonly bytes: number }
  /** Nodes of directories. */
  readonly trees: { readonly count: number; readonly bytes: number }
  readonly refs: number
  readonly moves: number
  readonly snapshots: number
  /** Of the database's own file, its log apart. Large blobs are in files beside it. */
  readonly databaseBytes: number
}

/** Counts by a scan of the table of objects: a second for some millions. */
export function storeStats(database: Database): StoreStats {
  const kinds = database
    .prepare<{ kind: number; n: number; bytes: number }>(
      'SELECT kind, count(*) AS n, sum(size) AS bytes FROM object GROUP BY kind',
    )
    .all()
  const sum = (isBlob: boolean): { readonly count: number; readonly bytes: number } =>
    kinds
      .filter(({ kind }) => (kind === objectKind.blob) === isBlob)
      .reduce((all, { n, bytes }) => ({ count: all.count + n, bytes: all.bytes + bytes }), { count: 0, bytes: 0 })
  const count = (table: 'ref' | 'move' | 'snapshot'): number =>
    database.prepare<{ n: number }>(`SELECT count(*) AS n FROM ${table}`).get()?.n ?? 0
  return {
    blobs: sum(true),
    trees: sum(false),
    refs: count('ref'),
    moves: count('move'),
    snapshots: count('snapshot'),
    databaseBytes: statSync(database.file).size,
  }
}
