import Anthropic from '@anthropic-ai/sdk'
import fc from 'fast-check'
import OpenAI from 'openai'
import { LengthFinishReasonError } from 'openai/error'
import { describe, expect, test } from 'vitest'
import { anthropicBody } from '../src/anthropic-request.ts'
import { completionsBody } from '../src/completions-request.ts'
import type { Api, ModelRequest } from '../src/index.ts'
import { responsesBody } from '../src/responses-request.ts'
import { config, fetchOf, play } from './play.ts'
import { type Said, wellFormedStream } from './well-formed.ts'

/** What both have to agree on. */
type Read = {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly { readonly id: string; readonly name: string; readonly arguments: unknown }[]
  readonly cut: boolean
  readonly usage: readonly number[]
}

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

const bytesOf = (stream: string): readonly Uint8Array[] => [new TextEncoder().encode(stream)]
const openai = (stream: string): OpenAI =>
  new OpenAI({ apiKey: 'k', baseURL: 'http://127.0.0.1:1', maxRetries: 0, fetch: fetchOf(bytesOf(stream)) })

const theirs: Readonly<Record<Api, (stream: string) => Promise<Read>>> = {
  'openai-completions': async (stream) => {
    const answer = await openai(stream)
      .chat.completions.stream({ model: 'm', messages: [], stream_options: { include_usage: true } })
      .finalChatCompletion()
      .catch((error: unknown) => {
        // It throws where the cap cut the answer; what it read is with the error of no other kind.
        if (error instanceof LengthFinishReasonError) return undefined
        throw error
      })
    if (answer === undefined) return { text: '', reasoning: '', calls: [], cut: true, usage: [] }
    const [choice] = answer.choices
    return {
      text: choice?.message.content ?? '',
      reasoning: '',
      calls: (choice?.message.tool_calls ?? []).flatMap((call) =>
        call.type === 'function'
          ? [{ id: call.id, name: call.function.name, arguments: JSON.parse(call.function.arguments) as unknown }]
          : [],
      ),
      cut: choice?.finish_reason === 'length',
      usage: [
        (answer.usage?.prompt_tokens ?? 0) - (answer.usage?.prompt_tokens_details?.cached_tokens ?? 0),
        answer.usage?.prompt_tokens_details?.cached_tokens ?? 0,
        answer.usage?.completion_tokens ?? 0,
      ],
    }
  },
  'openai-responses': async (stream) => {
    const answer = await openai(stream).responses.stream({ model: 'm', input: 'x' }).finalResponse()
    return {
      text: answer.output_text,
      reasoning: answer.output
        .flatMap((item) => (item.type === 'reasoning' ? item.summary : []))
        .map(({ text }) => text)
        .join(''),
      calls: answer.output.flatMap((item) =>
        item.type === 'function_call'
          ? [{ id: item.call_id, name: item.name, arguments: JSON.parse(item.arguments) as unknown }]
          : [],
      ),
      cut: answer.status === 'incomplete',
      usage: [
        (answer.usage?.input_tokens ?? 0) - (answer.usage?.input_tokens_details.cached_tokens ?? 0),
        answer.usage?.input_tokens_details.cached_tokens ?? 0,
        answer.usage?.output_tokens ?? 0,
      ],
    }
  },
  'anthropic-messages': async (stream) => {
    const client = new Anthropic({
      apiKey: 'k',
      baseURL: 'http://127.0.0.1:1',
      maxRetries: 0,
      fetch: fetchOf(bytesOf(stream)),
    })
    const answer = await client.messages.stream({ model: 'm', max_tokens: 10, messages: [] }).finalMessage()
    return {
      text: answer.content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join(''),
      reasoning: answer.content.flatMap((block) => (block.type === 'thinking' ? [block.thinking] : [])).join(''),
      calls: answer.content.flatMap((block) =>
        block.type === 'tool_use' ? [{ id: block.id, name: block.name, arguments: block.input }] : [],
      ),
      cut: answer.stop_reason === 'max_tokens',
      usage: [answer.usage.input_tokens, answer.usage.cache_read_input_tokens ?? 0, answer.usage.output_tokens],
    }
  },
}

async function ours(api: Api, stream: string): Promise<Read> {
  const { outcome } = await play(api, stream)
  if (outcome.type !== 'answer') throw new Error(JSON.stringify(outcome))
  const { content, stopReason, usage } = outcome.message
  return {
    text: content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(''),
    reasoning: content.flatMap((part) => (part.type === 'reasoning' ? [part.text] : [])).join(''),
    calls: content.flatMap((part) =>
      part.type === 'toolCall'
        ? [{ id: part.id, name: part.name, arguments: 'malformed' in part ? part.malformed : part.arguments }]
        : [],
    ),
    cut: stopReason === 'length',
    usage: [usage?.input ?? 0, usage?.cacheRead ?? 0, usage?.output ?? 0],
  }
}

describe('the official clients read the same out of the same streams', () => {
  test.each(Object.keys(theirs) as Api[])('%s', async (api) => {
    await fc.assert(
      fc.asyncProperty(said, async (given) => {
        const stream = wellFormedStream(api, given)
        const [mine, official] = await Promise.all([ours(api, stream), theirs[api](stream)])
        // Their helper for Chat Completions gives nothing of an answer that was cut, but that it was.
        if (api === 'openai-completions' && given.cut) expect(mine.cut).toBe(official.cut)
        else expect(mine).toEqual(official)
        expect(mine).toEqual({
          text: given.text ?? '',
          reasoning: api === 'openai-completions' ? '' : (given.reasoning ?? ''),
          calls: given.calls,
          cut: given.cut,
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
