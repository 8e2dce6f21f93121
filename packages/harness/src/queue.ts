import type { UserMessage } from '@reve/providers/model'
import type { Draft, SessionView } from '@reve/session-log'
import { messageEntry } from './settle.ts'
import { type Delivery, readRecord, record } from './records.ts'

/** A message that was accepted and is not yet part of the conversation. */
export type QueuedMessage = { readonly entryId: string; readonly delivery: Delivery; readonly message: UserMessage }

/** The messages that were accepted and neither delivered nor cancelled, of every lane, in the order of their acceptance. */
export function allPending(view: SessionView): ReadonlyMap<string, readonly QueuedMessage[]> {
  return Map.groupBy(readQueues(view).pending, ({ lane }) => lane)
}

/** What waits and what was cancelled, of every lane; the cancelled ones with the `seq` of that. */
export type Queues = {
  readonly pending: readonly (QueuedMessage & { readonly lane: string })[]
  readonly cancelled: readonly (QueuedMessage & { readonly lane: string; readonly cancelledAt: number })[]
}

/** {@link allPending} of one lane. */
export function pendingMessages(view: SessionView, lane: string): readonly QueuedMessage[] {
  return allPending(view).get(lane) ?? []
}

type OfLane = QueuedMessage & { readonly lane: string }

/** Reads all queues of a log. */
export function readQueues(view: SessionView): Queues {
  const pending = new Map<string, OfLane>()
  const cancelled: (OfLane & { readonly cancelledAt: number })[] = []
  // Not a look at every line: of a long conversation only what is asked for is read.
  for (const line of view.records()) {
    if (line.type === 'message_queued') {
      const read = readRecord(line, 'message_queued')
      // One that cannot be read is a corruption, and is reported as one (`scanOperations`).
      if (read.ok) pending.set(read.payload.entryId, { ...read.payload, lane: line.lane })
    } else if (line.type === 'message_cancelled') {
      const entryId = line['entryId']
      const message = typeof entryId === 'string' ? pending.get(entryId) : undefined
      if (message === undefined) continue
      pending.delete(message.entryId)
      cancelled.push({ ...message, cancelledAt: line.seq })
    }
  }
  const waiting = [...pending.values()].filter(({ entryId }) => view.entry(entryId) === undefined)
  return { pending: waiting, cancelled }
}

/** The record that makes an accepted message durable. */
export function queuedRecord(lane: string, message: QueuedMessage): Draft {
  return record(lane, 'message_queued', message)
}

/** The record that takes an undelivered message back. */
export function cancelledRecord(lane: string, { entryId, delivery }: QueuedMessage): Draft {
  return record(lane, 'message_cancelled', { entryId, delivery })
}

/** The entry that a queued message becomes. */
export function deliveredEntry(lane: string, { entryId, message }: QueuedMessage): Draft {
  return messageEntry(lane, entryId, message)
}

/**
 * The messages of one lane that wait. Taking is synchronous: a message leaves the queue once, for the conversation or
 * back to its sender, whoever comes first.
 */
export class LaneQueue {
  #waiting: readonly QueuedMessage[]

  constructor(waiting: readonly QueuedMessage[]) {
    this.#waiting = waiting
  }

  get waiting(): readonly QueuedMessage[] {
    return this.#waiting
  }

  add(message: QueuedMessage): void {
    this.#waiting = [...this.#waiting, message]
  }

  /** Takes out one message, if it is still there. */
  drop(entryId: string): void {
    this.#waiting = this.#waiting.filter((message) => message.entryId !== entryId)
  }

  /** Whether a message of that delivery waits. */
  has(delivery: Delivery): boolean {
    return this.#waiting.some((message) => message.delivery === delivery)
  }

  /** Takes out the message of that delivery that has waited longest; none when none waits. */
  takeOne(delivery: Delivery): readonly QueuedMessage[] {
    const first = this.#waiting.find((message) => message.delivery === delivery)
    if (first === undefined) return []
    this.drop(first.entryId)
    return [first]
  }

  /** Takes out all messages of these deliveries, in the order of their acceptance. */
  take(...deliveries: readonly Delivery[]): readonly QueuedMessage[] {
    const taken = this.#waiting.filter(({ delivery }) => deliveries.includes(delivery))
    this.#waiting = this.#waiting.filter(({ delivery }) => !deliveries.includes(delivery))
    return taken
  }
}
