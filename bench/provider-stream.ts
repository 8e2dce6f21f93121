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

const place = { output_index: 0, item_id: 'msg_1', content_index: 0 }
const responsesText = sse([
  { type: 'response.created', response: { id: 'r', status: 'in_progress', output: [] } },
  { type: 'response.output_item.added', output_index: 0, item: { type: 'message', id: 'msg_1', content: [] } },
  ...Array.from({ length: EVENTS }, (_, index) => ({
    type: 'response.output_text.delta',
    ...place,
    delta: `word${index} `,
    logprobs: [],
  })),
  { type: 'response.completed', response: { id: 'r', status: 'completed', output: [], usage: null } },
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
async function theirs(api: HttpModelConfig['api'], stream: string): Promise<void> {
  const name = api === 'anthropic-messages' ? '@anthropic-ai/sdk' : 'openai'
  const loaded = (await import(require.resolve(name))) as { readonly default: new (options: object) => unknown }
  const client = new loaded.default({
    apiKey: 'k',
    baseURL: 'http://127.0.0.1:1',
    maxRetries: 0,
    fetch: fetchOf(stream),
  }) as { readonly chat: { readonly completions: Reading }; readonly messages: Reading; readonly responses: Reading }
  const reading = {
    'openai-completions': client.chat?.completions,
    'openai-responses': client.responses,
    'anthropic-messages': client.messages,
  }[api]
  let events = 0
  for await (const _event of await reading.create({ model: 'm', max_tokens: 1, messages: [], input: '', stream: true }))
    events += 1
  if (events < EVENTS) throw new Error(`only ${events} events came`)
}

/** Milliseconds of CPU. */
async function cpuOf(work: () => Promise<void>): Promise<readonly [number]> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return [(user + system) / 1000]
}

/** Events a second by the clock, and milliseconds of CPU for a megabyte of stream. */
async function speed(read: () => Promise<void>, stream: string): Promise<readonly number[]> {
  const started = performance.now()
  const [cpu] = await cpuOf(read)
  const seconds = (performance.now() - started) / 1000
  return [EVENTS / seconds / 1000, cpu / (Buffer.byteLength(stream) / MEGABYTE)]
}

/** Reading a stream, from bytes to the finished message, against the official client that only hands events on. */
export const comparisons: readonly Comparison[] = [
  ...(
    [
      ['Chat Completions', 'openai-completions', completionsText],
      ['Responses', 'openai-responses', responsesText],
      ['Anthropic Messages', 'anthropic-messages', anthropicText],
    ] as const
  ).map(([name, api, stream]): Comparison => ({
    peer: api === 'anthropic-messages' ? '@anthropic-ai/sdk, events alone' : 'openai, events alone',
    rows: [
      { name: `${name} to a message: events`, unit: '1000/s', goal: 'at least 0.67' },
      { name: `${name} to a message: CPU a megabyte`, unit: 'ms', goal: 'at most 1.5' },
    ],
    ours: () => speed(() => ours(api, stream), stream),
    theirs: () => speed(() => theirs(api, stream), stream),
  })),
  {
    peer: 'one of 1 MB',
    rows: [{ name: 'a tool argument of 5 MB: CPU', unit: 'ms', goal: 'about 5: linear' }],
    ours: () => cpuOf(() => ours('openai-completions', fiveMegabytes)),
    theirs: () => cpuOf(() => ours('openai-completions', oneMegabyte)),
  },
]
