import type { HarnessEvent, Listener } from './events.ts'

/**
 * What an observer gets. A snapshot takes the place of everything before it; `missed` says how many events it stands
 * for that were not given one by one (0: the first one).
 */
export type Observed<S> =
  | { readonly type: 'snapshot'; readonly missed: number; readonly snapshot: S }
  | { readonly type: 'event'; readonly event: HarnessEvent }

/** What an observation is made of. */
export type ObservationParts<S> = {
  readonly subscribe: (listener: Listener) => () => void
  /** The state that all events delivered so far have led to. Called when an observer asks, never for an event. */
  readonly snapshot: () => S
  /** Events that may wait for the observer; default 1024. One more, and a new snapshot takes their place. */
  readonly capacity?: number
  /** The observer's own: its abort ends the observation at once. */
  readonly signal?: AbortSignal
  /** The source's: after its abort what waits is still given, then the observation ends. */
  readonly closed?: AbortSignal
}

/**
 * An ordered stream: a snapshot, then every event after it, none lost and none twice. It begins with the first `next()`.
 * An observer that is too slow gets a new snapshot in place of what it missed. The source never waits. Leaving the loop, `return()`
 * and an abort unsubscribe at once, also while a `next()` waits. `next()` rejects with what `snapshot` throws, as the end.
 */
export function createObservation<S>(parts: ObservationParts<S>): AsyncGenerator<Observed<S>, void, void> {
  return new Observation(parts)
}

type Item<S> = IteratorResult<Observed<S>, void>

class Observation<S> implements AsyncGenerator<Observed<S>, void, void> {
  readonly #parts: ObservationParts<S>
  readonly #capacity: number
  /** `behind`: the next item is a snapshot. */
  #state: 'new' | 'behind' | 'following' | 'over' = 'new'
  #missed = 0
  /** A queue in two halves, so that taking costs the same however long it is: `#older` is reversed. */
  #older: HarnessEvent[] = []
  #newer: HarnessEvent[] = []
  /** While somebody waits, no event does. */
  #waiting: ((item: Item<S>) => void)[] = []
  #unsubscribe: () => void = () => undefined

  constructor(parts: ObservationParts<S>) {
    this.#parts = parts
    this.#capacity = parts.capacity ?? 1024
  }

  next(): Promise<Item<S>> {
    try {
      const item = this.#take()
      return item === undefined ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve(item)
    } catch (error) {
      this.#end()
      return Promise.reject(error)
    }
  }

  return(): Promise<Item<S>> {
    this.#end()
    return Promise.resolve(over)
  }

  throw(error: unknown): Promise<Item<S>> {
    this.#end()
    return Promise.reject(error)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end()
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** What can be given now. Nothing in here waits: a snapshot and the queue that follows it belong together. */
  #take(): Item<S> | undefined {
    if (this.#state === 'new') this.#begin()
    if (this.#state === 'over') return over
    if (this.#state === 'behind') {
      const snapshot = this.#parts.snapshot()
      this.#state = 'following'
      return { done: false, value: { type: 'snapshot', missed: this.#missed, snapshot } }
    }
    if (this.#older.length === 0) {
      this.#older = this.#newer.toReversed()
      this.#newer = []
    }
    const event = this.#older.pop()
    if (event !== undefined) return { done: false, value: { type: 'event', event } }
    if (this.#parts.closed?.aborted !== true) return undefined
    this.#end()
    return over
  }

  #begin(): void {
    const { signal, closed, subscribe } = this.#parts
    if (signal?.aborted === true) return this.#end()
    this.#state = 'behind'
    this.#unsubscribe = subscribe(this.#onEvent)
    signal?.addEventListener('abort', this.#end)
    closed?.addEventListener('abort', this.#onClosed)
  }

  readonly #onEvent = (event: HarnessEvent): void => {
    if (this.#state === 'behind') this.#missed++
    // An event that was on its way when the observer left still comes.
    if (this.#state !== 'following') return
    const resolve = this.#waiting.shift()
    if (resolve !== undefined) return resolve({ done: false, value: { type: 'event', event } })
    const waiting = this.#older.length + this.#newer.length
    if (waiting < this.#capacity) {
      this.#newer.push(event)
      return
    }
    this.#older = []
    this.#newer = []
    this.#missed = waiting + 1
    this.#state = 'behind'
  }

  readonly #onClosed = (): void => {
    if (this.#waiting.length > 0) this.#end()
  }

  readonly #end = (): void => {
    if (this.#state === 'over') return
    this.#state = 'over'
    this.#unsubscribe()
    this.#parts.signal?.removeEventListener('abort', this.#end)
    this.#parts.closed?.removeEventListener('abort', this.#onClosed)
    this.#older = []
    this.#newer = []
    for (const resolve of this.#waiting.splice(0)) resolve(over)
  }
}

const over = { done: true, value: undefined } as const
