/**
 * Writes the test vectors: `node test/make-vectors.ts`. A vector says what a file is and what a reader must make of it, written
 * down by hand and not asked of our own reader, so that a reader in another language can be held against the same files.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

type Part = string | object | Uint8Array
type Good = {
  readonly about: string
  readonly keep: readonly Part[]
  /** What a crash left at the end. */
  readonly tail?: Part
  /** Default: `whole` without a tail, else `torn`. */
  readonly kind?: 'no_newline'
  readonly entries: number
  readonly records: number
  /** Each lane's leaf. */
  readonly leaves: { readonly [lane: string]: string | null }
  readonly facts?: { readonly [key: string]: unknown }
}
type Refused = {
  readonly about: string
  readonly keep: readonly Part[]
  readonly line: number
  readonly problem: string
  /** From the bad line on. */
  readonly rest: readonly Part[]
}
type NoHeader = { readonly about: string; readonly code: string; readonly bytes: readonly Part[] }

const ts = '2026-01-05T10:00:00.000Z'
const header = { kind: 'header', version: 4, id: 's_1', cwd: 'workspace', ts }
const user = (text: string) => ({ role: 'user', content: [{ type: 'text', text }] })
const entry = (seq: number, parentId: string | null, over: object = {}) => ({
  kind: 'entry',
  id: `e_${seq}`,
  seq,
  ts,
  lane: 'main',
  type: 'message',
  parentId,
  message: user(`message ${seq}`),
  ...over,
})
const record = (seq: number, over: object = {}) => ({
  kind: 'record',
  id: `r_${seq}`,
  seq,
  ts,
  lane: 'main',
  type: 'usage',
  ...over,
})
const leafSet = (seq: number, leafId: unknown, over: object = {}) =>
  record(seq, { type: 'lane_leaf_set', leafId, ...over })
const bytes = (...values: number[]) => Uint8Array.from(values)

/** A string stands for itself, an object for its line with the LF. */
const bytesOf = (parts: readonly Part[]) =>
  Buffer.concat(
    parts.map((part) =>
      part instanceof Uint8Array
        ? part
        : Buffer.from(typeof part === 'string' ? part : `${JSON.stringify(part)}\n`, 'utf8'),
    ),
  )
const cut = (line: object, drop: number) => bytesOf([line]).subarray(0, -1 - drop)

const base = [header, entry(1, null), record(2), entry(3, 'e_1')]
const whole = { keep: base, entries: 2, records: 1, leaves: { main: 'e_3' } } as const
const euro = entry(4, 'e_3', { message: user('€') })
/** The euro sign's bytes are followed by those of `"}]}}`. */
const inEuro = (kept: 1 | 2) => cut(euro, 5 + 3 - kept)

