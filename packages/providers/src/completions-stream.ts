import * as v from 'valibot'
import type { Answer, ReasoningSlot, TextSlot } from './answer.ts'
import { CompletionsCalls } from './completions-calls.ts'
import { anyObject, readEvent, text, tokens } from './events.ts'
import { parseServerError } from './failure.ts'
import type { ServerError } from './failure.ts'
import type { JsonObject } from './model.ts'
import { detailText, joinDetail } from './reasoning-details.ts'
import { usageOf } from './usage.ts'
import type { WireEvent } from './wire.ts'

const usage = v.nullish(
  v.object({
    prompt_tokens: tokens,
    completion_tokens: tokens,
    total_tokens: tokens,
    prompt_tokens_details: v.nullish(v.object({ cached_tokens: tokens, cache_write_tokens: tokens })),
    prompt_cache_hit_tokens: tokens,
    cached_tokens: tokens,
    completion_tokens_details: v.nullish(v.object({ reasoning_tokens: tokens })),
  }),
)
const toolCall = v.object({
  index: v.nullish(v.number()),
  id: text,
  function: v.nullish(v.object({ name: text, arguments: v.nullish(v.union([v.string(), anyObject])) })),
  extra_content: v.nullish(anyObject),
})
/** Mistral's content, where it thinks. */
const contentPart = v.object({ text, thinking: v.nullish(v.array(v.object({ text }))) })
const delta = v.object({
  content: v.nullish(v.union([v.string(), v.array(contentPart)])),
  refusal: text,
  reasoning_content: text,
  reasoning: text,
  reasoning_details: v.nullish(v.array(anyObject)),
  tool_calls: v.nullish(v.array(toolCall)),
})
const choice = v.object({
  delta: v.nullish(delta),
  message: v.nullish(delta),
  finish_reason: v.nullish(v.string()),
  usage,
})
const chunk = v.object({
  object: v.nullish(v.string()),
  error: v.optional(v.unknown()),
  choices: v.nullish(v.array(choice)),
  usage,
  x_groq: v.nullish(v.object({ usage })),
})
type Delta = v.InferOutput<typeof delta>
type Piece = v.InferOutput<typeof toolCall>

/** Reads the chunks of OpenAI Chat Completions and of the many servers that imitate it. */
export function completionsReader(answer: Answer): (event: WireEvent) => void {
  const calls = new CompletionsCalls(answer)
  const thoughts = new Thoughts(answer)
  let said: TextSlot | undefined

  const say = (words: string | null | undefined): void => {
    if (!words) return
    said ??= answer.openText()
    answer.append(said, words)
  }
  const addCall = (piece: Piece): void => {
    const given = piece.function?.arguments
    const slot = calls.of({
      index: piece.index ?? undefined,
      id: piece.id ?? '',
      name: piece.function?.name ?? '',
      arguments: typeof given === 'string' ? given : '',
    })
    if (typeof given === 'string') answer.appendArguments(slot, given)
    else if (given) answer.completeArguments(slot, JSON.stringify(given))
    if (piece.extra_content) thoughts.addToCall(slot.index, piece.extra_content)
  }
  const add = (part: Delta): void => {
    // In a chunk that has both, the thought came first.
    thoughts.add(part)
    if (typeof part.content === 'string') say(part.content)
    for (const piece of Array.isArray(part.content) ? part.content : []) {
      thoughts.show((piece.thinking ?? []).map((thought) => thought.text ?? '').join(''))
      say(piece.text)
    }
    say(part.refusal)
    for (const piece of part.tool_calls ?? []) addCall(piece)
  }
  const finish = (reason: string): void => {
    thoughts.close()
    const broken = failures[reason]
    if (broken) return answer.fail(broken)
    answer.settle('settled', cuts.has(reason) ? 'length' : 'stop')
  }

  return ({ name, data }) => {
    if (data === '[DONE]') {
      // Some servers never give a reason; this mark alone says that the answer is whole.
      if (answer.state.type === 'open') finish('stop')
      if (answer.state.type === 'settled') answer.settle('done', answer.state.stop)
      return
    }
    const event = readEvent(chunk, data)
    if (event.error || event.object === 'error' || name === 'error') {
      return answer.fail(parseServerError(data) ?? { message: 'the server reported an error without a message' })
    }
    const first = event.choices?.[0]
    answer.usage = countsOf(event.usage ?? event.x_groq?.usage ?? first?.usage) ?? answer.usage
    if (first?.delta) add(first.delta)
    // The answer in one piece, of a server that does not stream; where it streamed, a repetition.
    if (first?.message && answer.isEmpty) add(first.message)
    if (first?.finish_reason) finish(first.finish_reason.toLowerCase())
  }
}

