import { sanitiseLine } from '@reve/base'
import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Line, openSession, readSession, SessionLogError, verifySession } from '../src/index.ts'
import { bytesOf, entry, fileOf, header, record } from './helpers.ts'

test('all problems at once, each with its line, and the file as it was', async () => {
  const bytes = bytesOf(
    header,
    entry(1, null),
    '{"kind":\n',
    entry(3, 'e_2'),
    '\n',
    Buffer.from([0xff, 0x0a]),
    header,
    entry(2, 'e_1'),
    record(8, { kind: 'leaf' }),
    record(9, { id: 'e_1' }),
    entry(10, 'e_1'),
    '{"kind":"rec',
  )
  const file = fileOf(bytes)
  expect(await verifySession(file)).toMatchObject({
    ok: false,
    lines: 4,
    entries: 3,
    records: 0,
    tail: 'torn',
    problems: [
      { line: 3, code: 'not_json' },
      { line: 4, code: 'unknown_parent' },
      { line: 5, code: 'blank' },
      { line: 6, code: 'not_utf8' },
      { line: 7, code: 'second_header' },
      { line: 9, code: 'unknown_kind' },
      { line: 10, code: 'duplicate_id' },
    ],
  })
  expect(readFileSync(file)).toEqual(bytes)
})

test('a message never carries control characters from the file', async () => {
  const file = fileOf(header, record(1, { kind: '\u001b]0;owned\u0007\u009b' }), entry(2, '\u001b[2J'))
  for (const { message } of (await verifySession(file)).problems) expect(message).toBe(sanitiseLine(message))
})

test('so many problems are enough', async () => {
  const file = fileOf(header, ...Array.from({ length: 1500 }, () => header))
  expect((await verifySession(file)).problems).toHaveLength(1000)
})

/** What came of an attempt; only typed errors count as a refusal. */
async function outcome(attempt: () => Promise<{ readonly lines: readonly Line[]; readonly mended: boolean }>) {
  try {
    return { ...(await attempt()), refused: undefined }
  } catch (error) {
    if (!(error instanceof SessionLogError)) throw error
    return { lines: [], mended: false, refused: error.line }
  }
}

test('a mutated file: opening agrees with verify, throws only typed errors, and changes a refused file in nothing (property)', async () => {
  const whole = bytesOf(
    header,
    entry(1, null, { data: 'ä€😀' }),
    record(2),
    entry(3, 'e_1'),
    record(4, { type: 'lane_leaf_set', leafId: 'e_1' }),
    entry(5, 'e_1'),
  )
  const cut = fc.record({ do: fc.constant('cut' as const), at: fc.nat(whole.length), length: fc.nat(40) })
  const set = fc.record({
    do: fc.constant('set' as const),
    at: fc.nat(whole.length - 1),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 4 }),
  })
  const insert = fc.record({
    do: fc.constant('insert' as const),
    at: fc.nat(whole.length),
    bytes: fc.oneof(fc.uint8Array({ maxLength: 8 }), fc.constant(Uint8Array.of(0x0a))),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(fc.oneof(cut, set, insert), { minLength: 1, maxLength: 3 }), async (mutations) => {
      let bytes = whole
      for (const mutation of mutations) {
        const head = bytes.subarray(0, mutation.at)
        const middle = mutation.do === 'cut' ? new Uint8Array() : mutation.bytes
        const skip = mutation.do === 'cut' ? mutation.length : mutation.do === 'set' ? mutation.bytes.length : 0
        bytes = Buffer.concat([head, middle, bytes.subarray(mutation.at + skip)])
      }
      const file = fileOf(bytes)
      const report = await verifySession(file)
      const first = report.problems[0]
      const read = await outcome(async () => {
        const view = await readSession(file)
        return { lines: view.lines, mended: view.torn }
      })
      const opened = await outcome(async () => {
        await using log = await openSession(file)
        return { lines: log.lines, mended: log.repaired !== undefined }
      })
      expect(opened).toEqual(read)
      expect(opened.refused).toBe(first?.line)
      expect(report.ok).toBe(first === undefined)
      const expected =
        first === undefined ? { lines: report.lines, mended: report.tail !== 'whole' } : { lines: 0, mended: false }
      expect({ lines: opened.lines.length + (report.ok ? 1 : 0), mended: opened.mended }).toEqual(expected)
      // Refused: untouched. Mended: at its end only.
      const after = readFileSync(file)
      const kept = after.subarray(0, Math.min(bytes.length, after.length))
      expect(bytes.subarray(0, kept.length).equals(kept)).toBe(true)
      expect(opened.mended || after.equals(bytes)).toBe(true)
    }),
    { numRuns: 300 },
  )
})
