import { createScriptedModel, type Model, type ModelRequest, type ScriptedTurn } from '@reve/providers/model'
import { readSession } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import type { HarnessOptions, Tool } from '../src/index.ts'
import { checkProjection, echoTool, newLog, recordsOf, reopen, rig, said } from './support.ts'

const same: ScriptedTurn = { calls: [{ name: 'echo', arguments: { say: 'a' } }] }
const other: ScriptedTurn = { calls: [{ name: 'echo', arguments: { say: 'b' } }] }
const done: ScriptedTurn = { text: 'Done.' }
const times = (count: number, turn: ScriptedTurn = same): readonly ScriptedTurn[] =>
  Array.from({ length: count }, () => turn)
const nudge = /\[You have made the same calls \d+ times in a row/

/** A run of these turns; which of its results carry the note, by their number from 1. */
async function play(turns: readonly ScriptedTurn[], options: Partial<Omit<HarnessOptions, 'model'>> = {}) {
  const requests: ModelRequest[] = []
  const inner = createScriptedModel({ turns })
  const model: Model = {
    ...inner,
    stream: (request, given) => {
      requests.push(request)
      return inner.stream(request, given)
    },
  }
  const log = await newLog()
  const made = rig(log, { tools: [echoTool()], ...options, model })
  const result = await made.harness.prompt('Go')
  const results = made.harness.messages().filter((message) => message.role === 'toolResult')
  const noted = results.flatMap((message, index) => (nudge.test(said(message)) ? [index + 1] : []))
  checkProjection(made.harness.messages())
  return { ...made, result, results, noted, requests }
}

describe('the same calls with the same results', () => {
  test('after three of them the model is told so, in the last result: durable, shown, sent', async () => {
    const { result, results, noted, requests, log, events, harness } = await play([...times(3), done])
    expect(result).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(noted).toEqual([3])
    expect(results[2]?.content).toMatchObject([{ text: 'echo: a' }, { text: expect.stringMatching(nudge) }])
    expect(results[2]?.isError).toBe(false)
    expect(said(requests[3]?.messages.at(-1))).toMatch(nudge)
    const told = events.filter(({ type }) => type === 'tool_finished').at(-1)
    expect(JSON.stringify(told)).toMatch(nudge)
    const onDisk = await readSession(log.file)
    expect(JSON.stringify(onDisk.path(onDisk.leaf('main')))).toMatch(nudge)
    const messages = harness.messages()
    expect(rig(await reopen(log)).harness.messages()).toEqual(messages)
  })

  test('after six of them the run ends, with every result written; somebody may go on', async () => {
    const { result, results, noted, requests, log, harness, events } = await play([...times(6), done])
    expect(result).toMatchObject({ outcome: 'failed', reason: 'loop', turns: 6, error: { code: 'loop' } })
    expect(result.error?.message).toMatch(/same calls 6 times/)
    expect(results).toHaveLength(6)
    expect(noted).toEqual([3])
    expect(requests).toHaveLength(6)
    expect(recordsOf(log, 'operation_finished')[0]).toMatchObject({ outcome: 'failed', reason: 'loop' })
    expect(events.at(-1)).toMatchObject({ type: 'run_finished', outcome: 'failed', reason: 'loop' })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Done.' })
  })

  test('errors count as results do, and so do calls that were refused', async () => {
    const broken: Tool = { ...echoTool(), run: () => Promise.reject(new Error('no')) }
    expect((await play([...times(3), done], { tools: [broken] })).noted).toEqual([3])
    expect((await play([...times(3), done], { tools: [] })).noted).toEqual([3])
    const malformed: ScriptedTurn = { calls: [{ name: 'echo', malformed: '{' }] }
    expect((await play([...times(6, malformed), done])).result).toMatchObject({ outcome: 'failed', reason: 'loop' })
  })

  test('other arguments begin a new count, and other results', async () => {
    expect((await play([...times(2), other, ...times(2), done])).noted).toEqual([])
    expect((await play([...times(2), other, ...times(3), done])).noted).toEqual([6])
    let count = 0
    const counter: Tool = { ...echoTool(), run: () => Promise.resolve({ content: `${++count}` }) }
    const counting = await play([...times(8), done], { tools: [counter] })
    expect(counting.result).toMatchObject({ outcome: 'completed' })
    expect(counting.noted).toEqual([])
  })

  test('an answer without calls ends the count', async () => {
    let ends = 0
    const hooks = [{ beforeRunEnd: () => (++ends < 4 ? { followUp: 'again, please' } : undefined) }]
    const round = [...times(2), { text: 'There.' }]
    const { result, noted } = await play([...round, ...round, ...round, ...round], { hooks })
    expect(result).toMatchObject({ outcome: 'completed', text: 'There.', turns: 12 })
    expect(noted).toEqual([])
  })

  test('a new run begins a new count', async () => {
    const { harness } = await play([...times(2), done, ...times(2), done])
    expect(await harness.prompt('Again')).toMatchObject({ outcome: 'completed' })
    expect(harness.messages().some((message) => nudge.test(said(message)))).toBe(false)
  })
})

test('several calls of a turn count together; the note is in the last of them, whoever ends first', async () => {
  const slowFirst: Tool = {
    ...echoTool('safe'),
    run: async (args) => {
      for (let n = 0; n < (args['say'] === 'a' ? 5 : 0); n++) await new Promise((resolve) => setImmediate(resolve))
      return { content: 'x' }
    },
  }
  const both: ScriptedTurn = { calls: ['a', 'b'].map((say) => ({ name: 'echo', arguments: { say } })) }
  const { noted, results } = await play([...times(3, both), done], { tools: [slowFirst] })
  expect(noted).toEqual([6])
  expect(said(results[4])).toBe('x')
  const stopped = await play([...times(6, both), done], { tools: [slowFirst] })
  expect(stopped.result).toMatchObject({ outcome: 'failed', reason: 'loop' })
  expect(stopped.results).toHaveLength(12)
})

describe('the limits', () => {
  const limit = (loop: { readonly nudgeAfter?: number; readonly stopAfter?: number }, maxTurns = 100) => ({
    limits: { loop, maxTurns },
  })

  test('are options', async () => {
    expect((await play([...times(2), done], limit({ nudgeAfter: 2 }))).noted).toEqual([2])
    const stopped = await play([...times(4), done], limit({ stopAfter: 4 }))
    expect(stopped.result).toMatchObject({ reason: 'loop', turns: 4 })
    expect(stopped.noted).toEqual([3])
  })

  test('0 is never', async () => {
    const off = await play(times(9), limit({ nudgeAfter: 0, stopAfter: 0 }, 9))
    expect(off.result).toMatchObject({ outcome: 'failed', reason: 'max_turns', turns: 9 })
    expect(off.noted).toEqual([])
    const quiet = await play(times(9), limit({ nudgeAfter: 0 }))
    expect(quiet.result).toMatchObject({ reason: 'loop', turns: 6 })
    expect(quiet.noted).toEqual([])
    const patient = await play([...times(9), done], limit({ stopAfter: 0 }))
    expect(patient.result).toMatchObject({ outcome: 'completed' })
    expect(patient.noted).toEqual([3])
  })
})

test('an abort during the last of them is an abort', async () => {
  const log = await newLog()
  let count = 0
  const tool: Tool = {
    ...echoTool(),
    run: async () => {
      if (++count === 6) await harness.abort()
      return { content: 'x' }
    },
  }
  const { harness } = rig(log, { turns: times(7), tools: [tool] })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'aborted', reason: 'abort_requested' })
  expect(said(harness.messages().at(-1))).toBe('x')
})
