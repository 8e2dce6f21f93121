import { missHint } from './edit-hint.ts'

/** What replacing one exact text in a file came to. `lines`: where the first matches begin. */
export type EditResult =
  | { readonly type: 'edited'; readonly bytes: Uint8Array; readonly replaced: number }
  | { readonly type: 'absent'; readonly hint?: string }
  | { readonly type: 'ambiguous'; readonly count: number; readonly lines: readonly number[] }

/** Where matches stand in a file; of those that are only counted, the first few. */
type Matches = { readonly count: number; readonly starts: readonly number[]; readonly ends: readonly number[] }

/** Of a text that occurs often, as many places are told. */
const shownPlaces = 20

/**
 * Replaces `old` by `replacement` in a file's bytes: exactly one match, unless `all`. Only the matched span changes, so
 * line endings, a byte order mark and bytes that are not UTF-8 stay as they are. Text with LF, as models write it, stands
 * for the line ends that the file has: it is found whatever these are, and what is put in has those of its place.
 */
export function editText(file: Uint8Array, old: string, replacement: string, all: boolean): EditResult {
  const haystack = Buffer.from(file.buffer, file.byteOffset, file.byteLength)
  // Who writes a carriage return is asking for just that.
  let asWritten = old.includes('\r') || replacement.includes('\r')
  let found = matches(haystack, Buffer.from(old), all)
  if (found.count === 0 && old.includes('\n')) {
    found = matchesOfAnyEnds(haystack, old, all)
    asWritten = false
  }
  if (found.count === 0) {
    const hint = missHint(haystack, old)
    return { type: 'absent', ...(hint === undefined ? {} : { hint }) }
  }
  if (found.count > 1 && !all) {
    return { type: 'ambiguous', count: found.count, lines: linesAt(haystack, found.starts) }
  }
  const lf = Buffer.from(asWritten ? replacement : replacement.replaceAll('\r\n', '\n'))
  const crlf = asWritten ? lf : Buffer.from(lf.toString().replaceAll('\n', '\r\n'))
  return { type: 'edited', bytes: spliced(haystack, found, lf, crlf), replaced: found.count }
}

/** The file with each match replaced: by `crlf` where lines end so, else by `lf`. */
function spliced(haystack: Buffer, { starts, ends }: Matches, lf: Buffer, crlf: Buffer): Buffer {
  const inserted = starts.map((start) => (lf.length === crlf.length || !hasCrlfAt(haystack, start) ? lf : crlf))
  const removed = starts.reduce((sum, start, index) => sum + (ends[index] ?? start) - start, 0)
  const added = inserted.reduce((sum, { length }) => sum + length, 0)
  const result = Buffer.alloc(haystack.length - removed + added)
  let [from, to] = [0, 0]
  for (const [index, start] of starts.entries()) {
    to += haystack.copy(result, to, from, start)
    to += inserted[index]?.copy(result, to) ?? 0
    from = ends[index] ?? start
  }
  haystack.copy(result, to, from)
  return result
}

/** Where `needle` stands; matches that overlap count apart, unless all of them are to be replaced. */
function matches(haystack: Buffer, needle: Buffer, all: boolean): Matches {
  const starts: number[] = []
  let count = 0
  const step = all ? needle.length : 1
  for (let at = haystack.indexOf(needle); at >= 0; at = haystack.indexOf(needle, at + step)) {
    if (all || count < shownPlaces) starts.push(at)
    count++
  }
  return { count, starts, ends: starts.map((start) => start + needle.length) }
}

/** The same, with every CRLF read as LF on both sides. */
function matchesOfAnyEnds(haystack: Buffer, old: string, all: boolean): Matches {
  const flat = Buffer.alloc(haystack.length)
  /** Of each CRLF, where its LF stands in `flat`. */
  const crlfs: number[] = []
  let length = 0
  for (let at = 0; at < haystack.length; at++) {
    if (haystack[at] === 13 && haystack[at + 1] === 10) crlfs.push(length)
    else flat[length++] = haystack[at] ?? 0
  }
  const original = (at: number): number => at + countBelow(crlfs, at)
  const needle = Buffer.from(old.replaceAll('\r\n', '\n'))
  const { count, starts, ends } = matches(flat.subarray(0, length), needle, all)
  return { count, starts: starts.map(original), ends: ends.map(original) }
}

/** How many of the rising `values` are smaller than `limit`. */
function countBelow(values: readonly number[], limit: number): number {
  let [low, high] = [0, values.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((values[middle] ?? 0) < limit) low = middle + 1
    else high = middle
  }
  return low
}

/** Whether the line at `offset` ends in CRLF; of the last line, which has no end, the one before tells. */
function hasCrlfAt(bytes: Buffer, offset: number): boolean {
  const next = bytes.indexOf(10, offset)
  const end = next < 0 && offset > 0 ? bytes.lastIndexOf(10, offset - 1) : next
  return end > 0 && bytes[end - 1] === 13
}

/** Line numbers of rising places. */
function linesAt(bytes: Buffer, places: readonly number[]): readonly number[] {
  let line = 1
  let next = bytes.indexOf(10)
  return places.map((start) => {
    for (; next >= 0 && next < start; next = bytes.indexOf(10, next + 1)) line++
    return line
  })
}
