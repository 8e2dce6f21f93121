/** How many runs go on at once; those who wait are let in in the order in which they came. */
export class Turnstile {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(places: number) {
    this.#free = places
  }

  /**
   * Waits for a place.
   *
   * @returns what gives it back, once.
   * @throws the signal's reason if it aborts first.
   */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted()
    if (this.#free > 0) this.#free -= 1
    else await this.#wait(signal)
    return () => this.#leave()
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const onAbort = (): void => {
      // The place may have been given in the same turn: then it is kept, and whoever asks next sees the signal.
      const index = this.#waiting.indexOf(resolve)
      if (index === -1) return
      this.#waiting.splice(index, 1)
      reject(signal.reason)
    }
    this.#waiting.push(resolve)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      await promise
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  #leave(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#free += 1
    else next()
  }
}
