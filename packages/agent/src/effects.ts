import { randomBytes } from 'node:crypto'
import { createIdSource } from '@reve/base'

/** Clock, waiting and ids for what runs beside a session; each can be another one in a test. */
export type ServiceEffects = {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Resolves after `ms` milliseconds or at the abort, whichever comes first; does not reject. */
  readonly after: (ms: number, signal: AbortSignal) => Promise<void>
  /** A new id that begins with the prefix; each comes after the one before it. */
  readonly newId: (prefix: string) => string
}

/** The real world. */
export function serviceEffects(now: () => number = Date.now): ServiceEffects {
  return { now, after, newId: createIdSource({ now, random: (count) => randomBytes(count) }) }
}

const LONGEST_TIMER_MS = 2 ** 31 - 1

function after(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    // What a timer cannot hold would fire at once.
    const timer = setTimeout(end, Math.min(ms, LONGEST_TIMER_MS))
    signal.addEventListener('abort', end)
  })
}
