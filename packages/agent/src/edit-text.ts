/** What replacing one exact text in a file came to. */
export type EditResult =
  | { readonly type: 'edited'; readonly bytes: Uint8Array; readonly replaced: number }
  | { readonly type: 'absent'; readonly hint?: string }
  | { readonly type: 'ambiguous'; readonly lines: readonly number[] }

/**
 * Replaces `old` by `replacement` in a file's bytes: exactly one match, unless `all`. Only the matched span changes, so
 * line endings, a byte order mark and bytes that are not UTF-8 stay as they are. A file that uses CRLF throughout takes
 * text with LF, as models write it.
 */
export function editText(file: Uint8Array, old: string, replacement: string, all: boolean): EditResult {
  const haystack = Buffer.from(file.buffer, file.byteOffset, file.byteLength)
  const direct = Buffer.from(old)
  let needle = direct
  let insert = Buffer.from(replacement)
  let found = matches(haystack, needle)
  if (found.length === 0 && usesCrlf(haystack)) {
    needle = Buffer.from(toCrlf(old))
    insert = Buffer.from(toCrlf(replacement))
    found = matches(haystack, needle)
  }
  if (found.length === 0) {
    return /^\s*\d+\s{2}/m.test(old)
      ? { type: 'absent', hint: 'leave out the line numbers that read shows' }
      : { type: 'absent' }
  }
  if (found.length > 1 && !all) return { type: 'ambiguous', lines: found.map((at) => lineAt(haystack, at)) }
  const pieces: Buffer[] = []
  let from = 0
  for (const at of found) {
    pieces.push(haystack.subarray(from, at), insert)
    from = at + needle.length
  }
  pieces.push(haystack.subarray(from))
  return { type: 'edited', bytes: Buffer.concat(pieces), replaced: found.length }
}

function matches(haystack: Buffer, needle: Buffer): readonly number[] {
  const found: number[] = []
  for (let at = haystack.indexOf(needle); at >= 0; at = haystack.indexOf(needle, at + needle.length)) found.push(at)
  return found
}

const toCrlf = (text: string): string => text.replaceAll('\r\n', '\n').replaceAll('\n', '\r\n')

function usesCrlf(bytes: Buffer): boolean {
  let at = bytes.indexOf(10)
  if (at < 0) return false
  for (; at >= 0; at = bytes.indexOf(10, at + 1)) if (at === 0 || bytes[at - 1] !== 13) return false
  return true
}

function lineAt(bytes: Buffer, offset: number): number {
  let line = 1
  for (let at = bytes.indexOf(10); at >= 0 && at < offset; at = bytes.indexOf(10, at + 1)) line++
  return line
}
