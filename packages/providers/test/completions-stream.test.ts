import { describe, expect, test } from 'vitest'
import type { AssistantMessage, ModelFailure } from '../src/index.ts'
import { play, sse } from './play.ts'

type Chunk = Readonly<Record<string, unknown>>
const delta = (part: Chunk, more: Chunk = {}): Chunk => ({ choices: [{ index: 0, delta: part, ...more }] })
const calls = (...pieces: readonly Chunk[]): Chunk => delta({ tool_calls: pieces })
const stop = (reason: string): Chunk => delta({}, { finish_reason: reason })

async function answer(...events: readonly (Chunk | string)[]): Promise<AssistantMessage> {
  const { outcome } = await play('openai-completions', sse(...events))
  if (outcome.type !== 'answer') throw new Error(JSON.stringify(outcome))
  return outcome.message
}
async function failure(...events: readonly (Chunk | string)[]): Promise<ModelFailure> {
  const { outcome } = await play('openai-completions', sse(...events))
  if (outcome.type !== 'failed') throw new Error(JSON.stringify(outcome))
  return outcome.failure
}
const callsOf = (message: AssistantMessage): readonly unknown[] =>
  message.content.flatMap((part) =>
    part.type === 'toolCall'
      ? ['malformed' in part ? [part.name, 'malformed', part.malformed] : [part.name, part.arguments]]
      : [],
  )

describe('the end', () => {
  test('text without a reason and without [DONE] ended early', async () => {
    expect(await failure(delta({ content: 'half' }))).toMatchObject({ code: 'ended_early', retryable: true })
  })
  test('a reason without [DONE] is an end', async () => {
    expect(await answer(delta({ content: 'hi' }), stop('stop'))).toMatchObject({ stopReason: 'stop' })
  })
  test('[DONE] without a reason: toolUse if there are calls', async () => {
    expect(await answer(delta({ content: 'hi' }), '[DONE]')).toMatchObject({ stopReason: 'stop' })
    expect(
      await answer(calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }), '[DONE]'),
    ).toMatchObject({ stopReason: 'toolUse' })
  })
  test('stop with calls is toolUse, length stays length', async () => {
    const call = calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{"x":1}' } })
    expect(await answer(call, stop('stop'))).toMatchObject({ stopReason: 'toolUse' })
    expect(await answer(call, stop('length'))).toMatchObject({ stopReason: 'length' })
    expect(await answer(delta({ content: 'hi' }), stop('tool_calls'))).toMatchObject({ stopReason: 'stop' })
  })
  test('a content filter is a refusal, a broken server is none of ours', async () => {
    expect(await failure(delta({ content: 'hi' }), stop('content_filter'))).toMatchObject({
      code: 'refused',
      retryable: false,
    })
    expect(await failure(stop('error'))).toMatchObject({ code: 'server', retryable: true })
    expect(await failure(stop('insufficient_system_resource'))).toMatchObject({ code: 'overloaded', retryable: true })
  })
  test('an error inside of the stream', async () => {
    const { outcome } = await play(
      'openai-completions',
      sse(delta({ content: 'hi' }), {
        error: { message: 'Provider returned error', code: 502, metadata: { raw: 'upstream died' } },
      }),
    )
    expect(outcome).toMatchObject({ type: 'failed', outputShown: true, failure: { code: 'server', retryable: true } })
    expect(JSON.stringify(outcome)).toContain('upstream died')
    expect(await failure({ error: { message: 'slow down', code: 429 } })).toMatchObject({ code: 'rate_limited' })
    expect(
      await failure({ object: 'error', message: 'the input is longer than the maximum model length', code: 400 }),
    ).toMatchObject({ code: 'overflow' })
    expect(await failure({ error: { message: 'overloaded', type: 'overloaded_error' } })).toMatchObject({
      code: 'overloaded',
      retryable: true,
    })
  })
})

