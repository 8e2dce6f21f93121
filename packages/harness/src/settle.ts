import type {
  AssistantMessage,
  ImagePart,
  Message,
  Model,
  TextPart,
  ToolCallPart,
  ToolResultMessage,
  Usage,
} from '@reve/providers/model'
import { costOf } from '@reve/providers/model'
import type { Draft } from '@reve/session-log'
import { record, toJson } from './records.ts'

/** The entry of a message; `parentId` only where it is not the lane's leaf. */
export function messageEntry(
  lane: string,
  id: string | undefined,
  message: Message,
  more: { readonly parentId?: string | null; readonly terminate?: boolean } = {},
): Draft {
  return {
    kind: 'entry',
    lane,
    type: 'message',
    ...(id !== undefined && { id }),
    ...(more.parentId !== undefined && { parentId: more.parentId }),
    // Whether the run may end on this result has to survive a crash between the result and the end.
    payload: { message: toJson(message), ...(more.terminate === true && { terminate: true }) },
  }
}

/** The record of what a settled request used; null when the server reported nothing. */
export function usageRecord(
  lane: string,
  runId: string,
  entryId: string,
  usage: Usage | undefined,
  model: Model,
): { readonly draft: Draft; readonly cost?: number } {
  const cost = usage && model.price ? { cost: costOf(usage, model.price) } : {}
  return { draft: record(lane, 'usage', { runId, entryId, usage: usage ?? null, ...cost }), ...cost }
}

/** Tokens added up. */
export function addUsage(a: Usage, b: Usage): Usage {
  return {
    input: a.input + b.input,
    cacheRead: a.cacheRead + b.cacheRead,
    cacheWrite: a.cacheWrite + b.cacheWrite,
    output: a.output + b.output,
    reasoning: a.reasoning + b.reasoning,
  }
}

/** No tokens. */
export const noUsage: Usage = { input: 0, cacheRead: 0, cacheWrite: 0, output: 0, reasoning: 0 }

/** An answer as it is kept: the model's name is ours to say, and no two calls in it share an id. */
export function settledAnswer(message: AssistantMessage, modelId: string): AssistantMessage {
  const taken = new Set<string>()
  const content = message.content.map((part) => {
    if (part.type !== 'toolCall') return part
    let id = part.id
    for (let n = 2; id === '' || taken.has(id); n++) id = `${part.id}_${n}`
    taken.add(id)
    return id === part.id ? part : { ...part, id }
  })
  return { ...message, model: modelId, content }
}

/** A result whose text is ours. */
export function noteResult(
  call: Pick<ToolCallPart, 'id' | 'name'>,
  text: string,
  options: { readonly interrupted?: boolean } = {},
): ToolResultMessage {
  return {
    role: 'toolResult',
    toolCallId: call.id,
    toolName: call.name,
    content: [{ type: 'text', text }],
    isError: true,
    ...(options.interrupted === true && { interrupted: true }),
  }
}

/** Base64 characters of images that one tool result may keep, unless the limits say otherwise. */
export const defaultImageChars = 5_000_000

/** What each part after the first counts more than its characters: many small parts are large too. */
const partChars = 30
const longestMimeType = 100

/**
 * Bounds a result. Of its text beginning and end stay and the middle is counted; once there is no room left, one note
 * counts the rest. An image beyond `imageLimit` (characters of base64, all images together) becomes a note. Each part
 * after the first counts 30 characters more. Cuts between code points.
 */
export function boundContent(
  content: readonly (TextPart | ImagePart)[],
  limit: number,
  imageLimit: number = defaultImageChars,
): readonly (TextPart | ImagePart)[] {
  const kept: (TextPart | ImagePart)[] = []
  let left = limit
  let imagesLeft = imageLimit
  let noteAt = 0
  const dropped = { parts: 0, characters: 0 }
  for (const part of content) {
    const frame = kept.length === 0 ? 0 : partChars
    if (part.type === 'image') {
      const cost = part.data.length + frame
      if (cost <= imagesLeft && part.mimeType.length <= longestMimeType) {
        imagesLeft -= cost
        kept.push(part)
        continue
      }
    }
    const text = part.type === 'text' ? part.text : leftOut(part)
    if (left <= 0 || (frame > 0 && left <= frame)) {
      if (dropped.parts === 0) noteAt = kept.length
      dropped.parts += 1
      dropped.characters += part.type === 'text' ? text.length : part.data.length
      continue
    }
    left -= frame
    kept.push({ type: 'text', text: part.type === 'text' ? boundText(text, left) : text })
    left -= text.length
  }
  if (dropped.characters === 0) return kept
  const parts = dropped.parts === 1 ? '1 more part' : `${dropped.parts} more parts`
  return kept.toSpliced(noteAt, 0, {
    type: 'text',
    text: `[… ${parts} left out: ${dropped.characters} characters …]`,
  })
}

function leftOut({ mimeType, data }: ImagePart): string {
  return `[image ${mimeType.slice(0, longestMimeType).toWellFormed()} left out: ${data.length} characters]`
}

function boundText(text: string, limit: number): string {
  if (text.length <= limit) return text
  const head = pairSafe(text, Math.ceil((limit * 2) / 3))
  const tail = pairSafe(text, text.length - Math.floor(limit / 3))
  return `${text.slice(0, head)}\n[… ${tail - head} characters left out …]\n${text.slice(tail)}`
}

function pairSafe(text: string, cut: number): number {
  const next = text.charCodeAt(cut)
  return next >= 0xdc00 && next <= 0xdfff ? cut - 1 : cut
}
