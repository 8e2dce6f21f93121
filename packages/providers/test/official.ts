import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { LengthFinishReasonError } from 'openai/error'
import type { ChatCompletionSnapshot } from 'openai/lib/ChatCompletionStream'
import type { Api, AssistantMessage } from '../src/index.ts'
import { fetchOf } from './play.ts'

/** What two readers of one stream have to agree on. Arguments are a value, or the text that came where that is none. */
export type Read = {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly { readonly id: string; readonly name: string; readonly arguments: unknown }[]
  readonly stop: 'stop' | 'length' | 'toolUse'
  /** Input without cached, cached, output; nothing where the server counted nothing. */
  readonly usage: readonly number[]
}

/** What we made of a stream. */
export function readOf({ content, stopReason, usage }: AssistantMessage): Read {
  if (stopReason === 'aborted') throw new Error('aborted')
  return {
    text: content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(''),
    reasoning: content.flatMap((part) => (part.type === 'reasoning' ? [part.text] : [])).join(''),
    calls: content.flatMap((part) =>
      part.type === 'toolCall'
        ? [{ id: part.id, name: part.name, arguments: 'malformed' in part ? part.malformed : part.arguments }]
        : [],
    ),
    stop: stopReason,
    usage: usage === undefined ? [] : [usage.input, usage.cacheRead, usage.output],
  }
}

/** Of ours what the official client shows as well: that of Chat Completions knows no thoughts. */
export const comparable = (api: Api, read: Read): Read =>
  api === 'openai-completions' ? { ...read, reasoning: '' } : read

/** What the official client of each API makes of a stream. It throws where it refuses one. */
export const official: Readonly<Record<Api, (stream: Uint8Array) => Promise<Read>>> = {
  'openai-completions': async (stream) => {
    const reading = openai(stream).chat.completions.stream({
      model: 'm',
      messages: [],
      stream_options: { include_usage: true },
    })
    let last: ChatCompletionSnapshot | undefined
    let usage: OpenAI.CompletionUsage | undefined
    reading.on('chunk', (chunk, snapshot) => {
      last = snapshot
      usage = chunk.usage ?? usage
    })
    // It throws where the cap cut the answer, after it has read it.
    await reading.done().catch((error: unknown) => {
      if (!(error instanceof LengthFinishReasonError)) throw error
    })
    const choice = last?.choices[0]
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0
    const calls = (choice?.message.tool_calls ?? []).flatMap((call) =>
      call.type === 'function'
        ? [{ id: call.id, name: call.function.name, arguments: valueOf(call.function.arguments) }]
        : [],
    )
    return {
      text: `${choice?.message.content ?? ''}${choice?.message.refusal ?? ''}`,
      reasoning: '',
      calls,
      stop: stopOf(choice?.finish_reason === 'length', calls),
      usage: usage ? [usage.prompt_tokens - cached, cached, usage.completion_tokens] : [],
    }
  },
  'openai-responses': async (stream) => {
    const { output, status, usage } = await openai(stream).responses.stream({ model: 'm', input: 'x' }).finalResponse()
    const cached = usage?.input_tokens_details.cached_tokens ?? 0
    const calls = output.flatMap((item) =>
      item.type === 'function_call' ? [{ id: item.call_id, name: item.name, arguments: valueOf(item.arguments) }] : [],
    )
    return {
      text: output
        .flatMap((item) => (item.type === 'message' ? item.content : []))
        .map((part) => (part.type === 'output_text' ? part.text : part.refusal))
        .join(''),
      reasoning: output
        .flatMap((item) => (item.type === 'reasoning' ? [...item.summary, ...(item.content ?? [])] : []))
        .map(({ text }) => text)
        .join('\n\n'),
      calls,
      stop: stopOf(status === 'incomplete', calls),
      usage: usage ? [usage.input_tokens - cached, cached, usage.output_tokens] : [],
    }
  },
  'anthropic-messages': async (stream) => {
    const client = new Anthropic({
      apiKey: 'k',
      baseURL: 'http://127.0.0.1:1',
      maxRetries: 0,
      logLevel: 'off',
      fetch: fetchOf([stream]),
    })
    const answer = await client.messages.stream({ model: 'm', max_tokens: 10, messages: [] }).finalMessage()
    const calls = answer.content.flatMap((block) =>
      block.type === 'tool_use' ? [{ id: block.id, name: block.name, arguments: block.input }] : [],
    )
    const { usage } = answer
    return {
      text: answer.content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join(''),
      reasoning: answer.content.flatMap((block) => (block.type === 'thinking' ? [block.thinking] : [])).join(''),
      calls,
      stop: stopOf(['max_tokens', 'model_context_window_exceeded'].includes(answer.stop_reason ?? ''), calls),
      usage: [usage.input_tokens, usage.cache_read_input_tokens ?? 0, usage.output_tokens],
    }
  },
}

const openai = (stream: Uint8Array): OpenAI =>
  new OpenAI({ apiKey: 'k', baseURL: 'http://127.0.0.1:1', maxRetries: 0, logLevel: 'off', fetch: fetchOf([stream]) })

function stopOf(cut: boolean, calls: readonly unknown[]): Read['stop'] {
  if (cut) return 'length'
  return calls.length > 0 ? 'toolUse' : 'stop'
}

/** These clients hand text on; their users parse it. */
function valueOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
