import type { Usage } from '@reve/providers/model'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  addSpending,
  type Budget,
  createLedger,
  noSpending,
  overBudget,
  readLedger,
  type Spending,
} from '../src/ledger.ts'
import { record } from '../src/records.ts'
import { newLog, reopen, rig } from './support.ts'

const usage = (input: number, output = 0): Usage => ({ input, cacheRead: 0, cacheWrite: 0, output, reasoning: 0 })
const day = 86_400_000
const start = Date.parse('2026-03-01T12:00:00.000Z')

/** A log whose clock the test sets. */
async function clockedLog() {
  const clock = { now: start }
  const log = await newLog({ now: () => clock.now })
  const spend = (lane: string, runId: string, used: Usage | null, cost?: number) =>
    log.append([record(lane, 'usage', { runId, entryId: 'e_x', usage: used, ...(cost !== undefined && { cost }) })])
  return { clock, log, spend }
}

test('a session, its runs, lanes and days, read again from the file', async () => {
  const { clock, log, spend } = await clockedLog()
  await spend('main', 'run_1', usage(10, 1), 0.25)
  await spend('main', 'run_1', usage(20), 0.5)
  await spend('side', 'run_2', usage(5))
  clock.now = Date.parse('2026-03-02T00:00:00.000Z')
  await spend('side', 'run_3', null)
  const ledger = createLedger(await reopen(log))
  expect(ledger.session()).toEqual({ requests: 4, usage: usage(35, 1), cost: 0.75, unpriced: 2 })
  expect(ledger.run('run_1')).toEqual({ requests: 2, usage: usage(30, 1), cost: 0.75, unpriced: 0 })
  expect(ledger.lane('side')).toEqual({ requests: 2, usage: usage(5), cost: 0, unpriced: 2 })
  expect(ledger.day('2026-03-01').requests).toBe(3)
  expect(ledger.day('2026-03-02')).toEqual({ requests: 1, usage: usage(0), cost: 0, unpriced: 1 })
  expect([ledger.run('run_9'), ledger.lane('x'), ledger.day('2026-03-03')]).toEqual(Array(3).fill(noSpending))
  const report = readLedger(log)
  expect(report.session).toEqual(ledger.session())
  expect([...report.runs.keys()]).toEqual(['run_1', 'run_2', 'run_3'])
  expect([...report.lanes.keys()]).toEqual(['main', 'side'])
  expect([...report.days.keys()]).toEqual(['2026-03-01', '2026-03-02'])
})

test('what is no readable usage record does not count', async () => {
  const { log, spend } = await clockedLog()
  await log.append([
    { kind: 'record', lane: 'main', type: 'usage', payload: { runId: 'run_1', entryId: 'e_1', usage: { input: -1 } } },
    { kind: 'record', lane: 'main', type: 'usage', payload: { usage: usage(1) } },
    { kind: 'record', lane: 'main', type: 'fact_set', payload: { key: 'usage', value: 1 } },
    { kind: 'entry', lane: 'main', type: 'custom', payload: { customType: 'usage', data: { usage: usage(1) } } },
  ])
  expect(createLedger(log).session()).toBe(noSpending)
  await spend('main', 'run_1', usage(1), 0)
  expect(createLedger(log).session()).toEqual({ requests: 1, usage: usage(1), cost: 0, unpriced: 0 })
})

test('line by line gives what one fold gives, and a line counts once', async () => {
  const lane = fc.constantFrom('main', 'side')
  const spent = fc.record({
    lane,
    runId: fc.constantFrom('run_1', 'run_2', 'run_3'),
    input: fc.option(fc.nat(1000)),
    // Sums of these are exact, in whatever order.
    cost: fc.option(fc.nat(1000).map((n) => n / 1024)),
    after: fc.nat(2 * day),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(spent, { maxLength: 20 }), fc.nat(20), fc.nat(20 * day), async (all, known, offset) => {
      const { clock, log, spend } = await clockedLog()
      const record = async ({ lane, runId, input, cost, after }: (typeof all)[number]) => {
        clock.now += after
        await spend(lane, runId, input === null ? null : usage(input), cost ?? undefined)
      }
      for (const one of all.slice(0, known)) await record(one)
      const ledger = createLedger(log)
      for (const one of all.slice(known)) await record(one)
      for (const line of log.lines) ledger.add(line)
      expect(ledger.report()).toEqual(readLedger(log))

      const ms = start + offset
      const late = all.filter((_, index) => Date.parse(log.lines[index]?.ts ?? '') >= ms)
      const expected = late
        .map(({ input, cost }): Spending => ({
          requests: 1,
          usage: usage(input ?? 0),
          cost: cost ?? 0,
          unpriced: input === null || cost === null ? 1 : 0,
        }))
        .reduce(addSpending, noSpending)
      expect(ledger.since(ms)).toEqual(expected)
      expect(ledger.since(Number.NEGATIVE_INFINITY)).toEqual(ledger.session())
      expect(ledger.since(Number.POSITIVE_INFINITY)).toEqual(noSpending)
      const report = ledger.report()
      for (const parts of [report.runs, report.lanes, report.days]) {
        expect([...parts.values()].reduce(addSpending, noSpending)).toEqual(report.session)
      }
    }),
    { numRuns: 50 },
  )
})

test('agrees with what a run says of itself', async () => {
  const log = await newLog()
  const { harness } = rig(log, { turns: [{ text: 'a', usage: usage(7, 3) }] })
  const result = await harness.prompt('hi')
  expect(readLedger(log).runs.get(result.runId)?.usage).toEqual(result.usage)
})

const spending = (tokens: number, cost = 0, unpriced = 0): Spending => ({
  requests: 1,
  usage: { input: tokens - 3, cacheRead: 1, cacheWrite: 1, output: 1, reasoning: 1 },
  cost,
  unpriced,
})

test('a budget is used up when its limit is reached, the run before the day', () => {
  const over = (budget: Budget, run: Spending, today = run) => overBudget(budget, { run, day: today })
  expect(over({}, spending(1e9, 1e9))).toBeUndefined()
  expect(over({ run: { tokens: 100 } }, spending(99, 5))).toBeUndefined()
  expect(over({ run: { tokens: 100 } }, spending(100))).toEqual({
    scope: 'run',
    message: expect.stringMatching(/this run.*100 tokens.*limit is 100.*raise run\.tokens/),
  })
  expect(over({ run: { usd: 1 } }, spending(1000, 0.99))).toBeUndefined()
  expect(over({ run: { usd: 1 } }, spending(10, 1))?.message).toMatch(/\$1\.0000, the limit is \$1;/)
  expect(over({ run: { usd: 1 }, day: { usd: 1 } }, spending(10, 0.5), spending(10, 1.25, 2))).toEqual({
    scope: 'day',
    message: expect.stringMatching(/this day.*\$1\.2500.*2 requests without a known price.*limit is \$1;.*00:00 UTC/),
  })
  expect(over({ run: { tokens: 10 }, day: { tokens: 10 } }, spending(10))?.scope).toBe('run')
  expect(over({ day: { tokens: 0 } }, noSpending)?.scope).toBe('day')
})
