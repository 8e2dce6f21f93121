import { sanitiseLine } from '@reve/base'
import type { After } from '@reve/sandbox-microvm'

/** Shows what a running command last wrote. */
export type OutputProgress = {
  add(stream: 'stdout' | 'stderr', chunk: Uint8Array): void
  /** Nothing is shown any more. */
  end(): void
}

/** What time it is, and a way to be called later. */
export type Clock = { readonly now: () => number; readonly after: After }

/** The system's. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms)
    return () => clearTimeout(timer)
  },
}

const everyMs = 200
const shownCharacters = 200
/** A longer line is not shown. */
const longestLine = 4096

/**
 * The newest line of a command's output, given to `show` at most every 200 ms and never late by more. Only lines that are
 * whole, cut between two words: in a part of a word a secret would not be known as one.
 */
export function outputProgress(show: (line: string) => void, clock: Clock): OutputProgress {
  const streams = { stdout: createLines(), stderr: createLines() }
  let shownAt = Number.NEGATIVE_INFINITY
  let latest: string | undefined
  let cancel: (() => void) | undefined

  const flush = (): void => {
    cancel = undefined
    if (latest === undefined) return
    shownAt = clock.now()
    show(latest)
    latest = undefined
  }

  return {
    add(stream, chunk) {
      const line = streams[stream](chunk)
      if (line === undefined) return
      latest = line
      if (cancel !== undefined) return
      const wait = shownAt + everyMs - clock.now()
      if (wait <= 0) flush()
      else cancel = clock.after(wait, flush)
    },
    end() {
      cancel?.()
      latest = undefined
    },
  }
}

/** Takes a stream's chunks, and gives the last line worth showing that one brought to its end. */
function createLines(): (chunk: Uint8Array) => string | undefined {
  const utf8 = new TextDecoder('utf-8')
  let rest = ''
  let isTooLong = false
  return (chunk) => {
    const pieces = (rest + utf8.decode(chunk, { stream: true })).split(/[\r\n]+/)
    const ended = isTooLong ? pieces.slice(1, -1) : pieces.slice(0, -1)
    isTooLong &&= pieces.length === 1
    rest = pieces.at(-1) ?? ''
    if (rest.length > longestLine) isTooLong = true
    if (isTooLong) rest = ''
    return ended.map(shortened).findLast((line) => line !== undefined)
  }
}

function shortened(line: string): string | undefined {
  const clean = sanitiseLine(line).trim()
  if (clean.length <= shownCharacters) return clean === '' ? undefined : clean
  const end = clean.lastIndexOf(' ', shownCharacters)
  return end > 0 ? `${clean.slice(0, end)} …` : undefined
}
