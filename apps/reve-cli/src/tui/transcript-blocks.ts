import type { EntryLine } from '@reve/session-log'
import * as v from 'valibot'
import type { JsonObject } from '@reve/providers/model'
import type { UiBlock } from './block.ts'

const object = v.custom<JsonObject>((value) => typeof value === 'object' && value !== null && !Array.isArray(value))
const part = v.variant('type', [
  v.object({ type: v.literal('text'), text: v.string() }),
  v.object({ type: v.literal('image'), mimeType: v.string(), data: v.string() }),
])
const answerPart = v.variant('type', [
  v.object({ type: v.literal('text'), text: v.string() }),
  v.object({ type: v.literal('reasoning') }),
  v.object({ type: v.literal('toolCall'), id: v.string(), name: v.string(), arguments: v.optional(object) }),
])
const message = v.variant('role', [
  v.object({ role: v.literal('user'), content: v.array(part) }),
  v.object({ role: v.literal('assistant'), content: v.array(answerPart) }),
  v.object({
    role: v.literal('toolResult'),
    toolCallId: v.string(),
    toolName: v.string(),
    content: v.array(part),
    isError: v.boolean(),
    interrupted: v.optional(v.boolean()),
  }),
])

/** The entries of a conversation as blocks, as they were seen when they came. What is no message of ours is left out. */
export function transcriptBlocks(path: readonly EntryLine[]): readonly UiBlock[] {
  const calls = new Map<string, JsonObject>()
  return path.flatMap((entry): readonly UiBlock[] => {
    if (entry.type === 'compaction')
      return [{ type: 'notice', text: 'the older part of the conversation is a summary from here on', level: 'info' }]
    const read = v.safeParse(message, entry['message'])
    if (entry.type !== 'message' || !read.success) return []
    const said = read.output
    switch (said.role) {
      case 'user':
        return [{ type: 'user', text: textOf(said.content) }]
      case 'assistant': {
        const text = said.content.flatMap((piece) => (piece.type === 'text' ? [piece.text] : [])).join('')
        for (const piece of said.content) if (piece.type === 'toolCall') calls.set(piece.id, piece.arguments ?? {})
        return text.trim() === '' ? [] : [{ type: 'assistant', text }]
      }
      case 'toolResult': {
        const state = said.interrupted === true ? 'unknown' : said.isError ? 'failed' : 'ok'
        return [
          {
            type: 'tool',
            name: said.toolName,
            arguments: calls.get(said.toolCallId) ?? {},
            content: said.content,
            state,
          },
        ]
      }
      default:
        return said satisfies never
    }
  })
}

/** What a person said in these entries, in order: for the history of prompts. */
export const promptsOf = (path: readonly EntryLine[]): readonly string[] =>
  transcriptBlocks(path).flatMap((block) => (block.type === 'user' ? [block.text] : []))

const textOf = (parts: readonly v.InferOutput<typeof part>[]): string =>
  parts.map((piece) => (piece.type === 'text' ? piece.text : `[image, ${piece.mimeType}]`)).join('\n')
