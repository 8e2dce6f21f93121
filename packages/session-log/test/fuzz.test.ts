import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { openAppendFile } from '../src/append-file.ts'
import {
  type Line,
  type OpenFile,
  openSession,
  readSession,
  salvageSession,
  SessionLogError,
  verifySession,
} from '../src/index.ts'
import { bytesOf, entry, header, record } from './helpers.ts'
import { referenceRead } from './reference-reader.ts'

const CASES = Number(process.env['REVE_FUZZ_CASES'] ?? 10_000)
const SEED = Number(process.env['REVE_FUZZ_SEED'] ?? 20_260_105)

type Random = (below: number) => number

/** Mulberry32: the same files for the same seed, on every machine. */
function random(seed: number): Random {
  let state = seed | 0
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below)
  }
}

/** As our writers spell it. */
const message = (seq: number, parentId: string | null, text: string) => {
  const { data: _data, ...envelope } = entry(seq, parentId, { type: 'message' })
  return { ...envelope, message: { role: 'user', content: [{ type: 'text', text }] } }
}
/** What is mutated: lines as our writers spell them, and all small vectors, good ones and bad ones. */
const seeds: readonly Buffer[] = [
  bytesOf(
    header,
    message(1, null, 'ä€😀 "quoted" \\ \n \u0001'),
    record(2),
    message(3, 'e_1', 'x'.repeat(300)),
    record(4, { type: 'lane_leaf_set', leafId: 'e_1' }),
    message(5, 'e_1', '[{}]'),
    entry(6, 'e_5', { lane: 'side', data: { a: [1.5e-7, true, null, ''] } }),
    record(7, { type: 'fact_set', key: 'name', value: 'x' }),
    message(8, 'e_6', 'last'),
  ),
  ...['good', 'refused'].flatMap((folder) => {
    const place = fileURLToPath(new URL(`vectors/${folder}`, import.meta.url))
    return readdirSync(place).map((name) => readFileSync(join(place, name)))
  }),
]

const LF = 0x0a
const splice = (bytes: Buffer, at: number, drop: number, put: Uint8Array) =>
  Buffer.concat([bytes.subarray(0, at), put, bytes.subarray(at + drop)])
/** Bytes that mean something to a reader of JSON lines. */
const LOADED = Buffer.from('\n\r \t\0"\\{}[]:,0-1e.u\u007f\u00e4\u20ac', 'utf8')
const TEXTS = ['\ufeff', '\r\n', '\n\n', '\0\0\0\0', '\u2028', '"message":{}', '{"kind":"entry"', '\\ud800'].map(
  (text) => Buffer.from(text, 'utf8'),
)

function mutate(bytes: Buffer, next: Random): Buffer {
  const at = next(bytes.length + 1)
  const lines = () => bytes.toString('latin1').split(/(?<=\n)/)
  const ofLines = (changed: readonly string[]) => Buffer.from(changed.join(''), 'latin1')
  switch (next(11)) {
    case 0: {
      const flipped = Buffer.from(bytes)
      if (at < flipped.length) flipped[at] = (flipped[at] ?? 0) ^ (1 << next(8))
      return flipped
    }
    case 1:
      return splice(bytes, at, 1 + next(next(4) === 0 ? 200 : 4), Buffer.alloc(0))
    case 2:
      return splice(bytes, at, next(2), Buffer.from([LOADED[next(LOADED.length)] ?? 0]))
    case 3:
      return splice(bytes, at, next(3), TEXTS[next(TEXTS.length)] ?? Buffer.alloc(0))
    case 4:
      return splice(bytes, at, next(2) * 8, Buffer.from(Array.from({ length: 1 + next(8) }, () => next(256))))
    case 5:
      return bytes.subarray(0, at)
    case 6: {
      const all = lines()
      const [a, b] = [next(all.length), next(all.length)]
      return ofLines(all.map((line, index) => (index === a ? (all[b] ?? '') : index === b ? (all[a] ?? '') : line)))
    }
    case 7: {
      const all = lines()
      const twice = next(all.length)
      return ofLines(all.flatMap((line, index) => (index === twice ? [line, line] : [line])))
    }
    case 8: {
      const other = seeds[next(seeds.length)] ?? bytes
      return Buffer.concat([bytes.subarray(0, at), other.subarray(next(other.length + 1))])
    }
    case 9: {
      // A block that was lost.
      const zeros = 1 + next(64)
      return splice(bytes, at, Math.min(zeros, bytes.length - at), Buffer.alloc(Math.min(zeros, bytes.length - at)))
    }
    default: {
      const lf = bytes.indexOf(LF, at)
      return lf === -1 ? splice(bytes, bytes.length, 0, Buffer.from('\n')) : splice(bytes, lf, 1, Buffer.alloc(0))
    }
  }
}

