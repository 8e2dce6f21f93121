/** Wakes those who wait for something to be there. */
export type Bell = {
  readonly ring: () => void
  /** Resolves at the next ring, or at the abort. */
  readonly next: (signal: AbortSignal) => Promise<void>
}

/** A bell that nobody has rung. */
export function createBell(): Bell {
  let waiting = new Set<() => void>()
  return {
    ring: () => {
      const woken = waiting
      waiting = new Set()
      for (const wake of woken) wake()
    },
    next: (signal) =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve()
        const wake = (): void => {
          waiting.delete(wake)
          signal.removeEventListener('abort', wake)
          resolve()
        }
        waiting.add(wake)
        signal.addEventListener('abort', wake)
      }),
  }
}
