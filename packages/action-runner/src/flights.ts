import { ActionError } from './errors.ts'
import type { OnOutput } from './watch.ts'

type Flight<T> = {
  readonly result: Promise<T>
  readonly abort: AbortController
  readonly listeners: Set<OnOutput>
  riders: number
}

/** Runs that go on now, by key. Several who ask for the same one share it; it is stopped when the last of them leaves. */
export class Flights<T> {
  readonly #byKey = new Map<string, Flight<T>>()
  readonly #all = new Set<Flight<T>>()

  /**
   * Starts a run, or joins the one of the same key.
   *
   * @param options.alone starts a run of its own, which others may still join.
   * @throws ActionError `cancelled` for one who leaves a run that others still wait for.
   */
  async ride(
    key: string,
    start: (signal: AbortSignal, emit: OnOutput) => Promise<T>,
    options: {
      readonly alone: boolean
      readonly signal: AbortSignal | undefined
      readonly onOutput: OnOutput | undefined
    },
  ): Promise<T> {
    const { signal, onOutput } = options
    if (signal?.aborted === true) throw cancelled()
    const known = options.alone ? undefined : this.#byKey.get(key)
    const flight = known === undefined || known.abort.signal.aborted ? this.#begin(key, start) : known
    flight.riders += 1
    if (onOutput !== undefined) flight.listeners.add(onOutput)
    const left = Promise.withResolvers<never>()
    const leave = (): void => {
      flight.riders -= 1
      if (onOutput !== undefined) flight.listeners.delete(onOutput)
      if (flight.riders === 0) flight.abort.abort()
      else left.reject(cancelled())
    }
    signal?.addEventListener('abort', leave, { once: true })
    try {
      return await Promise.race([flight.result, left.promise])
    } finally {
      signal?.removeEventListener('abort', leave)
    }
  }

  #begin(key: string, start: (signal: AbortSignal, emit: OnOutput) => Promise<T>): Flight<T> {
    const abort = new AbortController()
    const listeners = new Set<OnOutput>()
    const result = start(abort.signal, (stream, chunk) => {
      for (const listener of listeners) listener(stream, chunk)
    }).finally(() => {
      this.#all.delete(flight)
      if (this.#byKey.get(key) === flight) this.#byKey.delete(key)
    })
    const flight: Flight<T> = { result, abort, listeners, riders: 0 }
    this.#byKey.set(key, flight)
    this.#all.add(flight)
    return flight
  }

  /** Stops all runs and waits until each has cleaned up. */
  async stopAll(): Promise<void> {
    const flights = [...this.#all]
    for (const flight of flights) flight.abort.abort()
    await Promise.allSettled(flights.map((flight) => flight.result))
  }
}

/** The error of a run that was called off before its process began, or by one of several who wait for it. */
export function cancelled(): ActionError {
  return new ActionError('cancelled', 'the action was cancelled before it had a result')
}
