import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import { checkRefName } from './names.ts'
import type { Trees } from './trees.ts'
import type { Act, RefMove, RefState, TreeId } from './types.ts'

type RefRow = { readonly name: string; readonly tree: Buffer; readonly rev: number }
type MoveRow = {
  readonly rev: number
  readonly actor: string
  readonly at: string
  readonly from_tree: Buffer | null
  readonly to_tree: Buffer | null
  readonly note: string | null
}

const state = (row: RefRow): RefState => ({ name: row.name, tree: row.tree.toString('hex'), rev: row.rev })
const bytes = (tree: TreeId): Buffer => Buffer.from(tree, 'hex')

/** The only mutable names: each points at a tree, moves by compare-and-swap, and keeps its history. */
export class Refs {
  readonly #database: Database
  readonly #trees: Trees
  readonly #now: () => number

  constructor(database: Database, trees: Trees, now: () => number) {
    this.#database = database
    this.#trees = trees
    this.#now = now
  }

  /** All refs by name. */
  list(): readonly RefState[] {
    return this.#database.prepare<RefRow>('SELECT name, tree, rev FROM ref ORDER BY name').all().map(state)
  }

  /** Where a ref is, or undefined. */
  find(name: string): RefState | undefined {
    const row = this.#database.prepare<RefRow>('SELECT name, tree, rev FROM ref WHERE name = ?').get(name)
    return row === undefined ? undefined : state(row)
  }

  /** Where a ref is. @throws StoreError `not_found`. */
  get(name: string): RefState {
    const found = this.find(name)
    if (found !== undefined) return found
    throw new StoreError('not_found', `there is no ref ${JSON.stringify(name)}`, { path: name })
  }

  /** Makes a ref. @throws StoreError `exists`, `bad_name`, `not_found` (the tree). */
  create(name: string, tree: TreeId, act: Act): RefState {
    checkRefName(name)
    return this.#database.transaction(() => {
      const found = this.find(name)
      if (found !== undefined)
        throw new StoreError('exists', `the ref ${name} exists and is at ${found.tree}`, { path: name, found })
      this.#checkTree(tree)
      return this.#put(name, null, tree, act)
    })
  }

  /**
   * Moves a ref from the tree (and, when given, the rev) that it is expected at.
   *
   * @throws StoreError `ref_moved` whose `details.found` is where it is; `not_found` for the ref or the new tree.
   */
  move(
    name: string,
    options: Act & {
      readonly expectedTree: TreeId
      readonly expectedRev?: number | undefined
      readonly newTree: TreeId
    },
  ): RefState {
    return this.#database.transaction(() => {
      const found = this.get(name)
      this.#expect(found, options.expectedTree, options.expectedRev)
      this.#checkTree(options.newTree)
      return this.#put(name, found.tree, options.newTree, options)
    })
  }

  /** Discards a ref; its history stays. @throws StoreError `not_found`, `ref_moved`. */
  remove(
    name: string,
    options: Act & { readonly expectedTree?: TreeId | undefined; readonly expectedRev?: number | undefined },
  ): RefState {
    return this.#database.transaction(() => {
      const found = this.get(name)
      this.#expect(found, options.expectedTree ?? found.tree, options.expectedRev)
      this.#database.prepare('DELETE FROM ref WHERE name = ?').run(name)
      // A ref that is made again under this name is another one: what it shared with others is not known.
      this.#database.prepare('DELETE FROM base WHERE a = ? OR b = ?').run(name, name)
      this.#record(name, this.#nextRev(name), found.tree, null, options)
      return found
    })
  }

  /** The last moves of a name, newest first, also of one that was discarded. @throws StoreError `not_found` when there were none. */
  history(name: string, limit = 50): readonly RefMove[] {
    const rows = this.#database
      .prepare<MoveRow>(
        'SELECT rev, actor, at, from_tree, to_tree, note FROM move WHERE ref = ? ORDER BY rev DESC LIMIT ?',
      )
      .all(name, limit)
    if (rows.length === 0)
      throw new StoreError('not_found', `there is no ref ${JSON.stringify(name)}, and never was`, { path: name })
    return rows.map((row) => ({
      rev: row.rev,
      actor: row.actor,
      at: row.at,
      from: row.from_tree?.toString('hex') ?? null,
      to: row.to_tree?.toString('hex') ?? null,
      note: row.note,
    }))
  }

  /** The tree that a tree id or a ref's name stands for. @throws StoreError `not_found`. */
  resolve(treeOrRef: string): TreeId {
    if (/^[0-9a-f]{64}$/.test(treeOrRef)) {
      this.#checkTree(treeOrRef)
      return treeOrRef
    }
    const found = this.find(treeOrRef)
    if (found !== undefined) return found.tree
    throw new StoreError('not_found', `${JSON.stringify(treeOrRef.slice(0, 100))} is neither a tree id nor a ref`, {
      path: treeOrRef,
      hint: 'a tree id has 64 lowercase hex digits; the list of refs names the others',
    })
  }

  #checkTree(tree: TreeId): void {
    if (!/^[0-9a-f]{64}$/.test(tree))
      throw new StoreError('bad_argument', `${JSON.stringify(tree)} is not a tree id: 64 lowercase hex digits are`)
    if (!this.#trees.has(tree)) throw new StoreError('not_found', `there is no tree ${tree}`, { hash: tree })
  }

  #expect(found: RefState, tree: TreeId, rev: number | undefined): void {
    if (found.tree === tree && (rev === undefined || found.rev === rev)) return
    const expected = rev === undefined ? tree : `${tree} (rev ${rev})`
    throw new StoreError(
      'ref_moved',
      `the ref ${found.name} is at ${found.tree} (rev ${found.rev}), not at ${expected}`,
      {
        path: found.name,
        found,
        hint: 'look at what changed, redo the work on the tree found, and move from there',
      },
    )
  }

  #nextRev(name: string): number {
    return (
      (this.#database.prepare<{ rev: number | null }>('SELECT max(rev) AS rev FROM move WHERE ref = ?').get(name)
        ?.rev ?? 0) + 1
    )
  }

  #put(name: string, from: TreeId | null, to: TreeId, act: Act): RefState {
    const rev = this.#nextRev(name)
    this.#database
      .prepare(
        'INSERT INTO ref VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET tree = excluded.tree, rev = excluded.rev',
      )
      .run(name, bytes(to), rev)
    this.#record(name, rev, from, to, act)
    return { name, tree: to, rev }
  }

  #record(name: string, rev: number, from: TreeId | null, to: TreeId | null, act: Act): void {
    this.#database
      .prepare('INSERT INTO move VALUES (?, ?, ?, ?, ?, ?, ?)')
      .run(
        name,
        rev,
        act.actor,
        new Date(this.#now()).toISOString(),
        from && bytes(from),
        to && bytes(to),
        act.note ?? null,
      )
  }
}