/** The thoughts of one answer, in the forms that servers have for them. One goes back under the name by which it came. */
class Thoughts {
  readonly #answer: Answer
  readonly #details: JsonObject[] = []
  readonly #ofCalls: JsonObject[] = []
  #slot: ReasoningSlot | undefined
  #field: 'reasoning_content' | 'reasoning' | undefined

  constructor(answer: Answer) {
    this.#answer = answer
  }

  add(part: Delta): void {
    const field = part.reasoning_content ? 'reasoning_content' : 'reasoning'
    const plain = part[field] ?? ''
    if (plain !== '') this.#field ??= field
    const details = part.reasoning_details ?? []
    for (const piece of details) joinDetail(this.#details, piece)
    this.show(plain === '' ? details.map(detailText).join('') : plain)
  }

  /** What Gemini signs a call with, and wants back with it. */
  addToCall(index: number, extra: JsonObject): void {
    this.#ofCalls.push({ index, extra_content: extra })
  }

  show(text: string): void {
    if (text === '') return
    this.#slot ??= this.#answer.openReasoning()
    this.#answer.append(this.#slot, text)
  }

  close(): void {
    const plain = this.#field !== undefined && this.#slot !== undefined ? { [this.#field]: this.#slot.text } : {}
    const item: JsonObject = {
      ...(this.#details.length > 0 ? { reasoning_details: this.#details } : plain),
      ...(this.#ofCalls.length > 0 && { tool_calls: this.#ofCalls }),
    }
    if (Object.keys(item).length === 0) return
    this.#slot ??= this.#answer.openReasoning(0)
    this.#slot.opaque = { 'openai-completions': item }
  }
}

/** The output cap or the window ended it. */
const cuts: ReadonlySet<string> = new Set([
  'length',
  'max_tokens',
  'max_length',
  'model_length',
  'model_context_window_exceeded',
])

const filtered: ServerError = { message: "the server's content filter stopped the answer", as: 'refused' }
/** Ends that are none: the answer is not whole, whatever has come. */
const failures: Readonly<Record<string, ServerError>> = {
  content_filter: filtered,
  safety: filtered,
  sensitive: filtered,
  prohibited_content: filtered,
  recitation: filtered,
  malformed_function_call: { message: 'the model wrote a tool call that its server could not read', as: 'server' },
  abort: { message: 'the server gave the answer up', as: 'server' },
  error: { message: 'the server stopped with an error', as: 'server' },
  network_error: { message: 'the server lost its own connection', as: 'server' },
  insufficient_system_resource: { message: 'the server ran out of resources', as: 'overloaded' },
}

function countsOf(given: v.InferOutput<typeof usage>): ReturnType<typeof usageOf> {
  if (!given) return undefined
  const cacheRead =
    given.prompt_tokens_details?.cached_tokens ?? given.prompt_cache_hit_tokens ?? given.cached_tokens ?? 0
  const cacheWrite = given.prompt_tokens_details?.cache_write_tokens ?? 0
  const prompt = given.prompt_tokens ?? 0
  const completion = given.completion_tokens ?? 0
  const reasoning = given.completion_tokens_details?.reasoning_tokens ?? 0
  // xAI counts reasoning beside the completion; the total tells.
  const beside = reasoning > 0 && given.total_tokens === prompt + completion + reasoning
  return usageOf({
    input: prompt - cacheRead - cacheWrite,
    cacheRead,
    cacheWrite,
    output: beside ? completion + reasoning : completion,
    reasoning,
  })
}
