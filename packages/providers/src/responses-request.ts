import type { ImagePart, JsonObject, ModelRequest, TextPart } from './model.ts'
import { normalise, orEmpty } from './normalise.ts'
import type { WireTurn } from './normalise.ts'
import { effortToSend } from './thinking.ts'
import type { HttpModelConfig } from './wire.ts'

/** The body of `POST /responses`: nothing is stored at the server, so reasoning travels encrypted with the conversation. */
export function responsesBody(request: ModelRequest, config: HttpModelConfig): JsonObject {
  const turns = normalise(request.messages, config, 64)
  const effort =
    config.reasoning && config.compat?.supportsReasoningEffort !== false
      ? effortToSend(request.thinking, config.thinking)
      : undefined
  return {
    model: config.modelId,
    ...(request.system !== '' && { instructions: request.system }),
    input: orEmpty(turns.flatMap(itemsOf), {
      type: 'message',
      role: 'user',
      content: [{ type: 'input_text', text: '(empty)' }],
    }),
    ...(request.tools.length > 0 && {
      tools: request.tools.map(({ name, description, parameters }) => ({
        type: 'function',
        name,
        description,
        parameters,
        strict: false,
      })),
    }),
    stream: true,
    ...(config.compat?.supportsStore !== false && { store: false }),
    ...(config.reasoning && { include: ['reasoning.encrypted_content'] }),
    ...(effort !== undefined && { reasoning: { effort } }),
    ...(request.sessionId !== undefined && { prompt_cache_key: request.sessionId.slice(0, 64) }),
    [config.compat?.maxTokensField ?? 'max_output_tokens']: config.maxTokens,
  }
}

function itemsOf(turn: WireTurn): readonly JsonObject[] {
  if (turn.role === 'user') return [{ type: 'message', role: 'user', content: turn.content.map(inputPart) }]
  const items = turn.content.flatMap((part, at): readonly JsonObject[] => {
    switch (part.type) {
      case 'text':
        // The form that the API takes without an id and a state, which only what it stores has.
        return [{ ...part.item, type: 'message', role: 'assistant', content: part.text }]
      case 'toolCall':
        return [{ type: 'function_call', call_id: part.id, name: part.name, arguments: JSON.stringify(part.arguments) }]
      case 'reasoning':
        // The API refuses reasoning that nothing follows.
        return turn.content.slice(at + 1).some((later) => later.type !== 'reasoning') ? [part.item] : []
      default:
        return part satisfies never
    }
  })
  return [
    ...items,
    ...turn.results.map((result) => ({
      type: 'function_call_output',
      call_id: result.id,
      output: outputOf(result.content),
    })),
  ]
}

function outputOf(content: readonly (TextPart | ImagePart)[]): string | readonly JsonObject[] {
  const texts = content.filter((part) => part.type === 'text')
  return texts.length === content.length ? texts.map((part) => part.text).join('\n') : content.map(inputPart)
}

function inputPart(part: TextPart | ImagePart): JsonObject {
  return part.type === 'text'
    ? { type: 'input_text', text: part.text }
    : { type: 'input_image', detail: 'auto', image_url: `data:${part.mimeType};base64,${part.data}` }
}
