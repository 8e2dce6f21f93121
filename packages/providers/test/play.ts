import { createHttpModel } from '../src/index.ts'
import type { HttpModelConfig, Model, ModelEvent, ModelOutcome, ModelRequest, TransportOptions } from '../src/index.ts'

export const key = 'sk-SENTINEL-0123456789abcdef'

export const config = (change: Partial<HttpModelConfig> = {}): HttpModelConfig => ({
  api: 'openai-completions',
  provider: 'fixture',
  modelId: 'test-model',
  baseUrl: 'http://127.0.0.1:1/v1',
  apiKey: key,
  apiKeyName: 'FIXTURE_KEY',
  reasoning: true,
  contextWindow: 100_000,
  maxTokens: 4096,
  ...change,
})

export const ask: ModelRequest = {
  system: 'Be brief.',
  messages: [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }],
  tools: [],
}

export type Played = { readonly events: readonly ModelEvent[]; readonly outcome: ModelOutcome }

/** Runs one stream to its end. */
export async function run(
  model: Model,
  request: ModelRequest = ask,
  signal = new AbortController().signal,
): Promise<Played> {
  const events: ModelEvent[] = []
  const stream = model.stream(request, { signal })
  for (;;) {
    const step = await stream.next()
    if (step.done === true) return { events, outcome: step.value }
    events.push(step.value)
  }
}

/** A fetch that answers with exactly these pieces. */
export function fetchOf(pieces: readonly Uint8Array[], headers: Readonly<Record<string, string>> = {}): typeof fetch {
  return async () =>
    new Response(
      new ReadableStream({
        start(controller) {
          for (const piece of pieces) controller.enqueue(piece)
          controller.close()
        },
      }),
      { headers: { 'content-type': 'text/event-stream', ...headers } },
    )
}

/** Plays a stream in one piece, or in the pieces given, without a network. */
export async function play(
  api: HttpModelConfig['api'],
  stream: string | readonly Uint8Array[],
  request: ModelRequest = ask,
  options: TransportOptions = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<Played> {
  const pieces = typeof stream === 'string' ? [new TextEncoder().encode(stream)] : stream
  return run(createHttpModel(config({ api }), { ...options, fetch: fetchOf(pieces, headers) }), request)
}

/** The pieces of `bytes` between the places, which may be in any order and more than once the same. */
export function cutAt(bytes: Uint8Array, places: readonly number[]): readonly Uint8Array[] {
  const ends = [...places, bytes.length].toSorted((a, b) => a - b)
  return ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end))
}

/** Server-sent events out of objects; the name is the object's type, if it has one. */
export function sse(...events: readonly (Readonly<Record<string, unknown>> | string)[]): string {
  return events
    .map((event) => {
      if (typeof event === 'string') return `data: ${event}\n\n`
      const name = typeof event['type'] === 'string' ? `event: ${event['type']}\n` : ''
      return `${name}data: ${JSON.stringify(event)}\n\n`
    })
    .join('')
}
