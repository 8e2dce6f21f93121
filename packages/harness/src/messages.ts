import type {
  AssistantMessage,
  ImagePart,
  JsonObject,
  Message,
  TextPart,
  ToolCallPart,
  Usage,
} from '@reve/providers/model'
import { isEntry, type EntryLine, type Line } from '@reve/session-log'
import * as v from 'valibot'
import { wellFormed } from './clean.ts'

/** A JSON object: what stands in the log reads back as what was written. */
export const jsonObject = v.custom<JsonObject>(
  (value) => isPlainObject(value) && isJson(value, 0),
  'expected an object that JSON can say',
)

/** Somewhat less than the log itself takes: the object stands inside of a line. */
const deepest = 400

function isPlainObject(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  const proto: unknown = Object.getPrototypeOf(value)
  return proto === Object.prototype || proto === null
}

function isJson(value: unknown, depth: number): boolean {
  if (depth > deepest) return false
  if (typeof value === 'number') return Number.isFinite(value)
  if (typeof value !== 'object' || value === null) return value === null || ['string', 'boolean'].includes(typeof value)
  if (!Array.isArray(value) && !isPlainObject(value)) return false
  // A property that is undefined is left out, as JSON does; in a list it would become something else.
  if (Array.isArray(value)) return Array.from(value).every((item) => isJson(item, depth + 1))
  return Object.values(value).every((item) => item === undefined || isJson(item, depth + 1))
}
const textPart = v.object({ type: v.literal('text'), text: v.string() })
const imagePart = v.object({ type: v.literal('image'), mimeType: v.string(), data: v.string() })

/** What a person or a tool can say. */
export const contentSchema: v.GenericSchema<unknown, readonly (TextPart | ImagePart)[]> = v.array(
  v.variant('type', [textPart, imagePart]),
)

const count = v.pipe(v.number(), v.minValue(0))
/** Tokens. */
export const usageSchema: v.GenericSchema<unknown, Usage> = v.object({
  input: count,
  cacheRead: count,
  cacheWrite: count,
  output: count,
  reasoning: count,
})

const reasoningPart = v.object({
  type: v.literal('reasoning'),
  text: v.string(),
  opaque: v.exactOptional(jsonObject),
})
const callHead = { type: v.literal('toolCall'), id: v.string(), name: v.string() }
const answerPart = v.variant('type', [
  // A text's own mark of the API that it came by goes back with it.
  v.object({ type: v.literal('text'), text: v.string(), opaque: v.exactOptional(jsonObject) }),
  reasoningPart,
  v.object({ ...callHead, arguments: jsonObject }),
  v.object({ ...callHead, malformed: v.string() }),
])

/** What stands in a `message` entry whose role is `user`. */
export const userMessageSchema = v.object({ role: v.literal('user'), content: contentSchema })

/** What a model answers. */
export const assistantMessageSchema = v.object({
  role: v.literal('assistant'),
  model: v.string(),
  content: v.array(answerPart),
  stopReason: v.picklist(['stop', 'length', 'toolUse', 'aborted']),
  usage: v.exactOptional(usageSchema),
})

const toolResultSchema = v.object({
  role: v.literal('toolResult'),
  toolCallId: v.string(),
  toolName: v.string(),
  content: contentSchema,
  isError: v.boolean(),
  interrupted: v.exactOptional(v.literal(true)),
})

/** Any message. */
export const messageSchema: v.GenericSchema<unknown, Message> = v.variant('role', [
  userMessageSchema,
  assistantMessageSchema,
  toolResultSchema,
])

/** The message of an entry; `other` for entries that carry none, `invalid` with what is wrong. */
export type ReadMessage =
  | { readonly type: 'message'; readonly message: Message }
  | { readonly type: 'other' }
  | { readonly type: 'invalid'; readonly problem: string }

// Lines do not change: each is checked once, however often its path is projected.
const known = new WeakMap<EntryLine, ReadMessage>()

/** Reads the message of an entry, with every text well-formed. */
export function readMessage(entry: EntryLine): ReadMessage {
  const before = known.get(entry)
  if (before !== undefined) return before
  const read = parseEntry(entry)
  known.set(entry, read)
  return read
}

function parseEntry(entry: EntryLine): ReadMessage {
  if (entry.type !== 'message') return { type: 'other' }
  const result = v.safeParse(messageSchema, entry['message'], { abortEarly: true })
  if (!result.success) {
    const issue = result.issues[0]
    return { type: 'invalid', problem: `${v.getDotPath(issue) ?? 'message'}: ${issue.message}`.slice(0, 300) }
  }
  return { type: 'message', message: wellFormed(result.output) }
}

/** The message of a line, when it is an entry that carries a good one. */
export function messageOfLine(line: Line | undefined): Message | undefined {
  if (line === undefined || !isEntry(line)) return undefined
  const read = readMessage(line)
  return read.type === 'message' ? read.message : undefined
}

/** The calls of an answer, in source order. */
export function callsOf(message: AssistantMessage): readonly ToolCallPart[] {
  return message.content.filter((part) => part.type === 'toolCall')
}

/** The text of an answer, its parts joined. */
export function textOf(message: AssistantMessage): string {
  return message.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('')
}
