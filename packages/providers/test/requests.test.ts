import { describe, expect, test } from 'vitest'
import { anthropicBody, anthropicHeaders } from '../src/anthropic-request.ts'
import { completionsBody } from '../src/completions-request.ts'
import type { Api, AssistantMessage, HttpModelConfig, JsonObject, Message, ModelRequest } from '../src/index.ts'
import { responsesBody } from '../src/responses-request.ts'
import { config } from './play.ts'

const bodies: Readonly<Record<Api, (request: ModelRequest, config: HttpModelConfig) => JsonObject>> = {
  'openai-responses': responsesBody,
  'openai-completions': completionsBody,
  'anthropic-messages': anthropicBody,
}
const build = (api: Api, request: Partial<ModelRequest>, change: Partial<HttpModelConfig> = {}): JsonObject =>
  bodies[api]({ system: 'Be brief.', messages: [], tools: [], ...request }, config({ api, ...change }))

const me = 'fixture/test-model'
const thought: Readonly<Record<Api, JsonObject>> = {
  'openai-responses': { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'abc' },
  'openai-completions': { reasoning_content: 'hm' },
  'anthropic-messages': { type: 'thinking', thinking: 'hm', signature: 'sig' },
}
const image = { type: 'image', mimeType: 'image/png', data: 'AAAA' } as const
const tools = [
  {
    name: 'read',
    description: 'Reads a file',
    parameters: { type: 'object', properties: { path: { $ref: '#/$defs/p' } }, $defs: { p: { type: 'string' } } },
  },
]
const assistant = (api: Api, model = me): AssistantMessage => ({
  role: 'assistant',
  model,
  content: [
    { type: 'reasoning', text: 'hm', opaque: { [api]: thought[api] } },
    { type: 'text', text: 'I look.' },
    { type: 'toolCall', id: 'call_1', name: 'read', arguments: { path: 'a' } },
    { type: 'toolCall', id: 'call_2', name: 'read', malformed: '{"path":' },
  ],
  stopReason: 'toolUse',
})
const conversation = (api: Api, model?: string): readonly Message[] => [
  { role: 'user', content: [{ type: 'text', text: 'look' }, image] },
  assistant(api, model),
  {
    role: 'toolResult',
    toolCallId: 'call_1',
    toolName: 'read',
    content: [{ type: 'text', text: 'A' }, image],
    isError: false,
  },
  { role: 'toolResult', toolCallId: 'call_2', toolName: 'read', content: [], isError: true },
  { role: 'user', content: [{ type: 'text', text: 'and now?' }] },
]

describe('a whole conversation', () => {
  test('openai-responses', () => {
    const api = 'openai-responses'
    expect(build(api, { messages: conversation(api), tools, thinking: 'low', sessionId: 's1' })).toEqual({
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
        thought[api],
        { type: 'message', role: 'assistant', content: 'I look.' },
        { type: 'function_call', call_id: 'call_1', name: 'read', arguments: '{"path":"a"}' },
        { type: 'function_call', call_id: 'call_2', name: 'read', arguments: '{"malformed_arguments":"{\\"path\\":"}' },
        {
          type: 'function_call_output',
          call_id: 'call_1',
          output: [
            { type: 'input_text', text: 'A' },
            { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,AAAA' },
          ],
        },
        { type: 'function_call_output', call_id: 'call_2', output: '(no output)' },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'and now?' }] },
      ],
      tools: [{ type: 'function', ...tools[0], strict: false }],
      stream: true,
      store: false,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low' },
      prompt_cache_key: 's1',
      max_output_tokens: 4096,
    })
  })

  test('openai-completions at a server that imitates it', () => {
    const api = 'openai-completions'
    expect(build(api, { messages: conversation(api), tools, thinking: 'high', sessionId: 's1' })).toEqual({
      model: 'test-model',
      messages: [
        { role: 'system', content: 'Be brief.' },
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
          reasoning_content: 'hm',
          tool_calls: [
            { id: 'call_1', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } },
            {
              id: 'call_2',
              type: 'function',
              function: { name: 'read', arguments: '{"malformed_arguments":"{\\"path\\":"}' },
            },
          ],
        },
        { role: 'tool', tool_call_id: 'call_1', content: 'A' },
        { role: 'tool', tool_call_id: 'call_2', content: '(no output)' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Output of read:' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
          ],
        },
        { role: 'user', content: 'and now?' },
      ],
      tools: [{ type: 'function', function: tools[0] }],
      stream: true,
      stream_options: { include_usage: true },
      reasoning_effort: 'high',
      max_tokens: 4096,
    })
  })

  test('anthropic-messages', () => {
    const api = 'anthropic-messages'
    const cache = { cache_control: { type: 'ephemeral' } }
    expect(build(api, { messages: conversation(api), tools, thinking: 'low' }, { maxTokens: 8192 })).toEqual({
      model: 'test-model',
      max_tokens: 8192,
      stream: true,
      tools: [{ name: 'read', description: 'Reads a file', input_schema: tools[0]?.parameters }],
      system: [{ type: 'text', text: 'Be brief.', ...cache }],
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
            thought[api],
            { type: 'text', text: 'I look.' },
            { type: 'tool_use', id: 'call_1', name: 'read', input: { path: 'a' } },
            { type: 'tool_use', id: 'call_2', name: 'read', input: { malformed_arguments: '{"path":' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'call_1',
              content: [
                { type: 'text', text: 'A' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
              ],
            },
            {
              type: 'tool_result',
              tool_use_id: 'call_2',
              content: [{ type: 'text', text: '(no output)' }],
              is_error: true,
            },
            { type: 'text', text: 'and now?', ...cache },
          ],
        },
      ],
      thinking: { type: 'enabled', budget_tokens: 4096 },
    })
  })

  test('at OpenAI itself Chat Completions has its newest form', () => {
    const body = build('openai-completions', { sessionId: 's1' }, { baseUrl: 'https://api.openai.com/v1' })
    expect(body).toMatchObject({
      messages: [{ role: 'developer' }, {}],
      store: false,
      max_completion_tokens: 4096,
      prompt_cache_key: 's1',
    })
    expect(body).not.toHaveProperty('max_tokens')
  })
})

