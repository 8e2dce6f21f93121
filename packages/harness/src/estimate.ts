import type { Message, ToolSpec } from '@reve/providers/model'
import type { EntryLine } from '@reve/session-log'
import { readMessage } from './messages.ts'
import { project } from './project.ts'

/*
 * A tokenizer cuts text into pieces (a word, a number, a few symbols), and long pieces into parts. So a character costs
 * more where a piece begins than inside of one. The weights bring prose, code, JSON, hashes, base64, listings and the
 * larger languages to between 0.7 and 1.5 times the highest count of three public tokenizers; characters / 4 is too low
 * by up to 7 times outside of English prose. Where tokenizers differ by more (Greek, Thai), the estimate lies between.
 */
const space = 0
const line = 1
const lower = 2
const upper = 3
const digit = 4
const symbol = 5
/** Latin with marks, Greek, Cyrillic, Hebrew. */
const letter = 6
/** All above: the scripts of Asia, signs, each half of a pair. */
const wide = 7

// By kind, in hundredths of a token: whole numbers, so that sums are exact.
const first = Uint8Array.of(10, 60, 80, 90, 90, 80, 90, 100)
const inside = Uint8Array.of(10, 30, 10, 40, 40, 50, 50, 100)
/** A space or a symbol like the one before: indentation, rules of dashes. */
const again = 6

const asciiKinds = Uint8Array.from({ length: 128 }, (_, code) => {
  if (code === 0x20) return space
  if (code < 0x20 || code === 0x7f) return line
  if (code >= 0x61 && code <= 0x7a) return lower
  if (code >= 0x41 && code <= 0x5a) return upper
  return code >= 0x30 && code <= 0x39 ? digit : symbol
})

/**
 * Adds up `text` from `from` on while it stays within `limit` hundredths. What a character costs hangs on the one before
 * only and is highest at a beginning: two texts joined never cost more than both apart.
 */
function scan(text: string, from: number, limit: number): { readonly cost: number; readonly end: number } {
  let cost = 0
  let before = -1
  let kindBefore = -1
  for (let index = from; index < text.length; index++) {
    const code = text.charCodeAt(index)
    const kind = code < 128 ? (asciiKinds[code] ?? symbol) : code < 0x600 ? letter : wide
    const repeats = code === before && (kind === space || kind === symbol)
    const more = repeats ? again : ((goesOn(kindBefore, kind) ? inside : first)[kind] ?? 100)
    if (cost + more > limit) return { cost, end: index }
    cost += more
    before = code
    kindBefore = kind
  }
  return { cost, end: text.length }
}

/** Whether a character of that kind goes on with the piece of the one before it: `Word`, `naïve`, but not `camelCase`. */
function goesOn(before: number, kind: number): boolean {
  if (kind === before) return true
  return kind === lower ? before === upper || before === letter : kind === letter && before === lower
}

/**
 * The tokens of a text, estimated without a tokenizer (how well: see the top of this file). 0 for the empty text only;
 * never more for two texts joined than for both apart. Linear, a megabyte in some 10 ms.
 */
export function estimateText(text: string): number {
  return Math.ceil(scan(text, 0, Infinity).cost / 100)
}

/**
 * Where the longest part of `text` ends that begins at index `from` and is estimated at no more than `tokens`. Never
 * inside of a surrogate pair; at least one code point is taken, so that a loop over it ends.
 */
export function endOfTokens(text: string, from: number, tokens: number): number {
  const { end } = scan(text, from, tokens * 100)
  const whole = splitsPair(text, end) ? end - 1 : end
  if (whole > from) return whole
  return Math.min(text.length, from + (splitsPair(text, from + 1) ? 2 : 1))
}

function splitsPair(text: string, index: number): boolean {
  const [high, low] = [text.charCodeAt(index - 1), text.charCodeAt(index)]
  return high >= 0xd800 && high <= 0xdbff && low >= 0xdc00 && low <= 0xdfff
}

/** An image of any size: what the APIs make of the largest that they do not scale down, about. */
const imageTokens = 1200
/** Role and separators. */
const messageTokens = 4
/** The wire's frame around a call, its id included. */
const callTokens = 12

/**
 * The tokens of one message as it is sent. Reasoning counts by what goes back, its `opaque` item; without one it is for
 * display and costs nothing.
 */
export function estimateMessage(message: Message): number {
  return messageTokens + message.content.reduce((sum, part) => sum + estimatePart(part), 0)
}

type Part = Message['content'][number]

// Parts do not change, and a projection passes them on as they are: each is estimated once, however many turns follow.
const known = new WeakMap<Part, number>()

function estimatePart(part: Part): number {
  const before = known.get(part)
  if (before !== undefined) return before
  const tokens = countPart(part)
  known.set(part, tokens)
  return tokens
}

function countPart(part: Part): number {
  switch (part.type) {
    case 'text':
      return estimateText(part.text)
    case 'image':
      return imageTokens
    case 'reasoning':
      return part.opaque === undefined ? 0 : estimateText(JSON.stringify(part.opaque))
    case 'toolCall': {
      const args = 'malformed' in part ? part.malformed : JSON.stringify(part.arguments)
      return callTokens + estimateText(part.name) + estimateText(args)
    }
    default:
      return part satisfies never
  }
}

/** The tokens of some messages, by {@link estimateMessage}. */
export function estimateMessages(messages: readonly Message[]): number {
  return messages.reduce((sum, message) => sum + estimateMessage(message), 0)
}

/** The size of a request in tokens: as the server counted it, with estimates for what is new since; or all estimated. */
export type ContextTokens = { readonly tokens: number; readonly source: 'usage' | 'estimate' }

/**
 * How large the next request on `path` (root first) would be. The last answer since the newest compaction whose usage is
 * known counts for itself and all before it; what came later is estimated. An answer in the tail that the compaction kept
 * measured the old context and says nothing about this one, nor does one that was aborted.
 *
 * @throws HarnessError `corrupt_session`, as `project` does.
 */
export function contextTokens(
  path: readonly EntryLine[],
  parts: { readonly model: string; readonly system: string; readonly tools: readonly ToolSpec[] },
): ContextTokens {
  const { model, system, tools } = parts
  const since = path.slice(path.findLastIndex(({ type }) => type === 'compaction') + 1)
  const index = since.findLastIndex((entry) => measured(entry) !== undefined)
  const answer = since[index]
  const counted = answer && measured(answer)
  if (answer !== undefined && counted !== undefined) {
    // Projected from the answer on, so that its results find their calls; its own tokens are in its usage.
    const own = project([answer], { model }).length > 0 ? 1 : 0
    return { tokens: counted + estimateMessages(project(since.slice(index), { model }).slice(own)), source: 'usage' }
  }
  const declared = tools.length > 0 ? estimateText(JSON.stringify(tools)) : 0
  const messages = estimateMessages(project(path, { model }))
  return { tokens: estimateText(system) + declared + messages, source: 'estimate' }
}

/** What prompt and answer took together, by the server's own count. */
function measured(entry: EntryLine): number | undefined {
  const read = readMessage(entry)
  if (read.type !== 'message' || read.message.role !== 'assistant') return undefined
  const { stopReason, usage } = read.message
  if (stopReason === 'aborted' || usage === undefined) return undefined
  const prompt = usage.input + usage.cacheRead + usage.cacheWrite
  // Some servers report zeros, or the output alone. No prompt takes no tokens: that is no count.
  // Whole: it ends up in a record, and a server may count in fractions.
  return prompt > 0 ? Math.ceil(prompt + usage.output) : undefined
}
