import { isUtf8 } from 'node:buffer'

/** A part of a text as numbered lines, in the manner of `cat -n`. */
export type TextView = {
  /** Each line as its number, a tab and its text; no newline at the end. */
  readonly text: string
  /** 1-based; 0 when nothing is shown. */
  readonly firstLine: number
  readonly lastLine: number
  readonly totalLines: number
  /** The offset with which to go on, or null at the end. */
  readonly next: number | null
  /** Lines of which only the beginning is shown. */
  readonly cutLines: readonly number[]
  /** Whether bytes that are not UTF-8 are shown as U+FFFD. */
  readonly lossy: boolean
  /** Whether the last line ends with a newline (true for an empty text). */
  readonly endsWithNewline: boolean
}

export type ViewOptions = {
  /** First line, 1-based (default 1). */
  readonly offset?: number | undefined
  /** Most lines (default 2000). */
  readonly limit?: number | undefined
  /** Most characters of one line (default 2000). */
  readonly maxLineCharacters?: number | undefined
  /** Most characters in all (default 50,000). */
  readonly maxCharacters?: number | undefined
}

/** Bytes that are looked at to tell text from binary; git's number. */
const sniffBytes = 8000

/** The one rule for binary: a NUL byte near the beginning. */
export const isBinary = (bytes: Uint8Array): boolean => bytes.subarray(0, sniffBytes).includes(0)

/** Shows a part of a text. */
export function viewText(bytes: Buffer, options: ViewOptions = {}): TextView {
  const offset = Math.max(1, Math.trunc(options.offset ?? 1))
  const limit = Math.max(1, Math.trunc(options.limit ?? 2000))
  const maxLine = options.maxLineCharacters ?? 2000
  const maxCharacters = options.maxCharacters ?? 50_000
  const shown: string[] = []
  const cutLines: number[] = []
  let characters = 0
  let line = 0
  let next: number | null = null
  for (let start = 0; start < bytes.length;) {
    line += 1
    const newline = bytes.indexOf(0x0a, start)
    const end = newline === -1 ? bytes.length : newline
    if (line >= offset && next === null) {
      const text = lineText(bytes, start, end, maxLine)
      const row = `${String(line).padStart(6)}\t${text.shown}`
      if (shown.length >= limit || (shown.length > 0 && characters + row.length > maxCharacters)) next = line
      else {
        if (text.cut) cutLines.push(line)
        shown.push(row)
        characters += row.length + 1
      }
    }
    start = end + 1
  }
  return {
    text: shown.join('\n'),
    firstLine: shown.length === 0 ? 0 : offset,
    lastLine: shown.length === 0 ? 0 : offset + shown.length - 1,
    totalLines: line,
    next,
    cutLines,
    lossy: !isUtf8(bytes),
    endsWithNewline: bytes.length === 0 || bytes.at(-1) === 0x0a,
  }
}

function lineText(
  bytes: Buffer,
  start: number,
  end: number,
  most: number,
): { readonly shown: string; readonly cut: boolean } {
  // A carriage return belongs to the line's end, not to what is read.
  const stop = end > start && bytes[end - 1] === 0x0d ? end - 1 : end
  // A character has at most four bytes: the rest of a huge line is never decoded.
  const text = bytes.toString('utf8', start, Math.min(stop, start + most * 4))
  if (text.length <= most && start + most * 4 >= stop) return { shown: text, cut: false }
  const kept = text.slice(0, most)
  const whole = kept.isWellFormed() ? kept : kept.slice(0, -1)
  return { shown: `${whole}… [line cut: it has ${stop - start} bytes]`, cut: true }
}

const signatures: readonly { readonly mime: string; readonly at: number; readonly bytes: string }[] = [
  { mime: 'image/png', at: 0, bytes: '\x89PNG\r\n\x1a\n' },
  { mime: 'image/jpeg', at: 0, bytes: '\xff\xd8\xff' },
  { mime: 'image/gif', at: 0, bytes: 'GIF8' },
  { mime: 'image/webp', at: 8, bytes: 'WEBP' },
  { mime: 'application/pdf', at: 0, bytes: '%PDF-' },
  { mime: 'application/zip', at: 0, bytes: 'PK\x03\x04' },
  { mime: 'application/gzip', at: 0, bytes: '\x1f\x8b' },
  { mime: 'application/x-elf', at: 0, bytes: '\x7fELF' },
  { mime: 'application/wasm', at: 0, bytes: '\0asm' },
]

/** The type of a few well-known kinds of files, by their first bytes. */
export function sniffType(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.subarray(0, 16)).toString('latin1')
  return signatures.find((known) => head.startsWith(known.bytes, known.at))?.mime
}