const place = mkdtempSync(join(tmpdir(), 'session-log-fuzz-'))
afterAll(() => rmSync(place, { recursive: true, force: true }))
const file = join(place, 'session.jsonl')

type Outcome =
  | { readonly refused: SessionLogError }
  | { readonly lines: readonly Line[]; readonly mended: boolean; readonly text: string }

/** What came of an attempt. Anything but a typed error fails the test. */
async function outcome(
  attempt: () => Promise<{ readonly lines: readonly Line[]; readonly mended: boolean }>,
): Promise<Outcome> {
  try {
    const { lines, mended } = await attempt()
    return { lines, mended, text: JSON.stringify(lines) }
  } catch (error) {
    if (error instanceof SessionLogError) return { refused: error }
    throw error
  }
}

/** Ten thousand syncs take their time, and nothing here is about power. */
const openFile: OpenFile = async (path) => ({ ...(await openAppendFile(path)), sync: async () => undefined })
const open = () =>
  outcome(async () => {
    await using log = await openSession(file, { openFile })
    return { lines: log.lines, mended: log.repaired !== undefined }
  })
const read = () =>
  outcome(async () => {
    const { lines, torn } = await readSession(file)
    return { lines, mended: torn }
  })

/** `thorough`: verify and salvage too, which read the file the same way. */
async function check(bytes: Buffer, thorough: boolean): Promise<void> {
  writeFileSync(file, bytes)
  const expected = referenceRead(bytes)
  const seen = await read()
  const report = thorough ? await verifySession(file) : undefined
  const opened = await open()
  const after = readFileSync(file)

  if (expected.verdict !== 'good') {
    if (!('refused' in opened) || !('refused' in seen)) throw new Error('it is read, and must not be')
    const line = expected.verdict === 'corrupt' ? expected.line : 1
    expect({ line: opened.refused.line, corrupt: opened.refused.code === 'corrupt' }).toEqual({
      line,
      corrupt: expected.verdict === 'corrupt',
    })
    expect([seen.refused.code, seen.refused.line]).toEqual([opened.refused.code, line])
    if (report !== undefined) expect([report.ok, report.problems[0]?.line]).toEqual([false, line])
    expect(after.equals(bytes)).toBe(true)
    if (expected.verdict !== 'corrupt') return
  } else {
    if ('refused' in opened) throw opened.refused
    if ('refused' in seen) throw seen.refused
    expect(opened.text).toBe(JSON.stringify(expected.lines))
    expect(seen.text).toBe(opened.text)
    expect([opened.mended, seen.mended]).toEqual([expected.mended, expected.mended])
    if (report !== undefined) {
      const { ok, lines, tail } = report
      expect([ok, lines, tail !== 'whole']).toEqual([true, expected.lines.length + 1, expected.mended])
    }
    // Mended at its end only, and then for good.
    const kept = bytes.subarray(0, expected.goodBytes)
    const completed = kept.at(-1) === LF ? kept : Buffer.concat([kept, Buffer.from('\n')])
    expect(after.equals(completed)).toBe(true)
    if (expected.mended) {
      const again = await open()
      expect('refused' in again ? again.refused : [again.mended, again.text]).toEqual([false, opened.text])
    }
  }
  if (report === undefined) return
  const saved = join(place, 'saved.jsonl')
  rmSync(saved, { force: true })
  writeFileSync(file, bytes)
  const salvage = await salvageSession(file, saved)
  expect(salvage.problem?.line).toBe(report.problems[0]?.line)
  expect(await verifySession(saved)).toMatchObject({ ok: true, tail: 'whole', lines: salvage.lines })
  expect(readFileSync(file).equals(bytes)).toBe(true)
}

test(
  `${CASES} mutated files: typed errors only, refused files untouched, a second reader agrees`,
  async () => {
    let good = 0
    for (let index = 0; index < CASES; index++) {
      const next = random(SEED + index)
      let bytes = seeds[next(3) === 0 ? next(seeds.length) : 0] ?? Buffer.alloc(0)
      for (let times = 1 + next(3); times > 0; times--) bytes = mutate(bytes, next)
      try {
        await check(bytes, index % 5 === 0)
      } catch (error) {
        throw new Error(
          `case REVE_FUZZ_SEED=${SEED + index} REVE_FUZZ_CASES=1: ${JSON.stringify(bytes.toString('latin1'))}`,
          { cause: error },
        )
      }
      if (referenceRead(bytes).verdict === 'good') good++
    }
    // Both sides were seen.
    if (CASES >= 1000) expect(Math.min(good, CASES - good) / CASES).toBeGreaterThan(0.1)
  },
  60_000 + CASES * 30,
)
