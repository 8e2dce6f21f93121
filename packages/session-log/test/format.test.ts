import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { isLine, schemasOf } from '../src/format.ts'
import type { JsonObject } from '../src/index.ts'
import { openSession, verifySession } from '../src/index.ts'
import { bytesOf, entry, fileOf, header, record } from './helpers.ts'

const page = readFileSync(new URL('../../../docs/session-format.md', import.meta.url), 'utf8')
const blocks = [...page.matchAll(/^```jsonl\n([\s\S]*?)^```$/gm)].map((block) => block[1] ?? '')

test('the first example of the format page is a session', async () => {
  await using log = await openSession(fileOf(blocks[0] ?? ''))
  expect(log.repaired).toBeUndefined()
  expect(log.path(log.leaf('main')).map(({ id }) => id)).toEqual(['e_1', 'e_2'])
})

test('every other line of the page is one that a session may hold, and every type of the design is there', async () => {
  const lines = blocks.slice(1).flatMap((block) =>
    block
      .trimEnd()
      .split('\n')
      .map((line): JsonObject => JSON.parse(line)),
  )
  const types = new Set(lines.map((line) => line['type'] ?? line['kind']))
  for (const type of [
    ['header', 'message', 'compaction', 'custom'],
    [
      'operation_started',
      'task_attempt',
      'task_failed',
      'tool_started',
      'message_queued',
      'message_cancelled',
      'abort_requested',
    ],
    ['usage', 'compaction_started', 'compaction_finished', 'lane_leaf_set', 'fact_set', 'operation_finished'],
  ].flat()) {
    expect(types).toContain(type)
  }
  for (const line of lines.filter(({ kind }) => kind !== 'header')) {
    // The line in a file of its own, after the entries that it may refer to.
    const before = ['e_1', 'e_9']
      .filter((id) => id !== line['id'])
      .map((id, index) => entry(0.1, null, { id, seq: index + 1 }))
    const report = await verifySession(fileOf(header, ...before, { ...line, seq: 100 }))
    expect({ line, problems: report.problems }).toEqual({ line, problems: [] })
  }
})

test('the page names every problem that the reader knows', async () => {
  const report = await verifySession(fileOf(bytesOf(header, header)))
  expect(report.problems[0]?.code).toBe('second_header')
  const source = readFileSync(new URL('../src/format.ts', import.meta.url), 'utf8')
  const union = /type LineProblemCode =([\s\S]*?)\n\n/.exec(source)?.[1] ?? ''
  const codes = [...union.matchAll(/'(\w+)'/g)].map((match) => match[1])
  expect(codes.length).toBeGreaterThan(10)
  for (const code of codes) expect(page).toContain(`\`${code}\``)
})

test('what is checked by hand is what the schemas say (property)', () => {
  const name = fc.constantFrom('e_1', '', 'a\nb', 'x'.repeat(256), 'x'.repeat(257), '\u0085', 'ä', null, 7, {}, [])
  const changes = {
    kind: fc.constantFrom('entry', 'record', 'header', 'x', null),
    id: name,
    lane: name,
    type: fc.constantFrom(
      'message',
      'compaction',
      'custom',
      'lane_leaf_set',
      'fact_set',
      'usage',
      '',
      3,
      'constructor',
    ),
    seq: fc.constantFrom(1, 0, -1, 1.5, 2 ** 52, 2 ** 52 + 1, '1', null, true),
    ts: fc.constantFrom('2026-01-05T10:00:00Z', '2026-01-05T10:00:00.1234567890Z', '2026-01-05', 'x', null, 5),
    parentId: name,
    leafId: name,
    key: fc.constantFrom('k', '', null, 1),
    value: fc.constantFrom(null, 0, {}),
    message: fc.constantFrom({}, [], null, 'x'),
    summary: fc.constantFrom('', null, 4),
    firstKeptEntryId: name,
  }
  const line = fc
    .tuple(
      fc.constantFrom(entry(1, null), entry(1, 'e_0'), record(1)),
      fc.record(changes),
      fc.subarray(Object.keys(changes), { maxLength: 4 }),
      fc.subarray(Object.keys(changes), { maxLength: 1 }),
    )
    .map(([base, over, changed, missing]) => {
      const changes = Object.entries(over).filter(([key]) => changed.includes(key))
      const line = { ...base, ...Object.fromEntries(changes) }
      return Object.fromEntries(Object.entries(line).filter(([key]) => !missing.includes(key)))
    })
  const outcomes = new Set<boolean>()
  fc.assert(
    fc.property(fc.oneof(line, fc.jsonValue()), (value) => {
      const { kind, type } = Object(value)
      const known = kind === 'entry' || kind === 'record'
      const said = known && schemasOf(kind, type).every((schema) => v.is(schema, value))
      expect(isLine(value)).toBe(said)
      outcomes.add(said)
    }),
    { numRuns: 5000 },
  )
  expect(outcomes.size).toBe(2)
})