describe('arguments', () => {
  const withArguments = (text: unknown, reason = 'tool_calls') =>
    answer(calls({ index: 0, id: 'a', function: { name: 'f', arguments: text } }), stop(reason))
  test('nothing and null mean none', async () => {
    for (const none of ['', ' ', 'null', null, undefined, '{}'])
      expect(callsOf(await withArguments(none))).toEqual([['f', {}]])
  })
  test('an object in place of text, and text encoded twice', async () => {
    expect(callsOf(await withArguments({ x: [1] }))).toEqual([['f', { x: [1] }]])
    expect(callsOf(await withArguments('"{\\"x\\":1}"'))).toEqual([['f', { x: 1 }]])
  })
  test('what is no object stays as text', async () => {
    for (const bad of ['{"x":', '[1]', '7', '"x"', '{"x":1}}', 'true', '{"x":1e999}'])
      expect(callsOf(await withArguments(bad))).toEqual([['f', 'malformed', bad]])
  })
  test('cut by the output cap: never {}', async () => {
    expect(callsOf(await withArguments('', 'length'))).toEqual([['f', 'malformed', '']])
    expect(callsOf(await withArguments('{"x":[1,2', 'length'))).toEqual([['f', 'malformed', '{"x":[1,2']])
  })
})

describe('pieces of calls', () => {
  test('only the first has an id: by index', async () => {
    const message = await answer(
      calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{"x"' } }),
      calls({ index: 1, id: 'b', function: { name: 'g', arguments: '{"y"' } }),
      calls({ index: 0, function: { arguments: ':1}' } }),
      calls({ index: 1, function: { arguments: ':2}' } }),
      stop('tool_calls'),
    )
    expect(callsOf(message)).toEqual([
      ['f', { x: 1 }],
      ['g', { y: 2 }],
    ])
  })
  test('the id changes with every piece, under one index', async () => {
    expect(
      callsOf(
        await answer(
          calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{"x"' } }),
          calls({ index: 0, id: 'b', function: { arguments: ':1}' } }),
          stop('stop'),
        ),
      ),
    ).toEqual([['f', { x: 1 }]])
  })
  test('two calls under one index', async () => {
    const message = await answer(
      calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }),
      calls({ index: 0, id: 'b', function: { name: 'f', arguments: '{"x":1}' } }),
      stop('stop'),
    )
    expect(callsOf(message)).toEqual([
      ['f', {}],
      ['f', { x: 1 }],
    ])
  })
  test('no index: by id, without an id the one that is open', async () => {
    const message = await answer(
      calls({ id: 'a', function: { name: 'f', arguments: '{"x"' } }),
      calls({ function: { arguments: ':1}' } }),
      calls({ id: 'b', function: { name: 'g', arguments: '{' } }),
      calls({ id: 'b', function: { arguments: '}' } }),
      stop('stop'),
    )
    expect(callsOf(message)).toEqual([
      ['f', { x: 1 }],
      ['g', {}],
    ])
  })
  test('no index and no ids: whole calls, each with an own id', async () => {
    const message = await answer(
      calls({ function: { name: 'f', arguments: { x: 1 } } }, { function: { name: 'f', arguments: { x: 2 } } }),
      stop('stop'),
    )
    expect(callsOf(message)).toEqual([
      ['f', { x: 1 }],
      ['f', { x: 2 }],
    ])
    const ids = message.content.flatMap((part) => (part.type === 'toolCall' ? [part.id] : []))
    expect(new Set(ids).size).toBe(2)
    expect(ids.every((id) => id !== '')).toBe(true)
  })
  test('the name comes after arguments: shown only then, from the start', async () => {
    const { events, outcome } = await play(
      'openai-completions',
      sse(
        calls({ id: 'a', function: { arguments: '{"x"' } }),
        calls({ function: { name: 'f', arguments: ':1}' } }),
        stop('stop'),
      ),
    )
    expect(events.map((event) => (event.type === 'toolCall' ? event.delta : '')).join('')).toBe('{"x":1}')
    expect(events.every((event) => event.type === 'toolCall' && event.name === 'f')).toBe(true)
    expect(outcome).toMatchObject({ type: 'answer' })
  })
  test('the name is repeated in every piece', async () => {
    expect(
      callsOf(
        await answer(
          calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{' } }),
          calls({ index: 0, id: 'a', function: { name: 'f', arguments: '}' } }),
          stop('stop'),
        ),
      ),
    ).toEqual([['f', {}]])
  })
  test('a call that never gets a name fails the answer', async () => {
    expect(await failure(calls({ index: 0, id: 'a', function: { arguments: '{}' } }), stop('stop'))).toMatchObject({
      code: 'protocol',
    })
  })
  test('one id twice is made two', async () => {
    const message = await answer(
      calls({ index: 0, id: 'x', function: { name: 'f' } }, { index: 1, id: 'x', function: { name: 'g' } }),
      stop('stop'),
    )
    expect(new Set(message.content.flatMap((part) => (part.type === 'toolCall' ? [part.id] : []))).size).toBe(2)
  })
  test('a long argument in many small pieces is put together in linear time', async () => {
    const pieces = Array.from({ length: 40_000 }, () => calls({ index: 0, function: { arguments: 'x'.repeat(100) } }))
    const message = await answer(
      calls({ index: 0, id: 'a', function: { name: 'f', arguments: '{"x":"' } }),
      ...pieces,
      calls({ index: 0, function: { arguments: '"}' } }),
      stop('stop'),
    )
    expect(callsOf(message)).toEqual([['f', { x: 'x'.repeat(4_000_000) }]])
  })
})

describe('usage', () => {
  const usageOf = async (usage: unknown, more: Chunk = {}) =>
    (await answer(delta({ content: 'x' }), stop('stop'), { choices: [], usage, ...more })).usage
  test('absent, null and all zero are no usage', async () => {
    for (const none of [undefined, null, {}, { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }])
      expect(await usageOf(none)).toBeUndefined()
  })
  test('null first, the real one in a chunk without choices', async () => {
    const message = await answer(
      { ...delta({ content: 'x' }), usage: null },
      stop('stop'),
      { choices: [], usage: { prompt_tokens: 5, completion_tokens: 2 } },
      '[DONE]',
    )
    expect(message.usage).toEqual({ input: 5, cacheRead: 0, cacheWrite: 0, output: 2, reasoning: 0 })
  })
  test('DeepSeek names its cache otherwise, xAI counts reasoning beside the completion', async () => {
    expect(await usageOf({ prompt_tokens: 10, prompt_cache_hit_tokens: 8, completion_tokens: 2 })).toMatchObject({
      input: 2,
      cacheRead: 8,
    })
    expect(
      await usageOf({
        prompt_tokens: 10,
        completion_tokens: 2,
        total_tokens: 19,
        completion_tokens_details: { reasoning_tokens: 7 },
      }),
    ).toMatchObject({ output: 9, reasoning: 7 })
    expect(
      await usageOf({
        prompt_tokens: 10,
        completion_tokens: 9,
        total_tokens: 19,
        completion_tokens_details: { reasoning_tokens: 7 },
      }),
    ).toMatchObject({ output: 9, reasoning: 7 })
  })
})

test('a thought in one chunk with text comes first, under any name', async () => {
  const { events, outcome } = await play(
    'openai-completions',
    sse(delta({ content: 'b', reasoning: 'a' }), stop('stop')),
  )
  expect(events).toEqual([
    { type: 'reasoning', delta: 'a' },
    { type: 'text', delta: 'b' },
  ])
  expect(outcome).toMatchObject({
    message: {
      content: [
        { type: 'reasoning', text: 'a', opaque: { 'openai-completions': { reasoning: 'a' } } },
        { type: 'text', text: 'b' },
      ],
    },
  })
})
