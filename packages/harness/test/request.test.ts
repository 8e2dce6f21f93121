import { type AssistantMessage, createScriptedModel, type JsonObject, type Model } from '@reve/providers/model'
import { describe, expect, test } from 'vitest'
import { retryDelay } from '../src/request.ts'
import { aborted, newLog, recordsOf, rig, said, trace } from './support.ts'

const retries = { attempts: 3, baseMs: 1000, capMs: 60_000 }

describe('retries', () => {
  test('each attempt is durable, the failed ones are records only', async () => {
    const log = await newLog()
    const slept: number[] = []
    const { harness, events } = rig(log, {
      turns: [{ text: 'At last.', fail: { code: 'overloaded', message: 'busy', times: 2 } }],
      effects: {
        random: () => 0,
        sleep: (ms) => {
          slept.push(ms)
          return Promise.resolve()
        },
      },
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'At last.', turns: 1 })
    expect(trace(log)).toEqual([
      'operation_started',
      'user',
      'task_attempt',
      'task_failed',
      'usage',
      'task_attempt',
      'task_failed',
      'usage',
      'task_attempt',
      'assistant',
      'usage',
      'operation_finished',
    ])
    expect(recordsOf(log, 'task_attempt').map(({ step, attempt }) => [step, attempt])).toEqual([
      [1, 1],
      [1, 2],
      [1, 3],
    ])
    expect(recordsOf(log, 'task_failed')[0]).toMatchObject({
      attempt: 1,
      error: { code: 'overloaded', message: 'busy', retryable: true },
    })
    expect(slept).toEqual([500, 1000])
    expect(harness.messages().map(said)).toEqual(['Go', 'At last.'])
    expect(events.filter(({ type }) => type === 'retry')).toMatchObject([
      { attempt: 2, delayMs: 500, discard: false, error: { code: 'overloaded' } },
      { attempt: 3, delayMs: 1000 },
    ])
  })

  test('run out', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ fail: { code: 'server' } }], effects: { sleep: () => Promise.resolve() } })
    expect(await harness.prompt('Go')).toMatchObject({
      outcome: 'failed',
      reason: 'retries_exhausted',
      error: { code: 'server' },
    })
    expect(recordsOf(log, 'task_attempt')).toHaveLength(3)
    expect(harness.messages().map(said)).toEqual(['Go'])
  })

  test.each([
    ['auth', 'provider_error'],
    ['overflow', 'context_overflow'],
  ] as const)('%s is not tried again', async (code, reason) => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ fail: { code } }] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason, error: { code } })
    expect(recordsOf(log, 'task_attempt')).toHaveLength(1)
  })

  test('a failure after shown text says that what was shown does not count', async () => {
    const log = await newLog()
    const { harness, events } = rig(log, {
      turns: [{ text: 'partly', usage: { output: 2 }, fail: { code: 'network', times: 1, afterText: true } }],
      effects: { sleep: () => Promise.resolve() },
    })
    const result = await harness.prompt('Go')
    expect(events.find(({ type }) => type === 'retry')).toMatchObject({ discard: true })
    expect(harness.messages().map(said)).toEqual(['Go', 'partly'])
    // What the failed attempt used was used.
    expect(result.usage.output).toBe(4)
  })

  test('continue() after a failure asks again, without another prompt', async () => {
    const log = await newLog()
    const { harness, events } = rig(log, { turns: [{ text: 'ok', fail: { code: 'auth', times: 1 } }] })
    const { runId } = await harness.prompt('Go')
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'ok' })
    expect(recordsOf(log, 'operation_started')[1]).toMatchObject({ intent: { kind: 'run', continues: runId } })
    expect(events.filter(({ type }) => type === 'run_started')[1]).toMatchObject({ continues: runId })
    expect(harness.messages().map(said)).toEqual(['Go', 'ok'])
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })
  })

  test('the wait doubles, is jittered, follows the server, and never passes the cap', () => {
    expect([1, 2, 3].map((attempt) => retryDelay(attempt, {}, retries, () => 0.999_999))).toEqual([
      expect.closeTo(1000, 1),
      expect.closeTo(2000, 1),
      expect.closeTo(4000, 1),
    ])
    expect(retryDelay(1, {}, retries, () => 0)).toBe(500)
    expect(retryDelay(60, {}, retries, () => 0.999_999)).toBeLessThanOrEqual(60_000)
    expect(retryDelay(1, { retryAfterMs: 7 }, retries, () => 0.5)).toBe(7)
    expect(retryDelay(1, { retryAfterMs: 3_600_000 }, retries, () => 0.5)).toBe(60_000)
    for (const junk of [-5, Number.NaN, Number.POSITIVE_INFINITY])
      expect(retryDelay(1, { retryAfterMs: junk }, retries, () => 0)).toBe(500)
  })
})

