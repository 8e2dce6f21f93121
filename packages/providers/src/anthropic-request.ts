import type { ImagePart, JsonObject, ModelRequest, TextPart } from './model.ts'
import { normalise } from './normalise.ts'
import type { WireTurn } from './normalise.ts'
import { anthropicThinking } from './thinking.ts'
import { isAnthropic } from './wire.ts'
import type { HttpModelConfig } from './wire.ts'

const cached = { cache_control: { type: 'ephemeral' } } as const
type Message = { readonly role: 'user' | 'assistant'; readonly content: readonly JsonObject[] }

/**
 * The body of `POST /v1/messages`. Two cache marks: one ends what never changes (tools and system), one ends the
 * conversation so far, from which the next request reads.
 */
export function anthropicBody(request: ModelRequest, config: HttpModelConfig): JsonObject {
  const turns = normalise(request.messages, config, 64)
  const tools = request.tools.map(({ name, description, parameters }): JsonObject => ({
    name,
    description,
    input_schema: parameters,
  }))
  const last = tools.at(-1)
  const markTools = request.system.trim() === '' && last !== undefined
  return {
    model: config.modelId,
    [config.compat?.maxTokensField ?? 'max_tokens']: config.maxTokens,
    stream: true,
    ...(tools.length > 0 && { tools: markTools ? [...tools.slice(0, -1), { ...last, ...cached }] : tools }),
    ...(request.system.trim() !== '' && { system: [{ type: 'text', text: request.system, ...cached }] }),
    messages: markLast(alternate(turns.flatMap(messagesOf))),
    ...thinkingOf(request, config, turns),
  }
}

/** The version of the API, the key, and what lets a model that thinks by a budget think between its calls as well. */
export function anthropicHeaders(
  apiKey: string | undefined,
  model: HttpModelConfig | undefined,
): Readonly<Record<string, string>> {
  return {
    'anthropic-version': '2023-06-01',
    ...(apiKey !== undefined && { 'x-api-key': apiKey }),
    // Other servers refuse a name that they do not know.
    ...(model?.reasoning && isAnthropic(model) && { 'anthropic-beta': 'interleaved-thinking-2025-05-14' }),
  }
}

function thinkingOf(request: ModelRequest, config: HttpModelConfig, turns: readonly WireTurn[]): JsonObject {
  if (!config.reasoning || config.compat?.supportsReasoningEffort === false || request.thinking === undefined) return {}
  const thinking = anthropicThinking(request.thinking, config.modelId, config.maxTokens, config.thinking)
  switch (thinking.mode) {
    case 'absent':
      return {}
    case 'disabled':
      return { thinking: { type: 'disabled' } }
    case 'adaptive':
      return { thinking: { type: 'adaptive', display: 'summarized' }, output_config: { effort: thinking.effort } }
    case 'budget':
      // With a budget the API wants an open tool loop to begin with a thought; one that another model began has none.
      return loopLacksThinking(turns) ? {} : { thinking: { type: 'enabled', budget_tokens: thinking.tokens } }
    default:
      return thinking satisfies never
  }
}

function loopLacksThinking(turns: readonly WireTurn[]): boolean {
  const first = turns[turns.findLastIndex((turn) => turn.role === 'user') + 1]
  return first?.role === 'assistant' && first.content[0]?.type !== 'reasoning'
}

function messagesOf(turn: WireTurn): readonly Message[] {
  if (turn.role === 'user') return [{ role: 'user', content: turn.content.map(blockOf) }]
  const content = turn.content.map((part): JsonObject => {
    switch (part.type) {
      case 'text':
        return { type: 'text', text: part.text }
      case 'reasoning':
        return part.item
      case 'toolCall':
        return { type: 'tool_use', id: part.id, name: part.name, input: part.arguments }
      default:
        return part satisfies never
    }
  })
  if (turn.results.length === 0) return [{ role: 'assistant', content }]
  const results = turn.results.map((result): JsonObject => {
    const content = result.content.filter((part) => part.type === 'image' || part.text.trim() !== '').map(blockOf)
    return {
      type: 'tool_result',
      tool_use_id: result.id,
      ...(content.length > 0 && { content }),
      ...(result.isError && { is_error: true }),
    }
  })
  return [
    { role: 'assistant', content },
    { role: 'user', content: results },
  ]
}

/** One message a side in turn, the user's first: results and what the user says after them are one message. */
function alternate(messages: readonly Message[]): readonly Message[] {
  const out: Message[] =
    messages[0]?.role === 'assistant' ? [{ role: 'user', content: [{ type: 'text', text: '(continued)' }] }] : []
  for (const message of messages) {
    const before = out.at(-1)
    if (before?.role === message.role)
      out[out.length - 1] = { ...before, content: [...before.content, ...message.content] }
    else out.push(message)
  }
  return out
}

/** Marks the last block that may carry a mark (a thought may not). */
function markLast(messages: readonly Message[]): readonly Message[] {
  const last = messages.at(-1)
  if (last === undefined) return messages
  const at = last.content.findLastIndex(
    (block) => block['type'] !== 'thinking' && block['type'] !== 'redacted_thinking',
  )
  const content = last.content.map((block, index) => (index === at ? { ...block, ...cached } : block))
  return [...messages.slice(0, -1), { ...last, content }]
}

function blockOf(part: TextPart | ImagePart): JsonObject {
  return part.type === 'text'
    ? { type: 'text', text: part.text }
    : { type: 'image', source: { type: 'base64', media_type: part.mimeType, data: part.data } }
}
