import { type Envelope, EnvelopeReader } from './envelope.ts'
import type { EntryLine, LineProblem } from './format.ts'
import { judgeJson, type Text, textOf } from './json-text.ts'
import type { RawLine, Slice } from './lines.ts'

/** A line's value, or why it has none; or the envelope of an entry whose message was not made: {@link remake} makes it. */
export type Parsed =
  | { readonly value: unknown }
  | { readonly envelope: Envelope }
  | { readonly problem: Omit<LineProblem, 'line'> }

type Content = NonNullable<RawLine['content']>

/** Parses the lines of one file, one after the other. That each is JSON is proven here, also where its message is made later. */
export class LineParser {
  readonly #envelopes = new EnvelopeReader()
  #text: Text = textOf(Buffer.alloc(0))

  parse(content: Content): Parsed {
    if (!content.utf8) return { problem: { code: 'not_utf8', message: 'the line is not valid UTF-8' } }
    const envelope = this.#envelope(content)
    if (envelope !== undefined) return { envelope }
    const value = parseText(content.buffer.toString('utf8', content.from, content.to))
    // The parser's own message quotes the line, which may hold anything.
    return value === undefined ? { problem: { code: 'not_json', message: 'the line is not valid JSON' } } : { value }
  }

  /** Of a line that ends with its message, as writers write most of them. */
  #envelope({ buffer, from, to }: Slice): Envelope | undefined {
    const envelope = this.#envelopes.read(buffer, from, to)
    if (envelope === undefined) return undefined
    const { messageAt } = envelope
    if (buffer[messageAt] !== 0x7b || buffer[to - 1] !== 0x7d) return undefined
    if (this.#text.bytes !== buffer) this.#text = textOf(buffer)
    return judgeJson(this.#text, messageAt, to - 1) === 'whole' ? envelope : undefined
  }
}

/** The entry that stands in bytes that were parsed before. */
export function remake({ buffer, from, to }: Slice): EntryLine {
  return JSON.parse(buffer.toString('utf8', from, to))
}

/** Undefined when it is no JSON text. */
function parseText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

/**
 * Whether a line that does not parse is what a write leaves that did not come to its end: the beginning of a JSON text,
 * be the cut inside of a character; or anything with zero bytes, which is how a block reads that power was lost for.
 */
export function isLeftover({ buffer, from, to }: Slice): boolean {
  const bytes = buffer.subarray(from, to)
  if (bytes.includes(0)) return true
  return judgeJson(textOf(bytes), 0, bytes.length) === 'cut' && beginsUtf8(bytes)
}

/** Whether bytes are UTF-8, or would be if they went on. */
function beginsUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
    return true
  } catch (error) {
    if (error instanceof TypeError) return false
    throw error
  }
}
