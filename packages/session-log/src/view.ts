import { SessionLogError } from './errors.ts'
import { isEntry, type EntryLine, type Header, type Known, type Line, type RecordLine } from './format.ts'
import type { Json } from './json.ts'

/** Read-only view of a session: pure, in memory. The writer and display readers share one implementation. */
export interface SessionView {
  readonly header: Header
  /** All lines after the header, in file order. Live in a writer: it grows with each append. */
  readonly lines: readonly Line[]
  /** The entry of that id; a record's id gives undefined. */
  entry(id: string): EntryLine | undefined
  /** Where the lane goes on: its last entry on disk, unless a later `lane_leaf_set` moved it. Null for a lane without either. */
  leaf(lane: string): string | null
  /** The entries from the root to `leafId`, root first; empty for null. O(depth). Throws `unknown_entry`. */
  path(leafId: string | null): readonly EntryLine[]
  /** Entries whose parent is `parentId` (null: the roots), in file order. */
  children(parentId: string | null): readonly EntryLine[]
  /** Every lane that a line names, in order of first appearance. */
  lanes(): readonly string[]
  /** The value of the last `fact_set` of that key. */
  fact(key: string): Json | undefined
  /** All records, or those of one lane, in file order. */
  records(lane?: string): readonly RecordLine[]
}

const NO_ENTRIES: readonly EntryLine[] = []

/** The index behind {@link SessionView}: lines go in through {@link add} in file order, already checked. */
export class SessionIndex implements SessionView, Known {
  readonly header: Header
  readonly #file: string
  readonly #lines: Line[] = []
  readonly #records: RecordLine[] = []
  readonly #recordIds = new Set<string>()
  readonly #entries = new Map<string, EntryLine>()
  readonly #leaves = new Map<string, string | null>()
  readonly #facts = new Map<string, Json>()
  /** Built at the first question for children, kept up to date from then on: most sessions never ask. */
  #children: Map<string | null, EntryLine[]> | undefined

  constructor(file: string, header: Header) {
    this.#file = file
    this.header = header
  }

  get lines(): readonly Line[] {
    return this.#lines
  }

  get lastSeq(): number {
    return this.#lines.at(-1)?.seq ?? 0
  }

  has(id: string): boolean {
    return this.#entries.has(id) || this.#recordIds.has(id)
  }

  hasEntry(id: string): boolean {
    return this.#entries.has(id)
  }

  add(line: Line): void {
    this.#lines.push(line)
    if (isEntry(line)) {
      this.#entries.set(line.id, line)
      this.#leaves.set(line.lane, line.id)
      if (this.#children !== undefined) addChild(this.#children, line)
      return
    }
    this.#records.push(line)
    this.#recordIds.add(line.id)
    const leaf = leafSetBy(line)
    if (leaf !== undefined) this.#leaves.set(line.lane, leaf)
    else if (!this.#leaves.has(line.lane)) this.#leaves.set(line.lane, null)
    const key = line['key']
    if (line.type === 'fact_set' && typeof key === 'string') this.#facts.set(key, line['value'] ?? null)
  }

  entry(id: string): EntryLine | undefined {
    return this.#entries.get(id)
  }

  leaf(lane: string): string | null {
    return this.#leaves.get(lane) ?? null
  }

  path(leafId: string | null): readonly EntryLine[] {
    const path: EntryLine[] = []
    for (let id = leafId; id !== null;) {
      const entry = this.#entries.get(id)
      if (entry === undefined)
        throw new SessionLogError('unknown_entry', `there is no entry ${JSON.stringify(id)}`, { file: this.#file })
      path.push(entry)
      id = entry.parentId
    }
    return path.toReversed()
  }

  children(parentId: string | null): readonly EntryLine[] {
    if (this.#children === undefined) {
      this.#children = new Map()
      for (const entry of this.#entries.values()) addChild(this.#children, entry)
    }
    return this.#children.get(parentId)?.slice() ?? NO_ENTRIES
  }

  lanes(): readonly string[] {
    return [...this.#leaves.keys()]
  }

  fact(key: string): Json | undefined {
    return this.#facts.get(key)
  }

  records(lane?: string): readonly RecordLine[] {
    return lane === undefined ? this.#records.slice() : this.#records.filter((record) => record.lane === lane)
  }
}

/** The leaf that a line sets by being a `lane_leaf_set`; undefined for every other line. */
export function leafSetBy(line: Line): string | null | undefined {
  if (line.kind !== 'record' || line.type !== 'lane_leaf_set') return undefined
  const leaf = line['leafId']
  return typeof leaf === 'string' ? leaf : null
}

function addChild(children: Map<string | null, EntryLine[]>, entry: EntryLine): void {
  const siblings = children.get(entry.parentId)
  if (siblings === undefined) children.set(entry.parentId, [entry])
  else siblings.push(entry)
}
