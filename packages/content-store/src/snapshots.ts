import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import { checkSnapshotName } from './names.ts'
import type { Refs } from './refs.ts'
import type { Act, RefState, TreeId } from './types.ts'

/** Where every ref pointed at one moment. */
export type Snapshot = {
  readonly name: string
  readonly actor: string
  /** ISO time. */
  readonly at: string
  readonly note: string | null
  readonly refs: readonly RefState[]
}

/** What a rollback did. A ref that was made since is not in it. */
export type Rollback = {
  readonly name: string
  /** `from` is null when the ref had been discarded and was made again. */
  readonly moved: readonly {
    readonly ref: string
    readonly from: TreeId | null
    readonly to: TreeId
    readonly rev: number
  }[]
  /** Refs that were at their recorded tree already: no history row. */
  readonly unchanged: readonly string[]
}

type SnapshotRow = { readonly name: string; readonly actor: string; readonly at: string; readonly note: string | null }
type RefRow = { readonly ref: string; readonly tree: Buffer; readonly rev: number }

/** Named moments of all refs at once: a map of ref to (tree, rev), nothing copied. */
export class Snapshots {
  readonly #database: Database
  readonly #refs: Refs
  readonly #now: () => number

  constructor(database: Database, refs: Refs, now: () => number) {
    this.#database = database
    this.#refs = refs
    this.#now = now
  }

  /** Records where every ref is. @throws StoreError `exists`, `bad_name`. */
  create(name: string, act: Act): Snapshot {
    checkSnapshotName(name)
    return this.#database.transaction(() => {
      if (this.#row(name) !== undefined) {
        throw new StoreError('exists', `the snapshot ${name} exists: a name is taken once`, {
          path: name,
          hint: 'choose another name',
        })
      }
      const at = new Date(this.#now()).toISOString()
      const note = act.note ?? null
      this.#database.prepare('INSERT INTO snapshot VALUES (?, ?, ?, ?)').run(name, act.actor, at, note)
      const refs = this.#refs.list()
      const insert = this.#database.prepare('INSERT INTO snapshot_ref VALUES (?, ?, ?, ?)')
      for (const ref of refs) insert.run(name, ref.name, Buffer.from(ref.tree, 'hex'), ref.rev)
      return { name, actor: act.actor, at, note, refs }
    })
  }

  /** All snapshots, oldest first. */
  list(): readonly Snapshot[] {
    const rows = this.#database
      .prepare<SnapshotRow>('SELECT name, actor, at, note FROM snapshot ORDER BY at, rowid')
      .all()
    return rows.map((row) => ({ ...row, refs: this.#recorded(row.name) }))
  }

  /** One snapshot. @throws StoreError `not_found`. */
  get(name: string): Snapshot {
    const row = this.#row(name)
    if (row === undefined)
      throw new StoreError('not_found', `there is no snapshot ${JSON.stringify(name)}`, { path: name })
    return { ...row, refs: this.#recorded(name) }
  }

  /**
   * Moves each recorded ref back to its recorded tree, all in one transaction, one history row for each that differs. A ref
   * that was discarded is made again; a ref that was made since is left alone.
   *
   * @throws StoreError `not_found`.
   */
  rollback(name: string, act: Act): Rollback {
    return this.#database.transaction(() => {
      const snapshot = this.get(name)
      const moved: Rollback['moved'][number][] = []
      const unchanged: string[] = []
      for (const { name: ref, tree } of snapshot.refs) {
        const found = this.#refs.find(ref)
        if (found?.tree === tree) {
          unchanged.push(ref)
          continue
        }
        const note = act.note ?? `rollback to ${name}`
        const state =
          found === undefined
            ? this.#refs.create(ref, tree, { actor: act.actor, note })
            : this.#refs.move(ref, {
                actor: act.actor,
                note,
                expectedTree: found.tree,
                expectedRev: found.rev,
                newTree: tree,
              })
        moved.push({ ref, from: found?.tree ?? null, to: tree, rev: state.rev })
      }
      return { name, moved, unchanged }
    })
  }

  #row(name: string): SnapshotRow | undefined {
    return this.#database.prepare<SnapshotRow>('SELECT name, actor, at, note FROM snapshot WHERE name = ?').get(name)
  }

  #recorded(name: string): readonly RefState[] {
    return this.#database
      .prepare<RefRow>('SELECT ref, tree, rev FROM snapshot_ref WHERE snapshot = ? ORDER BY ref')
      .all(name)
      .map((row) => ({ name: row.ref, tree: row.tree.toString('hex'), rev: row.rev }))
  }
}
