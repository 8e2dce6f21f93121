import { type Lock, messageOf } from '@reve/base'
import type { AppendFile } from './append-file.ts'
import { type Draft, Stage, stageDraft, type Staged } from './draft.ts'
import { SessionLogError } from './errors.ts'
import type { EntryLine, Header, Line, RecordLine } from './format.ts'
import type { Json } from './json.ts'
import type { SessionIndex, SessionView } from './view.ts'

/** `flush`: what is acknowledged survives the process. `fsync`: it survives a loss of power. */
export type Durability = 'flush' | 'fsync'

/** Most bytes that one append, and one write, may carry. */
const MAX_APPEND_BYTES = 256 * 1024 * 1024

/** What opening mended: the bytes that were cut from the end, or the one LF that was added. */
export type Repair = { readonly kind: 'torn_tail_cut' | 'newline_added'; readonly bytes: number }

/** A session file opened for writing. Reading it costs nothing: everything is in memory. */
export interface SessionLog extends SessionView, AsyncDisposable {
  /** The real path of the file. */
  readonly file: string
  readonly repaired?: Repair
  /**
   * Appends one line per draft, in order, in one write; resolves when they are as durable as asked and in memory.
   * Appends that arrive together share one write and one sync. An append counts as a whole: one bad draft and none is written.
   * A crash may leave a prefix of an append's lines, never half a line.
   *
   * Rejects with `bad_draft` (nothing written, the log goes on), `io` (this append failed and the log is faulted),
   * `faulted`, `closed`.
   */
  append(drafts: readonly Draft[], options?: { readonly durability?: Durability }): Promise<readonly Line[]>
  /** Waits for what was accepted, syncs, closes and releases the lock. A second call waits for the first. */
  close(): Promise<void>
}

type Pending = {
  readonly staged: readonly Staged[]
  readonly bytes: number
  readonly sync: boolean
  readonly resolve: (lines: readonly Line[]) => void
  readonly reject: (error: SessionLogError) => void
}

type State =
  | { readonly kind: 'open' }
  | { readonly kind: 'faulted'; readonly cause: SessionLogError }
  | { readonly kind: 'closed'; readonly done: Promise<void> }

/** The writer: a queue in front of one file handle. */
export class FileSessionLog implements SessionLog {
  readonly file: string
  readonly repaired?: Repair
  readonly #index: SessionIndex
  readonly #output: AppendFile
  readonly #lock: Lock
  readonly #durability: Durability
  readonly #now: () => number
  readonly #newId: (prefix: string) => string
  #state: State = { kind: 'open' }
  #stage: Stage
  #pending: Pending[] = []
  #draining: Promise<void> | undefined
  /** Bytes of whole, acknowledged lines: where the file is brought back to when an append fails. */
  #size: number
  #unsynced = false

  constructor(parts: {
    readonly file: string
    readonly index: SessionIndex
    readonly output: AppendFile
    readonly size: number
    readonly lock: Lock
    readonly durability: Durability
    readonly now: () => number
    readonly newId: (prefix: string) => string
    readonly repaired?: Repair
  }) {
    this.file = parts.file
    this.#index = parts.index
    this.#output = parts.output
    this.#size = parts.size
    this.#lock = parts.lock
    this.#durability = parts.durability
    this.#now = parts.now
    this.#newId = parts.newId
    this.#stage = new Stage(parts.index)
    if (parts.repaired !== undefined) this.repaired = parts.repaired
  }

