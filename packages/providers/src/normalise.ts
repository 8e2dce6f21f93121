import { createHash } from 'node:crypto'
import type {
  AnswerTextPart,
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
import type { HttpModelConfig } from './wire.ts'

/** A call as it goes back over a wire: its arguments are an object, whatever the model wrote. */
type WireCall = {
  readonly type: 'toolCall'
  readonly id: string
  readonly name: string
  readonly arguments: JsonObject
}
/** `item` is what the API itself gave, and wants back. */
type WireText = { readonly type: 'text'; readonly text: string; readonly item?: JsonObject }
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
      readonly content: readonly (WireText | WireReasoning | WireCall)[]
      /** One for each call of `content`, in its order. */
      readonly results: readonly WireResult[]
    }

/**
 * The conversation in the form that the APIs demand. The caller's projection should already be so; here nothing is
 * assumed, because one bad message would make the server refuse every later request of a session:
 * each call has exactly one result, directly after its answer (a missing one says that the outcome is unknown, one
 * without a call is dropped); nothing is empty; ids are unique and fit the API, names of calls as well; reasoning stays only with the model
 * that wrote it; the calls and the reasoning of an aborted answer are dropped.
 *
 * @param reader the model that will read it, and its API.
 * @param longestId longest id of a call that the API takes; characters beyond `A-Za-z0-9_-` are replaced.
 * @param ownIds ids that stay as they are where the reader itself wrote them.
 */
export function normalise(
  messages: readonly Message[],
  reader: Reader,
  longestId: number,
  ownIds?: RegExp,
): readonly WireTurn[] {
  const turns: WireTurn[] = []
  const usedIds = new Set<string>()
  for (const [at, message] of messages.entries()) {
    if (message.role === 'user') {
      const content = message.content.filter((part) => part.type === 'image' || !isBlank(part.text))
      if (content.length > 0) turns.push({ role: 'user', content })
    } else if (message.role === 'assistant') {
      const own = message.model === nameOf(reader) ? ownIds : undefined
      const turn = assistantTurn(message, resultsAfter(messages, at), reader, (id) =>
        own?.test(id) === true && !usedIds.has(id) ? used(id, usedIds) : uniqueId(id, longestId, usedIds),
      )
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
  const itemOf = (part: AnswerTextPart | ReasoningPart): JsonObject | undefined => {
    const item = !aborted && message.model === nameOf(reader) ? part.opaque?.[reader.api] : undefined
    return isObject(item) ? item : undefined
  }
  const content: (WireText | WireReasoning | WireCall)[] = []
  const results: WireResult[] = []
  for (const part of message.content) {
    switch (part.type) {
      case 'text': {
        const item = itemOf(part)
        if (!isBlank(part.text)) content.push({ type: 'text', text: part.text, ...(item && { item }) })
        break
      }
      case 'reasoning': {
        const item = itemOf(part)
        if (item) content.push({ type: 'reasoning', item })
        break
      }
      case 'toolCall': {
        if (aborted) break
        const id = idFor(part.id)
        const name = wireName(part.name)
        content.push({ type: 'toolCall', id, name, arguments: argumentsOf(part) })
        const result = found.get(part.id)
        const parts = result?.content.filter((item) => item.type === 'image' || item.text !== '') ?? []
        const text = result === undefined ? 'Interrupted: the outcome of this call is unknown.' : '(no output)'
        results.push({
          id,
          name,
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

/** A model may call what no tool can be named; the APIs refuse such a name in the conversation as well. */
function wireName(name: string): string {
  return name.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 64)
}

function uniqueId(id: string, longest: number, usedIds: Set<string>): string {
  const fits = id !== '' && id.length <= longest && /^[A-Za-z0-9_-]+$/.test(id)
  let wireId = fits ? id : `${id.replace(/[^A-Za-z0-9_-]/g, '_').slice(0, longest - 9)}_${digest(id)}`
  for (let n = 2; usedIds.has(wireId); n++) wireId = `${wireId.slice(0, longest - 9)}_${digest(`${id}\0${n}`)}`
  return used(wireId, usedIds)
}

function used(id: string, usedIds: Set<string>): string {
  usedIds.add(id)
  return id
}

const nameOf = ({ provider, modelId }: Reader): string => `${provider}/${modelId}`

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8)
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isBlank(text: string): boolean {
  return text.trim() === ''
}
