/** Calls back after a time, so that a test needs not wait; what it returns takes the call back. */
export type After = (ms: number, callback: () => void) => () => void

const systemAfter: After = (ms, callback) => {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}

/** Counts who needs the VM, and says when nobody has for a while. */
export class Leases {
  readonly #idleMs: number
  readonly #onIdle: () => void
  readonly #after: After
  #held = 0
  #cancel: () => void = () => undefined

  constructor(idleMs: number, onIdle: () => void, after: After = systemAfter) {
    this.#idleMs = idleMs
    this.#onIdle = onIdle
    this.#after = after
  }

  /** Takes a lease; what it returns gives it back, once. */
  take(): () => void {
    this.cancel()
    this.#held += 1
    let mine = true
    return () => {
      if (!mine) return
      mine = false
      this.#held -= 1
      if (this.#held === 0) this.#cancel = this.#after(this.#idleMs, this.#onIdle)
    }
  }

  /** Stops counting until the next release. */
  cancel(): void {
    this.#cancel()
    this.#cancel = () => undefined
  }
}
