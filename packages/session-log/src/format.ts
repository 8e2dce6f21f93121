import { sanitiseLine } from '@reve/base'
import * as v from 'valibot'
import { isObject, type JsonObject } from './json.ts'

/** The version that this package reads and writes. */
export const FORMAT_VERSION = 4

/** Longest line, in bytes, its LF not counted. Large outputs belong beside the log, not in it. */
export const MAX_LINE_BYTES = 64 * 1024 * 1024

/** Longest header, in bytes: what is longer is some other file. */
export const MAX_HEADER_BYTES = 1024 * 1024

/** The first line of a session. `cwd` is whatever the writer calls its working folder; further keys are the writer's own. */
export type Header = {
  readonly kind: 'header'
  readonly version: 4
  readonly id: string
  readonly cwd: string
  /** When it was created: ISO, UTC. Written always, but a header without it is read. */
  readonly ts?: string
} & JsonObject

type Stamp = {
  /** Unique in the file over both kinds. */
  readonly id: string
  /** Strictly rising over the file; gaps are allowed. */
  readonly seq: number
  /** ISO, UTC, milliseconds. */
  readonly ts: string
  readonly lane: string
}

/** Bookkeeping. Payload fields stand beside the envelope. */
export type RecordLine = Stamp & { readonly kind: 'record'; readonly type: string } & JsonObject

/**
 * One entry of the conversation tree. `message` carries `message`, `compaction` carries `summary` and
 * `firstKeptEntryId`, `custom` carries `customType` and `data`; other types are kept as they are.
 */
export type EntryLine = Stamp & {
  readonly kind: 'entry'
  readonly type: string
  /** An earlier entry of any lane; null for a root. */
  readonly parentId: string | null
} & JsonObject

/** Any line after the header. */
export type Line = RecordLine | EntryLine

/** What can be wrong with one line. Closed: a reader in another language can use the same names. */
export type LineProblemCode =
  | 'not_utf8'
  | 'not_json'
  | 'too_long'
  | 'blank'
  | 'unknown_kind'
  | 'second_header'
  | 'bad_line'
  | 'falling_seq'
  | 'duplicate_id'
  | 'unknown_parent'
  | 'unknown_leaf'

/** One problem. `line` counts from 1, the header. */
export type LineProblem = { readonly line: number; readonly code: LineProblemCode; readonly message: string }

/** Why a first line is not a header that we read. */
export type HeaderProblem = {
  readonly code: 'not_a_session' | 'foreign_format' | 'newer_version' | 'older_version'
  readonly message: string
}

/** Names (ids, lanes, types) are short and have no control characters: they end up in messages and file names. */
// oxlint-disable-next-line no-control-regex
const NAME = /^[^\u0000-\u001f\u007f-\u009f]{1,256}$/
const ISO_UTC = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/
const name = v.pipe(v.string(), v.regex(NAME, 'expected 1 to 256 characters without control characters'))
const isoTime = v.pipe(v.string(), v.regex(ISO_UTC, 'expected an ISO time in UTC'))

const headerSchema = v.looseObject({
  kind: v.literal('header'),
  version: v.literal(FORMAT_VERSION),
  id: name,
  cwd: v.string(),
  ts: v.optional(isoTime),
})

/** Leaves room to go on counting from any file that is accepted. */
const MAX_SEQ = 2 ** 52

const stamp = {
  id: name,
  seq: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_SEQ)),
  ts: isoTime,
  lane: name,
  type: name,
}
const recordSchema = v.looseObject({ kind: v.literal('record'), ...stamp })
const entrySchema = v.looseObject({ kind: v.literal('entry'), ...stamp, parentId: v.nullable(name) })

/** Payloads that the log itself, or every reader of it, relies on. All others are the writer's own. */
const payloadSchemas = {
  record: new Map<string, v.GenericSchema>([
    ['lane_leaf_set', v.looseObject({ leafId: v.nullable(name) })],
    ['fact_set', v.looseObject({ key: v.pipe(v.string(), v.nonEmpty()), value: v.unknown() })],
  ]),
  entry: new Map<string, v.GenericSchema>([
    ['message', v.looseObject({ message: v.custom<object>(isObject, 'expected an object') })],
    ['compaction', v.looseObject({ summary: v.string(), firstKeptEntryId: v.nullable(name) })],
  ]),
} as const

/** What a line of that kind and type must fit, one after the other. */
export function schemasOf(kind: 'record' | 'entry', type: unknown): readonly v.GenericSchema[] {
  const payload = payloadSchemas[kind].get(String(type))
  return [kind === 'record' ? recordSchema : entrySchema, ...(payload === undefined ? [] : [payload])]
}

/** Keys of the envelope: a payload cannot carry them. */
export const RESERVED_KEYS: ReadonlySet<string> = new Set(['kind', 'id', 'seq', 'ts', 'lane', 'type', 'parentId'])

/** Keys of the header, and those by which other formats are told apart: `extra` cannot carry them. */
export const RESERVED_HEADER_KEYS: ReadonlySet<string> = new Set([
  'kind',
  'version',
  'id',
  'cwd',
  'ts',
  'v',
  'storageVersion',
])

/** What is known when a line is read: the lines before it. */
export interface Known {
  readonly lastSeq: number
  has(id: string): boolean
  hasEntry(id: string): boolean
}

/** Whether a value is a header that this package reads. */
export function isHeader(value: unknown): value is Header {
  return v.is(headerSchema, value)
}

