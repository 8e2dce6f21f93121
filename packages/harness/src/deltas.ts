import type { Cleaner } from './clean.ts'

/** Longest stretch without a space that is held back: a secret up to this length is never shown in part. */
const heldBack = 128
/** Longest key that is held back from its `-----BEGIN` on: beyond, a text that only mentions one would never show. */
const longestKey = 16_384

/** Text that arrives in pieces, cleaned as if it had come whole. */
export type DeltaFilter = {
  /** Takes a piece, gives what can be shown by now; often ''. */
  push(delta: string): string
  /** What was held back, at the end. */
  flush(): string
}

/**
 * Cleans a stream: a secret or a surrogate pair that is cut between two deltas must not slip through. What may be the
 * beginning of a secret waits for the next piece: what the redaction says (`Redact.unfinished`), else the last word (at
 * most 128 characters of it) and a key (`-----BEGIN`, at most 16 384 characters) that may go on. With no redaction only
 * half a pair waits.
 *
 * Lines of progress that a tool shows are no stream: each is cleaned on its own.
 */
export function createDeltaFilter(cleaner: Cleaner, redacts: boolean): DeltaFilter {
  let waiting = ''
  return {
    push(delta) {
      waiting += delta
      const cut = pairSafe(waiting, redacts ? settledEnd(cleaner, waiting) : waiting.length)
      if (cut <= 0) return ''
      const head = waiting.slice(0, cut)
      const tail = waiting.slice(cut)
      const shown = cleaner.text(head)
      // A secret that spans the cut is only seen in the whole: then nothing is shown yet.
      if (redacts && tail !== '' && shown + cleaner.text(tail) !== cleaner.text(waiting)) return ''
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

/** Where the part of a text ends that nothing to come can make a part of a secret. */
function settledEnd(cleaner: Cleaner, text: string): number {
  const unfinished = cleaner.unfinished(text)
  return unfinished === undefined
    ? Math.min(lastWord(text), unfinishedKey(text))
    : text.length - Math.min(Math.max(unfinished, 0), text.length)
}

function lastWord(text: string): number {
  const space = text.search(/\s\S*$/)
  return Math.max(space + 1, text.length - heldBack, 0)
}

const keyBegin = '-----BEGIN '
// Line breaks after it, and a chain of keys, may belong to the same secret: something else has to follow.
const wholeKeys = /-----BEGIN [^]*?-----END [^\n]{0,64}?-----\s*(?:[^\s-]|-[^-])/y

/** Where the first key begins that may go on; the end of the text when there is none. */
function unfinishedKey(text: string): number {
  let from = text.indexOf(keyBegin)
  while (from >= 0) {
    wholeKeys.lastIndex = from
    const isWhole = wholeKeys.test(text)
    if (!isWhole && text.length - from <= longestKey) return from
    from = text.indexOf(keyBegin, isWhole ? wholeKeys.lastIndex : from + 1)
  }
  return text.length
}

/** Moves a cut that would part a surrogate pair to before it. */
function pairSafe(text: string, cut: number): number {
  const before = text.charCodeAt(cut - 1)
  return before >= 0xd800 && before <= 0xdbff ? cut - 1 : cut
}
