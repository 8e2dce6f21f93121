import type { AssistantMessage, ImagePart, Message, TextPart, ToolCallPart } from '@reve/providers/model'
import { endOfTokens, estimateText } from './estimate.ts'
import { boundContent } from './settle.ts'

/** Bounds of a transcript, in characters. */
export type TranscriptOptions = {
  /** Of a tool's result beginning and end stay. Default 2000. */
  readonly toolResultChars?: number
  /** The same for the arguments of a call. Default 2000. */
  readonly argumentChars?: number
}

/**
 * A conversation as text for a summary, one piece a message, each ending in a line break: sent as messages, calls would
 * need their tools declared. Reasoning is left out, an image is its type only, calls stand as `name(arguments)`.
 *
 * Pieces are set off by `<turn>` and `<call>`. No text in the conversation can be taken for one of these, nor for the end
 * of the block that the pieces stand in: see {@link escapeTags}.
 */
export function transcriptPieces(messages: readonly Message[], options: TranscriptOptions = {}): readonly string[] {
  const { toolResultChars = 2000, argumentChars = 2000 } = options
  return messages.map((message) => {
    switch (message.role) {
      case 'user':
        return turn('user', contentText(message.content))
      case 'assistant':
        return turn('assistant', answerText(message, argumentChars))
      case 'toolResult': {
        const state = message.interrupted === true ? ', interrupted' : message.isError ? ', error' : ''
        const content = boundContent(message.content, toolResultChars)
        return turn(`tool ${plainName(message.toolName)}${state}`, contentText(content))
      }
      default:
        return message satisfies never
    }
  })
}

function turn(by: string, text: string): string {
  return `<turn by="${by}">\n${text}\n</turn>\n`
}

function contentText(content: readonly (TextPart | ImagePart)[]): string {
  return content
    .map((part) => (part.type === 'text' ? escapeTags(part.text) : `[image ${plainName(part.mimeType)}]`))
    .join('\n')
}

function answerText(message: AssistantMessage, argumentChars: number): string {
  return message.content
    .flatMap((part) => {
      switch (part.type) {
        case 'text':
          return [escapeTags(part.text)]
        case 'reasoning':
          return []
        case 'toolCall':
          return [callText(part, argumentChars)]
        default:
          return part satisfies never
      }
    })
    .join('\n')
}

function callText(call: ToolCallPart, argumentChars: number): string {
  const raw = 'malformed' in call ? call.malformed : JSON.stringify(call.arguments)
  const args = contentText(boundContent([{ type: 'text', text: raw }], argumentChars))
  return `<call>${plainName(call.name)}(${args})</call>`
}

/** A name as a model or a file gave it, without what could end the place where it stands. */
function plainName(name: string): string {
  return name
    .slice(0, 100)
    .toWellFormed()
    .replaceAll(/[^\p{L}\p{N}_.:/+-]/gu, '_')
}

const blockTags = /<(?=[\s/]*(?:conversation|previous_summary)\b)/giu
const allTags = /<(?=[\s/]*(?:turn|call|conversation|previous_summary)\b)/giu

/** Text from a conversation, with the tags of a summary request in it made harmless: their `<` becomes `&lt;`. */
export function escapeTags(text: string): string {
  return text.replaceAll(allTags, '&lt;')
}

/** The same for a text that has turns and calls of its own: only the blocks around it cannot be ended. */
export function escapeBlockTags(text: string): string {
  return text.replaceAll(blockTags, '&lt;')
}

/** Below this a chunk would hold less of the conversation than of the words around it. */
const smallestChunk = 500

/**
 * Joins pieces into chunks of at most `maxTokens` each (500 at least), by estimate. A piece that is too large alone is
 * split between code points. All chunks joined are all pieces joined, so chunks can be chunked again.
 */
export function chunkPieces(pieces: readonly string[], maxTokens: number): readonly string[] {
  const limit = Math.max(smallestChunk, Number.isNaN(maxTokens) ? 0 : Math.floor(maxTokens))
  const chunks: string[] = []
  let chunk: string[] = []
  let tokens = 0
  for (const part of pieces.flatMap((piece) => split(piece, limit))) {
    const more = estimateText(part)
    if (tokens + more > limit) {
      chunks.push(chunk.join(''))
      chunk = []
      tokens = 0
    }
    chunk.push(part)
    tokens += more
  }
  return tokens > 0 ? [...chunks, chunk.join('')] : chunks
}

function split(piece: string, tokens: number): readonly string[] {
  const parts: string[] = []
  for (let from = 0; from < piece.length;) {
    const end = endOfTokens(piece, from, tokens)
    parts.push(piece.slice(from, end))
    from = end
  }
  return parts
}