/** Says why the first line of a file is not a header that this package reads. */
export function headerProblem(value: unknown): HeaderProblem {
  if (!isObject(value)) return { code: 'not_a_session', message: 'the first line is not a session header' }
  // Other programs' sessions, and layouts that come after this one, are told apart by where they keep their version.
  if ('v' in value || 'storageVersion' in value || value['type'] === 'session') {
    return { code: 'foreign_format', message: 'this is a session of another program or format' }
  }
  if (value['kind'] !== 'header') return { code: 'not_a_session', message: 'the first line is not a session header' }
  const version = value['version']
  if (typeof version === 'number' && version > FORMAT_VERSION) {
    return {
      code: 'newer_version',
      message: `format version ${version} is newer than ${FORMAT_VERSION}; update to read it`,
    }
  }
  if (typeof version === 'number' && version < FORMAT_VERSION) {
    return {
      code: 'older_version',
      message: `format version ${version} is older than ${FORMAT_VERSION} and is not supported`,
    }
  }
  return {
    code: 'not_a_session',
    message: `the header is malformed: ${issueOf(headerSchema, value) ?? 'unexpected shape'}`,
  }
}

/** Whether a parsed first line is a header, with the reason if not. A foreign mark beats everything. */
export function checkHeader(value: unknown): { readonly header: Header } | { readonly problem: HeaderProblem } {
  if (isHeader(value) && !('v' in value) && !('storageVersion' in value)) return { header: value }
  return { problem: headerProblem(value) }
}

/**
 * Whether a parsed later line has the shape of one; says nothing about its place in the file. By hand, because it is asked
 * for every line of a file: the schemas say the same (a test holds them together) and explain what is wrong.
 */
export function isLine(value: unknown): value is Line {
  if (!isObject(value)) return false
  const { kind, id, seq, ts, lane, type } = value
  if (!isName(id) || !isSeq(seq) || !isTime(ts) || !isName(lane) || !isName(type)) return false
  switch (kind) {
    case 'record':
      return recordFits(type, value)
    case 'entry':
      return isReference(value['parentId']) && entryFits(type, value)
    default:
      return false
  }
}

const isName = (value: unknown): value is string => typeof value === 'string' && NAME.test(value)
const isTime = (value: unknown) => typeof value === 'string' && ISO_UTC.test(value)
const isSeq = (value: unknown) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_SEQ
const isReference = (value: unknown) => value === null || isName(value)

function recordFits(type: string, value: { readonly [key: string]: unknown }): boolean {
  switch (type) {
    case 'lane_leaf_set':
      return isReference(value['leafId'])
    case 'fact_set':
      return typeof value['key'] === 'string' && value['key'] !== '' && 'value' in value
    default:
      return true
  }
}

function entryFits(type: string, value: { readonly [key: string]: unknown }): boolean {
  switch (type) {
    case 'message':
      return isObject(value['message'])
    case 'compaction':
      return typeof value['summary'] === 'string' && isReference(value['firstKeptEntryId'])
    default:
      return true
  }
}

/** Checks one parsed line against the lines before it. */
export function checkLine(
  value: unknown,
  known: Known,
): { readonly line: Line } | { readonly problem: Omit<LineProblem, 'line'> } {
  if (!isLine(value)) return { problem: shapeProblem(value) }
  const names = isEntry(value) ? value.parentId : value.type === 'lane_leaf_set' ? value['leafId'] : null
  const place = { kind: value.kind, id: value.id, seq: value.seq, names: typeof names === 'string' ? names : null }
  const problem = placeProblem(place, known)
  return problem === undefined ? { line: value } : { problem }
}

/** Checks where a line stands: after all before it, once, and `names` (a parent, a leaf) only an entry that is there. */
export function placeProblem(
  line: {
    readonly kind: 'record' | 'entry'
    readonly id: string
    readonly seq: number
    readonly names: string | null
  },
  known: Known,
): Omit<LineProblem, 'line'> | undefined {
  const { kind, id, seq, names } = line
  if (seq <= known.lastSeq) return { code: 'falling_seq', message: `seq ${seq} after ${known.lastSeq}: it must rise` }
  if (known.has(id)) return { code: 'duplicate_id', message: `id ${quote(id)} is taken by an earlier line` }
  if (names === null || known.hasEntry(names)) return undefined
  return kind === 'entry'
    ? { code: 'unknown_parent', message: `parentId ${quote(names)} names no earlier entry` }
    : { code: 'unknown_leaf', message: `leafId ${quote(names)} names no earlier entry` }
}

/** Narrows a line to an entry (`kind` alone does not discriminate beside free payload keys). */
export function isEntry(line: Line): line is EntryLine {
  return line.kind === 'entry'
}

function shapeProblem(value: unknown): Omit<LineProblem, 'line'> {
  if (!isObject(value)) return { code: 'bad_line', message: 'the line is not a JSON object' }
  switch (value['kind']) {
    case 'header':
      return { code: 'second_header', message: 'a second header' }
    case 'record':
    case 'entry': {
      const issue = schemasOf(value['kind'], value['type']).reduce<string | undefined>(
        (found, schema) => found ?? issueOf(schema, value),
        undefined,
      )
      return { code: 'bad_line', message: `malformed ${value['kind']}: ${issue ?? 'unexpected shape'}` }
    }
    default:
      return { code: 'unknown_kind', message: `unknown kind ${quote(String(value['kind']))}` }
  }
}

function issueOf(schema: v.GenericSchema, value: unknown): string | undefined {
  const result = v.safeParse(schema, value, { abortEarly: true })
  const issue = result.issues?.[0]
  if (issue === undefined) return undefined
  return sanitiseLine(`${v.getDotPath(issue) ?? 'line'}: ${issue.message}`.slice(0, 300))
}

/** Text from a file inside a message: bounded, nothing in it that a terminal would obey. */
function quote(text: string): string {
  return JSON.stringify(sanitiseLine(text.slice(0, 80)))
}
