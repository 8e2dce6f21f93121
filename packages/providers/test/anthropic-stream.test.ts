import { describe, expect, test } from 'vitest'
import type { AssistantMessage, ModelFailure } from '../src/index.ts'
import { play, sse } from './play.ts'

type Event = Readonly<Record<string, unknown>>
const start = (index: number, block: Event): Event => ({ type: 'content_block_start', index, content_block: block })
const delta = (index: number, part: Event): Event => ({ type: 'content_block_delta', index, delta: part })
const stop = (index: number): Event => ({ type: 'content_block_stop', index })
const end = (reason: string, usage?: Event): Event => ({
  type: 'message_delta',
  delta: { stop_reason: reason },
  ...(usage && { usage }),
})
const over: Event = { type: 'message_stop' }

async function answer(...events: readonly Event[]): Promise<AssistantMessage> {
  const { outcome } = await play('anthropic-messages', sse(...events))
  if (outcome.type !== 'answer') throw new Error(JSON.stringify(outcome))
  return outcome.message
}
async function failure(...events: readonly Event[]): Promise<ModelFailure> {
  const { outcome } = await play('anthropic-messages', sse(...events))
  if (outcome.type !== 'failed') throw new Error(JSON.stringify(outcome))
  return outcome.failure
}

describe('the end', () => {
  test('a stopped block is no end', async () => {
    expect(await failure(start(0, { type: 'text', text: 'hi' }), stop(0))).toMatchObject({
      code: 'ended_early',
      retryable: true,
    })
  })
  test('a reason alone, or message_stop alone, is one', async () => {
    expect(await answer(start(0, { type: 'text', text: 'hi' }), end('end_turn'))).toMatchObject({ stopReason: 'stop' })
    expect(await answer(start(0, { type: 'text', text: 'hi' }), over)).toMatchObject({ stopReason: 'stop' })
  })
  test('max_tokens is length, and its cut call is malformed', async () => {
    const message = await answer(
      start(0, { type: 'tool_use', id: 'a', name: 'f', input: {} }),
      delta(0, { type: 'input_json_delta', partial_json: '{"x":[1' }),
      stop(0),
      end('max_tokens'),
      over,
    )
    expect(message).toMatchObject({ stopReason: 'length', content: [{ malformed: '{"x":[1' }] })
  })
  test('refusal', async () => {
    expect(await failure(start(0, { type: 'text', text: 'I' }), end('refusal'), over)).toMatchObject({
      code: 'refused',
      retryable: false,
    })
  })
  test('overloaded after 200, with and without text before', async () => {
    const error: Event = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }
    for (const before of [[], [start(0, { type: 'text', text: 'hi' })]]) {
      const { outcome } = await play('anthropic-messages', sse(...before, error))
      expect(outcome).toMatchObject({
        type: 'failed',
        outputShown: before.length > 0,
        failure: { code: 'overloaded', retryable: true },
      })
    }
    expect(
      await failure({
        type: 'error',
        error: { type: 'invalid_request_error', message: 'prompt is too long: 210000 tokens > 200000 maximum' },
      }),
    ).toMatchObject({ code: 'overflow' })
  })
})

describe('blocks', () => {
  test('thinking keeps its signature, also with no text; a redacted one is kept whole', async () => {
    const message = await answer(
      start(0, { type: 'thinking', thinking: '', signature: '' }),
      delta(0, { type: 'signature_delta', signature: 'c2ln' }),
      delta(0, { type: 'signature_delta', signature: 'bg==' }),
      stop(0),
      start(1, { type: 'redacted_thinking', data: 'ZGF0YQ==' }),
      stop(1),
      end('end_turn'),
      over,
    )
    expect(message.content).toEqual([
      {
        type: 'reasoning',
        text: '',
        opaque: { 'anthropic-messages': { type: 'thinking', thinking: '', signature: 'c2lnbg==' } },
      },
      {
        type: 'reasoning',
        text: '',
        opaque: { 'anthropic-messages': { type: 'redacted_thinking', data: 'ZGF0YQ==' } },
      },
    ])
  })
  test('thinking that was cut before its signature is for display only', async () => {
    const { content } = await answer(
      start(0, { type: 'thinking', thinking: '' }),
      delta(0, { type: 'thinking_delta', thinking: 'hm' }),
      end('max_tokens'),
      over,
    )
    expect(content).toEqual([{ type: 'reasoning', text: 'hm' }])
  })
  test('thinking without a signature, from a server that knows none, is for display only', async () => {
    const { content } = await answer(start(0, { type: 'thinking', thinking: 'hm' }), stop(0), end('end_turn'), over)
    expect(content).toEqual([{ type: 'reasoning', text: 'hm' }])
  })
  test('interleaved blocks stay in order', async () => {
    const thought = (index: number): readonly Event[] => [
      start(index, { type: 'thinking', thinking: 'a' }),
      delta(index, { type: 'signature_delta', signature: 's' }),
      stop(index),
    ]
    const { content } = await answer(
      ...thought(0),
      start(1, { type: 'text', text: 'b' }),
      stop(1),
      ...thought(2),
      start(3, { type: 'tool_use', id: 'x', name: 'f' }),
      stop(3),
      end('tool_use'),
      over,
    )
    expect(content.map((part) => part.type)).toEqual(['reasoning', 'text', 'reasoning', 'toolCall'])
  })
  test('a call whole in its start', async () => {
    expect(
      await answer(start(0, { type: 'tool_use', id: 'a', name: 'f', input: { x: 1 } }), stop(0), end('tool_use'), over),
    ).toMatchObject({ content: [{ arguments: { x: 1 } }] })
  })
  test('a piece without a start is a broken stream', async () => {
    expect(await failure(delta(4, { type: 'text_delta', text: 'x' }), over)).toMatchObject({ code: 'protocol' })
  })
})

test('usage is cumulative: a later count replaces, an absent one keeps; a proxy may send none', async () => {
  const begin: Event = {
    type: 'message_start',
    message: { usage: { input_tokens: 3, cache_read_input_tokens: 4, output_tokens: 1 } },
  }
  expect((await answer(begin, end('end_turn', { output_tokens: 9, input_tokens: null }), over)).usage).toEqual({
    input: 3,
    cacheRead: 4,
    cacheWrite: 0,
    output: 9,
    reasoning: 0,
  })
  expect(
    (await answer({ type: 'message_start', message: {} }, start(0, { type: 'text', text: 'x' }), end('end_turn'), over))
      .usage,
  ).toBeUndefined()
})