const good: { readonly [name: string]: Good } = {
  'header-only': { about: 'nothing but a header', keep: [header], entries: 0, records: 0, leaves: {} },
  'header-seed': {
    about: 'a header without ts, with a key of the writer’s own',
    keep: [{ kind: 'header', version: 4, id: 's_1', cwd: '', mine: [1, { a: null }] }],
    entries: 0,
    records: 0,
    leaves: {},
  },
  plain: { about: 'two entries and a record', ...whole },
  'records-removed': {
    about: 'the same conversation without its records',
    keep: base.filter((line) => line.kind !== 'record'),
    entries: 2,
    records: 0,
    leaves: { main: 'e_3' },
  },
  lanes: {
    about:
      'a lane that starts at an entry of another one, a lane moved by lane_leaf_set, one moved to nothing, one of records only',
    keep: [
      ...base,
      entry(4, 'e_1', { lane: 'side' }),
      leafSet(5, 'e_1'),
      entry(6, null, { lane: 'third' }),
      leafSet(7, null, { lane: 'third' }),
      record(8, { lane: 'fourth' }),
    ],
    entries: 4,
    records: 4,
    leaves: { main: 'e_1', side: 'e_4', third: null, fourth: null },
  },
  'entry-after-leaf-set': {
    about: 'an entry after a lane_leaf_set is the leaf again',
    keep: [...base, leafSet(4, 'e_1'), entry(5, 'e_1')],
    entries: 3,
    records: 2,
    leaves: { main: 'e_5' },
  },
  facts: {
    about: 'the last value of a fact counts, in whatever lane; null is a value',
    keep: [
      header,
      record(1, { type: 'fact_set', key: 'name', value: 'old' }),
      record(2, { type: 'fact_set', key: 'name', value: 'new', lane: 'side' }),
      record(3, { type: 'fact_set', key: 'label:e_1', value: null }),
    ],
    entries: 0,
    records: 3,
    leaves: { main: null, side: null },
    facts: { name: 'new', 'label:e_1': null },
  },
  compaction: {
    about: 'a compaction entry, and one that keeps nothing',
    keep: [
      ...base,
      entry(4, 'e_3', { type: 'compaction', message: undefined, summary: 'so far', firstKeptEntryId: 'e_3' }),
      entry(5, 'e_4', { type: 'compaction', message: undefined, summary: '', firstKeptEntryId: null }),
    ],
    entries: 4,
    records: 1,
    leaves: { main: 'e_5' },
  },
  'unknown-types': {
    about: 'types that nobody knows, keys named like those of an object’s prototype, gaps in seq',
    keep: [
      header,
      '{"kind":"record","id":"r_1","seq":7,"ts":"2026-01-05T10:00:00Z","lane":"main","type":"from_the_future","__proto__":{"a":1},"constructor":2}\n',
      entry(4503599627370496, null, { type: 'sketch', message: undefined, id: 'e_1' }),
    ],
    entries: 1,
    records: 1,
    leaves: { main: 'e_1' },
  },
  'other-spelling': {
    about: 'keys in another order, spaces, escapes, a carriage return before the LF',
    keep: [
      header,
      '{ "type" : "message", "message":{"role":"user","content":[]}, "id":"\\u0065_1","seq":1e0,"lane":"main","parentId":null,"ts":"2026-01-05T10:00:00.000000001Z","kind":"entry"}\r\n',
      entry(2, 'e_1'),
    ],
    entries: 2,
    records: 0,
    leaves: { main: 'e_2' },
  },
  'line-separators': {
    about: 'U+2028, U+2029 and U+0085 stand inside of lines and end none',
    keep: [header, entry(1, null, { message: user('a\u2028b\u2029c\u0085d') })],
    entries: 1,
    records: 0,
    leaves: { main: 'e_1' },
  },
  'lone-surrogate-escape': {
    about: 'an escaped lone surrogate: our writers make none, readers take it',
    keep: [header, `${JSON.stringify(entry(1, null)).replace('message 1', String.raw`half \ud83d`)}\n`],
    entries: 1,
    records: 0,
    leaves: { main: 'e_1' },
  },
  'tail-no-newline': {
    about: 'a whole last line without its LF: kept, and completed',
    keep: [...base, cut(entry(4, 'e_3'), 0)],
    kind: 'no_newline',
    entries: 3,
    records: 1,
    leaves: { main: 'e_4' },
  },
  'tail-no-newline-header': {
    about: 'a header without its LF',
    keep: [cut(header, 0)],
    kind: 'no_newline',
    entries: 0,
    records: 0,
    leaves: {},
  },
  'tail-cut-string': { about: 'cut inside of a string', ...whole, tail: cut(entry(4, 'e_3'), 12) },
  'tail-cut-bracket': { about: 'only the last bracket is missing', ...whole, tail: cut(entry(4, 'e_3'), 1) },
  'tail-cut-key': { about: 'cut inside of the first key', ...whole, tail: '{"ki' },
  'tail-one-byte': { about: 'one byte of a line', ...whole, tail: '{' },
  'tail-garbage': { about: 'no LF and not JSON at all', ...whole, tail: 'kind' },
  'tail-cut-utf8-1': { about: 'cut after the first of three bytes of a character', ...whole, tail: inEuro(1) },
  'tail-cut-utf8-2': { about: 'cut after the second of three bytes of a character', ...whole, tail: inEuro(2) },
  'tail-cut-lf': { about: 'a cut line with an LF', ...whole, tail: bytesOf([cut(entry(4, 'e_3'), 12), '\n']) },
  'tail-cut-escape-lf': { about: 'cut inside of an escape, with an LF', ...whole, tail: '{"a":"\\u00\n' },
  'tail-cut-utf8-lf': { about: 'a cut character with an LF', ...whole, tail: bytesOf([inEuro(2), '\n']) },
  'tail-cut-blank': { about: 'a cut line and blank ones', ...whole, tail: '{"kind":"entry"\r\n \t\n\n' },
  'tail-blank': { about: 'blank lines', ...whole, tail: '\n\r\n  \n' },
  'tail-blank-no-newline': { about: 'a blank line without LF', ...whole, tail: ' ' },
  'tail-zeros': { about: 'a lost block: zero bytes, no LF', ...whole, tail: new Uint8Array(512) },
  'tail-zeros-inside': {
    about: 'a lost block inside of the last line, which has its LF',
    ...whole,
    tail: bytesOf([cut(entry(4, 'e_3'), 30), new Uint8Array(40), '"}]}}\n']),
  },
  'tail-zeros-lf': { about: 'zero bytes with an LF', ...whole, tail: bytesOf([new Uint8Array(16), '\n']) },
}

