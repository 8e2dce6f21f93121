import type { ImagePart, Json, JsonObject, ModelRequest, TextPart } from './model.ts'
import { normalise, orEmpty } from './normalise.ts'
import type { WireResult, WireTurn } from './normalise.ts'
import { effortToSend } from './thinking.ts'
import { isOpenAi } from './wire.ts'
import type { HttpModelConfig } from './wire.ts'

/** The body of `POST /chat/completions`, in the oldest form that the server is known to take: most of them are imitations. */
export function completionsBody(request: ModelRequest, config: HttpModelConfig): JsonObject {
  const openAi = isOpenAi(config)
  const { compat } = config
  // What its own ids look like is the server's business, and some models read them; but OpenAI's.
  const turns = normalise(request.messages, config, 40, openAi ? undefined : /^[!-~]{1,128}$/)
  const systemRole = (compat?.supportsDeveloperRole ?? openAi) ? 'developer' : 'system'
  const effort =
    config.reasoning && compat?.supportsReasoningEffort !== false
      ? effortToSend(request.thinking, config.thinking)
      : undefined
  return {
    model: config.modelId,
    messages: [
      ...(request.system === '' ? [] : [{ role: systemRole, content: request.system }]),
      ...orEmpty(turns.flatMap(messagesOf), { role: 'user', content: '(empty)' }),
    ],
    // Some servers refuse an empty list.
    ...(request.tools.length > 0 && {
      tools: request.tools.map(({ name, description, parameters }) => ({
        type: 'function',
        function: { name, description, parameters },
      })),
    }),
    stream: true,
    stream_options: { include_usage: true },
    ...((compat?.supportsStore ?? openAi) && { store: false }),
    ...(effort !== undefined && { reasoning_effort: effort }),
    ...(openAi && request.sessionId !== undefined && { prompt_cache_key: request.sessionId.slice(0, 64) }),
    [compat?.maxTokensField ?? (openAi ? 'max_completion_tokens' : 'max_tokens')]: config.maxTokens,
  }
}

function messagesOf(turn: WireTurn): readonly JsonObject[] {
  if (turn.role === 'user') return [{ role: 'user', content: contentOf(turn.content) }]
  const text = turn.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('')
  // Servers that give their thoughts want them back while tools are at work, and some refuse them elsewhere.
  const thought = turn.content.find((part) => part.type === 'reasoning')?.item
  const calls = turn.content
    .filter((part) => part.type === 'toolCall')
    .map((part, index): JsonObject => ({
      id: part.id,
      type: 'function',
      function: { name: part.name, arguments: JSON.stringify(part.arguments) },
      ...extraOf(thought, index),
    }))
  if (text === '' && calls.length === 0) return []
  const assistant: JsonObject = {
    role: 'assistant',
    content: text === '' ? null : text,
    ...(calls.length > 0 && { ...thought, tool_calls: calls }),
  }
  return [assistant, ...turn.results.map(toolMessage), ...imagesOf(turn.results)]
}

/** What came with a call and has to go back with it (`Thoughts.addToCall`). */
function extraOf(thought: JsonObject | undefined, index: number): JsonObject {
  const ofCalls = thought?.['tool_calls']
  if (!Array.isArray(ofCalls)) return {}
  const extra = (ofCalls as readonly JsonObject[]).find((call) => call['index'] === index)?.['extra_content']
  return extra === undefined ? {} : { extra_content: extra }
}

function toolMessage(result: WireResult): JsonObject {
  const text = result.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
  return { role: 'tool', tool_call_id: result.id, content: text === '' ? '(see the image below)' : text }
}

/** A tool message holds text only, so the images of all results follow them as the user's. */
function imagesOf(results: readonly WireResult[]): readonly JsonObject[] {
  const content = results.flatMap((result): readonly JsonObject[] => {
    const images = result.content.filter((part) => part.type === 'image')
    return images.length === 0 ? [] : [{ type: 'text', text: `Output of ${result.name}:` }, ...images.map(partOf)]
  })
  return content.length === 0 ? [] : [{ role: 'user', content }]
}

/** Plain text as a string: the form that every server takes. */
function contentOf(content: readonly (TextPart | ImagePart)[]): Json {
  const [first] = content
  return content.length === 1 && first?.type === 'text' ? first.text : content.map(partOf)
}

function partOf(part: TextPart | ImagePart): JsonObject {
  return part.type === 'text'
    ? { type: 'text', text: part.text }
    : { type: 'image_url', image_url: { url: `data:${part.mimeType};base64,${part.data}` } }
}
