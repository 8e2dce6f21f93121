import { existsSync, readFileSync, statSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { openSession, readSession, verifySession } from '../src/index.ts'
import type { JsonObject } from '../src/index.ts'
import { bytesOf, entry, failure, fileOf, header, linesOn, note, record } from './helpers.ts'

const good = [header, entry(1, null), record(2), entry(3, 'e_1')] as const
const e = (seq: number, parentId: string | null, over: JsonObject = {}) => entry(seq, parentId, over)

describe('a tail that a crash leaves is mended, and the next append round-trips', () => {
  const euro = Buffer.from('{"kind":"entry","data":"€')
  const tails: Record<string, readonly (string | Uint8Array)[]> = {
    'a cut line': ['{"kind":"entry","id":"e_9","se'],
    'a cut line and a blank one': ['{"kind":"entry","id":"e_9","se', '\n\n'],
    'a cut line with an LF': ['{"kind":"entry"', '\n'],
    'a cut line, CR and spaces': ['{"kind":"entry"', '\r\n \t\n'],
    'blank lines only': ['\n\n\n'],
    'a blank line without LF': ['  '],
    'one byte': ['{'],
    'a character cut after one byte': [euro.subarray(0, -2)],
    'a character cut after two bytes': [euro.subarray(0, -1)],
    'zeros, as a lost block leaves them': [new Uint8Array(5000)],
  }
  test.each(Object.entries(tails))('%s is cut', async (_name, tail) => {
    const file = fileOf(...good, ...tail)
    const whole = bytesOf(...good)
    const torn = bytesOf(...tail).length

    const seen = await readSession(file)
    expect(seen.torn).toBe(true)
    expect(seen.lines.map((line) => line.id)).toEqual(['e_1', 'r_2', 'e_3'])
    expect(await verifySession(file)).toMatchObject({
      ok: true,
      tail: 'torn',
      lines: 4,
      entries: 2,
      records: 1,
      problems: [],
    })
    expect(statSync(file).size).toBe(whole.length + torn)

    const log = await openSession(file)
    expect(log.repaired).toEqual({ kind: 'torn_tail_cut', bytes: torn })
    expect(readFileSync(file)).toEqual(whole)
    const [line] = await log.append([note('after')])
    await log.close()
    expect(readFileSync(file)).toEqual(Buffer.concat([whole, Buffer.from(`${JSON.stringify(line)}\n`)]))
    const again = await openSession(file)
    expect(again.repaired).toBeUndefined()
    expect(again.lines.at(-1)).toEqual(line)
    expect(again.path(again.leaf('main')).map(({ id }) => id)).toEqual(['e_1', 'e_3', line?.id])
    await again.close()
  })

  test('a last line that parses and lacks its LF is kept and completed', async () => {
    const file = fileOf(...good, JSON.stringify(e(4, 'e_3', { data: 'ü' })))
    expect(await readSession(file)).toMatchObject({ torn: true, lines: { length: 4 } })
    expect((await verifySession(file)).tail).toBe('no_newline')
    const log = await openSession(file)
    expect(log.repaired).toEqual({ kind: 'newline_added', bytes: 1 })
    expect(log.leaf('main')).toBe('e_4')
    await log.append([note(1)])
    await log.close()
    expect(linesOn(file)).toHaveLength(6)
  })

  test('a lone header without LF is completed, too', async () => {
    const file = fileOf(JSON.stringify(header))
    await using log = await openSession(file)
    expect(log.repaired?.kind).toBe('newline_added')
    expect(readFileSync(file)).toEqual(bytesOf(header))
  })

  test('every cut of a file inside its last line keeps exactly the lines before it', async () => {
    const whole = bytesOf(...good)
    const last = bytesOf(e(4, 'e_3', { data: 'ä€𝄞' }))
    for (let kept = 1; kept < last.length - 1; kept++) {
      const file = fileOf(whole, last.subarray(0, kept))
      await using log = await openSession(file)
      expect(log.repaired).toEqual({ kind: 'torn_tail_cut', bytes: kept })
      expect(readFileSync(file)).toEqual(whole)
    }
  })
})

describe('what no crash can produce is refused with its line, and no byte changes', () => {
  const cases: Record<string, { readonly bytes: Buffer; readonly line: number; readonly problem: string }> = {
    'a cut line in the middle': {
      bytes: bytesOf(header, e(1, null), '{"kind":"ent\n', e(3, 'e_1')),
      line: 3,
      problem: 'not_json',
    },
    'a cut line with a good one glued on': {
      bytes: bytesOf(header, e(1, null), '{"kind":"ent', e(3, 'e_1'), e(4, 'e_1')),
      line: 3,
      problem: 'not_json',
    },
    'invalid UTF-8 in the middle': {
      bytes: bytesOf(header, Buffer.from([0x22, 0xe2, 0x82, 0x22, 0x0a]), e(3, null)),
      line: 2,
      problem: 'not_utf8',
    },
    'a blank line in the middle': { bytes: bytesOf(header, e(1, null), '\n', e(3, 'e_1')), line: 3, problem: 'blank' },
    'zeros in the middle': {
      bytes: bytesOf(header, new Uint8Array(512), '\n', e(3, null)),
      line: 2,
      problem: 'not_json',
    },
    'a falling seq': { bytes: bytesOf(header, e(2, null), e(1, 'e_2')), line: 3, problem: 'falling_seq' },
    'an equal seq': { bytes: bytesOf(header, e(2, null), record(2)), line: 3, problem: 'falling_seq' },
    'a second header': { bytes: bytesOf(header, e(1, null), header), line: 3, problem: 'second_header' },
    'an unknown kind': {
      bytes: bytesOf(header, { ...e(1, null), kind: 'checkpoint' }),
      line: 2,
      problem: 'unknown_kind',
    },
    'no kind': { bytes: bytesOf(header, { id: 'e_1', seq: 1 }), line: 2, problem: 'unknown_kind' },
    'an unknown parent': { bytes: bytesOf(header, e(1, 'e_0')), line: 2, problem: 'unknown_parent' },
    'a parent that comes later': {
      bytes: bytesOf(header, e(1, 'e_2'), e(2, null)),
      line: 2,
      problem: 'unknown_parent',
    },
    'a record as parent': { bytes: bytesOf(header, record(1), e(2, 'r_1')), line: 3, problem: 'unknown_parent' },
    'a duplicate entry': {
      bytes: bytesOf(header, e(1, null), e(2, null, { id: 'e_1' })),
      line: 3,
      problem: 'duplicate_id',
    },
    'an id shared by a record': {
      bytes: bytesOf(header, e(1, null), record(2, { id: 'e_1' })),
      line: 3,
      problem: 'duplicate_id',
    },
    'a leaf that is not there': {
      bytes: bytesOf(header, record(1, { type: 'lane_leaf_set', leafId: 'e_7' })),
      line: 2,
      problem: 'unknown_leaf',
    },
    'an entry without parentId': { bytes: bytesOf(header, record(1, { kind: 'entry' })), line: 2, problem: 'bad_line' },
    'a message that is null': {
      bytes: bytesOf(header, e(1, null, { type: 'message', message: null })),
      line: 2,
      problem: 'bad_line',
    },
    'a compaction without summary': {
      bytes: bytesOf(header, e(1, null, { type: 'compaction' })),
      line: 2,
      problem: 'bad_line',
    },
    'a fact without key': {
      bytes: bytesOf(header, record(1, { type: 'fact_set', value: 1 })),
      line: 2,
      problem: 'bad_line',
    },
    'seq as text': { bytes: bytesOf(header, e(1, null, { seq: '1' })), line: 2, problem: 'bad_line' },
    'seq that is no integer': { bytes: bytesOf(header, e(1, null, { seq: 1.5 })), line: 2, problem: 'bad_line' },
    'a ts that is no time': { bytes: bytesOf(header, e(1, null, { ts: 'today' })), line: 2, problem: 'bad_line' },
    'a lane with control characters': {
      bytes: bytesOf(header, e(1, null, { lane: 'a\u001b[2J' })),
      line: 2,
      problem: 'bad_line',
    },
    'an array': { bytes: bytesOf(header, [1]), line: 2, problem: 'bad_line' },
    'a last line that parses and is wrong, without LF': {
      bytes: bytesOf(header, JSON.stringify(e(1, 'e_0'))),
      line: 2,
      problem: 'unknown_parent',
    },
  }
  test.each(Object.entries(cases))('%s', async (_name, { bytes, line, problem }) => {
    const file = fileOf(bytes)
    for (const open of [openSession, readSession]) {
      const error = await failure(open(file))
      expect(error).toMatchObject({ code: 'corrupt', line, file })
      expect(error.message.startsWith(`${file}:${line}: `)).toBe(true)
    }
    const report = await verifySession(file)
    expect(report.ok).toBe(false)
    expect(report.problems[0]).toMatchObject({ line, code: problem })
    expect(readFileSync(file)).toEqual(bytes)
  })

  const heads: Record<string, { readonly bytes: Buffer; readonly code: string }> = {
    'an empty file': { bytes: Buffer.alloc(0), code: 'not_a_session' },
    'a text': { bytes: bytesOf('Dear diary,\nnothing happened.\n'), code: 'not_a_session' },
    'a program': { bytes: Buffer.from([0x7f, 0x45, 0x4c, 0x46, 0, 0, 0xff, 0xfe]), code: 'not_a_session' },
    'two megabytes without LF': { bytes: Buffer.alloc(2 * 1024 * 1024, 0x61), code: 'not_a_session' },
    'JSON lines of something else': { bytes: bytesOf({ a: 1 }, { a: 2 }), code: 'not_a_session' },
    'a session without its header': { bytes: bytesOf(e(1, null)), code: 'not_a_session' },
    'a cut header': { bytes: bytesOf('{"kind":"header","version":4'), code: 'not_a_session' },
    'a byte order mark': { bytes: bytesOf('\ufeff', header), code: 'not_a_session' },
    'a header without id': { bytes: bytesOf({ kind: 'header', version: 4, cwd: '' }), code: 'not_a_session' },
    'a version that is text': { bytes: bytesOf({ ...header, version: '4' }), code: 'not_a_session' },
    'version 3': { bytes: bytesOf({ ...header, version: 3 }), code: 'older_version' },
    'version 5': { bytes: bytesOf({ ...header, version: 5 }, { kind: 'leaf' }), code: 'newer_version' },
    'a header with v': { bytes: bytesOf({ kind: 'header', v: 5, id: 'x', cwd: '' }), code: 'foreign_format' },
    'a header with v beside a good version': { bytes: bytesOf({ ...header, v: 5 }), code: 'foreign_format' },
    'a header with storageVersion': { bytes: bytesOf({ storageVersion: 5, id: 'x' }), code: 'foreign_format' },
    "another program's session": {
      bytes: bytesOf({ type: 'session', version: 3, id: 'x', timestamp: '', cwd: '' }),
      code: 'foreign_format',
    },
  }
  test.each(Object.entries(heads))('as first line: %s', async (_name, { bytes, code }) => {
    const file = fileOf(bytes)
    for (const open of [openSession, readSession])
      expect(await failure(open(file))).toMatchObject({ code, line: 1, file })
    const report = await verifySession(file)
    expect(report).toMatchObject({ ok: false, problems: [{ line: 1, code }] })
    expect(readFileSync(file)).toEqual(bytes)
    // Nothing is left beside a file that is none of ours.
    expect(existsSync(`${file}.lock`)).toBe(false)
  })

  test('a file that is not there, and a folder', async () => {
    const file = fileOf(header)
    expect((await failure(openSession(`${file}.nope`))).code).toBe('not_found')
    expect((await failure(readSession(`${file}.nope`))).code).toBe('not_found')
    expect((await failure(verifySession(`${file}.nope`))).code).toBe('not_found')
    expect((await failure(openSession(`${file}/..`))).code).toBe('io')
    expect((await failure(openSession(file.slice(0, file.lastIndexOf('/'))))).code).toBe('not_a_session')
  })
})

describe('LF is the only end of a line', () => {
  test('other separators and CRs are text', async () => {
    const text = 'a\u2028b\u2029c\u0085d\re\u000bf'
    const file = fileOf(header, e(1, null, { data: text }), Buffer.from(`${JSON.stringify(e(2, 'e_1'))}\r\n`))
    await using log = await openSession(file)
    expect(log.entry('e_1')?.['data']).toBe(text)
    expect(log.leaf('main')).toBe('e_2')
    expect(log.repaired).toBeUndefined()
  })

  test('lines longer than a chunk, and characters cut by one', async () => {
    const long = '€'.repeat(400_000)
    const lines = Array.from({ length: 5 }, (_, i) =>
      e(i + 1, i === 0 ? null : `e_${i}`, { data: `${'x'.repeat(i)}${long}` }),
    )
    const file = fileOf(header, ...lines)
    await using log = await openSession(file)
    expect(log.lines).toEqual(lines)
  })
})

test('unknown types are kept, with every key', async () => {
  const odd = [
    record(1, { type: 'from_the_future', ['__proto__']: 1, constructor: { a: [null] } }),
    e(2, null, { type: 'sketch', x: { y: 1 } }),
  ]
  const raw = Buffer.from(
    '{"kind":"record","id":"r_3","seq":3,"ts":"2026-01-05T10:00:00Z","lane":"side","type":"t","__proto__":{"a":1}}\n',
  )
  const file = fileOf(header, ...odd, raw)
  await using log = await openSession(file)
  expect(JSON.stringify(log.lines[0])).toBe(JSON.stringify(odd[0]))
  expect(JSON.stringify(log.lines[2])).toContain('"__proto__":{"a":1}')
  expect(log.lanes()).toEqual(['main', 'side'])
  expect(readFileSync(file)).toEqual(bytesOf(header, ...odd, raw))
})

test('the header of the seed, without ts, opens', async () => {
  await using log = await openSession(fileOf({ kind: 'header', version: 4, id: 'a', cwd: 'workspace', mine: [1] }))
  expect(log.header).toEqual({ kind: 'header', version: 4, id: 'a', cwd: 'workspace', mine: [1] })
})
