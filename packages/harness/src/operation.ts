import type { UserMessage } from '@reve/providers/model'
import type { Draft, Line } from '@reve/session-log'
import type { Environment } from './environment.ts'
import type { HarnessEventBody } from './events.ts'
import { cancelledRecord, type LaneQueue } from './queue.ts'
import { leafRecord, type Outcome, record, type RecordPayload } from './records.ts'

/** One operation on one lane, from its intent to its end: what runs and compactions have in common. */
export class Operation {
  readonly lane: string
  readonly runId: string
  readonly queue: LaneQueue
  readonly environment: Environment
  readonly #onEnd: () => void
  readonly #controller = new AbortController()
  #begun = false
  #closed = false
  #aborting: Promise<readonly UserMessage[]> | undefined

  constructor(parts: {
    readonly environment: Environment
    readonly lane: string
    readonly queue: LaneQueue
    /** Called when the lane is free again, before anybody hears of the end. */
    readonly onEnd: () => void
  }) {
    this.environment = parts.environment
    this.lane = parts.lane
    this.runId = parts.environment.effects.newId('run_')
    this.queue = parts.queue
    this.#onEnd = parts.onEnd
  }

  /** Aborted when the effects of this operation should stop. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Asked for, though its record may still be on the way to the disk. */
  get aborting(): boolean {
    return this.#aborting !== undefined
  }

  /** Whether a message that is accepted now is sure to be delivered, kept or given back. */
  get takesMessages(): boolean {
    return !this.#closed && !this.aborting
  }

  /** Whether the operation is in the log. */
  get begun(): boolean {
    return this.#begun
  }

  /** Writes the intent, and what belongs to it, before anything else. */
  async begin(
    payload: Omit<RecordPayload<'operation_started'>, 'runId'>,
    drafts: readonly Draft[],
    whenDurable: () => void,
  ): Promise<void> {
    const started = record(this.lane, 'operation_started', { runId: this.runId, ...payload })
    await this.append([started, ...drafts], 'fsync', whenDurable)
    this.#begun = true
  }

  /** All of a navigation, in one append: the wish, the leaf, the end. */
  async navigate(leafId: string | null): Promise<void> {
    const { lane, runId } = this
    const { log } = this.environment
    this.close()
    await this.append(
      [
        record(lane, 'operation_started', {
          runId,
          intent: { kind: 'navigation', leafId },
          sourceLeafId: log.leaf(lane),
        }),
        leafRecord(lane, leafId),
        record(lane, 'operation_finished', { runId, outcome: 'completed' }),
      ],
      'fsync',
    )
    this.#begun = true
    this.#onEnd()
    this.emit({ type: 'navigated', leafId })
  }

  /** From here on it takes no message and no abort: called in the same breath as the last look at the queue. */
  close(): void {
    this.#closed = true
  }

  /** Writes the end; gives back what an abort or this end took from the queue. The lane is free when this resolves. */
  async finish(
    end: { readonly outcome: Outcome; readonly reason?: string },
    left: readonly Parameters<typeof cancelledRecord>[1][],
    more: readonly Draft[] = [],
  ): Promise<readonly UserMessage[]> {
    this.close()
    const { outcome, reason } = end
    await this.append(
      [
        ...left.map((message) => cancelledRecord(this.lane, message)),
        ...more,
        record(this.lane, 'operation_finished', {
          runId: this.runId,
          outcome,
          ...(reason !== undefined && { reason }),
        }),
      ],
      'fsync',
    )
    const returned = [...((await this.#aborting) ?? []), ...left.map(({ message }) => message)]
    this.#onEnd()
    return returned
  }

  /** Records the wish first, then signals. A second call is the first one; an operation that is about to end just ends. */
  abort(): Promise<readonly UserMessage[]> {
    if (this.#aborting !== undefined) return this.#aborting
    if (this.#closed) return Promise.resolve([])
    this.#aborting = this.#abort()
    return this.#aborting
  }

  async #abort(): Promise<readonly UserMessage[]> {
    const left = this.queue.take('steer', 'follow_up')
    try {
      await this.append(
        [
          record(this.lane, 'abort_requested', { runId: this.runId }),
          ...left.map((message) => cancelledRecord(this.lane, message)),
        ],
        'fsync',
        () => this.emit({ type: 'abort_requested' }),
      )
    } finally {
      // Even if the disk fails: what was asked to stop stops.
      this.#controller.abort()
    }
    return left.map(({ message }) => message)
  }

  /** Stops effects without a record: for a log that takes none any more. */
  drop(): void {
    this.#controller.abort()
  }

  append(drafts: readonly Draft[], durability?: 'flush' | 'fsync', whenDurable?: () => void): Promise<readonly Line[]> {
    return this.environment.writer.append(this, drafts, durability, whenDurable)
  }

  emit(body: HarnessEventBody): void {
    this.environment.emitter.emit(this.lane, this.runId, body)
  }
}
