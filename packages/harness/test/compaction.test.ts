import type { Message, Model, ModelRequest, ScriptedTurn } from '@reve/providers/model'
import { isEntry, type SessionLog } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import type { Harness, HarnessEvent, HarnessOptions, Tool } from '../src/index.ts'
import {
  checkProjection,
  drift,
  echoTool,
  gate,
  newLog,
  recordsOf,
  reopen,
  rig,
  said,
  scriptOn,
  shape,
  trace,
} from './support.ts'

const long = (text: string) => text.padEnd(4000, ' and so on')
const small = { reserveTokens: 100, keepRecentTokens: 100 } as const
const noSleep = { sleep: () => Promise.resolve() }

/** A rig whose model writes summaries and goes by the log's answers; what it was asked, in order. */
async function summarising(
  turns: readonly ScriptedTurn[],
  options: Partial<HarnessOptions> & {
    readonly window?: number
    readonly summary?: (request: ModelRequest) => ScriptedTurn
    readonly wrap?: (model: Model) => Model
    readonly on?: SessionLog
  } = {},
) {
  const { window = 3000, summary, wrap = (model) => model, on, ...rest } = options
  const log = on ?? (await newLog())
  const asked: { readonly request: ModelRequest; readonly isSummary: boolean }[] = []
  const model = scriptOn(log, turns, {
    contextWindow: window,
    ...(summary !== undefined && { summary }),
    asked: (request, isSummary) => asked.push({ request, isSummary }),
  })
  const made = rig(log, { model: wrap(model), compaction: small, effects: noSleep, ...rest })
  return { ...made, asked, summaries: () => asked.filter(({ isSummary }) => isSummary).map(({ request }) => request) }
}

const summariesIn = (log: SessionLog) => log.lines.filter((line) => isEntry(line) && line.type === 'compaction')
const firstText = (messages: readonly Message[]) => said(messages[0])

/** A model that finds everything too large that has no summary in it. */
const tooLargeWithoutSummary = (model: Model): Model => ({
  ...model,
  async *stream(request, options) {
    if (firstText(request.messages).includes('<summary>') || request.messages.length < 2 || request.tools.length === 0)
      return yield* model.stream(request, options)
    const failure = { code: 'overflow', message: 'prompt is too long', retryable: false } as const
    return { type: 'failed', failure, outputShown: false }
  },
})

const bulky = [
  { text: 'One.', calls: [{ name: 'echo', arguments: { say: long('a') } }] },
  { text: 'Two.', calls: [{ name: 'echo', arguments: { say: long('b') } }] },
  { text: 'Three.', calls: [{ name: 'echo', arguments: { say: long('c') } }] },
  { text: 'Done.' },
]

