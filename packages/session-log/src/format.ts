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

const stamp = {
  id: name,
  // The bound leaves room to go on counting from any file that is accepted.
  seq: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(2 ** 52)),
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
  return { code: 'not_a_session', message: `the header is malformed: ${issueOf(headerSchema, value)}` }
}

/** Whether a parsed first line is a header, with the reason if not. A foreign mark beats everything. */
export function checkHeader(value: unknown): { readonly header: Header } | { readonly problem: HeaderProblem } {
  if (isHeader(value) && !('v' in value) && !('storageVersion' in value)) return { header: value }
  return { problem: headerProblem(value) }
}

/** Whether a parsed later line has the shape of one; says nothing about its place in the file. */
export function isLine(value: unknown): value is Line {
  if (!isObject(value)) return false
  switch (value['kind']) {
    case 'record':
      return v.is(recordSchema, value) && payloadFits('record', value)
    case 'entry':
      return v.is(entrySchema, value) && payloadFits('entry', value)
    default:
      return false
  }
}

/** Checks one parsed line against the lines before it. */
export function checkLine(
  value: unknown,
  known: Known,
): { readonly line: Line } | { readonly problem: Omit<LineProblem, 'line'> } {
  if (!isLine(value)) return { problem: shapeProblem(value) }
  if (value.seq <= known.lastSeq) {
    return { problem: { code: 'falling_seq', message: `seq ${value.seq} after ${known.lastSeq}: it must rise` } }
  }
  if (known.has(value.id))
    return { problem: { code: 'duplicate_id', message: `id ${quote(value.id)} is taken by an earlier line` } }
  const reference = referenceProblem(value, known)
  return reference === undefined ? { line: value } : { problem: reference }
}

/** A line may only refer to entries that stand before it. */
function referenceProblem(line: Line, known: Known): Omit<LineProblem, 'line'> | undefined {
  const names = isEntry(line) ? line.parentId : line.type === 'lane_leaf_set' ? line['leafId'] : null
  if (typeof names !== 'string' || known.hasEntry(names)) return undefined
  return isEntry(line)
    ? { code: 'unknown_parent', message: `parentId ${quote(names)} names no earlier entry` }
    : { code: 'unknown_leaf', message: `leafId ${quote(names)} names no earlier entry` }
}

/** Narrows a line to an entry (`kind` alone does not discriminate beside free payload keys). */
export function isEntry(line: Line): line is EntryLine {
  return line.kind === 'entry'
}

function payloadFits(kind: 'record' | 'entry', value: { readonly [key: string]: unknown }): boolean {
  const schema = payloadSchemas[kind].get(String(value['type']))
  return schema === undefined || v.is(schema, value)
}

function shapeProblem(value: unknown): Omit<LineProblem, 'line'> {
  if (!isObject(value)) return { code: 'bad_line', message: 'the line is not a JSON object' }
  switch (value['kind']) {
    case 'header':
      return { code: 'second_header', message: 'a second header' }
    case 'record':
    case 'entry': {
      const envelope = value['kind'] === 'record' ? recordSchema : entrySchema
      const payload = payloadSchemas[value['kind']].get(String(value['type']))
      const schema = v.is(envelope, value) && payload !== undefined ? payload : envelope
      return { code: 'bad_line', message: `malformed ${value['kind']}: ${issueOf(schema, value)}` }
    }
    default:
      return { code: 'unknown_kind', message: `unknown kind ${quote(String(value['kind']))}` }
  }
}

function issueOf(schema: v.GenericSchema, value: unknown): string {
  const result = v.safeParse(schema, value, { abortEarly: true })
  const issue = result.issues?.[0]
  if (issue === undefined) return 'unexpected shape'
  return sanitiseLine(`${v.getDotPath(issue) ?? 'line'}: ${issue.message}`.slice(0, 300))
}

/** Text from a file inside a message: bounded, nothing in it that a terminal would obey. */
function quote(text: string): string {
  return JSON.stringify(sanitiseLine(text.slice(0, 80)))
}
