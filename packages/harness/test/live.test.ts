import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { HarnessEvent, HarnessEventBody, Tool } from '../src/index.ts'
import { applyEvent, type Live, noLive, without } from '../src/live.ts'
import { echoTool, gate, newLog, reopen, rig } from './support.ts'

const on = (lane: string, body: HarnessEventBody, runId = 'run_1'): HarnessEvent => ({ v: 1, lane, runId, ...body })
const main = (body: HarnessEventBody): HarnessEvent => on('main', body)
const after = (events: readonly HarnessEvent[], from: Live = noLive): Live => events.reduce(applyEvent, from)

const started = main({ type: 'run_started' })
const turn = (step: number) => main({ type: 'turn_started', step })
const text = (delta: string) => main({ type: 'text', delta })
const reasoning = (delta: string) => main({ type: 'reasoning', delta })
const retry = (discard: boolean) =>
  main({ type: 'retry', attempt: 2, delayMs: 10, discard, error: { code: 'server', message: 'no' } })
const toolStarted = (toolCallId: string, lane = 'main') =>
  on(lane, { type: 'tool_started', toolCallId, toolName: 'echo', arguments: { say: 'x' }, resultEntryId: 'e_2' })
const progress = (toolCallId: string, text: string) => main({ type: 'tool_progress', toolCallId, text })
const toolFinished = (toolCallId: string, lane = 'main') =>
  on(lane, {
    type: 'tool_finished',
    toolCallId,
    toolName: 'echo',
    result: { role: 'toolResult', toolCallId, toolName: 'echo', content: [], isError: false },
  })
const answer = main({
  type: 'message',
  entryId: 'e_1',
  message: { role: 'assistant', model: 'm/a', content: [], stopReason: 'stop' },
})
const finished = main({ type: 'run_finished', outcome: 'completed', text: '' })

test('an answer grows until it is in the log', () => {
  const writing = after([started, turn(1), reasoning('h'), reasoning('m'), text('o'), text('k')])
  expect(writing.get('main')).toEqual({
    lane: 'main',
    runId: 'run_1',
    operation: 'run',
    step: 1,
    text: 'ok',
    reasoning: 'hm',
    tools: [],
    aborting: false,
  })
  expect(after([answer], writing).get('main')).toMatchObject({ text: '', reasoning: '', step: 1 })
  expect(after([turn(2)], writing).get('main')).toMatchObject({ text: '', reasoning: '', step: 2 })
  expect(after([finished], writing)).toEqual(noLive)
  const said = main({ type: 'message', entryId: 'e_0', message: { role: 'user', content: [] } })
  expect(after([said], writing).get('main')).toMatchObject({ text: 'ok' })
})

test('a retry shows until the next sign of life, and takes away what does not count', () => {
  const waiting = after([started, turn(1), text('half'), retry(true)]).get('main')
  expect(waiting).toMatchObject({ text: '', retry: { attempt: 2, delayMs: 10, error: { code: 'server' } } })
  expect(after([started, turn(1), text('half'), retry(false)]).get('main')).toMatchObject({ text: 'half' })
  for (const sign of [text('a'), reasoning('a'), answer, turn(2)]) {
    expect(after([started, turn(1), retry(true), sign]).get('main')).not.toHaveProperty('retry')
  }
})

test('tools come and go, each with the last that it showed', () => {
  const both = after([started, turn(1), toolStarted('c1'), toolStarted('c2'), progress('c2', 'a'), progress('c2', 'b')])
  const c1 = { toolCallId: 'c1', toolName: 'echo', arguments: { say: 'x' } }
  expect(both.get('main')?.tools).toEqual([c1, { ...c1, toolCallId: 'c2', progress: 'b' }])
  expect(after([toolFinished('c2')], both).get('main')?.tools).toEqual([c1])
})

test('recovery opens a lane by the calls that it makes again, and closes it', () => {
  const recovering = after([toolStarted('c1')])
  expect(recovering.get('main')).toMatchObject({ operation: 'recovery', step: 0, tools: [{ toolCallId: 'c1' }] })
  expect(
    after(
      [toolFinished('c1'), main({ type: 'recovered', operation: 'run', unknown: [], replayed: [], canContinue: true })],
      recovering,
    ),
  ).toEqual(noLive)
})

