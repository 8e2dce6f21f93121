import { describe, expect, test } from 'vitest'
import type { AssistantMessage, ModelFailure } from '../src/index.ts'
import { play, sse } from './play.ts'

type Event = Readonly<Record<string, unknown>>
async function answer(...events: readonly (Event | string)[]): Promise<AssistantMessage> {
  const { outcome } = await play('openai-responses', sse(...events))
  if (outcome.type !== 'answer') throw new Error(JSON.stringify(outcome))
  return outcome.message
}
async function failure(...events: readonly (Event | string)[]): Promise<ModelFailure> {
  const { outcome } = await play('openai-responses', sse(...events))
  if (outcome.type !== 'failed') throw new Error(JSON.stringify(outcome))
  return outcome.failure
}
const added = (item: Event, at: Event = {}): Event => ({ type: 'response.output_item.added', item, ...at })
const done = (item: Event, at: Event = {}): Event => ({ type: 'response.output_item.done', item, ...at })
const call = (id: string, args: string): Event => ({
  type: 'function_call',
  id: `fc_${id}`,
  call_id: id,
  name: 'f',
  arguments: args,
})
const completed: Event = { type: 'response.completed', response: { usage: null } }

describe('the end', () => {
  test('without response.completed the stream ended early', async () => {
    expect(await failure({ type: 'response.output_text.delta', output_index: 0, delta: 'hi' })).toMatchObject({
      code: 'ended_early',
      retryable: true,
    })
    expect(await failure({ type: 'response.output_text.delta', output_index: 0, delta: 'hi' }, '[DONE]')).toMatchObject(
      { code: 'ended_early' },
    )
  })
  test('incomplete: the cap is length, the filter a refusal', async () => {
    const incomplete = (reason: string): Event => ({
      type: 'response.incomplete',
      response: { status: 'incomplete', incomplete_details: { reason } },
    })
    expect(await answer(done(call('a', '{"x":'), { output_index: 0 }), incomplete('max_output_tokens'))).toMatchObject({
      stopReason: 'length',
      content: [{ malformed: '{"x":' }],
    })
    expect(await failure(incomplete('content_filter'))).toMatchObject({ code: 'refused' })
  })
  test('failed and error events by their code', async () => {
    const failed = (code: string): Event => ({
      type: 'response.failed',
      response: { error: { code, message: 'words' } },
    })
    expect(await failure(failed('server_error'))).toMatchObject({ code: 'server', retryable: true })
    expect(await failure(failed('rate_limit_exceeded'))).toMatchObject({ code: 'rate_limited', retryable: true })
    expect(await failure(failed('context_length_exceeded'))).toMatchObject({ code: 'overflow', retryable: false })
    expect(await failure({ type: 'error', code: 'insufficient_quota', message: 'used up' })).toMatchObject({
      code: 'quota',
      retryable: false,
    })
    expect(await failure({ type: 'error', error: { type: 'invalid_request_error', message: 'no' } })).toMatchObject({
      code: 'bad_request',
    })
  })
})

describe('items', () => {
  test('finished out of order stand by index, reasoning byte for byte with keys unknown to us', async () => {
    const reasoning = { encrypted_content: 'abc', id: 'rs_1', zeta: { a: null }, type: 'reasoning', summary: [] }
    const { outcome } = await play(
      'openai-responses',
      sse(done(call('a', '{}'), { output_index: 1 }), done(reasoning, { output_index: 0 }), completed),
    )
    if (outcome.type !== 'answer') throw new Error('no answer')
    expect(outcome.message.content.map((part) => part.type)).toEqual(['reasoning', 'toolCall'])
    const [first] = outcome.message.content
    expect(JSON.stringify(first?.type === 'reasoning' && first.opaque?.['openai-responses'])).toBe(
      JSON.stringify(reasoning),
    )
  })
  test('reasoning without content of its own is for display only', async () => {
    expect(
      await answer(
        done({ type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }] }, { output_index: 0 }),
        completed,
      ),
    ).toMatchObject({ content: [{ type: 'reasoning', text: 'hm' }] })
    const { content } = await answer(
      done({ type: 'reasoning', id: 'rs_1', summary: [] }, { output_index: 0 }),
      completed,
    )
    expect(content).toEqual([])
  })
  test('only a finished item: its text and its call are shown and kept', async () => {
    const { events, outcome } = await play(
      'openai-responses',
      sse(
        done({ type: 'message', content: [{ type: 'output_text', text: 'hi' }] }),
        done(call('a', '{"x":1}')),
        completed,
      ),
    )
    expect(events).toEqual([
      { type: 'text', delta: 'hi' },
      { type: 'toolCall', index: 0, name: 'f', delta: '' },
      { type: 'toolCall', index: 0, name: 'f', delta: '{"x":1}' },
    ])
    expect(outcome).toMatchObject({
      message: { stopReason: 'toolUse', content: [{ text: 'hi' }, { id: 'a', arguments: { x: 1 } }] },
    })
  })
  test('only the last event', async () => {
    const output = [{ type: 'message', content: [{ type: 'output_text', text: 'hi' }] }, call('a', '{"x":1}')]
    expect(await answer({ type: 'response.completed', response: { output } })).toMatchObject({
      content: [{ text: 'hi' }, { id: 'a' }],
    })
  })
  test('the last event repeats what was sent: nothing twice', async () => {
    const output = [{ type: 'web_search_call', id: 'ws' }, call('a', '{"x":1}')]
    const message = await answer(
      added(call('a', '')),
      { type: 'response.function_call_arguments.delta', item_id: 'fc_a', delta: '{"x"' },
      { type: 'response.completed', response: { output } },
    )
    expect(message.content).toEqual([{ type: 'toolCall', id: 'a', name: 'f', arguments: { x: 1 } }])
  })
  test('arguments only in their done event', async () => {
    expect(
      await answer(
        added(call('a', ''), { output_index: 0 }),
        { type: 'response.function_call_arguments.done', output_index: 0, arguments: '{"x":2}' },
        completed,
      ),
    ).toMatchObject({ content: [{ arguments: { x: 2 } }] })
  })
  test('two open calls and no word whose the arguments are: an error, nothing runs', async () => {
    expect(
      await failure(
        added(call('a', '')),
        added(call('b', '')),
        { type: 'response.function_call_arguments.delta', delta: '{"x":1}' },
        completed,
      ),
    ).toMatchObject({ code: 'protocol' })
  })
  test('one call after the other without index or id', async () => {
    const delta = (text: string): Event => ({ type: 'response.function_call_arguments.delta', delta: text })
    const message = await answer(
      added(call('a', '')),
      delta('{"x":1}'),
      done(call('a', '{"x":1}')),
      added(call('b', '')),
      delta('{"y":1}'),
      done(call('b', '{"y":1}')),
      completed,
    )
    expect(message.content).toMatchObject([
      { id: 'a', arguments: { x: 1 } },
      { id: 'b', arguments: { y: 1 } },
    ])
  })
  test('text that nobody announced', async () => {
    expect(
      await answer(
        { type: 'response.output_text.delta', delta: 'a' },
        { type: 'response.output_text.delta', delta: 'b' },
        completed,
      ),
    ).toMatchObject({ content: [{ type: 'text', text: 'ab' }] })
  })
})
