import type { Cleaner } from './clean.ts'

/** Longest stretch without a space that is held back: a secret up to this length is never shown in part. */
const heldBack = 128

/** Text that arrives in pieces, cleaned as if it had come whole. */
export type DeltaFilter = {
  /** Takes a piece, gives what can be shown by now; often ''. */
  push(delta: string): string
  /** What was held back, at the end. */
  flush(): string
}

/**
 * Cleans a stream: a secret or a surrogate pair that is cut between two deltas must not slip through. The unfinished
 * last word (at most 128 characters of it) waits for the next piece; with no redaction only half a pair does.
 */
export function createDeltaFilter(cleaner: Cleaner, redacts: boolean): DeltaFilter {
  let waiting = ''
  return {
    push(delta) {
      waiting += delta
      const cut = pairSafe(waiting, redacts ? lastWord(waiting) : waiting.length)
      const head = waiting.slice(0, cut)
      const tail = waiting.slice(cut)
      const shown = cleaner.text(head)
      // A secret that spans the cut is only seen in the whole: then nothing is shown yet.
      if (shown + cleaner.text(tail) !== cleaner.text(waiting) && redacts) return ''
      waiting = tail
      return shown
    },
    flush() {
      const shown = cleaner.text(waiting)
      waiting = ''
      return shown
    },
  }
}

function lastWord(text: string): number {
  const space = text.search(/\s\S*$/)
  return Math.max(space + 1, text.length - heldBack, 0)
}

/** Moves a cut that would part a surrogate pair to before it. */
function pairSafe(text: string, cut: number): number {
  const before = text.charCodeAt(cut - 1)
  return before >= 0xd800 && before <= 0xdbff ? cut - 1 : cut
}
