import { shownCharacters } from './spill.ts'

/** Some lines of a file, and how many it has. `isCut`: the bytes end in the middle of a line. */
export type FileLines = { readonly bytes: Uint8Array; readonly total: number; readonly isCut: boolean }

/** The lines from `first` on, at most `limit`, of a whole file. */
export function linesOf(
  file: Uint8Array,
  { first, limit }: { readonly first: number; readonly limit: number | undefined },
): FileLines {
  let line = 1
  let start = file.length
  let end = file.length
  if (first === 1) start = 0
  for (let at = file.indexOf(10); at >= 0; at = file.indexOf(10, at + 1)) {
    line++
    if (line === first) start = at + 1
    if (limit !== undefined && line === first + limit) end = at + 1
  }
  const isEnded = file.length === 0 || file.at(-1) === 10
  return { bytes: file.subarray(start, Math.max(start, end)), total: isEnded ? line - 1 : line, isCut: false }
}

/** Whether these bytes, which may be the beginning of more, are text. */
export const isText = (bytes: Uint8Array): boolean =>
  !bytes.includes(0) && decoded(bytes.subarray(0, Math.max(0, bytes.lastIndexOf(10) + 1) || undefined)).isUtf8

/** What a part of a file comes to as numbered lines. `last` is the number of the last line that is shown. */
export type ShownLines =
  | { readonly type: 'lines'; readonly text: string; readonly last: number; readonly notes: readonly string[] }
  /** There is no text in these bytes. */
  | { readonly type: 'binary' }
  /** Not even the first line fits. */
  | { readonly type: 'too_long' }

/** Left for what is said about the lines. */
const roomForNotes = 300
/** Of a text in another encoding; more of them, and it is no text. */
const mostReplaced = 0.2

/**
 * Bytes of a file as numbered lines, as many as a result holds.
 *
 * @param first the number of their first line.
 * @param isCut whether the bytes end in the middle of a line.
 */
export function shownLines(bytes: Uint8Array, first: number, isCut: boolean): ShownLines {
  if (bytes.includes(0)) return { type: 'binary' }
  const whole = isCut ? bytes.subarray(0, bytes.lastIndexOf(10) + 1) : bytes
  if (whole.length === 0) return { type: 'too_long' }
  const { text, isUtf8 } = decoded(whole)
  if (!isUtf8 && text.split('\uFFFD').length - 1 > text.length * mostReplaced) return { type: 'binary' }
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  const ended = text.endsWith('\n') ? lines : lines.slice(0, -1)
  const isCrlf = ended.length > 0 && ended.every((line) => line.endsWith('\r'))
  const shown: string[] = []
  let room = shownCharacters - roomForNotes
  for (const [index, line] of lines.entries()) {
    const numbered = `${String(first + index).padStart(5)}  ${isCrlf ? line.replace(/\r$/, '') : line}`
    room -= numbered.length + 1
    if (room < 0) break
    shown.push(numbered)
  }
  if (shown.length === 0) return { type: 'too_long' }
  const notes = [
    ...(isCrlf ? ['The lines end in CRLF; edit keeps that.'] : []),
    ...(isUtf8 ? [] : ['Bytes that are not UTF-8 are shown as \uFFFD; edit keeps those that it does not replace.']),
  ]
  return { type: 'lines', text: shown.join('\n'), last: first + shown.length - 1, notes }
}

function decoded(bytes: Uint8Array): { readonly text: string; readonly isUtf8: boolean } {
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes), isUtf8: true }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), isUtf8: false }
  }
}
