import { createScriptedModel, type Model, type Price, type ScriptedTurn } from '@reve/providers/model'
import type { OpenOptions, SessionLog } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import { type Budget, type HarnessOptions, readLedger, type Tool } from '../src/index.ts'
import { checkProjection, echoTool, newLog, recordsOf, reopen, rig, said, trace } from './support.ts'

const price: Price = { input: 1, cacheRead: 0.1, cacheWrite: 2, output: 10 }
const call = (name: string, say = 'a') => ({ calls: [{ name, arguments: { say } }] })
const tokens = (input: number, output = 0) => ({ usage: { input, output } })
/** A model whose every answer calls the tool, at so many tokens each. */
const busy = (each: number, id = 'scripted/script'): Model =>
  createScriptedModel({
    id,
    price,
    turns: Array.from({ length: 40 }, (_, turn) => ({ ...call('echo', `${turn}`), ...tokens(each) })),
  })

/** What the records of the file say, added up here. */
function added(log: SessionLog, keep: (line: { lane: string; runId: unknown; ts: string }) => boolean = () => true) {
  const sum = { requests: 0, tokens: 0, cost: 0 }
  for (const line of recordsOf(log, 'usage')) {
    if (!keep({ lane: line.lane, runId: line['runId'], ts: line.ts })) continue
    const usage = line['usage'] as { input: number; cacheRead: number; cacheWrite: number; output: number } | null
    sum.requests++
    sum.tokens += usage === null ? 0 : usage.input + usage.cacheRead + usage.cacheWrite + usage.output
    sum.cost += typeof line['cost'] === 'number' ? line['cost'] : 0
  }
  return sum
}

type Spent = ReturnType<typeof readLedger>['session']
const short = (spent: Spent | undefined) =>
  spent && {
    requests: spent.requests,
    tokens: spent.usage.input + spent.usage.cacheRead + spent.usage.cacheWrite + spent.usage.output,
    cost: spent.cost,
  }

const agentTool = (model: () => Model, tools?: readonly Tool[]): Tool => ({
  name: 'ask',
  description: 'asks another',
  parameters: { type: 'object' },
  replay: 'safe',
  run: async (_, { subagent }) => {
    const { outcome, reason = '' } = await subagent('What?', { model: model(), ...(tools && { tools }) })
    return { content: `${outcome} ${reason}` }
  },
})

describe('spending', () => {
  test('by session, run, lane and day is what the usage records say, also in the next process', async () => {
    let now = Date.UTC(2026, 0, 31, 23, 59)
    const log = await newLog({ now: () => now })
    const turns: readonly ScriptedTurn[] = [
      { calls: [{ name: 'ask' }], usage: { input: 5, cacheRead: 7, cacheWrite: 11, output: 13, reasoning: 2 } },
      { text: 'Half.', ...tokens(3, 1), fail: { times: 1, afterText: true } },
      { text: 'No count.' },
    ]
    const sub = createScriptedModel({ id: 'scripted/sub', turns: [{ text: 'So.', ...tokens(100, 50) }] })
    const model = createScriptedModel({ turns, price })
    const { harness } = rig(log, { model, tools: [agentTool(() => sub)], effects: { sleep: () => Promise.resolve() } })
    const early = harness.spending()
    expect(early.session).toMatchObject({ requests: 0, cost: 0 })
    const first = await harness.prompt('Go')
    now += 120_000
    const second = await harness.prompt('On', { lane: 'main' })
    const third = await harness.prompt('Aside', {
      lane: 'side',
      model: createScriptedModel({ turns: [{ text: 'x', ...tokens(1) }], price }),
    })

    const report = harness.spending()
    expect(short(report.session)).toEqual(added(log))
    // Five answers, and one attempt that failed after it had cost something.
    expect(report.session).toMatchObject({ requests: 6, unpriced: 2 })
    expect([...report.runs.keys()]).toHaveLength(4)
    for (const [runId, spent] of report.runs) expect(short(spent)).toEqual(added(log, (line) => line.runId === runId))
    expect([...report.lanes.keys()].toSorted()).toEqual(log.lanes().toSorted())
    for (const [lane, spent] of report.lanes) expect(short(spent)).toEqual(added(log, (line) => line.lane === lane))
    expect([...report.days.keys()]).toEqual(['2026-01-31', '2026-02-01'])
    for (const [day, spent] of report.days) expect(short(spent)).toEqual(added(log, ({ ts }) => ts.startsWith(day)))

    // A run's own result: its own requests, the failed one too, the sub-agent's apart.
    expect(first.usage).toEqual({ input: 11, cacheRead: 7, cacheWrite: 11, output: 15, reasoning: 2 })
    expect(first.cost).toBeCloseTo(report.runs.get(first.runId)?.cost ?? 0)
    expect(first.cost).toBeGreaterThan(0)
    expect(second.usage).toMatchObject({ input: 0, output: 0 })
    expect(third.usage).toMatchObject({ input: 1 })

    // What was handed out does not change any more; asked late or early, it is the same.
    expect(early.session).toMatchObject({ requests: 0 })
    expect(readLedger(log)).toEqual(report)
    const again = await reopen(log)
    expect(rig(again).harness.spending()).toEqual(report)
  })

  test('asked for first when a request is on the disk and not told of yet, counts it once', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ text: 'one', ...tokens(7) }] })
    harness.subscribe(({ type }) => {
      if (type === 'message') harness.spending()
    })
    await harness.prompt('Go')
    expect(short(harness.spending().session)).toEqual({ requests: 1, tokens: 7, cost: 0 })
  })

  test('counts the requests for summaries', async () => {
    const log = await newLog()
    const turns = ['one', 'two'].map((text) => ({ text, ...tokens(10) }))
    const { harness } = rig(log, { turns })
    await harness.prompt('a')
    await harness.prompt('b')
    const before = harness.spending().session.usage.input
    expect(await harness.compact()).toMatchObject({ outcome: 'completed', usage: { input: 10 } })
    expect(harness.spending().session.usage.input).toBe(before + 10)
    expect(short(harness.spending().session)).toEqual(added(log))
  })
})

