import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import { type MergeConflict, mergeTrees } from './merge.ts'
import type { TextMerger } from './merge-text.ts'
import type { Objects } from './objects.ts'
import type { Refs } from './refs.ts'
import type { Trees } from './trees.ts'
import type { Act, RefState, StorePath, TreeId } from './types.ts'

/** The tree from which both sides of a merge started, and how it is known. */
export type MergeBase = {
  readonly tree: TreeId
  /** `recorded`: when one was made from the other, or merged; `history`: the last tree that both have been at; `none`: the empty tree. */
  readonly how: 'recorded' | 'history' | 'none'
}

export type MergeResult =
  | {
      readonly kind: 'merged'
      readonly into: RefState
      readonly base: MergeBase
      readonly ours: TreeId
      readonly theirs: TreeId
      /** False when `into` was at the resulting tree already. */
      readonly changed: boolean
      /** Files whose two changes were merged line by line. */
      readonly mergedTexts: readonly StorePath[]
    }
  | {
      readonly kind: 'conflicts'
      /** Where `into` still is. */
      readonly into: RefState
      readonly base: MergeBase
      readonly ours: TreeId
      readonly theirs: TreeId
      readonly conflicts: readonly MergeConflict[]
    }

export type MergeOptions = Act & {
  readonly signal?: AbortSignal | undefined
  /** Runs in the transaction that moves the ref: for a row that must be durable with it, or not at all. */
  readonly within?: ((result: MergeResult) => void) | undefined
}

/** How often a merge is made again because its ref moved meanwhile. */
const maxTries = 5

type Parts = {
  readonly database: Database
  readonly objects: Objects
  readonly trees: Trees
  readonly refs: Refs
  readonly mergeText: TextMerger
}

/** Refs that know where they came from. */
export class Branches {
  readonly #parts: Parts

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Makes a ref at the tree of another, and remembers that tree as their merge base. @throws StoreError `exists`, `not_found`, `bad_name`. */
  create(name: string, fromRef: string, act: Act): RefState {
    const { database, refs } = this.#parts
    return database.transaction(() => {
      const from = refs.get(fromRef)
      const made = refs.create(name, from.tree, { actor: act.actor, note: act.note ?? `branch of ${fromRef}` })
      this.#record(name, fromRef, from.tree)
      return made
    })
  }

  /**
   * Merges what happened on `fromRef` since the merge base into the ref `into`. With conflicts nothing moves. When `into` moves
   * meanwhile the merge is made again on what is there, a few times.
   *
   * @throws StoreError `not_found`, `ref_moved`, `bad_argument`.
   */
  async merge(into: string, fromRef: string, options: MergeOptions): Promise<MergeResult> {
    const { database, refs, trees } = this.#parts
    if (into === fromRef) throw new StoreError('bad_argument', `${into} cannot be merged into itself`, { path: into })
    for (let attempt = 1; ; attempt++) {
      options.signal?.throwIfAborted()
      const target = refs.get(into)
      const from = refs.get(fromRef)
      const base = this.base(into, fromRef)
      const merge = await mergeTrees(this.#parts, base.tree, target.tree, from.tree)
      const sides = { base, ours: target.tree, theirs: from.tree }
      options.signal?.throwIfAborted()
      try {
        return database.transaction((): MergeResult => {
          if (merge.kind === 'conflicts') {
            const result: MergeResult = {
              kind: 'conflicts',
              into: refs.get(into),
              ...sides,
              conflicts: merge.conflicts,
            }
            options.within?.(result)
            return result
          }
          const moved = refs.move(into, {
            actor: options.actor,
            note: options.note ?? `merge of ${fromRef}`,
            expectedTree: target.tree,
            expectedRev: target.rev,
            newTree: merge.tree,
          })
          this.#record(into, fromRef, from.tree)
          const result: MergeResult = {
            kind: 'merged',
            into: moved,
            ...sides,
            changed: moved.tree !== target.tree,
            mergedTexts: merge.merged,
          }
          options.within?.(result)
          return result
        })
      } catch (error) {
        if (
          !(error instanceof StoreError && error.code === 'ref_moved' && error.details.path === into) ||
          attempt >= maxTries ||
          !trees.has(target.tree)
        )
          throw error
      }
    }
  }

  /** Discards a ref; its history stays, and a snapshot can bring it back. @throws StoreError `not_found`. */
  discard(name: string, act: Act): RefState {
    return this.#parts.refs.remove(name, { actor: act.actor, note: act.note ?? 'discarded' })
  }

  /** The tree from which two refs are merged. */
  base(a: string, b: string): MergeBase {
    const { database, trees } = this.#parts
    const [first, second] = pair(a, b)
    const recorded = database
      .prepare<{ tree: Buffer }>('SELECT tree FROM base WHERE a = ? AND b = ?')
      .get(first, second)
    if (recorded !== undefined) return { tree: recorded.tree.toString('hex'), how: 'recorded' }
    const common = database
      .prepare<{ tree: Buffer }>(
        `SELECT x.to_tree AS tree FROM move x WHERE x.ref = ? AND x.to_tree IS NOT NULL
         AND EXISTS (SELECT 1 FROM move y WHERE y.ref = ? AND y.to_tree = x.to_tree) ORDER BY x.rev DESC LIMIT 1`,
      )
      .get(a, b)
    if (common !== undefined) return { tree: common.tree.toString('hex'), how: 'history' }
    return { tree: trees.emptyTree, how: 'none' }
  }

  #record(a: string, b: string, tree: TreeId): void {
    const [first, second] = pair(a, b)
    this.#parts.database
      .prepare('INSERT INTO base VALUES (?, ?, ?) ON CONFLICT (a, b) DO UPDATE SET tree = excluded.tree')
      .run(first, second, Buffer.from(tree, 'hex'))
  }
}

const pair = (a: string, b: string): readonly [string, string] => (a < b ? [a, b] : [b, a])
