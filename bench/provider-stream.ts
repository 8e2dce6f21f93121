import { createRequire } from 'node:module'
import { createHttpModel, type HttpModelConfig } from '@reve/providers'
import type { Comparison } from './measure.ts'

// The official clients are what the adapters are held against in their tests, and installed with them.
const require = createRequire(new URL('../packages/providers/package.json', import.meta.url))

const EVENTS = 20_000
const MEGABYTE = 1_000_000
const PIECE = 50

const settings = (api: HttpModelConfig['api']): HttpModelConfig => ({
  api,
  provider: 'bench',
  modelId: 'm',
  baseUrl: 'http://127.0.0.1:1/v1',
  reasoning: false,
  contextWindow: 1_000_000,
  maxTokens: 100_000,
})

const sse = (events: readonly object[]): string =>
  events
    .map((event) => {
      const name = 'type' in event && typeof event.type === 'string' ? `event: ${event.type}\n` : ''
      return `${name}data: ${JSON.stringify(event)}\n\n`
    })
    .join('')

/** In pieces as a network gives them. */
const fetchOf = (stream: string): typeof fetch => {
  const bytes = new TextEncoder().encode(stream)
  return async () =>
    new Response(
      new ReadableStream({
        start(controller) {
          for (let at = 0; at < bytes.length; at += 16_384) controller.enqueue(bytes.subarray(at, at + 16_384))
          controller.close()
        },
      }),
      { headers: { 'content-type': 'text/event-stream' } },
    )
}

const chunk = (delta: object, finish_reason: string | null = null): object => ({
  id: 'c',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'm',
  choices: [{ index: 0, delta, finish_reason, logprobs: null }],
})

const completionsText = `${sse([
  ...Array.from({ length: EVENTS }, (_, index) => chunk({ content: `word${index} ` })),
  chunk({}, 'stop'),
])}data: [DONE]\n\n`

const anthropicText = sse([
  {
    type: 'message_start',
    message: {
      id: 'm',
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 1, output_tokens: 1 },
    },
  },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  ...Array.from({ length: EVENTS }, (_, index) => ({
    type: 'content_block_delta',
    index: 0,
    delta: { type: 'text_delta', text: `word${index} ` },
  })),
  { type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: EVENTS } },
  { type: 'message_stop' },
])

/** One call whose argument is `bytes` long, in pieces of 50. */
const argument = (bytes: number): string => {
  const text = JSON.stringify({ content: 'x'.repeat(bytes) })
  const pieces = text.match(new RegExp(`.{1,${PIECE}}`, 'g')) ?? []
  return `${sse([
    chunk({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'write', arguments: '' } }] }),
    ...pieces.map((piece) => chunk({ tool_calls: [{ index: 0, function: { arguments: piece } }] })),
    chunk({}, 'tool_calls'),
  ])}data: [DONE]\n\n`
}
const [oneMegabyte, fiveMegabytes] = [argument(MEGABYTE), argument(5 * MEGABYTE)]

async function ours(api: HttpModelConfig['api'], stream: string): Promise<void> {
  const model = createHttpModel(settings(api), { fetch: fetchOf(stream) })
  const reading = model.stream(
    { system: '', messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }], tools: [] },
    { signal: new AbortController().signal },
  )
  for (;;) {
    const step = await reading.next()
    if (step.done !== true) continue
    if (step.value.type !== 'answer') throw new Error(JSON.stringify(step.value))
    return
  }
}

type Reading = { readonly create: (body: object) => Promise<AsyncIterable<unknown>> }

/** The official client's own loop over events, without its helper that builds the message: the least that it can do. */
async function theirs(name: 'openai' | '@anthropic-ai/sdk', stream: string): Promise<void> {
  const loaded = (await import(require.resolve(name))) as { readonly default: new (options: object) => unknown }
  const client = new loaded.default({
    apiKey: 'k',
    baseURL: 'http://127.0.0.1:1',
    maxRetries: 0,
    fetch: fetchOf(stream),
  })
  const reading =
    name === 'openai'
      ? (client as { readonly chat: { readonly completions: Reading } }).chat.completions
      : (client as { readonly messages: Reading }).messages
  let events = 0
  for await (const _event of await reading.create({ model: 'm', max_tokens: 1, messages: [], stream: true }))
    events += 1
  if (events < EVENTS) throw new Error(`only ${events} events came`)
}

/** Reading a stream, from bytes to the finished message, against the official client that only hands events on. */
export const comparisons: readonly Comparison[] = [
  {
    name: `${EVENTS} events of Chat Completions to a message`,
    peer: 'openai, events alone',
    goal: 'at most 1.5',
    ours: () => ours('openai-completions', completionsText),
    theirs: () => theirs('openai', completionsText),
  },
  {
    name: `${EVENTS} events of Anthropic Messages to a message`,
    peer: '@anthropic-ai/sdk, events alone',
    goal: 'at most 1.5',
    ours: () => ours('anthropic-messages', anthropicText),
    theirs: () => theirs('@anthropic-ai/sdk', anthropicText),
  },
  {
    name: 'a tool argument of 5 MB',
    peer: 'one of 1 MB',
    goal: 'about 5: linear',
    ours: () => ours('openai-completions', fiveMegabytes),
    theirs: () => ours('openai-completions', oneMegabyte),
  },
]
