import type { SqlDatabase, Store } from '@reve/content-store'
import type { Oid } from './git-object.ts'

const migrations = [
  `CREATE TABLE git_object (
    oid BLOB PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    height INTEGER NOT NULL
  ) WITHOUT ROWID;`,
]

/** A git object and the object of the store that it is. `height`: levels of trees, 0 for a blob. */
export type Pair = { readonly oid: Oid; readonly id: string; readonly height: number }

/**
 * Which git object is which object of the store, kept beside the store's own tables, so that what was translated once is not read
 * again. Only pairs that are the same thing in both directions, and about which no note is due: a Git LFS pointer, a tree with a
 * submodule, an odd name or an outdated mode anywhere below it has none.
 */
export class ObjectMap {
  readonly #store: Store
  readonly #database: SqlDatabase

  constructor(store: Store) {
    this.#store = store
    store.registerSchema('git', migrations)
    this.#database = store.transaction((database) => database)
  }

  /** The blob or tree that a git object is, if it is known and the store has it. */
  byOid(oid: Oid): Pair | undefined {
    const row = this.#database
      .prepare<{ id: Buffer; height: number }>('SELECT id, height FROM git_object WHERE oid = ?')
      .get(Buffer.from(oid, 'hex'))
    if (row === undefined) return undefined
    const id = row.id.toString('hex')
    const there = row.height === 0 ? this.#store.hasBlob(id) : this.#store.hasTree(id)
    return there ? { oid, id, height: row.height } : undefined
  }

  /** The git object that a blob or tree is, if it is known. */
  byId(id: string): Pair | undefined {
    const row = this.#database
      .prepare<{ oid: Buffer; height: number }>('SELECT oid, height FROM git_object WHERE id = ?')
      .get(Buffer.from(id, 'hex'))
    return row === undefined ? undefined : { oid: row.oid.toString('hex'), id, height: row.height }
  }

  /** Keeps a pair; inside a transaction with it. */
  put({ oid, id, height }: Pair): void {
    this.#database
      .prepare('INSERT INTO git_object (oid, id, height) VALUES (?, ?, ?) ON CONFLICT DO NOTHING')
      .run(Buffer.from(oid, 'hex'), Buffer.from(id, 'hex'), height)
  }
}
