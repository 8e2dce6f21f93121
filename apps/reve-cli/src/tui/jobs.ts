import type { Store } from './store.ts'

const shownLines = 200

/** What goes on beside the run: each can be ended, and none keeps anything else from going on. */
export class Jobs {
  readonly #store: Store
  readonly #now: () => number
  readonly #running = new Map<number, AbortController>()
  #count = 0

  constructor(store: Store, now: () => number) {
    this.#store = store
    this.#now = now
  }

  /** Undefined when it was ended. */
  async run<T>(
    label: string,
    work: (signal: AbortSignal, show: (text: string) => void) => Promise<T>,
  ): Promise<T | undefined> {
    const id = ++this.#count
    const control = new AbortController()
    this.#running.set(id, control)
    this.#store.set({ jobs: [...this.#store.state.jobs, { id, label, since: this.#now(), output: [] }] })
    const show = (text: string): void => {
      const lines = text.replace(/\n$/, '').split('\n')
      this.#store.set({
        jobs: this.#store.state.jobs.map((job) =>
          job.id === id ? { ...job, output: [...job.output, ...lines].slice(-shownLines) } : job,
        ),
      })
    }
    try {
      return await work(control.signal, show)
    } catch (error) {
      if (control.signal.aborted) return undefined
      throw error
    } finally {
      this.#running.delete(id)
      this.#store.set({ jobs: this.#store.state.jobs.filter((job) => job.id !== id) })
    }
  }

  /** Ends the newest; false when there is none. */
  endLast(): boolean {
    const last = [...this.#running.values()].at(-1)
    last?.abort()
    return last !== undefined
  }

  endAll(): void {
    for (const control of this.#running.values()) control.abort()
  }
}