describe('at the threshold', () => {
  test('the older part becomes a summary before the request that would be too much, and the run goes on', async () => {
    const { harness, log, asked, events } = await summarising(bulky, { tools: [echoTool()] })
    const result = await harness.prompt('Go')
    expect(result).toMatchObject({ outcome: 'completed', text: 'Done.', turns: 4 })
    expect(trace(log)).toEqual([
      'operation_started',
      'user',
      ...['task_attempt', 'assistant', 'usage', 'tool_started', 'toolResult'],
      ...['task_attempt', 'assistant', 'usage', 'tool_started', 'toolResult'],
      ...['compaction_started', 'task_attempt', 'compaction', 'usage', 'compaction_finished'],
      ...['task_attempt', 'assistant', 'usage', 'tool_started', 'toolResult'],
      ...['compaction_started', 'task_attempt', 'compaction', 'usage', 'compaction_finished'],
      ...['task_attempt', 'assistant', 'usage'],
      'operation_finished',
    ])
    expect(asked.map(({ isSummary }) => isSummary)).toEqual([false, false, true, false, true, false])
    // The request right after it begins with the summary, and every request is one that an API takes.
    expect(firstText(asked[3]?.request.messages ?? [])).toContain('Summary 1.')
    for (const { request } of asked) checkProjection(request.messages)
    // The second summary was asked for with the first one, and it alone is seen from then on.
    expect(firstText(asked[4]?.request.messages ?? [])).toContain('Summary 1.')
    expect(firstText(harness.messages())).toContain('Summary 2.')
    expect(firstText(harness.messages())).not.toContain('Summary 1.')
    expect(events.filter(({ type }) => type.startsWith('compaction'))).toMatchObject([
      { type: 'compaction_started', reason: 'threshold' },
      { type: 'compaction_finished', outcome: 'completed', entryId: summariesIn(log)[0]?.id },
      { type: 'compaction_started', reason: 'threshold' },
      { type: 'compaction_finished', outcome: 'completed', entryId: summariesIn(log)[1]?.id },
    ])
  })

  test('nothing is lost: the whole history is on the path, and the leaf is right without any record', async () => {
    const { harness, log } = await summarising(bulky, { tools: [echoTool()] })
    await harness.prompt('Go')
    const path = log.path(log.leaf('main'))
    expect(path.map(shape)).toEqual([
      ...['user', 'assistant', 'toolResult', 'assistant', 'toolResult', 'compaction'],
      ...['assistant', 'toolResult', 'compaction', 'assistant'],
    ])
    expect(log.lines.findLast(isEntry)?.id).toBe(log.leaf('main'))
    const again = await reopen(log)
    expect(again.path(again.leaf('main')).map(({ id }) => id)).toEqual(path.map(({ id }) => id))
  })

  test('the usage that the server reported counts, not the length of the text', async () => {
    const turns = [
      { text: 'One.', calls: [{ name: 'echo', arguments: { say: 'a' } }], usage: { input: 2850, output: 100 } },
      { text: 'Done.', usage: { input: 10, output: 1 } },
    ]
    const { harness, summaries } = await summarising(turns, { tools: [echoTool()] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(summaries()).toHaveLength(1)
  })

  test('a failure keeps the old leaf, is no part of the conversation, and the run goes on', async () => {
    const summary = () => ({ fail: { code: 'quota', message: 'no more today' } as const })
    const { harness, log, asked, events } = await summarising(bulky, { tools: [echoTool()], summary })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(summariesIn(log)).toEqual([])
    // It is not tried again in this run.
    expect(asked.filter(({ isSummary }) => isSummary)).toHaveLength(1)
    expect(recordsOf(log, 'compaction_finished')).toMatchObject([
      { outcome: 'failed', error: { code: 'quota', message: 'no more today' } },
    ])
    expect(JSON.stringify(harness.messages())).not.toContain('no more today')
    expect(events.filter(({ type }) => type === 'compaction_finished')).toMatchObject([
      { outcome: 'failed', error: { code: 'quota' } },
    ])
  })

  test('can be switched off', async () => {
    const { harness, summaries } = await summarising(bulky, {
      tools: [echoTool()],
      compaction: { ...small, auto: false },
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    expect(summaries()).toEqual([])
  })
})

describe('on overflow', () => {
  const turns = [{ text: 'One.', calls: [{ name: 'echo', arguments: { say: 'a' } }] }, { text: 'Done.' }]

  test('makes room, then asks for the unfinished step alone: no tool runs again', async () => {
    const echo = echoTool()
    const { harness, log, asked } = await summarising(turns, {
      window: 100_000,
      tools: [echo],
      wrap: tooLargeWithoutSummary,
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.', turns: 2 })
    expect(echo.runs).toHaveLength(1)
    expect(asked.map(({ isSummary }) => isSummary)).toEqual([false, true, false])
    expect(recordsOf(log, 'compaction_started')).toMatchObject([{ reason: 'overflow' }])
    // Attempts of a step never share a number.
    const attempts = recordsOf(log, 'task_attempt').filter(({ purpose, step }) => purpose === undefined && step === 2)
    expect(attempts.map(({ attempt }) => attempt)).toEqual([1, 2])
    // What failed is a record, never a message.
    expect(JSON.stringify(harness.messages())).not.toContain('too long')
  })

  test('only once for each thing that is said: a request that stays too large ends the run, and nothing turns for ever', async () => {
    const tooLarge = (model: Model): Model => ({
      ...model,
      async *stream(request, options) {
        if (request.tools.length === 0) return yield* model.stream(request, options)
        const failure = { code: 'overflow', message: 'prompt is too long', retryable: false } as const
        return { type: 'failed', failure, outputShown: false }
      },
    })
    const { harness, log, summaries } = await summarising(turns, { tools: [echoTool()], wrap: tooLarge })
    const first = await harness.prompt('Hello')
    expect(first).toMatchObject({ outcome: 'failed', reason: 'context_overflow' })
    // One message alone: there is nothing that a summary could stand for.
    expect(first.error?.message).toContain('nothing left to summarise')
    expect(summaries()).toHaveLength(0)
    expect(await harness.prompt('Hello again')).toMatchObject({ outcome: 'failed', reason: 'context_overflow' })
    expect(summaries()).toHaveLength(1)
    expect(summariesIn(log)).toHaveLength(1)
  })

  test('a summary that cannot be made fails the run with both reasons', async () => {
    const { harness } = await summarising(turns, {
      tools: [echoTool()],
      wrap: tooLargeWithoutSummary,
      summary: () => ({ fail: { code: 'auth', message: 'wrong key' } }),
    })
    const result = await harness.prompt('Go')
    expect(result).toMatchObject({ outcome: 'failed', reason: 'context_overflow' })
    expect(result.error?.message).toMatch(/prompt is too long.*wrong key/)
  })
})

describe('by hand', () => {
  test('summarises even a short talk, minds the instructions, and says what it did', async () => {
    const { harness, log, summaries } = await summarising([{ text: 'Hi.', usage: { input: 500, output: 5 } }])
    await harness.prompt('Hello')
    const result = await harness.compact({ instructions: 'keep the file names' })
    const { id } = summariesIn(log)[0] ?? {}
    expect(result).toMatchObject({ outcome: 'completed', compacted: { entryId: id }, waiting: 0, returned: [] })
    expect(result.compacted?.tokensAfter).toBeLessThan(result.compacted?.tokensBefore ?? 0)
    expect(firstText(summaries()[0]?.messages ?? [])).toContain('keep the file names')
    expect(recordsOf(log, 'operation_started').at(-1)).toMatchObject({
      intent: { kind: 'compaction', summaryEntryId: id, instructions: 'keep the file names' },
    })
    expect(recordsOf(log, 'operation_finished').at(-1)).toMatchObject({ outcome: 'completed' })
    // The talk was over, and still is.
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })
    expect(await harness.recover()).toEqual({ lanes: [] })
  })

  test('with nothing to summarise it says so, and writes nothing', async () => {
    const { harness, log } = await summarising([])
    await expect(harness.compact()).rejects.toMatchObject({ code: 'nothing_to_compact' })
    expect(log.lines).toEqual([])
  })

  test('a summary of a summary: the newest alone is seen, and it was made from the one before', async () => {
    const { harness, summaries } = await summarising([{ text: 'One.' }, { text: 'Two.' }])
    await harness.prompt('First')
    await harness.compact()
    await harness.prompt('Second')
    await harness.compact()
    expect(firstText(summaries()[1]?.messages ?? [])).toContain('<previous_summary>\nSummary 1.')
    expect(firstText(summaries()[1]?.messages ?? [])).not.toContain('First')
    expect(harness.messages()).toHaveLength(1)
    expect(firstText(harness.messages())).toContain('Summary 2.')
  })

  test('a second one at the same time, or a prompt, finds the lane busy; the status says why', async () => {
    const opened = gate()
    const { harness, log } = await summarising([{ text: 'One.' }], { wrap: waitingForSummary(opened.opened) })
    await harness.prompt('First')
    const compacting = harness.compact()
    expect(harness.status()).toMatchObject({ state: 'compacting', aborting: false })
    const lines = log.lines.length
    await expect(harness.compact()).rejects.toMatchObject({ code: 'lane_busy' })
    await expect(harness.prompt('Me')).rejects.toMatchObject({ code: 'lane_busy' })
    await expect(harness.navigate(null)).rejects.toMatchObject({ code: 'lane_busy' })
    expect(log.lines.length - lines).toBeLessThanOrEqual(3)
    opened.open()
    expect(await compacting).toMatchObject({ outcome: 'completed' })
    expect(harness.status()).toEqual({ state: 'idle', waiting: 0 })
  })

  test('what is said meanwhile does not disturb it, waits, and is delivered by what comes next', async () => {
    const opened = gate()
    const { harness, log } = await summarising([{ text: 'One.' }, { text: 'Two.' }], {
      wrap: waitingForSummary(opened.opened),
    })
    await harness.prompt('First')
    const compacting = harness.compact()
    await harness.steer('left')
    await harness.followUp('and then?')
    opened.open()
    expect(await compacting).toMatchObject({ outcome: 'completed', waiting: 2, returned: [] })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Two.' })
    expect(harness.messages().slice(1).map(said)).toEqual(['left', 'and then?', 'Two.'])
    expect(recordsOf(log, 'message_cancelled')).toEqual([])
  })
})

/** Resolves when a compaction has begun in the log too. */
async function recorded(log: SessionLog): Promise<void> {
  while (recordsOf(log, 'compaction_started').length === 0) await drift(3)
}

/** Resolves at the next event of that type. */
const happening = (harness: Harness, type: HarnessEvent['type'], log?: SessionLog): Promise<void> =>
  new Promise((resolve) => {
    const stop = harness.subscribe((event) => {
      if (event.type !== type) return
      stop()
      resolve(log === undefined ? undefined : recorded(log))
    })
  })

/** Answers nothing before the gate opens or the request is aborted, and summaries alone. */
const waitingForSummary =
  (opened: Promise<void>) =>
  (model: Model): Model => ({
    ...model,
    async *stream(request, { signal }) {
      if (request.tools.length === 0 && request.sessionId?.endsWith(':summary') === true) {
        await Promise.race([opened, new Promise((resolve) => signal.addEventListener('abort', resolve))])
      }
      return yield* model.stream(request, { signal })
    },
  })

describe('what comes back', () => {
  test('a summary that was cut off is refused; a shorter one is asked for, once', async () => {
    const answers: readonly ScriptedTurn[] = [{ text: 'Half a sen', stop: 'length' }, { text: 'Short.' }]
    let next = 0
    const { harness, log, summaries } = await summarising([{ text: 'One.' }], {
      summary: () => answers[next++] ?? { text: 'too many' },
    })
    await harness.prompt('First')
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    expect(summariesIn(log)).toMatchObject([{ summary: 'Short.' }])
    expect(firstText(summaries()[1]?.messages ?? [])).toContain('cut off by the output limit')
  })

  test('cut off twice it fails, and the conversation is as before', async () => {
    const { harness, log } = await summarising([{ text: 'One.' }], {
      summary: () => ({ text: 'Half a sen', stop: 'length' }),
    })
    await harness.prompt('First')
    const before = harness.messages()
    expect(await harness.compact()).toMatchObject({
      outcome: 'failed',
      reason: 'summary_failed',
      error: { code: 'summary_cut' },
    })
    expect(harness.messages()).toEqual(before)
    expect(summariesIn(log)).toEqual([])
    expect(await harness.recover()).toEqual({ lanes: [] })
  })

  test('an empty one, and a server in trouble, are asked again as any request, with durable numbers', async () => {
    const answers: readonly ScriptedTurn[] = [{ text: '  ' }, { fail: { code: 'overloaded' } }, { text: 'At last.' }]
    let next = 0
    const { harness, log, events } = await summarising([{ text: 'One.' }], { summary: () => answers[next++] ?? {} })
    await harness.prompt('First')
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    const attempts = recordsOf(log, 'task_attempt').filter(({ purpose }) => purpose === 'summary')
    expect(attempts.map(({ attempt }) => attempt)).toEqual([1, 2, 3])
    expect(recordsOf(log, 'task_failed')).toMatchObject([
      { error: { code: 'summary_empty' } },
      { error: { code: 'overloaded' } },
    ])
    expect(events.filter(({ type }) => type === 'retry')).toHaveLength(2)
    // A summary is not shown as if the agent said it.
    expect(events.filter((event) => event.type === 'text' && event.delta.includes('At last'))).toEqual([])
  })

  test('a conversation that does not fit into one request is summarised piece by piece', async () => {
    const turns = Array.from({ length: 8 }, (_, index) => ({ text: `Answer ${index}. ${long('x')}` }))
    const { harness, log, summaries, asked } = await summarising(turns, {
      window: 4000,
      compaction: { ...small, auto: false },
    })
    for (const index of turns.keys()) await harness.prompt(`Question ${index}`)
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    expect(summaries().length).toBeGreaterThan(1)
    const texts = summaries().map(({ messages }) => firstText(messages))
    // Each answer that is not kept is in exactly one of them, and each after the first carries on what was said of the others.
    for (const index of [...turns.keys()].slice(0, -1)) {
      expect(texts.filter((text) => text.includes(`Answer ${index}.`))).toHaveLength(1)
    }
    expect(texts.slice(1).every((text) => text.includes('<previous_summary>'))).toBe(true)
    expect(summariesIn(log)).toHaveLength(1)
    expect(asked.length).toBe(turns.length + summaries().length)
    // Every one of them was paid for.
    expect(recordsOf(log, 'usage')).toHaveLength(asked.length)
  })

  test('a summary request that overflows is made in smaller pieces', async () => {
    const limit = 9000
    const turns = Array.from({ length: 6 }, (_, index) => ({ text: `Answer ${index}. ${long('x')}` }))
    const { harness, summaries } = await summarising(turns, {
      window: 100_000,
      summary: (request) =>
        firstText(request.messages).length > limit ? { fail: { code: 'overflow' } } : { text: 'Fits.' },
    })
    for (const index of turns.keys()) await harness.prompt(`Question ${index}`)
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    expect(summaries().length).toBeGreaterThan(2)
  })

  test('and when no piece is small enough it fails after a few tries', async () => {
    const { harness, summaries } = await summarising([{ text: 'One.' }], {
      summary: () => ({ fail: { code: 'overflow', message: 'too long' } }),
    })
    await harness.prompt('First')
    expect(await harness.compact()).toMatchObject({ outcome: 'failed', error: { code: 'overflow' } })
    expect(summaries().length).toBeLessThan(8)
  })
})

describe('hooks', () => {
  test('one may decline: the run carries on, a person is told', async () => {
    const hooks = [{ beforeCompaction: () => ({ decline: 'not now' }) }]
    const { harness, log, summaries } = await summarising(bulky, { tools: [echoTool()], hooks })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(await harness.compact()).toMatchObject({
      outcome: 'rejected',
      reason: 'declined',
      error: { message: 'not now' },
    })
    expect(summaries()).toEqual([])
    expect(recordsOf(log, 'compaction_started')).toEqual([])
    expect(recordsOf(log, 'operation_finished').at(-1)).toMatchObject({ outcome: 'rejected', reason: 'declined' })
  })

  test('one may bring a summary of its own, from the very messages that it stands for', async () => {
    const seen: (readonly Message[])[] = []
    const hooks = [
      {
        beforeCompaction: ({ messages }: { readonly messages: readonly Message[] }) => {
          seen.push(messages)
          return { summary: 'My own words.' }
        },
      },
    ]
    const { harness, log, summaries } = await summarising([{ text: 'One.' }], { hooks })
    await harness.prompt('First')
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    expect(summaries()).toEqual([])
    expect(seen.map((messages) => messages.map(said))).toEqual([['First', 'One.']])
    expect(summariesIn(log)).toMatchObject([{ summary: 'My own words.' }])
  })
})

describe('abort', () => {
  test('covers it: the request is cut, the end is recorded, the conversation is as before', async () => {
    const { harness, log } = await summarising([{ text: 'One.' }], {
      wrap: waitingForSummary(new Promise(() => undefined)),
    })
    await harness.prompt('First')
    const before = harness.messages()
    const begun = happening(harness, 'compaction_started', log)
    const compacting = harness.compact()
    await begun
    await harness.steer('left')
    const { returned } = await harness.abort()
    expect(returned.map(said)).toEqual(['left'])
    expect(await harness.abort()).toEqual({ returned })
    const result = await compacting
    expect(result).toMatchObject({ outcome: 'aborted', reason: 'abort_requested', waiting: 0 })
    expect(result.returned.map(said)).toEqual(['left'])
    expect(recordsOf(log, 'compaction_finished')).toMatchObject([{ outcome: 'aborted' }])
    expect(harness.messages()).toEqual(before)
    expect(await harness.recover()).toEqual({ lanes: [] })
  })

  test('through the caller’s signal too, and by closing the harness', async () => {
    for (const stop of ['signal', 'close'] as const) {
      const { harness } = await summarising([{ text: 'One.' }], {
        wrap: waitingForSummary(new Promise(() => undefined)),
      })
      await harness.prompt('First')
      const controller = new AbortController()
      const compacting = harness.compact({ signal: controller.signal })
      await drift(30)
      if (stop === 'signal') controller.abort()
      else await harness.close()
      expect(await compacting).toMatchObject({ outcome: 'aborted' })
    }
  })

  test('against its settling, at each instant: either the summary stands and is finished, or nothing has changed', async () => {
    const outcomes = new Set<string>()
    // The steps are small where the two are close together, and go on until both orders were seen.
    for (let turns = 0; turns < 300 || (outcomes.size < 2 && turns < 50_000); turns += turns < 300 ? 5 : 500) {
      const { harness, log } = await summarising([{ text: 'One.' }])
      await harness.prompt('First')
      const before = harness.messages()
      const compacting = harness.compact()
      await drift(turns)
      await harness.abort()
      const { outcome } = await compacting
      outcomes.add(outcome)
      const stands = summariesIn(log).length === 1
      expect(recordsOf(log, 'operation_finished').at(-1)).toMatchObject({ outcome })
      if (!stands) expect(harness.messages()).toEqual(before)
      if (outcome === 'completed') expect(stands).toBe(true)
      const finished = recordsOf(log, 'compaction_finished')
      expect(finished).toHaveLength(recordsOf(log, 'compaction_started').length)
      for (const end of finished) expect(end['outcome'] === 'completed').toBe(stands)
      const lines = log.lines.length
      expect(await harness.recover()).toEqual({ lanes: [] })
      expect(log.lines).toHaveLength(lines)
      await log.close()
    }
    expect(outcomes).toEqual(new Set(['aborted', 'completed']))
  })

  test('in the middle of a run it ends the run, and the calls before it keep their results', async () => {
    const abortingTool: Tool = { ...echoTool() }
    const { harness, log } = await summarising(bulky, {
      tools: [abortingTool],
      wrap: waitingForSummary(new Promise(() => undefined)),
    })
    const begun = happening(harness, 'compaction_started', log)
    const running = harness.prompt('Go')
    await begun
    await harness.abort()
    expect(await running).toMatchObject({ outcome: 'aborted', reason: 'abort_requested' })
    expect(trace(log).slice(-3)).toEqual(['abort_requested', 'compaction_finished', 'operation_finished'])
    checkProjection(harness.messages())
    expect(
      harness
        .messages()
        .map(said)
        .some((text) => text.startsWith('echo: a')),
    ).toBe(true)
  })
})

test('what no summary can make smaller is not summarised before each request', async () => {
  const turns = [
    { text: 'One.', calls: [{ name: 'echo', arguments: { say: 'a' } }] },
    { text: 'Two.', calls: [{ name: 'echo', arguments: { say: 'b' } }] },
    { text: 'Three.', calls: [{ name: 'echo', arguments: { say: 'c' } }] },
    { text: 'Done.' },
  ]
  const { harness, summaries } = await summarising(turns, { tools: [echoTool()], system: long('Be brief.').repeat(4) })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
  expect(summaries().length).toBeLessThan(2)
})
