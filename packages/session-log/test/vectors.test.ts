import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { openSession, readSession, salvageSession, type SessionView, verifySession } from '../src/index.ts'
import { failure, folder } from './helpers.ts'

const place = fileURLToPath(new URL('vectors/', import.meta.url))
const part = v.union([
  v.strictObject({ file: v.string() }),
  v.strictObject({ text: v.string() }),
  v.strictObject({ repeat: v.string(), times: v.number() }),
])
const source = { file: v.optional(v.string()), parts: v.optional(v.array(part)), about: v.string() }
const vector = v.union([
  v.strictObject({
    ...source,
    verdict: v.literal('good'),
    tail: v.picklist(['whole', 'no_newline', 'torn']),
    bytesAfterOpening: v.number(),
    entries: v.number(),
    records: v.number(),
    leaves: v.record(v.string(), v.nullable(v.string())),
    facts: v.optional(v.record(v.string(), v.unknown())),
  }),
  v.strictObject({
    ...source,
    verdict: v.literal('refused'),
    code: v.literal('corrupt'),
    line: v.number(),
    problem: v.string(),
    goodBytes: v.number(),
  }),
  v.strictObject({
    ...source,
    verdict: v.literal('refused'),
    code: v.picklist(['not_a_session', 'foreign_format', 'newer_version', 'older_version']),
    line: v.literal(1),
  }),
])
const { vectors } = v.parse(
  v.strictObject({ format: v.literal(4), vectors: v.array(vector) }),
  JSON.parse(readFileSync(join(place, 'vectors.json'), 'utf8')),
)

/** The vector's file, as a copy that may be changed. */
function copyOf({
  file,
  parts = [],
}: {
  readonly file?: string | undefined
  readonly parts?: (typeof vectors)[number]['parts']
}): string {
  const copy = join(folder(), 'session.jsonl')
  if (file !== undefined) copyFileSync(join(place, file), copy)
  else
    writeFileSync(
      copy,
      Buffer.concat(
        parts.map((each) =>
          'file' in each
            ? readFileSync(join(place, each.file))
            : Buffer.from('text' in each ? each.text : each.repeat.repeat(each.times)),
        ),
      ),
    )
  return copy
}

test.each(vectors.map((each) => ({ ...each, name: each.file ?? 'built' })))('$name: $about', async (expected) => {
  const file = copyOf(expected)
  const before = readFileSync(file)
  const salvaged = `${file}.saved`
  if (expected.verdict === 'good') {
    const { tail, entries, records, leaves, bytesAfterOpening } = expected
    const kept = Buffer.concat([before, Buffer.from('\n')]).subarray(0, bytesAfterOpening)
    const check = (view: SessionView) => {
      expect(view.lines.filter(({ kind }) => kind === 'entry')).toHaveLength(entries)
      expect(view.records()).toHaveLength(records)
      expect(Object.fromEntries(view.lanes().map((lane) => [lane, view.leaf(lane)]))).toEqual(leaves)
      for (const [key, value] of Object.entries(expected.facts ?? {})) expect(view.fact(key)).toEqual(value)
    }
    expect(await verifySession(file)).toEqual({
      ok: true,
      lines: 1 + entries + records,
      entries,
      records,
      tail,
      problems: [],
    })
    const seen = await readSession(file)
    expect(seen.torn).toBe(tail !== 'whole')
    check(seen)
    await salvageSession(file, salvaged)
    expect(readFileSync(salvaged)).toEqual(kept)
    expect(readFileSync(file)).toEqual(before)

    const log = await openSession(file)
    check(log)
    expect(log.repaired?.kind).toBe({ whole: undefined, no_newline: 'newline_added', torn: 'torn_tail_cut' }[tail])
    await log.close()
    expect(readFileSync(file)).toEqual(kept)
    await using again = await openSession(file)
    expect(again.repaired).toBeUndefined()
    return
  }
  const { code, line } = expected
  const report = await verifySession(file)
  expect(report.ok).toBe(false)
  expect(report.problems[0]).toMatchObject({ line, code: code === 'corrupt' ? expected.problem : code })
  expect(await failure(readSession(file))).toMatchObject({ code, line, file })
  expect(await failure(openSession(file))).toMatchObject({ code, line, file })
  if (code === 'corrupt') {
    expect(await salvageSession(file, salvaged)).toMatchObject({
      lines: line - 1,
      problem: { line, code: expected.problem },
    })
    expect(readFileSync(salvaged).equals(before.subarray(0, expected.goodBytes))).toBe(true)
  } else expect((await failure(salvageSession(file, salvaged))).code).toBe(code)
  expect(readFileSync(file).equals(before)).toBe(true)
})

test('there is a vector for every problem and every tail that the format page names', () => {
  const page = readFileSync(new URL('../../../docs/session-format.md', import.meta.url), 'utf8')
  const reading = page.slice(page.indexOf('\n## Reading'), page.indexOf('\n## Test vectors'))
  const rows = [...reading.matchAll(/^\| ((?:`\w+`(?:, )?)+) \|/gm)].flatMap((row) => row[1]?.match(/\w+/g) ?? [])
  expect(rows.length).toBeGreaterThan(14)
  const shown = new Set<string>(
    vectors.flatMap((each) =>
      each.verdict === 'good' ? [each.tail] : each.code === 'corrupt' ? [each.problem] : [each.code],
    ),
  )
  expect(rows.filter((name) => !shown.has(name))).toEqual([])
  expect([...shown].filter((name) => !rows.includes(name))).toEqual([])
})
