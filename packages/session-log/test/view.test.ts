import { join } from 'node:path'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  createSession,
  type Draft,
  type EntryLine,
  isEntry,
  type JsonObject,
  type Line,
  openSession,
  readSession,
  type SessionView,
} from '../src/index.ts'
import { entry, fileOf, folder, header, record } from './helpers.ts'

/** One step of a made-up session. `pick` chooses among the entries that are there. */
type Step =
  | { readonly do: 'say'; readonly lane: string; readonly message: string }
  | { readonly do: 'branch'; readonly lane: string; readonly pick: number }
  | { readonly do: 'root'; readonly lane: string }
  | { readonly do: 'compact'; readonly lane: string; readonly pick: number }
  | { readonly do: 'navigate'; readonly lane: string; readonly pick: number | null }
  | { readonly do: 'note'; readonly lane: string; readonly type: string }
  | { readonly do: 'fact'; readonly lane: string; readonly key: string; readonly value: number }

const lane = fc.constantFrom('main', 'side', 'sub:1')
const pick = fc.nat(1000)
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('say' as const), lane, message: fc.string() }) },
  fc.record({ do: fc.constant('branch' as const), lane, pick }),
  fc.record({ do: fc.constant('root' as const), lane }),
  fc.record({ do: fc.constant('compact' as const), lane, pick }),
  fc.record({ do: fc.constant('navigate' as const), lane, pick: fc.option(pick) }),
  fc.record({
    do: fc.constant('note' as const),
    lane,
    type: fc.constantFrom('usage', 'task_attempt', 'from_the_future'),
  }),
  fc.record({ do: fc.constant('fact' as const), lane, key: fc.constantFrom('name', 'label'), value: fc.nat() }),
)

function draftOf(step: Step, entries: readonly EntryLine[]): Draft {
  const chosen = (pick: number | null) =>
    pick === null ? null : (entries[pick % Math.max(entries.length, 1)]?.id ?? null)
  const { lane } = step
  switch (step.do) {
    case 'say':
      return { kind: 'entry', lane, type: 'message', payload: { message: { role: 'user', content: step.message } } }
    case 'branch':
      return { kind: 'entry', lane, type: 'custom', parentId: chosen(step.pick), payload: { customType: 'b', data: 1 } }
    case 'root':
      return { kind: 'entry', lane, type: 'custom', parentId: null, payload: { customType: 'r', data: 1 } }
    case 'compact':
      return { kind: 'entry', lane, type: 'compaction', payload: { summary: 's', firstKeptEntryId: chosen(step.pick) } }
    case 'navigate':
      return { kind: 'record', lane, type: 'lane_leaf_set', payload: { leafId: chosen(step.pick) } }
    case 'note':
      return { kind: 'record', lane, type: step.type, payload: { runId: 'run_1' } }
    case 'fact':
      return { kind: 'record', lane, type: 'fact_set', payload: { key: step.key, value: step.value } }
    default:
      return step satisfies never
  }
}

async function sessionOf(
  steps: readonly Step[],
): Promise<{ readonly file: string; readonly lines: readonly Line[]; readonly live: SessionView }> {
  const log = await createSession(join(folder(), 'session.jsonl'), { cwd: 'w' })
  for (const step of steps) await log.append([draftOf(step, log.lines.filter(isEntry))])
  await log.close()
  return { file: log.file, lines: log.lines, live: log }
}

const lanesOf = (lines: readonly Line[]) => [...new Set(lines.map(({ lane }) => lane))]

/** Plain definitions of the view, from the lines alone. */
function naive(lines: readonly Line[]) {
  const entries = lines.filter(isEntry)
  const path = (id: string | null): readonly EntryLine[] => {
    const found = entries.find((entry) => entry.id === id)
    return found === undefined ? [] : [...path(found.parentId), found]
  }
  const leaf = (lane: string) => {
    const last = lines.findLast((line) => line.lane === lane && (isEntry(line) || line.type === 'lane_leaf_set'))
    return last === undefined ? null : isEntry(last) ? last.id : last['leafId']
  }
  return { entries, path, leaf }
}

