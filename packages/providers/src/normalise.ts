import { createHash } from 'node:crypto'
import type {
  AssistantMessage,
  ImagePart,
  Json,
  JsonObject,
  Message,
  ReasoningPart,
  TextPart,
  ToolCallPart,
} from './model.ts'
import { wellFormed } from './well-formed.ts'
import type { Api, HttpModelConfig } from './wire.ts'

/** A call as it goes back over a wire: its arguments are an object, whatever the model wrote. */
type WireCall = {
  readonly type: 'toolCall'
  readonly id: string
  readonly name: string
  readonly arguments: JsonObject
}
/** `item` is what the API itself gave. */
type WireReasoning = { readonly type: 'reasoning'; readonly item: JsonObject }
export type WireResult = {
  readonly id: string
  readonly name: string
  /** Never empty. */
  readonly content: readonly (TextPart | ImagePart)[]
  readonly isError: boolean
}
/** One step of a conversation that every API accepts. */
export type WireTurn =
  | { readonly role: 'user'; readonly content: readonly (TextPart | ImagePart)[] }
  | {
      readonly role: 'assistant'
      readonly content: readonly (TextPart | WireReasoning | WireCall)[]
      /** One for each call of `content`, in its order. */
      readonly results: readonly WireResult[]
    }

/**
 * The conversation in the form that the APIs demand. The caller's projection should already be so; here nothing is
 * assumed, because one bad message would make the server refuse every later request of a session:
 * each call has exactly one result, directly after its answer (a missing one says that the outcome is unknown, one
 * without a call is dropped); nothing is empty; ids are unique and fit the API; reasoning stays only with the model
 * that wrote it; the calls and the reasoning of an aborted answer are dropped.
 *
 * @param reader the model that will read it, and its API.
 * @param longestId longest id of a call that the API takes; characters beyond `A-Za-z0-9_-` are replaced.
 */
export function normalise(messages: readonly Message[], reader: Reader, longestId: number): readonly WireTurn[] {
  const turns: WireTurn[] = []
  const usedIds = new Set<string>()
  for (const [at, message] of messages.entries()) {
    if (message.role === 'user') {
      const content = message.content.filter((part) => part.type === 'image' || !isBlank(part.text))
      if (content.length > 0) turns.push({ role: 'user', content })
    } else if (message.role === 'assistant') {
      const turn = assistantTurn(message, resultsAfter(messages, at), reader, (id) => uniqueId(id, longestId, usedIds))
      if (turn.content.length > 0) turns.push(turn)
    }
  }
  if (turns.length === 0) turns.push({ role: 'user', content: [{ type: 'text', text: '(empty)' }] })
  return turns
}

/** What an API calls an empty conversation is refused: then something stands for it. */
export const orEmpty = <T>(items: readonly T[], stand: T): readonly T[] => (items.length === 0 ? [stand] : items)

type Reader = Pick<HttpModelConfig, 'api' | 'provider' | 'modelId'>
type Results = ReadonlyMap<string, Extract<Message, { role: 'toolResult' }>>

/** The results up to the next answer; a steer that stands between is stepped over. Of two for one call the first counts. */
function resultsAfter(messages: readonly Message[], at: number): Results {
  const results = new Map<string, Extract<Message, { role: 'toolResult' }>>()
  for (let next = at + 1; next < messages.length; next++) {
    const message = messages[next]
    if (message === undefined || message.role === 'assistant') break
    if (message.role === 'toolResult' && !results.has(message.toolCallId)) results.set(message.toolCallId, message)
  }
  return results
}

function assistantTurn(
  message: AssistantMessage,
  found: Results,
  reader: Reader,
  idFor: (id: string) => string,
): Extract<WireTurn, { role: 'assistant' }> {
  const aborted = message.stopReason === 'aborted'
  const content: (TextPart | WireReasoning | WireCall)[] = []
  const results: WireResult[] = []
  for (const part of message.content) {
    switch (part.type) {
      case 'text':
        if (!isBlank(part.text)) content.push(part)
        break
      case 'reasoning':
        if (!aborted && message.model === `${reader.provider}/${reader.modelId}`)
          content.push(...itemOf(part, reader.api))
        break
      case 'toolCall': {
        if (aborted) break
        const id = idFor(part.id)
        content.push({ type: 'toolCall', id, name: part.name, arguments: argumentsOf(part) })
        const result = found.get(part.id)
        const parts = result?.content.filter((item) => item.type === 'image' || item.text !== '') ?? []
        const text = result === undefined ? 'Interrupted: the outcome of this call is unknown.' : '(no output)'
        results.push({
          id,
          name: part.name,
          content: parts.length > 0 ? parts : [{ type: 'text', text }],
          isError: result?.isError ?? true,
        })
        break
      }
      default:
        part satisfies never
    }
  }
  return { role: 'assistant', content, results }
}

/**
 * An API takes only an object here, so text that is none is wrapped in one; the model sees what it wrote. Two of the APIs
 * carry the object as JSON within JSON, where half a character would be escaped and pass unseen: it is mended here.
 */
function argumentsOf(call: ToolCallPart): JsonObject {
  return wellFormed('malformed' in call ? { malformed_arguments: call.malformed } : call.arguments)
}

function uniqueId(id: string, longest: number, used: Set<string>): string {
  const fits = id !== '' && id.length <= longest && /^[A-Za-z0-9_-]+$/.test(id)
  let wireId = fits ? id : `${id.replace(/[^A-Za-z0-9_-]/g, '_').slice(0, longest - 9)}_${digest(id)}`
  for (let n = 2; used.has(wireId); n++) wireId = `${wireId.slice(0, longest - 9)}_${digest(`${id}\0${n}`)}`
  used.add(wireId)
  return wireId
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8)
}

function itemOf(part: ReasoningPart, api: Api): readonly WireReasoning[] {
  const item = part.opaque?.[api]
  return isObject(item) ? [{ type: 'reasoning', item }] : []
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isBlank(text: string): boolean {
  return text.trim() === ''
}
