import type { Effects } from './options.ts'

/** How a piece of work ended: by itself, or it was left alone because it did not heed the abort in time. */
export type Waited<T> = { readonly type: 'done'; readonly value: T } | { readonly type: 'left' }

/**
 * Waits for work that should end soon after its signal aborts, and after `graceMs` more waits no longer: what it does
 * then reaches nobody. `work` must not reject.
 */
export async function withGrace<T>(
  work: Promise<T>,
  signal: AbortSignal,
  graceMs: number,
  sleep: Effects['sleep'],
): Promise<Waited<T>> {
  const over = new AbortController()
  try {
    return await Promise.race([
      work.then((value) => ({ type: 'done', value }) as const),
      left(signal, graceMs, sleep, over.signal),
    ])
  } finally {
    over.abort()
  }
}

async function left(
  signal: AbortSignal,
  graceMs: number,
  sleep: Effects['sleep'],
  over: AbortSignal,
): Promise<{ readonly type: 'left' }> {
  await new Promise<void>((resolve) => {
    if (signal.aborted || over.aborted) return resolve()
    signal.addEventListener('abort', () => resolve(), { once: true, signal: over })
    over.addEventListener('abort', () => resolve(), { once: true })
  })
  if (!over.aborted) await sleep(graceMs, over)
  return { type: 'left' }
}

/** What came of something that may throw. */
export type Tried<T> =
  | { readonly type: 'output'; readonly output: T }
  | { readonly type: 'threw'; readonly error: unknown }

/** Starts work and turns every end of it into a value. */
export async function tried<T>(work: () => Promise<T>): Promise<Tried<T>> {
  try {
    return { type: 'output', output: await work() }
  } catch (error) {
    return { type: 'threw', error }
  }
}