const flipped = () => {
  const line = Buffer.from(bytesOf([entry(4, 'e_3')]))
  line[line.indexOf('"lane"')] = 0x02
  return line
}
const refused: { readonly [name: string]: Refused } = {
  'not_json-middle': {
    about: 'a cut line in the middle',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: ['{"kind":"ent\n', entry(5, 'e_3')],
  },
  'not_json-glued': {
    about: 'a cut line with a whole one glued to it',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: ['{"kind":"ent', entry(5, 'e_3')],
  },
  'not_json-zeros-middle': {
    about: 'a lost block with a line after it',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: [new Uint8Array(512), '\n', entry(5, 'e_3')],
  },
  'not_json-last-flip': {
    about: 'a bit flip in a last line that has its LF',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: [flipped()],
  },
  'not_json-last-flip-blank': {
    about: 'the same before blank lines',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: [flipped(), '\n\n'],
  },
  'not_json-last-foreign': {
    about: 'a last line of something else',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: ['Monday, cloudy\n'],
  },
  'not_json-last-extra': {
    about: 'a last line with something after its object',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: [cut(entry(4, 'e_3'), 0), '}\n'],
  },
  'not_json-bom': {
    about: 'a byte order mark in a later line',
    keep: base,
    line: 5,
    problem: 'not_json',
    rest: ['\ufeff', entry(4, 'e_3')],
  },
  'not_utf8-middle': {
    about: 'a cut character in the middle',
    keep: base,
    line: 5,
    problem: 'not_utf8',
    rest: [inEuro(1), '"}]}}\n', entry(5, 'e_3')],
  },
  'not_utf8-last': {
    about: 'a last line with its LF that is not UTF-8',
    keep: base,
    line: 5,
    problem: 'not_utf8',
    rest: ['{"a":"', bytes(0xff), '"}\n'],
  },
  'not_utf8-surrogate': {
    about: 'a surrogate as UTF-8',
    keep: base,
    line: 5,
    problem: 'not_utf8',
    rest: ['{"a":"', bytes(0xed, 0xa0, 0xbd), '"}\n'],
  },
  'not_utf8-overlong': {
    about: 'an overlong form',
    keep: base,
    line: 5,
    problem: 'not_utf8',
    rest: ['{"a":"', bytes(0xc0, 0xaf), '"}\n'],
  },
  'blank-middle': {
    about: 'a blank line in the middle',
    keep: base,
    line: 5,
    problem: 'blank',
    rest: [' \r\n', entry(5, 'e_3')],
  },
  'blank-before-tail': {
    about: 'a blank line before a cut one',
    keep: base,
    line: 5,
    problem: 'blank',
    rest: ['\n', '{"kind"'],
  },
  'unknown_kind-other': {
    about: 'a kind that nobody knows',
    keep: base,
    line: 5,
    problem: 'unknown_kind',
    rest: [{ ...entry(4, 'e_3'), kind: 'checkpoint' }],
  },
  'unknown_kind-none': {
    about: 'no kind',
    keep: base,
    line: 5,
    problem: 'unknown_kind',
    rest: [{ id: 'e_4', seq: 4 }],
  },
  'second_header-last': { about: 'a second header', keep: base, line: 5, problem: 'second_header', rest: [header] },
  'bad_line-scalar': {
    about: 'JSON, but no object, without LF',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: ['42'],
  },
  'bad_line-array': { about: 'a list', keep: base, line: 5, problem: 'bad_line', rest: ['[]\n'] },
  'bad_line-no-parent': {
    about: 'an entry without parentId',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [{ ...entry(4, null), parentId: undefined }],
  },
  'bad_line-message-null': {
    about: 'a message that is null',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { message: null })],
  },
  'bad_line-message-list': {
    about: 'a message that is a list',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { message: [] })],
  },
  'bad_line-compaction': {
    about: 'a compaction without summary',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { type: 'compaction', firstKeptEntryId: null })],
  },
  'bad_line-fact': {
    about: 'a fact without value',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [record(4, { type: 'fact_set', key: 'name' })],
  },
  'bad_line-leaf': {
    about: 'a lane_leaf_set without leafId',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [record(4, { type: 'lane_leaf_set' })],
  },
  'bad_line-seq-zero': { about: 'seq 0', keep: [header], line: 2, problem: 'bad_line', rest: [entry(0, null)] },
  'bad_line-seq-fraction': {
    about: 'a seq with a fraction',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4.5, 'e_3')],
  },
  'bad_line-seq-huge': {
    about: 'a seq that cannot be counted on',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(2 ** 52 + 2, 'e_3')],
  },
  'bad_line-ts': {
    about: 'a time with an offset',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { ts: '2026-01-05T10:00:00+01:00' })],
  },
  'bad_line-id-control': {
    about: 'an id with a control character',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { id: 'e\u0000' })],
  },
  'bad_line-id-long': {
    about: 'an id of 257 characters',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { id: 'e'.repeat(257) })],
  },
  'bad_line-lane-empty': {
    about: 'an empty lane',
    keep: base,
    line: 5,
    problem: 'bad_line',
    rest: [entry(4, 'e_3', { lane: '' })],
  },
  'falling_seq-less': {
    about: 'a falling seq',
    keep: base,
    line: 5,
    problem: 'falling_seq',
    rest: [entry(2, 'e_3', { id: 'e_x' })],
  },
  'falling_seq-equal': {
    about: 'an equal seq',
    keep: base,
    line: 5,
    problem: 'falling_seq',
    rest: [entry(3, 'e_3', { id: 'e_x' })],
  },
  'duplicate_id-entry': {
    about: 'an entry’s id twice',
    keep: base,
    line: 5,
    problem: 'duplicate_id',
    rest: [entry(4, 'e_3', { id: 'e_1' })],
  },
  'duplicate_id-both': {
    about: 'an entry with the id of a record',
    keep: base,
    line: 5,
    problem: 'duplicate_id',
    rest: [entry(4, 'e_3', { id: 'r_2' })],
  },
  'unknown_parent-nobody': {
    about: 'a parent that is not there',
    keep: base,
    line: 5,
    problem: 'unknown_parent',
    rest: [entry(4, 'e_9')],
  },
  'unknown_parent-later': {
    about: 'a parent that comes later',
    keep: base,
    line: 5,
    problem: 'unknown_parent',
    rest: [entry(4, 'e_5'), entry(5, null)],
  },
  'unknown_parent-self': {
    about: 'an entry that is its own parent',
    keep: base,
    line: 5,
    problem: 'unknown_parent',
    rest: [entry(4, 'e_4')],
  },
  'unknown_parent-record': {
    about: 'a record as parent',
    keep: base,
    line: 5,
    problem: 'unknown_parent',
    rest: [entry(4, 'r_2')],
  },
  'unknown_leaf-nobody': {
    about: 'a leaf that is not there',
    keep: base,
    line: 5,
    problem: 'unknown_leaf',
    rest: [leafSet(4, 'e_9')],
  },
  'unknown_leaf-record': {
    about: 'a record as leaf',
    keep: base,
    line: 5,
    problem: 'unknown_leaf',
    rest: [leafSet(4, 'r_2')],
  },
}