describe('a budget', () => {
  const limited = async (budget: Budget, options: Partial<HarnessOptions> = {}, open: OpenOptions = {}) => {
    const log = await newLog(open)
    const echo = echoTool()
    return { echo, ...rig(log, { model: busy(40), tools: [echo], budget, ...options }) }
  }

  test.each<readonly [string, Budget, number, RegExp]>([
    ['of tokens a run', { run: { tokens: 100 } }, 3, /this run.*120 tokens.*100.*run\.tokens/],
    ['that is met exactly', { run: { tokens: 80 } }, 2, /this run/],
    ['of money a run', { run: { usd: 0.0001 } }, 3, /this run.*\$.*run\.usd/],
    ['of tokens a day', { day: { tokens: 100 } }, 3, /this day.*day\.tokens/],
    ['of money a day', { day: { usd: 0.0001 } }, 3, /this day.*day\.usd/],
    ['of nothing', { run: { tokens: 0 } }, 0, /this run/],
  ])('%s stops before the next request; what was begun is whole', async (_, budget, requests, message) => {
    const { harness, log, echo, events } = await limited(budget)
    const result = await harness.prompt('Go')
    expect(result).toMatchObject({ outcome: 'failed', reason: 'budget', error: { code: 'budget' } })
    expect(result.error?.message).toMatch(message)
    expect(recordsOf(log, 'task_attempt')).toHaveLength(requests)
    expect(recordsOf(log, 'usage')).toHaveLength(requests)
    expect(echo.runs).toHaveLength(requests)
    expect(trace(log).slice(-2)).toEqual([requests === 0 ? 'user' : 'toolResult', 'operation_finished'])
    expect(events.at(-1)).toMatchObject({ type: 'run_finished', outcome: 'failed', reason: 'budget' })
    checkProjection(harness.messages())
    expect(harness.status()).toMatchObject({ state: 'idle' })
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })

  test('of a run begins anew with each run', async () => {
    const { harness, log } = await limited({ run: { tokens: 100 } })
    await harness.prompt('Go')
    expect(await harness.continue()).toMatchObject({ outcome: 'failed', reason: 'budget', turns: 4 })
    expect(recordsOf(log, 'task_attempt')).toHaveLength(6)
  })

  test('of a day is one for all lanes and processes, and begins anew at midnight UTC', async () => {
    let now = Date.UTC(2026, 1, 28, 23, 0)
    const clock = { now: () => now }
    const { harness, log } = await limited({ day: { tokens: 100 } }, { effects: clock }, clock)
    expect(await harness.prompt('Go')).toMatchObject({ reason: 'budget' })
    expect(await harness.prompt('Aside', { lane: 'side' })).toMatchObject({ outcome: 'failed', reason: 'budget' })
    expect(recordsOf(log, 'task_attempt')).toHaveLength(3)
    const again = await reopen(log)
    const options = { model: busy(40), tools: [echoTool()], budget: { day: { tokens: 100 } } }
    const next = rig(again, { ...options, effects: clock })
    expect(await next.harness.continue()).toMatchObject({ outcome: 'failed', reason: 'budget' })
    expect(recordsOf(again, 'task_attempt')).toHaveLength(3)
    await again.close()
    now += 3_600_000
    const third = await reopen(again)
    // The log has a clock of its own: in this process it is that of the machine.
    const tomorrow = rig(third, { ...options, effects: clock, limits: { maxTurns: 2 } })
    expect(await tomorrow.harness.continue()).toMatchObject({ outcome: 'failed', reason: 'max_turns' })
  })

  test('counts attempts that failed: it stops the retries too', async () => {
    const fail = { code: 'server', afterText: true } as const
    const model = createScriptedModel({ price, turns: [{ text: 'Half', ...tokens(60), fail }] })
    const { harness, log } = await limited(
      { run: { tokens: 100 } },
      { model, effects: { sleep: () => Promise.resolve() }, limits: { retries: { attempts: 9 } } },
    )
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason: 'budget', usage: { input: 120 } })
    expect(recordsOf(log, 'task_failed')).toHaveLength(2)
    expect(recordsOf(log, 'task_attempt')).toHaveLength(2)
  })

  test('does not stop an answer that needs no other', async () => {
    const { harness } = await limited(
      { run: { tokens: 10 } },
      { model: createScriptedModel({ turns: [{ text: 'ok', ...tokens(99) }] }) },
    )
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'ok' })
  })
})

