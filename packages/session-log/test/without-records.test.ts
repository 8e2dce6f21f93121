import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { createSession, type Draft, isEntry, type Line, openSession, readSession, verifySession } from '../src/index.ts'
import { folder } from './helpers.ts'

/** One draft of a made-up append. `pick` chooses among the entries that are there by then. */
type Step =
  | { readonly do: 'say' | 'note' | 'root'; readonly lane: string }
  | { readonly do: 'branch' | 'compact' | 'navigate'; readonly lane: string; readonly pick: number | null }
  | { readonly do: 'record'; readonly lane: string; readonly type: string }
  | { readonly do: 'fact'; readonly lane: string; readonly value: number }

const lane = fc.constantFrom('main', 'side', 'sub:1')
const pick = fc.option(fc.nat(1000), { freq: 5 })
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('say' as const, 'note' as const, 'root' as const), lane }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('branch' as const, 'compact' as const, 'navigate' as const),
      lane,
      pick,
    }),
  },
  fc.record({ do: fc.constant('record' as const), lane, type: fc.constantFrom('usage', 'operation_started', 'new') }),
  fc.record({ do: fc.constant('fact' as const), lane, value: fc.nat() }),
)

function draftOf(step: Step, ids: readonly string[], id: string): Draft {
  const { lane } = step
  const message = { message: { role: 'user', content: [] } }
  switch (step.do) {
    case 'say':
      return { kind: 'entry', lane, type: 'message', payload: message }
    case 'note':
      return { kind: 'entry', lane, type: 'custom', id, payload: { customType: 'n', data: [1] } }
    case 'root':
      return { kind: 'entry', lane, type: 'message', id, parentId: null, payload: message }
    case 'branch':
      return { kind: 'entry', lane, type: 'message', id, parentId: chosen(step.pick, ids), payload: message }
    case 'compact':
      return {
        kind: 'entry',
        lane,
        type: 'compaction',
        payload: { summary: 's', firstKeptEntryId: chosen(step.pick, ids) },
      }
    case 'navigate':
      return { kind: 'record', lane, type: 'lane_leaf_set', payload: { leafId: chosen(step.pick, ids) } }
    case 'record':
      return { kind: 'record', lane, type: step.type, payload: { runId: 'run_1', message: {} } }
    case 'fact':
      return { kind: 'record', lane, type: 'fact_set', payload: { key: 'name', value: step.value } }
    default:
      return step satisfies never
  }
}

const chosen = (pick: number | null, ids: readonly string[]) =>
  pick === null || ids.length === 0 ? null : (ids[pick % ids.length] ?? null)

/** Several appends at once, several drafts in one: what a writer does. */
async function write(
  appends: readonly (readonly Step[])[],
): Promise<{ readonly file: string; readonly lines: readonly Line[] }> {
  const log = await createSession(join(folder(), 'session.jsonl'), { cwd: 'w' })
  let count = 0
  const pending: Promise<readonly Line[]>[] = []
  for (const [index, steps] of appends.entries()) {
    const ids = log.lines.filter(isEntry).map(({ id }) => id)
    pending.push(log.append(steps.map((each) => draftOf(each, ids, `e_own_${count++}`))))
    if (index % 3 === 2) await Promise.all(pending)
  }
  await Promise.all(pending)
  await log.close()
  return { file: log.file, lines: log.lines }
}

test('without its records a session is a whole conversation, and each lane’s leaf is its last entry (property)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(step, { minLength: 1, maxLength: 4 }), { maxLength: 12 }), async (appends) => {
      const { file, lines } = await write(appends)
      const bare = `${file}.bare`
      const text = readFileSync(file, 'utf8').split(/(?<=\n)/)
      writeFileSync(bare, text.filter((line) => JSON.parse(line).kind !== 'record').join(''))

      const entries = lines.filter(isEntry)
      expect(await verifySession(bare)).toEqual({
        ok: true,
        lines: entries.length + 1,
        entries: entries.length,
        records: 0,
        tail: 'whole',
        problems: [],
      })
      const full = await readSession(file)
      const log = await openSession(bare)
      expect(log.repaired).toBeUndefined()
      expect(log.lines).toEqual(entries)
      expect(log.lanes()).toEqual([...new Set(entries.map((entry) => entry.lane))])
      for (const parent of [null, ...entries.map(({ id }) => id)])
        expect(log.children(parent)).toEqual(full.children(parent))
      for (const lane of log.lanes()) {
        const last = entries.findLast((entry) => entry.lane === lane)
        expect(log.leaf(lane)).toBe(last?.id)
        expect(log.path(log.leaf(lane))).toEqual(full.path(last?.id ?? null))
        // Unless somebody navigated since, it is the leaf that the lane had.
        const moved = lines.findLast((line) => line.lane === lane && (isEntry(line) || line.type === 'lane_leaf_set'))
        if (moved === last) expect(log.leaf(lane)).toBe(full.leaf(lane))
      }
      // And it goes on from there.
      const [next] = await log.append([{ kind: 'entry', lane: 'main', type: 'custom', payload: { data: 1 } }])
      expect(next?.['parentId']).toBe(entries.findLast((entry) => entry.lane === 'main')?.id ?? null)
      await log.close()
    }),
    { numRuns: 100 },
  )
})