const noHeader: { readonly [name: string]: NoHeader } = {
  'not_a_session-empty': { about: 'an empty file', code: 'not_a_session', bytes: [] },
  'not_a_session-text': { about: 'a text', code: 'not_a_session', bytes: ['Dear diary\n', header] },
  'not_a_session-binary': { about: 'bytes', code: 'not_a_session', bytes: [bytes(0x7f, 0x45, 0x4c, 0x46, 0, 0, 0x0a)] },
  'not_a_session-cut': { about: 'a cut header', code: 'not_a_session', bytes: ['{"kind":"header","version":4,"id"'] },
  'not_a_session-blank-first': {
    about: 'a blank line before the header',
    code: 'not_a_session',
    bytes: ['\n', header],
  },
  'not_a_session-bom': {
    about: 'a byte order mark before the header',
    code: 'not_a_session',
    bytes: ['\ufeff', header],
  },
  'not_a_session-entry-first': { about: 'no header', code: 'not_a_session', bytes: [entry(1, null)] },
  'not_a_session-no-id': {
    about: 'a header without id',
    code: 'not_a_session',
    bytes: [{ kind: 'header', version: 4, cwd: '' }],
  },
  'not_a_session-version-text': {
    about: 'a version that is no number',
    code: 'not_a_session',
    bytes: [{ ...header, version: '4' }],
  },
  'foreign_format-session-3': {
    about: 'a session of another program',
    code: 'foreign_format',
    bytes: [{ type: 'session', version: 3, id: 'x', cwd: '/' }],
  },
  'foreign_format-v': { about: 'a header with v', code: 'foreign_format', bytes: [{ ...header, v: 5 }] },
  'foreign_format-storage-version': {
    about: 'a header with storageVersion',
    code: 'foreign_format',
    bytes: [{ ...header, storageVersion: 1 }],
  },
  'newer_version-5': {
    about: 'version 5',
    code: 'newer_version',
    bytes: [{ ...header, version: 5 }, { anything: true }],
  },
  'older_version-3': { about: 'version 3', code: 'older_version', bytes: [{ ...header, version: 3 }] },
}

