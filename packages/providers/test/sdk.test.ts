import type Anthropic from '@anthropic-ai/sdk'
import fc from 'fast-check'
import type OpenAI from 'openai'
import { describe, expect, test } from 'vitest'
import { anthropicBody } from '../src/anthropic-request.ts'
import { completionsBody } from '../src/completions-request.ts'
import type { Api, ModelRequest } from '../src/index.ts'
import { responsesBody } from '../src/responses-request.ts'
import { official, type Read, readOf } from './official.ts'
import { config, play } from './play.ts'
import { type Said, wellFormedStream } from './well-formed.ts'

const name = fc.stringMatching(/^[a-z][a-z_]{0,11}$/)
// Text that JSON and SSE have to keep apart from themselves.
const words = fc.oneof(
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 30 }),
  fc.constantFrom('data: x\n\n', '{"a":1}', 'é🌍\r\n', '\u2028', '"\\'),
)
const count = fc.nat({ max: 100_000 })
const said: fc.Arbitrary<Said> = fc
  .record({
    reasoning: fc.option(words, { nil: undefined }),
    text: fc.option(words, { nil: undefined }),
    calls: fc.uniqueArray(
      fc.record({
        id: fc.stringMatching(/^call_[A-Za-z0-9]{4,10}$/),
        name,
        arguments: fc.dictionary(name, fc.jsonValue({ maxDepth: 2 })),
      }),
      { maxLength: 3, selector: ({ id }) => id },
    ),
    cut: fc.boolean(),
    usage: fc.record({
      input: count,
      cacheRead: count,
      cacheWrite: count,
      output: fc.integer({ min: 1, max: 9999 }),
      reasoning: fc.constant(0),
    }),
  })
  .map(({ reasoning, text, calls, cut, usage }) => ({
    ...(reasoning === undefined ? {} : { reasoning }),
    ...(text === undefined ? {} : { text }),
    // As JSON has it: there is one zero.
    calls: calls.map((call) => ({
      ...call,
      arguments: JSON.parse(JSON.stringify(call.arguments)) as Record<string, unknown>,
    })),
    // What is cut in its calls is malformed to us; here an answer is cut in its text.
    cut: cut && calls.length === 0,
    usage,
  }))

async function ours(api: Api, stream: string): Promise<Read> {
  const { outcome } = await play(api, stream)
  if (outcome.type !== 'answer') throw new Error(JSON.stringify(outcome))
  return readOf(outcome.message)
}

describe('the official clients read the same out of the same streams', () => {
  test.each(Object.keys(official) as Api[])('%s', async (api) => {
    await fc.assert(
      fc.asyncProperty(said, async (given) => {
        const stream = wellFormedStream(api, given)
        const [mine, theirs] = await Promise.all([ours(api, stream), official[api](new TextEncoder().encode(stream))])
        expect(mine).toEqual(theirs)
        expect(mine).toEqual({
          text: given.text ?? '',
          reasoning: api === 'openai-completions' ? '' : (given.reasoning ?? ''),
          calls: given.calls,
          stop: given.cut ? 'length' : given.calls.length > 0 ? 'toolUse' : 'stop',
          usage: [given.usage.input, given.usage.cacheRead, given.usage.output],
        })
      }),
      { numRuns: 60 },
    )
  })
})

const request: ModelRequest = {
  system: 'Be brief.',
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look' },
        { type: 'image', mimeType: 'image/png', data: 'AAAA' },
      ],
    },
    {
      role: 'assistant',
      model: 'fixture/test-model',
      content: [
        { type: 'text', text: 'I look.' },
        { type: 'toolCall', id: 'call_1', name: 'read', arguments: { path: 'a' } },
      ],
      stopReason: 'toolUse',
    },
    {
      role: 'toolResult',
      toolCallId: 'call_1',
      toolName: 'read',
      content: [{ type: 'text', text: 'A' }],
      isError: true,
    },
  ],
  tools: [{ name: 'read', description: 'Reads', parameters: { type: 'object' } }],
  thinking: 'low',
  sessionId: 's1',
}

// The left sides are checked by the compiler against the types of the official clients.
describe('what we send has the types of the official clients', () => {
  test('Chat Completions', () => {
    const typed: OpenAI.Chat.ChatCompletionCreateParamsStreaming = {
      model: 'test-model',
      messages: [
        { role: 'developer', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'look' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
          ],
        },
        {
          role: 'assistant',
          content: 'I look.',
          tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } }],
        },
        { role: 'tool', tool_call_id: 'call_1', content: 'A' },
      ],
      tools: [{ type: 'function', function: { name: 'read', description: 'Reads', parameters: { type: 'object' } } }],
      stream: true,
      stream_options: { include_usage: true },
      store: false,
      reasoning_effort: 'low',
      prompt_cache_key: 's1',
      max_completion_tokens: 4096,
    }
    expect(completionsBody(request, config({ baseUrl: 'https://api.openai.com/v1' }))).toEqual(typed)
  })

  test('Responses', () => {
    const typed: OpenAI.Responses.ResponseCreateParamsStreaming = {
      model: 'test-model',
      instructions: 'Be brief.',
      input: [
        {
          type: 'message',
          role: 'user',
          content: [
            { type: 'input_text', text: 'look' },
            { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,AAAA' },
          ],
        },
        { type: 'message', role: 'assistant', content: 'I look.' },
        { type: 'function_call', call_id: 'call_1', name: 'read', arguments: '{"path":"a"}' },
        { type: 'function_call_output', call_id: 'call_1', output: 'A' },
      ],
      tools: [{ type: 'function', name: 'read', description: 'Reads', parameters: { type: 'object' }, strict: false }],
      stream: true,
      store: false,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low' },
      prompt_cache_key: 's1',
      max_output_tokens: 4096,
    }
    expect(responsesBody(request, config())).toEqual(typed)
  })

  test('Messages', () => {
    const typed: Anthropic.MessageCreateParamsStreaming = {
      model: 'test-model',
      max_tokens: 8000,
      stream: true,
      system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      tools: [{ name: 'read', description: 'Reads', input_schema: { type: 'object' } }],
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'look' },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'I look.' },
            { type: 'tool_use', id: 'call_1', name: 'read', input: { path: 'a' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'call_1',
              content: [{ type: 'text', text: 'A' }],
              is_error: true,
              cache_control: { type: 'ephemeral' },
            },
          ],
        },
      ],
    }
    expect(anthropicBody({ ...request, thinking: 'off' }, config({ maxTokens: 8000 }))).toEqual(typed)
  })
})
