import type { TextView } from '@reve/content-store'

/** Bytes of a result's text that a client's model can be trusted to take in. */
export const resultBytes = 60_000
/** Of these, what is kept for the remark that something is left out. */
const remarkBytes = 500

/** A text within the bound, cut at a line where there is one; what is left out and how to read on is said. */
export function bounded(text: string, howToGoOn: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= resultBytes) return text
  const most = resultBytes - remarkBytes
  const line = bytes.subarray(0, most).lastIndexOf(10)
  let end = line > most / 2 ? line : most
  // Not in the middle of a character.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return `${bytes.subarray(0, end).toString()}\n… ${bytes.length - end} more bytes. ${howToGoOn}`
}

/** Numbered lines of a text, with what a reader should know of them and how to go on. */
export function showText(view: TextView): string {
  const remarks = [
    ...(view.totalLines === 0 ? ['(empty)'] : []),
    ...(view.cutLines.length === 0 ? [] : [`… lines ${view.cutLines.join(', ')} are longer than shown`]),
    ...(view.lossy ? ['… bytes that are not UTF-8 are shown as U+FFFD'] : []),
    ...(view.endsWithNewline || view.next !== null ? [] : ['… the last line has no line feed']),
    ...(view.next === null ? [] : [`… ${view.totalLines - view.lastLine} more lines; go on with offset=${view.next}`]),
  ]
  return [...(view.text === '' ? [] : [view.text]), ...remarks].join('\n')
}
