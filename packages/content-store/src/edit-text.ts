import { StoreError } from './errors.ts'
import type { StorePath } from './types.ts'

export type TextEdit = { readonly bytes: Buffer; readonly lines: readonly number[] }

/** How many lines of a longer list are named in a message. */
const namedLines = 20

/**
 * Replaces `old` by `replacement`, byte for byte: exactly one match, or every one with `all`. In a file whose lines all end in
 * CRLF, text that comes with LF stands for CRLF. Nothing but the matches changes.
 *
 * @returns the new bytes, and the lines on which the matches started.
 * @throws StoreError `no_match`, `ambiguous`, `bad_argument`.
 */
export function editText(path: StorePath, bytes: Buffer, old: string, replacement: string, all: boolean): TextEdit {
  if (old === '')
    throw new StoreError('bad_argument', `${path}: the text to replace is empty`, {
      path,
      hint: 'write the file to set all of it',
    })
  if (!old.isWellFormed() || !replacement.isWellFormed())
    throw new StoreError('bad_argument', `${path}: a text holds half of a surrogate pair`, { path })
  if (old === replacement)
    throw new StoreError('bad_argument', `${path}: the old and the new text are the same`, { path })
  let needle: Buffer = Buffer.from(old)
  let patch: Buffer = Buffer.from(replacement)
  let matches = findAll(bytes, needle)
  if (lineEnds(bytes) === 'crlf' && !/(?<!\r)\r\n/.test(old)) {
    const crlf = Buffer.from(old.replace(/\n/g, '\r\n'))
    if (matches.length === 0 && old.includes('\n')) {
      needle = crlf
      matches = findAll(bytes, needle)
    }
    // New lines in a CRLF file end like the others, also when the old text held none.
    if (matches.length > 0 && !replacement.includes('\r')) patch = Buffer.from(replacement.replace(/\n/g, '\r\n'))
  }
  if (matches.length === 0) throw noMatch(path, bytes, old)
  const lines = linesOf(bytes, matches)
  if (matches.length > 1 && !all) {
    const named = lines.slice(0, namedLines).join(', ') + (lines.length > namedLines ? ', …' : '')
    throw new StoreError('ambiguous', `${path}: the old text matches ${matches.length} times, on lines ${named}`, {
      path,
      lines,
      hint: 'give more of the text around the place, or replace all',
    })
  }
  const parts: Buffer[] = []
  let from = 0
  for (const at of matches) {
    parts.push(bytes.subarray(from, at), patch)
    from = at + needle.length
  }
  parts.push(bytes.subarray(from))
  return { bytes: Buffer.concat(parts), lines }
}

/** Places of all matches, from left to right, none over another. */
function findAll(bytes: Buffer, needle: Buffer): readonly number[] {
  const found: number[] = []
  for (let at = bytes.indexOf(needle); at !== -1; at = bytes.indexOf(needle, at + needle.length)) found.push(at)
  return found
}

/** `crlf` when every line of the file ends in CRLF. */
function lineEnds(bytes: Buffer): 'crlf' | 'lf' | 'mixed' {
  let crlf = 0
  let lf = 0
  for (let at = bytes.indexOf(0x0a); at !== -1; at = bytes.indexOf(0x0a, at + 1)) {
    if (at > 0 && bytes[at - 1] === 0x0d) crlf += 1
    else lf += 1
  }
  return lf === 0 && crlf > 0 ? 'crlf' : crlf === 0 ? 'lf' : 'mixed'
}

function linesOf(bytes: Buffer, places: readonly number[]): readonly number[] {
  const lines: number[] = []
  let line = 1
  let from = 0
  for (const place of places) {
    for (let at = bytes.indexOf(0x0a, from); at !== -1 && at < place; at = bytes.indexOf(0x0a, at + 1)) line += 1
    from = place
    lines.push(line)
  }
  return lines
}

/** Says where the text nearly is: the first line of the old text that the file has, with other blanks at most. */
function noMatch(path: StorePath, bytes: Buffer, old: string): StoreError {
  const ends = lineEnds(bytes)
  const squeeze = (line: string): string => line.trim().replace(/\s+/g, ' ')
  const wanted = old
    .split('\n')
    .map(squeeze)
    .find((line) => line !== '')
  let near: number | undefined
  if (wanted !== undefined && bytes.length < 4 << 20) {
    const lines = bytes.toString('utf8').split('\n')
    const index = lines.findIndex((line) => squeeze(line) === wanted)
    const loose = index === -1 && wanted.length > 3 ? lines.findIndex((line) => squeeze(line).includes(wanted)) : index
    if (loose !== -1) near = loose + 1
  }
  const mixed =
    ends === 'mixed' && old.includes('\n')
      ? '; its lines end partly in CRLF and partly in LF, so the exact bytes are needed'
      : ''
  return new StoreError(
    'no_match',
    `${path}: the old text is not there${near === undefined ? '' : `; line ${near} is like its beginning`}${mixed}`,
    {
      path,
      ...(near === undefined ? {} : { lines: [near] }),
      hint: 'read the file again and give the text exactly, blanks included',
    },
  )
}
