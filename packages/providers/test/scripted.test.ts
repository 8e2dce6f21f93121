import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { costOf, createScriptedModel } from '../src/model.ts'
import type { Message } from '../src/model.ts'
import { ask, run } from './play.ts'

const answers = (count: number): readonly Message[] => [
  ...ask.messages,
  ...Array.from({ length: count }, (): Message => ({
    role: 'assistant',
    model: 'scripted/script',
    content: [{ type: 'text', text: 'x' }],
    stopReason: 'stop',
  })),
]

test('the vocabulary imports nothing but its own files: an embedder without adapters loads nothing else', async () => {
  for (const file of ['model.ts', 'scripted.ts']) {
    const source = await readFile(new URL(`../src/${file}`, import.meta.url), 'utf8')
    const from = [...source.matchAll(/from '([^']+)'|import\('([^']+)'\)/g)].map((match) => match[1] ?? match[2])
    for (const specifier of from) expect(['./model.ts', './scripted.ts']).toContain(specifier)
  }
})

describe('turns', () => {
  const model = createScriptedModel({
    turns: [
      {
        reasoning: 'hm',
        text: 'héllo 🌍!',
        calls: [{ name: 'read', arguments: { path: 'a' } }, { name: 'write', malformed: '{"x":' }, { name: 'none' }],
        chunk: 3,
        usage: { input: 5, output: 2 },
      },
      { text: 'done', stop: 'length' },
    ],
  })
  test('reasoning, text, calls; no delta ends within a character', async () => {
    const { events, outcome } = await run(model)
    expect(outcome).toEqual({
      type: 'answer',
      message: {
        role: 'assistant',
        model: 'scripted/script',
        content: [
          { type: 'reasoning', text: 'hm' },
          { type: 'text', text: 'héllo 🌍!' },
          { type: 'toolCall', id: 'call_1_1', name: 'read', arguments: { path: 'a' } },
          { type: 'toolCall', id: 'call_1_2', name: 'write', malformed: '{"x":' },
          { type: 'toolCall', id: 'call_1_3', name: 'none', arguments: {} },
        ],
        stopReason: 'toolUse',
        usage: { input: 5, cacheRead: 0, cacheWrite: 0, output: 2, reasoning: 0 },
      },
    })
    expect(events.flatMap((event) => (event.type === 'text' ? [event.delta] : []))).toEqual(['hél', 'lo ', '🌍!'])
  })
  test('the turn is chosen by the answers in the request, in any process', async () => {
    expect((await run(model, { ...ask, messages: answers(1) })).outcome).toMatchObject({
      message: { content: [{ text: 'done' }], stopReason: 'length' },
    })
    expect((await run(model)).outcome).toEqual((await run(model)).outcome)
  })
  test('past the end', async () => {
    expect((await run(model, { ...ask, messages: answers(2) })).outcome).toMatchObject({
      type: 'failed',
      failure: { code: 'script', retryable: false, message: expect.stringContaining('has 2 turns and turn 3') },
    })
  })
})

describe('failures', () => {
  test('times counts attempts, for each session of its own', async () => {
    const model = createScriptedModel({ turns: [{ text: 'ok', fail: { times: 2, code: 'overloaded' } }] })
    const types = async (sessionId: string) =>
      [
        await run(model, { ...ask, sessionId }),
        await run(model, { ...ask, sessionId }),
        await run(model, { ...ask, sessionId }),
      ].map(({ outcome }) => outcome.type)
    expect(await types('a')).toEqual(['failed', 'failed', 'answer'])
    expect(await types('b')).toEqual(['failed', 'failed', 'answer'])
  })
  test('without times every attempt; the class decides about a retry', async () => {
    const model = createScriptedModel({ turns: [{ fail: { code: 'auth', message: 'no', status: 401 } }] })
    for (let attempt = 0; attempt < 4; attempt++) {
      expect((await run(model)).outcome).toEqual({
        type: 'failed',
        failure: { code: 'auth', message: 'no', retryable: false, status: 401 },
        outputShown: false,
      })
    }
  })
  test('after the text', async () => {
    const { events, outcome } = await run(
      createScriptedModel({ turns: [{ text: 'half', fail: { code: 'ended_early', afterText: true } }] }),
    )
    expect(events).toEqual([{ type: 'text', delta: 'half' }])
    expect(outcome).toMatchObject({
      type: 'failed',
      outputShown: true,
      failure: { code: 'ended_early', retryable: true },
    })
  })
})

describe('abort', () => {
  test('during the delay, with the real timer', async () => {
    const controller = new AbortController()
    const running = run(createScriptedModel({ turns: [{ text: 'x', delayMs: 3_600_000 }] }), ask, controller.signal)
    controller.abort()
    expect((await running).outcome).toEqual({
      type: 'aborted',
      partial: { role: 'assistant', model: 'scripted/script', content: [], stopReason: 'aborted' },
    })
  })
  test('within a call: the call is malformed', async () => {
    const controller = new AbortController()
    const events = createScriptedModel({
      turns: [{ text: 'go', calls: [{ name: 'f', arguments: { x: 1 } }], chunk: 2 }],
    }).stream(ask, { signal: controller.signal })
    await events.next()
    await events.next()
    controller.abort()
    expect((await events.next()).value).toMatchObject({
      type: 'aborted',
      partial: { content: [{ text: 'go' }, { name: 'f', malformed: '{"' }], stopReason: 'aborted' },
    })
  })
  test('the delay goes through the sleep that was given', async () => {
    const slept: number[] = []
    const model = createScriptedModel({
      turns: [{ text: 'x', delayMs: 5000 }],
      sleep: async (ms) => void slept.push(ms),
    })
    expect((await run(model)).outcome.type).toBe('answer')
    expect(slept).toEqual([5000])
  })
})

test('cost in dollars', () => {
  const price = { input: 2, cacheRead: 0.2, cacheWrite: 2.5, output: 10 }
  expect(
    costOf(
      { input: 1_000_000, cacheRead: 1_000_000, cacheWrite: 1_000_000, output: 500_000, reasoning: 400_000 },
      price,
    ),
  ).toBeCloseTo(9.7)
})
