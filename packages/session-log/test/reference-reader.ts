import type { JsonObject } from '../src/index.ts'

/** What a file is, said by {@link referenceRead}. */
export type Verdict =
  | { readonly verdict: 'no header' }
  | { readonly verdict: 'corrupt'; readonly line: number }
  | {
      readonly verdict: 'good'
      readonly lines: readonly JsonObject[]
      readonly goodBytes: number
      readonly mended: boolean
    }

/**
 * A second reader of the format, written from its page and nothing else: slow, plain, all in memory, no code in common
 * with the first. Fuzzing holds one against the other. Whether a text is cut it asks the engine's own parser, which says
 * where it stopped.
 */
export function referenceRead(bytes: Buffer): Verdict {
  const raw: { readonly bytes: Buffer; readonly end: number; readonly lf: boolean }[] = []
  for (let from = 0; from < bytes.length;) {
    const lf = bytes.indexOf(0x0a, from)
    const end = lf === -1 ? bytes.length : lf + 1
    raw.push({ bytes: bytes.subarray(from, lf === -1 ? end : lf), end, lf: lf !== -1 })
    from = end
  }
  const head = raw[0] === undefined ? undefined : parse(raw[0].bytes)
  if (raw[0] === undefined || head === undefined || !('value' in head) || !isHeader(head.value))
    return { verdict: 'no header' }

  const isBlank = (line: Buffer) => line.every((byte) => [0x20, 0x09, 0x0d].includes(byte))
  const lastWithText = raw.findLastIndex((line) => !isBlank(line.bytes))
  const lines: JsonObject[] = []
  const ids = new Map<unknown, unknown>()
  let seq = 0
  let good = raw[0]
  for (const [index, line] of raw.entries()) {
    if (index === 0) continue
    if (index > lastWithText) break
    const corrupt = { verdict: 'corrupt', line: index + 1 } as const
    if (isBlank(line.bytes)) return corrupt
    const parsed = parse(line.bytes)
    if (!('value' in parsed)) {
      const torn = !line.lf || line.bytes.includes(0) || parsed.cut
      if (index === lastWithText && torn) break
      return corrupt
    }
    const { value } = parsed
    if (!isLine(value) || Number(value['seq']) <= seq || ids.has(value['id'])) return corrupt
    const refers =
      value['kind'] === 'entry' ? value['parentId'] : value['type'] === 'lane_leaf_set' ? value['leafId'] : null
    if (refers !== null && ids.get(refers) !== 'entry') return corrupt
    ids.set(value['id'], value['kind'])
    seq = Number(value['seq'])
    lines.push(value)
    good = line
  }
  return { verdict: 'good', lines, goodBytes: good.end, mended: good.end < bytes.length || !good.lf }
}

type Parsed = { readonly value: unknown } | { readonly cut: boolean }

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function parse(bytes: Buffer): Parsed {
  const decode = (part: Buffer) => {
    try {
      return strict.decode(part)
    } catch {
      return undefined
    }
  }
  const text = decode(bytes)
  if (text !== undefined) return parseText(text)
  // A streaming decoder keeps an unfinished character back, and complains about any other.
  try {
    const begun = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: true })
    // It is part of a cut line only inside of a string: there any character would do in its place.
    const rest = begun.length === 0 ? { cut: false } : parseText(`${begun}x`)
    return { cut: 'cut' in rest && rest.cut }
  } catch {
    return { cut: false }
  }
}

function parseText(text: string): Parsed {
  try {
    return { value: JSON.parse(text) }
  } catch (error) {
    const { message } = error instanceof SyntaxError ? error : new Error('no syntax error')
    const position = /at position (\d+)/.exec(message)?.[1]
    const cut =
      /Unexpected end|Unterminated string/.test(message) || (position !== undefined && Number(position) >= text.length)
    return { cut }
  }
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isName = (value: unknown) =>
  typeof value === 'string' &&
  value.length >= 1 &&
  value.length <= 256 &&
  ![...value].some((char) => char < ' ' || (char >= '\u007f' && char <= '\u009f'))
const isTime = (value: unknown) =>
  typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$/.test(value)

function isHeader(value: unknown): boolean {
  return (
    isObject(value) &&
    !Object.hasOwn(value, 'v') &&
    !Object.hasOwn(value, 'storageVersion') &&
    value['kind'] === 'header' &&
    value['version'] === 4 &&
    isName(value['id']) &&
    typeof value['cwd'] === 'string' &&
    (!Object.hasOwn(value, 'ts') || isTime(value['ts']))
  )
}

function isLine(value: unknown): value is JsonObject {
  if (!isObject(value)) return false
  const { kind, id, seq, ts, lane, type } = value
  if (!isName(id) || !isName(lane) || !isName(type) || !isTime(ts)) return false
  if (typeof seq !== 'number' || !Number.isInteger(seq) || seq < 1 || seq > 2 ** 52) return false
  const refers = (key: string) => value[key] === null || isName(value[key])
  if (kind === 'entry') {
    if (!refers('parentId')) return false
    if (type === 'message') return isObject(value['message'])
    return type !== 'compaction' || (typeof value['summary'] === 'string' && refers('firstKeptEntryId'))
  }
  if (kind !== 'record') return false
  if (type === 'lane_leaf_set') return refers('leafId')
  return (
    type !== 'fact_set' || (typeof value['key'] === 'string' && value['key'] !== '' && Object.hasOwn(value, 'value'))
  )
}
