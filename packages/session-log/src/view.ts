import { SessionLogError } from './errors.ts'
import { isEntry, type EntryLine, type Header, type Known, type Line, type RecordLine } from './format.ts'
import type { Json } from './json.ts'
import type { Slice } from './lines.ts'
import { remake } from './parse-line.ts'

/** Read-only view of a session: pure, in memory. The writer and display readers share one implementation. */
export interface SessionView {
  readonly header: Header
  /**
   * All lines after the header, in file order. Live in a writer: it grows with each append. The first look parses what
   * opening only checked, so who needs a part of a long session asks for that.
   */
  readonly lines: readonly Line[]
  /** The `seq` of the last line; 0 when there is none after the header. */
  readonly lastSeq: number
  /** The lines after the one with that `seq`, in file order. O(what it returns). */
  since(seq: number): readonly Line[]
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

/**
 * The index behind {@link SessionView}: lines go in through {@link add} in file order, already checked. An entry that was
 * read without its message stays bytes until somebody asks for it: most of a long session is never looked at.
 */
export class SessionIndex implements SessionView, Known {
  readonly header: Header
  readonly #file: string
  readonly #places: (Line | Slice)[] = []
  readonly #byId = new Map<string, number>()
  readonly #records: RecordLine[] = []
  readonly #leaves = new Map<string, string | null>()
  readonly #facts = new Map<string, Json>()
  #lastSeq = 0
  #lastEntryId: string | undefined
  /** Made at the first question for all lines, kept up to date from then on. */
  #lines: Line[] | undefined
  /** Built at the first question for children, kept up to date from then on: most sessions never ask. */
  #children: Map<string | null, EntryLine[]> | undefined

  constructor(file: string, header: Header) {
    this.#file = file
    this.header = header
  }

  get lines(): readonly Line[] {
    this.#lines ??= this.#places.map((_, index) => this.#line(index))
    return this.#lines
  }

  since(seq: number): readonly Line[] {
    const lines: Line[] = []
    for (let index = this.#places.length - 1; index >= 0; index--) {
      const line = this.#line(index)
      if (line.seq <= seq) break
      lines.push(line)
    }
    return lines.toReversed()
  }

  get lastSeq(): number {
    return this.#lastSeq
  }

  /** Lines of each kind. */
  get counts(): { readonly entries: number; readonly records: number } {
    return { entries: this.#places.length - this.#records.length, records: this.#records.length }
  }

  has(id: string): boolean {
    return this.#byId.has(id)
  }

  hasEntry(id: string): boolean {
    // Most entries follow the one before them.
    if (id === this.#lastEntryId) return true
    const place = this.#places[this.#byId.get(id) ?? -1]
    return place !== undefined && (!isLine(place) || isEntry(place))
  }

  add(line: Line): void {
    this.#place(line, line)
    this.#lines?.push(line)
    if (!isEntry(line)) this.#addRecord(line)
    else {
      this.#setLeaf(line)
      if (this.#children !== undefined) addChild(this.#children, line)
    }
  }

  /** An entry by its envelope and the bytes that it stands in. Only while a file is read: nobody has asked for lines yet. */
  addUnmade(envelope: { readonly id: string; readonly seq: number; readonly lane: string }, bytes: Slice): void {
    this.#place(envelope, bytes)
    this.#setLeaf(envelope)
  }

  #place({ id, seq }: { readonly id: string; readonly seq: number }, place: Line | Slice): void {
    this.#byId.set(id, this.#places.length)
    this.#places.push(place)
    this.#lastSeq = seq
  }

  #setLeaf({ id, lane }: { readonly id: string; readonly lane: string }): void {
    this.#leaves.set(lane, id)
    this.#lastEntryId = id
  }

  #addRecord(line: RecordLine): void {
    this.#records.push(line)
    const leaf = leafSetBy(line)
    if (leaf !== undefined) this.#leaves.set(line.lane, leaf)
    else if (!this.#leaves.has(line.lane)) this.#leaves.set(line.lane, null)
    const key = line['key']
    if (line.type === 'fact_set' && typeof key === 'string') this.#facts.set(key, line['value'] ?? null)
  }

  /** The line at an index that is there; from its bytes the first time. */
  #line(index: number): Line {
    const place = this.#places[index]
    if (place === undefined) throw new RangeError(`no line ${index}`)
    if (isLine(place)) return place
    const line = remake(place)
    this.#places[index] = line
    return line
  }

  entry(id: string): EntryLine | undefined {
    const index = this.#byId.get(id)
    const line = index === undefined ? undefined : this.#line(index)
    return line !== undefined && isEntry(line) ? line : undefined
  }

  leaf(lane: string): string | null {
    return this.#leaves.get(lane) ?? null
  }

  path(leafId: string | null): readonly EntryLine[] {
    const path: EntryLine[] = []
    for (let id = leafId; id !== null;) {
      const entry = this.entry(id)
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
      for (const line of this.lines) if (isEntry(line)) addChild(this.#children, line)
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

const isLine = (place: Line | Slice): place is Line => 'id' in place

function addChild(children: Map<string | null, EntryLine[]>, entry: EntryLine): void {
  const siblings = children.get(entry.parentId)
  if (siblings === undefined) children.set(entry.parentId, [entry])
  else siblings.push(entry)
}
