/** A clock that goes on when a test says so. */
export type FakeClock = {
  readonly now: () => number
  readonly after: (ms: number, signal: AbortSignal) => Promise<void>
  /** Puts the clock on (or back), and waits until somebody sleeps again who looks at it often. */
  readonly advance: (ms: number) => Promise<void>
  readonly asleep: () => Promise<void>
}

/** @param pollMs who sleeps longer than that is waiting for something else. */
export function fakeClock(start: number, pollMs = 5000): FakeClock {
  let time = start
  let sleepers: { readonly until: number; readonly polls: boolean; readonly wake: () => void }[] = []
  const watchers: (() => void)[] = []
  const asleep = (): Promise<void> =>
    new Promise((resolve) => {
      if (sleepers.some(({ polls }) => polls)) resolve()
      else watchers.push(resolve)
    })
  return {
    now: () => time,
    after: (ms, signal) =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve()
        const sleeper = {
          until: time + ms,
          polls: ms <= pollMs,
          wake: () => {
            sleepers = sleepers.filter((other) => other !== sleeper)
            resolve()
          },
        }
        signal.addEventListener('abort', sleeper.wake)
        sleepers.push(sleeper)
        if (!sleeper.polls) return
        for (const watcher of watchers.splice(0)) watcher()
      }),
    asleep,
    advance: async (ms) => {
      time += ms
      // Whoever polls would have looked by now, wherever the clock was put.
      for (const sleeper of sleepers.filter(({ until, polls }) => polls || until <= time)) sleeper.wake()
      await asleep()
    },
  }
}
