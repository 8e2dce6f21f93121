import { Validator } from '@cfworker/json-schema'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createHttpModel } from '../src/index.ts'
import type { Api, Message, ModelRequest, Thinking } from '../src/index.ts'
import { apiSchemas } from './api-schemas.ts'
import { config, run } from './play.ts'

const me = 'fixture/test-model'
const opaque: Readonly<Record<Api, Readonly<Record<string, string | readonly string[]>>>> = {
  'openai-responses': { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'abc' },
  'openai-completions': { reasoning_content: 'hm' },
  'anthropic-messages': { type: 'thinking', thinking: 'hm', signature: 'sig' },
}

const signed = {
  reasoning_details: [{ type: 'reasoning.encrypted', data: 'abc', index: 0 }],
  tool_calls: [{ index: 0, extra_content: { google: { thought_signature: 'sig' } } }],
}

const conversation = (api: Api): fc.Arbitrary<readonly Message[]> => {
  const id = fc.oneof(fc.constantFrom('a', 'b', '', 'ä b', 'x'.repeat(90)), fc.string())
  const text = fc.record({
    type: fc.constant('text' as const),
    text: fc.oneof(fc.constantFrom('', ' ', 'hi', '\ud800'), fc.string()),
  })
  const image = fc.constant({ type: 'image' as const, mimeType: 'image/png', data: 'AAAA' })
  const call = fc.record({
    type: fc.constant('toolCall' as const),
    id,
    name: fc.constantFrom('f', 'functions.read', 'ä b', 'x'.repeat(90)),
    arguments: fc.dictionary(fc.string(), fc.jsonValue()) as fc.Arbitrary<Record<string, never>>,
  })
  const cutCall = fc.record({
    type: fc.constant('toolCall' as const),
    id,
    name: fc.constant('f'),
    malformed: fc.string(),
  })
  const thought = fc.constantFrom(
    { type: 'reasoning' as const, text: 'hm', opaque: { [api]: opaque[api] } },
    { type: 'reasoning' as const, text: '', opaque: { 'openai-completions': signed } },
    { type: 'reasoning' as const, text: 'for display' },
  )
  const part = fc.oneof(text, image)
  return fc.array(
    fc.oneof(
      fc.record({ role: fc.constant('user' as const), content: fc.array(part, { maxLength: 3 }) }),
      fc.record({
        role: fc.constant('assistant' as const),
        model: fc.constantFrom(me, 'other/model'),
        content: fc.array(fc.oneof(text, call, cutCall, thought), { maxLength: 4 }),
        stopReason: fc.constantFrom('stop' as const, 'toolUse' as const, 'aborted' as const, 'length' as const),
      }),
      fc.record({
        role: fc.constant('toolResult' as const),
        toolCallId: id,
        toolName: fc.constant('f'),
        content: fc.array(part, { maxLength: 2 }),
        isError: fc.boolean(),
      }),
    ),
    { maxLength: 10 },
  )
}

const settings = {
  thinking: fc.option(
    fc.oneof(fc.constantFrom<Thinking>('off', 'minimal', 'low', 'medium', 'high'), fc.nat({ max: 50_000 })),
    { nil: undefined },
  ),
  reasoning: fc.boolean(),
  baseUrl: fc.constantFrom('https://api.openai.com/v1', 'http://127.0.0.1:1/v1'),
  modelId: fc.constantFrom('test-model', 'claude-opus-5', 'claude-3-7-sonnet'),
  system: fc.constantFrom('', ' ', 'Be brief.'),
  tools: fc.constantFrom([], [{ name: 'f', description: '', parameters: { type: 'object' } }]),
}

test.each(Object.keys(apiSchemas) as Api[])('whatever the conversation, %s takes what is sent', async (api) => {
  const validator = new Validator(apiSchemas[api], '2020-12')
  await fc.assert(
    fc.asyncProperty(conversation(api), fc.record(settings), async (messages, given) => {
      let sent: unknown
      const fetch: typeof globalThis.fetch = async (input, init) => {
        sent = JSON.parse(await new Request(input, init).text())
        return new Response('', { status: 500 })
      }
      const { thinking, system, tools, ...change } = given
      const request: ModelRequest = { system, tools, messages, ...(thinking !== undefined && { thinking }) }
      await run(createHttpModel(config({ api, maxTokens: 16_000, ...change }), { fetch }), request)
      const { valid, errors } = validator.validate(sent)
      expect(valid ? [] : [sent, errors.slice(-3)]).toEqual([])
    }),
    { numRuns: 300 },
  )
})

test.each<[Api, object]>([
  ['openai-completions', { messages: [{ role: 'user', content: '' }] }],
  ['openai-completions', { messages: [{ role: 'assistant', content: null }] }],
  ['openai-completions', { messages: [{ role: 'user', content: 'x' }], temperature: 1 }],
  ['openai-responses', { input: [{ type: 'function_call', call_id: 'ä', name: 'f', arguments: '{}' }] }],
  ['anthropic-messages', { messages: [{ role: 'user', content: [{ type: 'text', text: '' }] }] }],
])('the schema of %s refuses what the API would: %j', (api, change) => {
  const right = {
    'openai-completions': {
      model: 'm',
      messages: [{ role: 'user', content: 'x' }],
      stream: true,
      stream_options: { include_usage: true },
    },
    'openai-responses': {
      model: 'm',
      input: [{ type: 'message', role: 'assistant', content: 'x' }],
      stream: true,
      store: false,
      max_output_tokens: 1,
    },
    'anthropic-messages': {
      model: 'm',
      max_tokens: 1,
      stream: true,
      messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
    },
  }[api]
  const validator = new Validator(apiSchemas[api], '2020-12')
  expect([validator.validate(right).valid, validator.validate({ ...right, ...change }).valid]).toEqual([true, false])
})
