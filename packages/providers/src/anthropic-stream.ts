import * as v from 'valibot'
import type { Answer, CallSlot, ReasoningSlot, TextSlot } from './answer.ts'
import { anyObject, readEvent, text, tokens, typed } from './events.ts'
import { parseServerError, protocolError } from './failure.ts'
import type { JsonObject, Usage } from './model.ts'
import { usageOf } from './usage.ts'
import type { WireEvent } from './wire.ts'

const usage = v.nullish(
  v.object({
    input_tokens: tokens,
    cache_read_input_tokens: tokens,
    cache_creation_input_tokens: tokens,
    output_tokens: tokens,
    output_tokens_details: v.nullish(v.object({ thinking_tokens: tokens })),
  }),
)
const messageStart = v.object({ message: v.object({ usage }) })
const blockStart = v.object({
  index: v.number(),
  content_block: v.object({
    type: v.string(),
    text,
    thinking: text,
    signature: v.nullish(v.string()),
    data: text,
    id: text,
    name: text,
    input: v.nullish(anyObject),
  }),
})
const blockDelta = v.object({
  index: v.number(),
  delta: v.object({ type: v.string(), text, thinking: text, signature: text, partial_json: text }),
})
const blockStop = v.object({ index: v.number() })
const messageDelta = v.object({ delta: v.nullish(v.object({ stop_reason: v.nullish(v.string()) })), usage })

type Block =
  | { readonly type: 'text'; readonly slot: TextSlot }
  | { readonly type: 'thinking'; readonly slot: ReasoningSlot; signature: string | undefined }
  | { readonly type: 'call'; readonly slot: CallSlot; readonly input: JsonObject | undefined }
  | { readonly type: 'other' }

/** Reads the events of Anthropic Messages. */
export function anthropicReader(answer: Answer): (event: WireEvent) => void {
  const blocks = new Map<number, Block>()
  let counts: Partial<Usage> = {}

  /** Counts are cumulative: a later one replaces, an absent one keeps. */
  const count = (given: v.InferOutput<typeof usage>): void => {
    if (!given) return
    const next = {
      input: given.input_tokens,
      cacheRead: given.cache_read_input_tokens,
      cacheWrite: given.cache_creation_input_tokens,
      output: given.output_tokens,
      reasoning: given.output_tokens_details?.thinking_tokens,
    }
    counts = { ...counts, ...Object.fromEntries(Object.entries(next).filter(([, n]) => typeof n === 'number')) }
    answer.usage = usageOf(counts)
  }

  const start = ({ index, content_block: block }: v.InferOutput<typeof blockStart>): Block => {
    switch (block.type) {
      case 'text': {
        const slot = answer.openText(index)
        answer.append(slot, block.text ?? '')
        return { type: 'text', slot }
      }
      case 'thinking': {
        const slot = answer.openReasoning(index)
        answer.append(slot, block.thinking ?? '')
        return { type: 'thinking', slot, signature: block.signature ?? undefined }
      }
      case 'redacted_thinking': {
        const slot = answer.openReasoning(index)
        if (block.data) slot.opaque = { 'anthropic-messages': { type: 'redacted_thinking', data: block.data } }
        return { type: 'other' }
      }
      case 'tool_use': {
        const input = block.input && Object.keys(block.input).length > 0 ? block.input : undefined
        return { type: 'call', slot: answer.openCall(block.id ?? '', block.name ?? '', true, index), input }
      }
      default:
        return { type: 'other' }
    }
  }

  const extend = (block: Block, delta: v.InferOutput<typeof blockDelta>['delta']): void => {
    if (block.type === 'text' && delta.type === 'text_delta') answer.append(block.slot, delta.text ?? '')
    if (block.type === 'thinking' && delta.type === 'thinking_delta') answer.append(block.slot, delta.thinking ?? '')
    if (block.type === 'thinking' && delta.type === 'signature_delta') {
      block.signature = (block.signature ?? '') + (delta.signature ?? '')
    }
    if (block.type === 'call' && delta.type === 'input_json_delta') {
      answer.appendArguments(block.slot, delta.partial_json ?? '')
    }
  }

  const stop = (block: Block): void => {
    // Without a signature the thought cannot go back: the API would refuse it for ever.
    if (block.type === 'thinking' && block.signature) {
      const item: JsonObject = { type: 'thinking', thinking: block.slot.text, signature: block.signature }
      block.slot.opaque = { 'anthropic-messages': item }
    }
    // Some servers give a call whole, in the start of its block.
    if (block.type === 'call' && block.slot.raw === '' && block.input) {
      answer.appendArguments(block.slot, JSON.stringify(block.input))
    }
  }
  /** A call that a server leaves open at the end has what came of it. A thought does not: half of a signature is none. */
  const settle = (type: 'settled' | 'done', end: 'stop' | 'length'): void => {
    for (const block of blocks.values()) if (block.type === 'call') stop(block)
    answer.settle(type, end)
  }

  return ({ name, data }) => {
    const type = readEvent(typed, data).type || (name ?? '')
    switch (type) {
      case 'message_start':
        return count(readEvent(messageStart, data).message.usage)
      case 'content_block_start': {
        const event = readEvent(blockStart, data)
        blocks.set(event.index, start(event))
        return
      }
      case 'content_block_delta': {
        const { index, delta } = readEvent(blockDelta, data)
        const block = blocks.get(index)
        if (block === undefined) return answer.fail(protocolError(`a piece of block ${index} came before its start`))
        return extend(block, delta)
      }
      case 'content_block_stop': {
        const block = blocks.get(readEvent(blockStop, data).index)
        if (block?.type === 'call') block.slot.unfinished = false
        return block && stop(block)
      }
      case 'message_delta': {
        const event = readEvent(messageDelta, data)
        count(event.usage)
        const reason = event.delta?.stop_reason
        if (reason === 'refusal') return answer.fail({ message: 'the model refused to answer', as: 'refused' })
        if (reason) settle('settled', isLength(reason) ? 'length' : 'stop')
        return
      }
      case 'message_stop':
        // Without a reason before it, this alone is the server's word that the message is whole.
        return settle('done', answer.state.type === 'settled' ? answer.state.stop : 'stop')
      case 'error':
        return answer.fail(parseServerError(data) ?? { message: 'the server reported an error without a message' })
      default:
    }
  }
}

function isLength(reason: string): boolean {
  return reason === 'max_tokens' || reason === 'model_context_window_exceeded'
}