  async append(drafts: readonly Draft[], options: { readonly durability?: Durability } = {}): Promise<readonly Line[]> {
    switch (this.#state.kind) {
      case 'closed':
        throw new SessionLogError('closed', 'the log is closed', { file: this.file })
      case 'faulted':
        throw this.#faulted(this.#state.cause)
      case 'open':
        break
      default:
        this.#state satisfies never
    }
    // All of it is decided here, before anything waits: the order of calls is the order in the file.
    const stage = new Stage(this.#stage)
    const ts = new Date(this.#now()).toISOString()
    const staged = drafts.map((draft) => stageDraft(draft, stage, { file: this.file, ts, newId: this.#newId }))
    const bytes = staged.reduce((sum, { bytes }) => sum + bytes.length, 0)
    if (bytes > MAX_APPEND_BYTES) {
      throw new SessionLogError('bad_draft', `one append of ${bytes} bytes; at most ${MAX_APPEND_BYTES} are allowed`, {
        file: this.file,
      })
    }
    this.#stage.merge(stage)
    const sync = (options.durability ?? this.#durability) === 'fsync'
    return new Promise((resolve, reject) => {
      this.#pending.push({ staged, bytes, sync, resolve, reject })
      this.#draining ??= this.#drain()
    })
  }

  /** Writes until nothing waits. Never rejects: each append learns its own fate. */
  async #drain(): Promise<void> {
    // One turn of the microtask queue: the appends of the same moment join the first write.
    await Promise.resolve()
    while (this.#pending.length > 0) {
      const batch = this.#takeBatch()
      try {
        await this.#write(batch)
      } catch (error) {
        await this.#fault(batch, error)
        break
      }
      for (const { staged, resolve } of batch) {
        for (const { line } of staged) this.#index.add(line)
        resolve(staged.map(({ line }) => line))
      }
    }
    // All that was staged is in the index by now.
    this.#stage = new Stage(this.#index)
    this.#draining = undefined
  }

  #takeBatch(): readonly Pending[] {
    let bytes = 0
    let count = 0
    for (const pending of this.#pending) {
      if (count > 0 && bytes + pending.bytes > MAX_APPEND_BYTES) break
      bytes += pending.bytes
      count++
    }
    return this.#pending.splice(0, count)
  }

  async #write(batch: readonly Pending[]): Promise<void> {
    const lines = batch.flatMap(({ staged }) => staged.map(({ bytes }) => bytes))
    const bytes = lines.length === 1 && lines[0] !== undefined ? lines[0] : Buffer.concat(lines)
    if (bytes.length > 0) {
      const written = await this.#output.write(bytes)
      if (written !== bytes.length) throw new Error(`only ${written} of ${bytes.length} bytes were written`)
      this.#unsynced = true
    }
    if (batch.some(({ sync }) => sync) && this.#unsynced) {
      await this.#output.sync()
      this.#unsynced = false
    }
    this.#size += bytes.length
  }

  /**
   * Nothing is accepted from here on. The file is brought back to the last acknowledged line if that can be done, so that
   * what was refused does not turn up later; if not, the next opening cuts the half line.
   */
  async #fault(batch: readonly Pending[], cause: unknown): Promise<void> {
    this.#unsynced = false
    let undone = 'the file was brought back to the last acknowledged line'
    try {
      await this.#output.truncate(this.#size)
      await this.#output.sync()
    } catch (error) {
      undone = `and the file could not be brought back (${messageOf(error)}): opening it again will`
    }
    const failure = new SessionLogError('io', `append failed: ${messageOf(cause)}; ${undone}`, {
      file: this.file,
      cause,
      hint: 'reopen the session to go on',
    })
    // A close may have begun meanwhile: it stays closed.
    if (this.#state.kind === 'open') this.#state = { kind: 'faulted', cause: failure }
    for (const { reject } of batch) reject(failure)
    for (const { reject } of this.#pending.splice(0)) reject(this.#faulted(failure))
  }

  #faulted(cause: SessionLogError): SessionLogError {
    return new SessionLogError(
      'faulted',
      'an earlier append failed, nothing is accepted until the session is reopened',
      {
        file: this.file,
        cause,
      },
    )
  }

  close(): Promise<void> {
    if (this.#state.kind === 'closed') return this.#state.done
    const done = this.#close()
    this.#state = { kind: 'closed', done }
    return done
  }

  async #close(): Promise<void> {
    await this.#draining
    try {
      if (this.#unsynced) await this.#output.sync()
    } catch (cause) {
      throw new SessionLogError('io', `sync at close failed: ${messageOf(cause)}`, { file: this.file, cause })
    } finally {
      try {
        await this.#output.close()
      } finally {
        this.#lock.release()
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  get header(): Header {
    return this.#index.header
  }

  get lines(): readonly Line[] {
    return this.#index.lines
  }

  since(seq: number): readonly Line[] {
    return this.#index.since(seq)
  }

  get lastSeq(): number {
    return this.#index.lastSeq
  }

  entry(id: string): EntryLine | undefined {
    return this.#index.entry(id)
  }

  leaf(lane: string): string | null {
    return this.#index.leaf(lane)
  }

  path(leafId: string | null): readonly EntryLine[] {
    return this.#index.path(leafId)
  }

  children(parentId: string | null): readonly EntryLine[] {
    return this.#index.children(parentId)
  }

  lanes(): readonly string[] {
    return this.#index.lanes()
  }

  fact(key: string): Json | undefined {
    return this.#index.fact(key)
  }

  records(lane?: string): readonly RecordLine[] {
    return this.#index.records(lane)
  }
}