describe.each(['openai-responses', 'openai-completions', 'anthropic-messages'] as const)('%s', (api) => {
  test('reasoning of another model does not go along', () => {
    const body = JSON.stringify(build(api, { messages: conversation(api, 'other/model') }))
    for (const secret of ['rs_1', 'reasoning_content', '"thinking"']) expect(body).not.toContain(secret)
  })

  test('reasoning that came by another API does not go along', () => {
    for (const other of Object.keys(thought) as Api[]) {
      const body = JSON.stringify(build(api, { messages: conversation(other) }))
      for (const [from, secret] of [
        ['openai-responses', 'rs_1'],
        ['openai-completions', 'reasoning_content'],
        ['anthropic-messages', '"thinking"'],
      ]) {
        if (from !== api) expect(body).not.toContain(secret)
      }
    }
  })

  test('a request extends the one before: what was sent stays as it was', () => {
    const all = conversation(api)
    const stable = (body: JsonObject): readonly string[] => {
      const list = body['input'] ?? body['messages']
      // The cache mark moves along; all else must not.
      return Array.isArray(list)
        ? list.map((item) => JSON.stringify(item).replaceAll(',"cache_control":{"type":"ephemeral"}', ''))
        : []
    }
    const before = stable(build(api, { messages: all.slice(0, 4) }))
    const after = stable(
      build(api, {
        messages: [
          ...all.slice(0, 4),
          { role: 'assistant', model: me, content: [{ type: 'text', text: 'ok' }], stopReason: 'stop' },
        ],
      }),
    )
    expect(after.slice(0, before.length)).toEqual(before)
  })

  test('compat: the name of the cap, no effort, no store', () => {
    const body = build(
      api,
      { thinking: 'high' },
      { compat: { maxTokensField: 'max_tokens', supportsReasoningEffort: false, supportsStore: false } },
    )
    expect(body).toMatchObject({ max_tokens: 4096 })
    for (const absent of ['reasoning', 'reasoning_effort', 'thinking', 'store', 'max_output_tokens', 'tools'])
      expect(body).not.toHaveProperty(absent)
  })

  test('a model that does not reason is not told to', () => {
    const body = build(api, { thinking: 'high' }, { reasoning: false })
    for (const absent of ['reasoning', 'reasoning_effort', 'thinking', 'include'])
      expect(body).not.toHaveProperty(absent)
  })

  test('an empty conversation and an empty system are no empty message', () => {
    const body = build(api, { system: '' })
    expect(JSON.stringify(body)).toContain('(empty)')
    for (const absent of ['instructions', 'system']) expect(body).not.toHaveProperty(absent)
  })
})

describe('responses', () => {
  test('the phase of a text goes back to the model that wrote it, and to no other', () => {
    const spoken = (model: string): JsonObject =>
      build('openai-responses', {
        messages: [
          {
            role: 'assistant',
            model,
            content: [{ type: 'text', text: 'a', opaque: { 'openai-responses': { phase: 'commentary' } } }],
            stopReason: 'stop',
          },
        ],
      })
    const item = { type: 'message', role: 'assistant', content: 'a' }
    expect(spoken(me)['input']).toEqual([{ ...item, phase: 'commentary' }])
    expect(spoken('other/model')['input']).toEqual([item])
  })
  test('reasoning that nothing follows is left out', () => {
    const messages: readonly Message[] = [
      {
        role: 'assistant',
        model: me,
        content: [
          { type: 'text', text: 'a' },
          { type: 'reasoning', text: '', opaque: { 'openai-responses': thought['openai-responses'] } },
        ],
        stopReason: 'length',
      },
    ]
    expect(JSON.stringify(build('openai-responses', { messages }))).not.toContain('rs_1')
  })
})

