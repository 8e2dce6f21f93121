import type { Thinking } from '@reve/providers/model'
import { type Draft, type Durability, isEntry, type Line, type SessionLog, SessionLogError } from '@reve/session-log'
import type { Cleaner } from './clean.ts'
import type { Emitter } from './emitter.ts'
import { HarnessError } from './errors.ts'
import { messageOfLine } from './messages.ts'
import type { Effects, Limits } from './options.ts'

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
}

/** Who an append is for. */
export type Owner = { readonly lane: string; readonly runId: string }

/** Appends to the log and tells of the messages that became durable. */
export class Writer {
  readonly #log: SessionLog
  readonly #emitter: Emitter
  #fault: HarnessError | undefined

  constructor(log: SessionLog, emitter: Emitter) {
    this.#log = log
    this.#emitter = emitter
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
      this.#fault ??= new HarnessError('log_faulted', `the session takes no more: ${cause.message}`, {
        cause,
        hint: 'reopen the session, make a new harness on it and recover',
      })
      throw this.#fault
    }
    whenDurable()
    for (const line of lines) {
      const message = messageOfLine(line)
      if (isEntry(line) && message)
        this.#emitter.emit(owner.lane, owner.runId, { type: 'message', entryId: line.id, message })
    }
    return lines
  }
}
