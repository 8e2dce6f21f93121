import type { Api, Usage } from '../src/index.ts'
import { sse } from './play.ts'

/** What an answer says; `wellFormed` writes it down as a server does that keeps to its API in every field. */
export type Said = {
  readonly reasoning?: string
  readonly text?: string
  readonly calls: readonly {
    readonly id: string
    readonly name: string
    readonly arguments: Readonly<Record<string, unknown>>
  }[]
  readonly cut: boolean
  readonly usage: Usage
}

/** Pieces of at most three characters. */
const piecesOf = (text: string): readonly string[] => text.match(/[^]{1,3}/gu) ?? []

/** The events of `said`, as the documentation of each API has them. */
export function wellFormedStream(api: Api, said: Said): string {
  switch (api) {
    case 'openai-completions':
      return completions(said)
    case 'openai-responses':
      return responses(said)
    case 'anthropic-messages':
      return anthropic(said)
    default:
      return api satisfies never
  }
}

function completions({ text, calls, cut, usage }: Said): string {
  const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'test-model' }
  const chunk = (delta: object, finish_reason: string | null = null): Readonly<Record<string, unknown>> => ({
    ...head,
    choices: [{ index: 0, delta, finish_reason, logprobs: null }],
    usage: null,
  })
  return sse(
    chunk({ role: 'assistant', content: text === undefined ? null : '', refusal: null }),
    ...piecesOf(text ?? '').map((content) => chunk({ content })),
    ...calls.flatMap(({ id, name, arguments: given }, index) => [
      chunk({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }),
      ...piecesOf(JSON.stringify(given)).map((piece) =>
        chunk({ tool_calls: [{ index, function: { arguments: piece } }] }),
      ),
    ]),
    chunk({}, cut ? 'length' : calls.length > 0 ? 'tool_calls' : 'stop'),
    {
      ...head,
      choices: [],
      usage: {
        prompt_tokens: usage.input + usage.cacheRead,
        completion_tokens: usage.output,
        total_tokens: usage.input + usage.cacheRead + usage.output,
        prompt_tokens_details: { cached_tokens: usage.cacheRead, audio_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: usage.reasoning },
      },
    },
    '[DONE]',
  )
}

function responses({ reasoning, text, calls, cut, usage }: Said): string {
  let sequence_number = 0
  const event = (type: string, fields: object): Readonly<Record<string, unknown>> => ({
    type,
    sequence_number: sequence_number++,
    ...fields,
  })
  const whole = (status: string, output: readonly object[]): object => ({
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    model: 'test-model',
    status,
    output,
    error: null,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    parallel_tool_calls: true,
    tool_choice: 'auto',
    tools: [],
    usage:
      status === 'in_progress'
        ? null
        : {
            input_tokens: usage.input + usage.cacheRead,
            input_tokens_details: { cached_tokens: usage.cacheRead },
            output_tokens: usage.output,
            output_tokens_details: { reasoning_tokens: usage.reasoning },
            total_tokens: usage.input + usage.cacheRead + usage.output,
          },
  })
  const output: object[] = []
  const events: Readonly<Record<string, unknown>>[] = [
    event('response.created', { response: whole('in_progress', []) }),
  ]
  if (reasoning !== undefined) {
    const output_index = output.length
    const item = {
      type: 'reasoning',
      id: 'rs_1',
      summary: [{ type: 'summary_text', text: reasoning }],
      encrypted_content: 'ZW5j',
    }
    events.push(
      event('response.output_item.added', { output_index, item: { ...item, summary: [] } }),
      event('response.reasoning_summary_part.added', {
        output_index,
        item_id: 'rs_1',
        summary_index: 0,
        part: { type: 'summary_text', text: '' },
      }),
      ...piecesOf(reasoning).map((delta) =>
        event('response.reasoning_summary_text.delta', { output_index, item_id: 'rs_1', summary_index: 0, delta }),
      ),
      event('response.reasoning_summary_text.done', {
        output_index,
        item_id: 'rs_1',
        summary_index: 0,
        text: reasoning,
      }),
      event('response.output_item.done', { output_index, item }),
    )
    output.push(item)
  }
  if (text !== undefined) {
    const output_index = output.length
    const place = { output_index, item_id: 'msg_1', content_index: 0 }
    const part = { type: 'output_text', text, annotations: [], logprobs: [] }
    const item = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [part] }
    events.push(
      event('response.output_item.added', { output_index, item: { ...item, status: 'in_progress', content: [] } }),
      event('response.content_part.added', { ...place, part: { ...part, text: '' } }),
      ...piecesOf(text).map((delta) => event('response.output_text.delta', { ...place, delta, logprobs: [] })),
      event('response.output_text.done', { ...place, text, logprobs: [] }),
      event('response.content_part.done', { ...place, part }),
      event('response.output_item.done', { output_index, item }),
    )
    output.push(item)
  }
  for (const [index, { id, name, arguments: given }] of calls.entries()) {
    const output_index = output.length
    const item_id = `fc_${index}`
    const written = JSON.stringify(given)
    const item = { type: 'function_call', id: item_id, call_id: id, name, arguments: written, status: 'completed' }
    events.push(
      event('response.output_item.added', { output_index, item: { ...item, arguments: '', status: 'in_progress' } }),
      ...piecesOf(written).map((delta) =>
        event('response.function_call_arguments.delta', { output_index, item_id, delta }),
      ),
      event('response.function_call_arguments.done', { output_index, item_id, name, arguments: written }),
      event('response.output_item.done', { output_index, item }),
    )
    output.push(item)
  }
  const end = cut ? 'incomplete' : 'completed'
  return sse(...events, event(`response.${end}`, { response: whole(end, output) }))
}

function anthropic({ reasoning, text, calls, cut, usage }: Said): string {
  const blocks: { readonly start: object; readonly deltas: readonly object[] }[] = []
  if (reasoning !== undefined)
    blocks.push({
      start: { type: 'thinking', thinking: '', signature: '' },
      deltas: [
        ...piecesOf(reasoning).map((thinking) => ({ type: 'thinking_delta', thinking })),
        { type: 'signature_delta', signature: 'c2ln' },
      ],
    })
  if (text !== undefined)
    blocks.push({
      start: { type: 'text', text: '', citations: null },
      deltas: piecesOf(text).map((piece) => ({ type: 'text_delta', text: piece })),
    })
  for (const { id, name, arguments: given } of calls)
    blocks.push({
      start: { type: 'tool_use', id, name, input: {} },
      deltas: piecesOf(JSON.stringify(given)).map((partial_json) => ({ type: 'input_json_delta', partial_json })),
    })
  return sse(
    {
      type: 'message_start',
      message: {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        model: 'test-model',
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: {
          input_tokens: usage.input,
          cache_read_input_tokens: usage.cacheRead,
          cache_creation_input_tokens: usage.cacheWrite,
          output_tokens: 1,
        },
      },
    },
    { type: 'ping' },
    ...blocks.flatMap(({ start, deltas }, index) => [
      { type: 'content_block_start', index, content_block: start },
      ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
      { type: 'content_block_stop', index },
    ]),
    {
      type: 'message_delta',
      delta: { stop_reason: cut ? 'max_tokens' : calls.length > 0 ? 'tool_use' : 'end_turn', stop_sequence: null },
      usage: { output_tokens: usage.output },
    },
    { type: 'message_stop' },
  )
}
