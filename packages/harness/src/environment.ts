import type { Thinking } from '@reve/providers/model'
import {
  type Draft,
  type Durability,
  isEntry,
  type Line,
  type RecordLine,
  type SessionLog,
  SessionLogError,
} from '@reve/session-log'
import type { Cleaner } from './clean.ts'
import type { Emitter } from './emitter.ts'
import { HarnessError } from './errors.ts'
import { messageOfLine } from './messages.ts'
import { readRecord } from './records.ts'
import type { Hooks } from './hooks.ts'
import type { Ledger } from './ledger.ts'
import type { Effects, HarnessOptions, Limits } from './options.ts'

/** What all runs of a harness share. */
export type Environment = {
  readonly log: SessionLog
  readonly effects: Effects
  readonly limits: Limits
  readonly cleaner: Cleaner
  readonly redacts: boolean
  readonly emitter: Emitter
  readonly thinking?: Thinking
  readonly writer: Writer
  readonly hooks: () => readonly Hooks[]
  readonly ledger: () => Ledger
} & Pick<HarnessOptions, 'compaction' | 'queue' | 'budget'>

/** Who an append is for. */
export type Owner = { readonly lane: string; readonly runId: string }

/** Appends to the log and tells of the messages, and of what was used, when they are durable. */
export class Writer {
  readonly #log: SessionLog
  readonly #emitter: Emitter
  readonly #on: { readonly usage: (line: RecordLine) => void; readonly fault: (message: string) => void }
  #fault: HarnessError | undefined

  constructor(
    log: SessionLog,
    emitter: Emitter,
    on: {
      readonly usage: (line: RecordLine) => void
      /** Nothing more can be written: what runs has to stop. */
      readonly fault: (message: string) => void
    },
  ) {
    this.#log = log
    this.#emitter = emitter
    this.#on = on
  }

  /** Throws when an append has failed: memory and file are one no more. */
  assertSound(): void {
    if (this.#fault !== undefined) throw this.#fault
  }

  /**
   * Order on disk is the order of calls. `whenDurable` is called before the messages are told of.
   *
   * @throws HarnessError `log_faulted`; SessionLogError `bad_draft` when nothing was written and the log goes on.
   */
  async append(
    owner: Owner,
    drafts: readonly Draft[],
    durability: Durability = 'flush',
    whenDurable: () => void = () => undefined,
  ): Promise<readonly Line[]> {
    if (drafts.length === 0) return []
    let lines: readonly Line[]
    try {
      lines = await this.#log.append(drafts, { durability })
    } catch (cause) {
      if (!(cause instanceof SessionLogError) || cause.code === 'bad_draft') throw cause
      if (this.#fault === undefined) {
        this.#fault = new HarnessError('log_faulted', `the session takes no more: ${cause.message}`, {
          cause,
          hint: 'reopen the session, make a new harness on it and recover',
        })
        this.#on.fault(this.#fault.message)
      }
      throw this.#fault
    }
    whenDurable()
    for (const line of lines) this.#told(owner, line)
    return lines
  }

  #told({ lane, runId }: Owner, line: Line): void {
    if (isEntry(line)) {
      const message = messageOfLine(line)
      if (message !== undefined) this.#emitter.emit(lane, runId, { type: 'message', entryId: line.id, message })
    } else if (line.type === 'usage') {
      this.#on.usage(line)
      const read = readRecord(line, 'usage')
      if (!read.ok || read.payload.usage === null) return
      const { usage, cost } = read.payload
      this.#emitter.emit(lane, runId, { type: 'usage', usage, ...(cost !== undefined && { cost }) })
    }
  }
}
