import type { Store } from '@reve/content-store'
import * as v from 'valibot'
import { keyVersion } from './key.ts'
import { mayBeCached, recordSchema, type ActionRecord } from './result.ts'

const migrations = [
  `CREATE TABLE actions_result (
     key TEXT PRIMARY KEY,
     keyver INTEGER NOT NULL,
     at TEXT NOT NULL,
     tree TEXT NOT NULL,
     record TEXT NOT NULL
   )`,
]

const rowSchema = v.object({ at: v.string(), record: v.string() })

/** Results of actions in the store's database. A row is a claim about objects: it is checked before it is believed. */
export class ResultCache {
  readonly #store: Store

  constructor(store: Store) {
    this.#store = store
    store.registerSchema('actions', migrations)
  }

  /** A known result whose tree and outputs still exist; a claim that does not hold is dropped. */
  find(key: string): { readonly record: ActionRecord; readonly since: string } | undefined {
    const row: unknown = this.#store.transaction((db) =>
      db.prepare('SELECT at, record FROM actions_result WHERE key = ?').get(key),
    )
    if (row === undefined) return undefined
    const parsed = v.safeParse(rowSchema, row)
    const record = parsed.success ? readRecord(parsed.output.record) : undefined
    if (parsed.success && record !== undefined && this.#holds(record)) return { record, since: parsed.output.at }
    this.#store.transaction((db) => db.prepare('DELETE FROM actions_result WHERE key = ?').run(key))
    return undefined
  }

  #holds(record: ActionRecord): boolean {
    return (
      this.#store.hasTree(record.tree) &&
      this.#store.hasBlob(record.stdout.blob) &&
      this.#store.hasBlob(record.stderr.blob)
    )
  }

  /** Keeps a result if it is one that may be answered with again. */
  keep(key: string, record: ActionRecord, at: string): void {
    if (!mayBeCached(record)) return
    this.#store.transaction((db) =>
      db
        .prepare('INSERT OR REPLACE INTO actions_result (key, keyver, at, tree, record) VALUES (?, ?, ?, ?, ?)')
        .run(key, keyVersion, at, record.tree, JSON.stringify(record)),
    )
  }
}

function readRecord(json: string): ActionRecord | undefined {
  try {
    const parsed = v.safeParse(recordSchema, JSON.parse(json))
    return parsed.success ? parsed.output : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}