describe('a model that breaks its word', () => {
  const base = createScriptedModel({ turns: [] })
  const run = async (model: Model) => {
    const { harness } = rig(await newLog(), { model })
    return harness.prompt('Go')
  }

  test('throws: the run has failed', async () => {
    const model: Model = {
      ...base,
      // oxlint-disable-next-line require-yield
      async *stream() {
        throw new TypeError('boom')
      },
    }
    expect(await run(model)).toMatchObject({
      outcome: 'failed',
      reason: 'provider_error',
      error: { code: 'protocol', message: expect.stringContaining('boom') },
    })
  })

  test('claims an abort that nobody asked for: failed, not aborted', async () => {
    const model: Model = {
      ...base,
      // oxlint-disable-next-line require-yield
      async *stream() {
        return { type: 'aborted', partial: { role: 'assistant', model: 'x', content: [], stopReason: 'aborted' } }
      },
    }
    expect(await run(model)).toMatchObject({ outcome: 'failed', error: { code: 'protocol' } })
  })

  test('fails because it was aborted: aborted, with the text until then', async () => {
    const model: Model = {
      ...base,
      async *stream(_, { signal }) {
        yield { type: 'text', delta: 'half' }
        await aborted(signal)
        return { type: 'failed', failure: { code: 'network', message: 'cut', retryable: true }, outputShown: true }
      },
    }
    const log = await newLog()
    const { harness } = rig(log, { model })
    harness.subscribe((event) => {
      if (event.type === 'text') void harness.abort()
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'aborted', text: 'half' })
    expect(recordsOf(log, 'task_failed')).toEqual([])
  })
})

test('an answer that could not be read back is a failure, and never stands in the log', async () => {
  const deep = (levels: number): JsonObject => (levels === 0 ? {} : { in: deep(levels - 1) })
  const usage = { input: 1, cacheRead: 0, cacheWrite: 0, output: 1, reasoning: 0 }
  const whole = { role: 'assistant', model: 'own/model', content: [{ type: 'text', text: 'x' }], stopReason: 'stop' }
  const calling = (args: unknown) => ({
    ...whole,
    content: [{ type: 'toolCall', id: 'c', name: 'echo', arguments: args }],
    stopReason: 'toolUse',
  })
  const bad: readonly unknown[] = [
    { ...whole, usage: { ...usage, output: Number.NaN } },
    { ...whole, stopReason: 'end_turn' },
    { ...whole, content: 'x' },
    calling({ n: Number.POSITIVE_INFINITY }),
    calling({ at: new Date(0) }),
    calling(deep(450)),
    calling([1]),
  ]
  for (const message of bad) {
    const log = await newLog()
    const model: Model = {
      id: 'own/model',
      contextWindow: 1000,
      maxTokens: 10,
      // eslint-disable-next-line require-yield -- a model that answers at once
      async *stream() {
        return { type: 'answer', message: message as AssistantMessage }
      },
    }
    const { harness } = rig(log, { model })
    expect(await harness.prompt('Go')).toMatchObject({
      outcome: 'failed',
      reason: 'provider_error',
      error: { code: 'protocol', message: expect.stringContaining('own/model: the answer is none: ') },
    })
    expect(trace(log)).not.toContain('assistant')
    // The session goes on, with a model that works.
    const { harness: next } = rig(log, { turns: [{ text: 'Fine.' }] })
    expect(await next.continue()).toMatchObject({ outcome: 'completed', text: 'Fine.' })
  }
})