test('a compaction shows within its run, and is an operation of its own without one', () => {
  const begins = main({ type: 'compaction_started', reason: 'threshold', tokens: 900 })
  const ends = main({ type: 'compaction_finished', reason: 'threshold', outcome: 'failed', tokensBefore: 900 })
  expect(after([started, begins]).get('main')).toMatchObject({
    operation: 'run',
    compaction: { reason: 'threshold', tokens: 900 },
  })
  const on = after([started, begins, retry(false), ends]).get('main')
  expect(on).not.toHaveProperty('compaction')
  expect(on).not.toHaveProperty('retry')
  expect(after([begins]).get('main')).toMatchObject({ operation: 'compaction' })
  expect(after([begins, ends])).toEqual(noLive)
  expect(after([ends])).toBe(noLive)
})

test('what says nothing of what goes on changes nothing, and opens no lane', () => {
  const live = after([started])
  const quiet: readonly HarnessEvent[] = [
    on('main', { type: 'queued', delivery: 'next_run', entryId: 'e_9' }, ''),
    main({ type: 'usage', usage: { input: 1, cacheRead: 0, cacheWrite: 0, output: 0, reasoning: 0 } }),
    main({ type: 'navigated', leafId: null }),
    main({ type: 'hook_failed', hook: 'x', message: 'y' }),
    main({ type: 'listener_failed', message: 'x' }),
  ]
  for (const event of quiet) {
    expect(applyEvent(live, event)).toBe(live)
    expect(applyEvent(noLive, event)).toBe(noLive)
  }
  for (const event of [answer, progress('c1', 'a'), toolFinished('c1'), main({ type: 'abort_requested' }), finished]) {
    expect(applyEvent(noLive, event)).toBe(noLive)
  }
})

test('an abort shows, a sub-agent names the call that it serves, a lane can be dropped', () => {
  const parent = { lane: 'main', runId: 'run_1', toolCallId: 'c1' }
  const live = after([started, on('sub', { type: 'run_started', parent }, 'run_2'), main({ type: 'abort_requested' })])
  expect(live.get('main')?.aborting).toBe(true)
  expect(live.get('sub')).toMatchObject({ runId: 'run_2', parent, aborting: false })
  expect([...without(live, 'main').keys()]).toEqual(['sub'])
  expect(without(live, 'other')).toBe(live)
})

test('lanes do not touch each other, and no state is changed in place', () => {
  const body = fc.constantFrom<HarnessEventBody>(
    { type: 'run_started' },
    { type: 'turn_started', step: 2 },
    { type: 'text', delta: 'a' },
    { type: 'abort_requested' },
    { type: 'tool_started', toolCallId: 'c1', toolName: 'echo', arguments: {}, resultEntryId: 'e_1' },
    { type: 'tool_progress', toolCallId: 'c1', text: 'p' },
    { type: 'compaction_started', reason: 'manual', tokens: 1 },
    { type: 'compaction_finished', reason: 'manual', outcome: 'completed', tokensBefore: 1 },
    { type: 'run_finished', outcome: 'completed', text: '' },
  )
  const events = fc.array(fc.tuple(fc.constantFrom('a', 'b'), body).map(([lane, one]) => on(lane, one)))
  fc.assert(
    fc.property(events, (all) => {
      const states: (readonly [Live, string])[] = []
      let live = noLive
      for (const event of all) {
        live = applyEvent(live, event)
        states.push([live, JSON.stringify([...live])])
      }
      for (const [state, then] of states) expect(JSON.stringify([...state])).toBe(then)
      for (const name of ['a', 'b']) {
        const alone = after(all.filter(({ lane }) => lane === name))
        expect(live.get(name)).toEqual(alone.get(name))
      }
    }),
  )
})

test('of a real run: what is shown is what is not yet in the log', async () => {
  const { opened, open } = gate()
  const running = gate()
  const slow: Tool = {
    ...echoTool(),
    run: async (_, { progress }) => {
      progress('half way')
      running.open()
      await opened
      return { content: 'done' }
    },
  }
  const log = await newLog()
  const { harness } = rig(log, {
    turns: [
      { text: 'I call it', calls: [{ name: 'echo', arguments: { say: 'x' } }] },
      { text: 'bye', chunk: 1 },
    ],
    tools: [slow],
  })
  let live: Live = noLive
  const texts: string[] = []
  harness.subscribe((event) => {
    live = applyEvent(live, event)
    texts.push(live.get('main')?.text ?? '-')
  })
  const result = harness.prompt('go')
  await running.opened
  expect(live.get('main')).toMatchObject({
    step: 1,
    text: '',
    tools: [{ toolName: 'echo', arguments: { say: 'x' }, progress: 'half way' }],
  })
  open()
  await result
  expect(live).toEqual(noLive)
  expect(texts).toEqual(expect.arrayContaining(['I call it', 'b', 'by', 'bye', '-']))
  await reopen(log)
})