test('the view is what the lines say, in the writer and after reopening (property)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const { file, lines, live } = await sessionOf(steps)
      const plain = naive(lines)
      await using reopened = await openSession(file)
      for (const view of [live, reopened, await readSession(file)]) {
        expect(view.lines).toEqual(lines)
        expect(view.lanes()).toEqual(lanesOf(lines))
        for (const lane of ['main', 'side', 'sub:1', 'nobody']) {
          expect(view.leaf(lane)).toBe(plain.leaf(lane))
          expect(view.path(view.leaf(lane))).toEqual(plain.path(view.leaf(lane)))
          expect(view.records(lane)).toEqual(lines.filter((line) => !isEntry(line) && line.lane === lane))
        }
        for (const parent of [null, ...plain.entries.map(({ id }) => id)]) {
          expect(view.children(parent)).toEqual(plain.entries.filter(({ parentId }) => parentId === parent))
        }
        for (const key of ['name', 'label', 'nothing']) {
          const last = lines.findLast((line) => line.type === 'fact_set' && line['key'] === key)
          expect(view.fact(key)).toEqual(last?.['value'])
        }
      }
    }),
    { numRuns: 40 },
  )
})

test('a path of a hundred thousand entries', async () => {
  const count = 100_000
  const lines = Array.from({ length: count }, (_, i) => JSON.stringify(entry(i + 1, i === 0 ? null : `e_${i}`)))
  const file = fileOf(header, `${lines.join('\n')}\n`)
  const view = await readSession(file)
  const path = view.path(view.leaf('main'))
  expect(path).toHaveLength(count)
  expect(path[0]?.id).toBe('e_1')
  expect(path.at(-1)?.id).toBe(`e_${count}`)
})

test('an unknown entry: no entry, and no path', async () => {
  const view = await readSession(fileOf(header, entry(1, null), record(2)))
  expect(view.entry('e_9')).toBeUndefined()
  expect(view.entry('r_2')).toBeUndefined()
  expect(view.path(null)).toEqual([])
  expect(() => view.path('e_9')).toThrow(expect.objectContaining({ code: 'unknown_entry' }))
  expect(() => view.path('r_2')).toThrow(expect.objectContaining({ code: 'unknown_entry' }))
})

test('children stay right when asked before an append', async () => {
  await using log = await createSession(join(folder(), 's.jsonl'), { cwd: 'w' })
  const before = log.children(null)
  await log.append([{ kind: 'entry', lane: 'main', type: 'custom', id: 'e_1', payload: {} }])
  expect(before).toEqual([])
  expect(log.children(null).map(({ id }) => id)).toEqual(['e_1'])
})

test('messages that opening only checked are made when somebody asks, once, and the same for all who ask', async () => {
  const message = (seq: number, parentId: string | null, over: JsonObject = {}) => {
    const { data: _data, ...envelope } = entry(seq, parentId, { type: 'message' })
    return { ...envelope, message: { role: 'user', content: `ä "${seq}" \\ \u0001` }, ...over }
  }
  const lines = [
    message(1, null),
    record(2, { buffer: 'a key like one of ours' }),
    message(3, 'e_1', { terminate: true }),
    message(4, 'e_3', { lane: 'side' }),
    message(5, 'e_4'),
  ]
  const file = fileOf(header, ...lines)
  await using log = await openSession(file)
  const one = log.entry('e_4')
  expect(one).toEqual(lines[3])
  expect(JSON.stringify(one)).toBe(JSON.stringify(lines[3]))
  const [next] = await log.append([{ kind: 'entry', lane: 'side', type: 'custom', payload: { data: 1 } }])
  expect(log.lines).toEqual([...lines, next])
  expect(log.lines[3]).toBe(one)
  expect(log.lines[4]).toBe(log.entry('e_5'))
  expect(log.path('e_5').map(({ id }) => id)).toEqual(['e_1', 'e_3', 'e_4', 'e_5'])
  const [last] = await log.append([{ kind: 'entry', lane: 'side', type: 'custom', payload: { data: 2 } }])
  expect(log.lines.at(-1)).toBe(last)
  expect(log.children('e_4').map(({ id }) => id)).toEqual(['e_5', next?.id])
})

test('since: the lines after a seq, also after one that no line has', async () => {
  const lines = [entry(1, null), record(2), entry(5, 'e_1'), record(9)]
  const log = await openSession(fileOf(header, ...lines))
  for (const [seq, count] of [
    [0, 4],
    [1, 3],
    [2, 2],
    [4, 2],
    [5, 1],
    [9, 0],
    [100, 0],
  ] as const)
    expect(log.since(seq)).toEqual(lines.slice(4 - count))
  const appended = await log.append([{ kind: 'record', lane: 'main', type: 'note', payload: {} }])
  expect(log.since(9)).toEqual(appended)
  await log.close()
})