const place = join(dirname(fileURLToPath(import.meta.url)), 'vectors')
const write = (file: string, content: Uint8Array) => {
  mkdirSync(dirname(join(place, file)), { recursive: true })
  writeFileSync(join(place, file), content)
}
for (const folder of ['good', 'refused']) rmSync(join(place, folder), { recursive: true, force: true })

const vectors: object[] = []
for (const [name, { about, keep, tail, kind, entries, records, leaves, facts }] of Object.entries(good)) {
  const file = `good/${name}.jsonl`
  const kept = bytesOf(keep)
  write(file, tail === undefined ? kept : bytesOf([kept, tail]))
  vectors.push({
    file,
    about,
    verdict: 'good',
    tail: kind ?? (tail === undefined ? 'whole' : 'torn'),
    bytesAfterOpening: kept.length + (kind === 'no_newline' ? 1 : 0),
    entries,
    records,
    leaves,
    ...(facts && { facts }),
  })
}
for (const [name, { about, keep, line, problem, rest }] of Object.entries(refused)) {
  const file = `refused/${name}.jsonl`
  write(file, bytesOf([...keep, ...rest]))
  vectors.push({ file, about, verdict: 'refused', code: 'corrupt', line, problem, goodBytes: bytesOf(keep).length })
}
// Too big to keep: such a file is its parts, one after the other.
vectors.push({
  parts: [{ file: 'good/plain.jsonl' }, { text: '{"a":"' }, { repeat: 'x', times: 64 * 1024 * 1024 }, { text: '"}\n' }],
  about: 'a last line of more than 64 MiB',
  verdict: 'refused',
  code: 'corrupt',
  line: 5,
  problem: 'too_long',
  goodBytes: bytesOf(base).length,
})
for (const [name, { about, code, bytes }] of Object.entries(noHeader)) {
  const file = `refused/${name}.jsonl`
  write(file, bytesOf(bytes))
  vectors.push({ file, about, verdict: 'refused', code, line: 1 })
}
vectors.push({
  parts: [
    { text: '{"kind":"header","version":4,"id":"s_1","cwd":"' },
    { repeat: 'x', times: 1024 * 1024 },
    { text: '"}\n' },
  ],
  about: 'a header of more than 1 MiB',
  verdict: 'refused',
  code: 'not_a_session',
  line: 1,
})
write('vectors.json', Buffer.from(`${JSON.stringify({ format: 4, vectors }, null, 2)}\n`))