describe('anthropic', () => {
  const api = 'anthropic-messages'
  test('thinking by the age of the model', () => {
    const on = (modelId: string, thinking: ModelRequest['thinking'], maxTokens = 32_000) => {
      const { thinking: sent, output_config } = build(api, thinking === undefined ? {} : { thinking }, {
        modelId,
        maxTokens,
      })
      return { sent, output_config }
    }
    expect(on('claude-sonnet-4-5-20250929', 'medium')).toEqual({
      sent: { type: 'enabled', budget_tokens: 8192 },
      output_config: undefined,
    })
    expect(on('claude-opus-4-20250514', 2000)).toMatchObject({ sent: { budget_tokens: 2000 } })
    expect(on('claude-opus-4-6', 'high')).toEqual({
      sent: { type: 'adaptive', display: 'summarized' },
      output_config: { effort: 'high' },
    })
    expect(on('claude-opus-5', 'minimal')).toMatchObject({
      sent: { type: 'adaptive' },
      output_config: { effort: 'low' },
    })
    expect(on('claude-opus-5', 'off').sent).toEqual({ type: 'disabled' })
    expect(on('claude-opus-4-6', 'off').sent).toBeUndefined()
    expect(on('claude-sonnet-4-5', undefined).sent).toBeUndefined()
    expect(on('claude-sonnet-4-5', 'high', 8192)).toMatchObject({ sent: { budget_tokens: 6144 } })
    expect(on('claude-sonnet-4-5', 'high', 1000).sent).toBeUndefined()
  })
  test('a tool loop that another model began does not think: the API would refuse it', () => {
    const loop = conversation(api, 'other/model').slice(0, 4)
    expect(build(api, { messages: loop, thinking: 'high' })).not.toHaveProperty('thinking')
    expect(build(api, { messages: conversation(api).slice(0, 4), thinking: 'high' })).toHaveProperty('thinking')
  })
  test('without a system the tools carry the mark; a last thought does not', () => {
    expect(build(api, { system: ' ', tools })).toMatchObject({ tools: [{ cache_control: { type: 'ephemeral' } }] })
    const messages: readonly Message[] = [
      {
        role: 'assistant',
        model: me,
        content: [
          { type: 'text', text: 'a' },
          { type: 'reasoning', text: 'hm', opaque: { [api]: thought[api] } },
        ],
        stopReason: 'stop',
      },
    ]
    expect(build(api, { messages })).toMatchObject({
      messages: [{ role: 'user' }, { content: [{ text: 'a', cache_control: {} }, thought[api]] }],
    })
  })
})

describe('chat completions of the same server', () => {
  const api = 'openai-completions'
  const turn = (model: string, item: JsonObject): readonly Message[] => [
    {
      role: 'assistant',
      model,
      content: [
        { type: 'reasoning', text: 'hm', opaque: { [api]: item } },
        { type: 'toolCall', id: 'functions.read:0', name: 'read', arguments: {} },
        { type: 'toolCall', id: 'call_2', name: 'read', arguments: {} },
      ],
      stopReason: 'toolUse',
    },
  ]
  const first = (messages: readonly Message[], change: Partial<HttpModelConfig> = {}): unknown => {
    const { messages: sent } = build(api, { system: '', messages }, change)
    return Array.isArray(sent) ? sent[0] : undefined
  }
  test('thoughts in parts go back as they came, and what a call was signed with goes back with it', () => {
    const details = [{ type: 'reasoning.encrypted', id: 'call_2', data: 'abc', index: 0, format: 'f' }]
    const extra = { google: { thought_signature: 'sig' } }
    const item = { reasoning_details: details, tool_calls: [{ index: 1, extra_content: extra }] }
    expect(first(turn(me, item))).toEqual({
      role: 'assistant',
      content: null,
      reasoning_details: details,
      tool_calls: [
        { id: 'functions.read:0', type: 'function', function: { name: 'read', arguments: '{}' } },
        { id: 'call_2', type: 'function', function: { name: 'read', arguments: '{}' }, extra_content: extra },
      ],
    })
    expect(JSON.stringify(first(turn('other/model', item)))).not.toMatch(/abc|sig/)
  })
  test('its ids stay as they are; those of another model, or at OpenAI, are made to fit', () => {
    const item = { reasoning_content: 'hm' }
    const fitting = { tool_calls: [{ id: expect.stringMatching(/^[A-Za-z0-9_-]{1,40}$/) }, { id: 'call_2' }] }
    expect(first(turn(me, item))).toMatchObject({ tool_calls: [{ id: 'functions.read:0' }, { id: 'call_2' }] })
    expect(first(turn('other/model', item))).toMatchObject(fitting)
    expect(first(turn(me, item), { baseUrl: 'https://api.openai.com/v1' })).toMatchObject(fitting)
  })
})

test('at Anthropic itself a model that thinks may do so between its calls; others are not sent a name that they may not know', () => {
  const at = (baseUrl: string, reasoning = true) =>
    anthropicHeaders('k', config({ api: 'anthropic-messages', baseUrl, reasoning }))
  expect(at('https://api.anthropic.com')).toHaveProperty('anthropic-beta')
  expect(at('https://api.anthropic.com', false)).not.toHaveProperty('anthropic-beta')
  expect(at('http://127.0.0.1:8080')).not.toHaveProperty('anthropic-beta')
  expect(anthropicHeaders('k', undefined)).toEqual({ 'anthropic-version': '2023-06-01', 'x-api-key': 'k' })
})