describe('a budget and sub-agents', () => {
  const team = async (budget: Budget, sub: Model, own = 10) => {
    const log = await newLog()
    const turns = [
      { calls: [{ name: 'ask' }], ...tokens(own) },
      { text: 'Done.', ...tokens(own) },
    ]
    const ask = agentTool(() => sub, [echoTool()])
    const { harness } = rig(log, { model: createScriptedModel({ turns, price }), tools: [ask], budget })
    return { log, harness, result: await harness.prompt('Go') }
  }
  const answer = (input: number): Model =>
    createScriptedModel({ id: 'scripted/sub', price, turns: [{ text: 'So.', ...tokens(input) }] })

  test('what they spend counts for the run that called them, though not in its own sums', async () => {
    const { result, harness, log } = await team({ run: { tokens: 100 } }, answer(95))
    expect(result).toMatchObject({ outcome: 'failed', reason: 'budget', usage: { input: 10 } })
    expect(said(harness.messages()[2])).toBe('completed ')
    expect(harness.spending().runs.get(result.runId)?.usage.input).toBe(10)
    expect(short(harness.spending().session)).toEqual(added(log))
    expect(await team({ run: { tokens: 100 } }, answer(80)).then((made) => made.result)).toMatchObject({
      outcome: 'completed',
    })
  })

  test('what sub-agents of sub-agents spend counts all the way up', async () => {
    const log = await newLog()
    const inner = agentTool(() => answer(95))
    const outerModel = createScriptedModel({
      id: 'scripted/outer',
      turns: [{ calls: [{ name: 'ask' }] }, { text: 'So.' }],
    })
    const outer = agentTool(() => outerModel, [inner])
    const turns = [{ calls: [{ name: 'ask' }], ...tokens(10) }, { text: 'Done.' }]
    const { harness } = rig(log, { turns, tools: [outer], budget: { run: { tokens: 100 } } })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason: 'budget' })
  })

  test('a sub-agent does not go on when the run that called it may not', async () => {
    const { result, log } = await team({ run: { tokens: 100 } }, busy(40, 'scripted/sub'), 60)
    expect(result).toMatchObject({ outcome: 'failed', reason: 'budget' })
    // With the first request of the sub-agent the budget of its caller is used up; its own would have been enough for more.
    expect(added(log).tokens).toBe(100)
    expect(recordsOf(log, 'operation_finished')).toMatchObject([
      { outcome: 'failed', reason: 'budget' },
      { reason: 'budget' },
    ])
  })

  test('nor many of them together beyond what one request each can add', async () => {
    const log = await newLog()
    const asks = Array.from({ length: 4 }, () => ({ name: 'ask' }))
    const ask = agentTool(() => busy(40, 'scripted/sub'), [echoTool()])
    const { harness } = rig(log, {
      turns: [{ calls: asks, ...tokens(10) }, { text: 'Done.' }],
      tools: [ask],
      budget: { run: { tokens: 100 } },
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason: 'budget' })
    expect(added(log).tokens).toBeLessThanOrEqual(100 + 4 * 40)
  })

  test('the budget of a day stops them themselves', async () => {
    const { log, result } = await team({ day: { tokens: 100 } }, busy(40, 'scripted/sub'))
    expect(result).toMatchObject({ outcome: 'failed', reason: 'budget' })
    expect(added(log).tokens).toBe(130)
  })
})
