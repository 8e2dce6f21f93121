import * as v from 'valibot'
import type { Answer, CallSlot, ReasoningSlot, TextSlot } from './answer.ts'
import { anyObject, readEvent, text, tokens } from './events.ts'
import { parseServerError } from './failure.ts'
import type { ServerError } from './failure.ts'
import { usageOf } from './usage.ts'
import type { WireEvent } from './wire.ts'

const usage = v.nullish(
  v.object({
    prompt_tokens: tokens,
    completion_tokens: tokens,
    total_tokens: tokens,
    prompt_tokens_details: v.nullish(v.object({ cached_tokens: tokens, cache_write_tokens: tokens })),
    prompt_cache_hit_tokens: tokens,
    completion_tokens_details: v.nullish(v.object({ reasoning_tokens: tokens })),
  }),
)
const toolCall = v.object({
  index: v.nullish(v.number()),
  id: text,
  function: v.nullish(v.object({ name: text, arguments: v.nullish(v.union([v.string(), anyObject])) })),
})
const delta = v.object({
  content: text,
  refusal: text,
  reasoning_content: text,
  reasoning: text,
  tool_calls: v.nullish(v.array(toolCall)),
})
const choice = v.object({ delta: v.nullish(delta), finish_reason: v.nullish(v.string()), usage })
const chunk = v.object({
  object: v.nullish(v.string()),
  error: v.optional(v.unknown()),
  choices: v.nullish(v.array(choice)),
  usage,
  x_groq: v.nullish(v.object({ usage })),
})
type Piece = v.InferOutput<typeof toolCall>

/** Reads the chunks of OpenAI Chat Completions and of the many servers that imitate it. */
export function completionsReader(answer: Answer): (event: WireEvent) => void {
  const calls: { readonly slot: CallSlot; readonly index: number | undefined }[] = []
  let said: TextSlot | undefined
  let thought: { readonly slot: ReasoningSlot; readonly field: string } | undefined

  const callOf = (piece: Piece): CallSlot => {
    const id = piece.id ?? ''
    const name = piece.function?.name ?? ''
    const index = piece.index ?? undefined
    const open = findCall(calls, index, id, name)
    if (open !== undefined) return open
    const slot = answer.openCall(id, name)
    calls.push({ slot, index })
    return slot
  }

  const addCall = (piece: Piece): void => {
    const slot = callOf(piece)
    if (slot.id === '') slot.id = piece.id ?? ''
    answer.nameCall(slot, piece.function?.name ?? '')
    const given = piece.function?.arguments
    if (typeof given === 'string') answer.appendArguments(slot, given)
    else if (given) answer.completeArguments(slot, JSON.stringify(given))
  }

  const addDelta = (part: v.InferOutput<typeof delta>): void => {
    // In a chunk that has both, the thought came first.
    const field = part.reasoning_content ? 'reasoning_content' : 'reasoning'
    const thinking = part[field] ?? ''
    if (thinking !== '') {
      thought ??= { slot: answer.openReasoning(), field }
      answer.append(thought.slot, thinking)
    }
    for (const words of [part.content, part.refusal]) {
      if (!words) continue
      said ??= answer.openText()
      answer.append(said, words)
    }
    for (const piece of part.tool_calls ?? []) addCall(piece)
  }
  const finish = (reason: string): void => {
    // A thought goes back under the name by which it came.
    if (thought) thought.slot.opaque = { 'openai-completions': { [thought.field]: thought.slot.text } }
    const broken = failures[reason]
    if (broken) return answer.fail(broken)
    const length = reason === 'length' || reason === 'max_tokens' || reason === 'model_length'
    answer.settle('settled', length ? 'length' : 'stop')
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
    if (first?.delta) addDelta(first.delta)
    if (first?.finish_reason) finish(first.finish_reason)
  }
}

/** Ends that are none: the answer is not whole, whatever has come. */
const failures: Readonly<Record<string, ServerError>> = {
  content_filter: { message: "the server's content filter stopped the answer", as: 'refused' },
  error: { message: 'the server stopped with an error', as: 'server' },
  network_error: { message: 'the server lost its own connection', as: 'server' },
  insufficient_system_resource: { message: 'the server ran out of resources', as: 'overloaded' },
}

/**
 * The call that a piece belongs to. Servers differ in what they leave out: by index; else by id; else the one before,
 * unless the piece names a function and the one before has a name already. Under one index a new id with a new name is a new call.
 */
function findCall(
  calls: readonly { readonly slot: CallSlot; readonly index: number | undefined }[],
  index: number | undefined,
  id: string,
  name: string,
): CallSlot | undefined {
  const starts = (slot: CallSlot): boolean => name !== '' && slot.name !== ''
  if (index !== undefined) {
    const slot = calls.findLast((call) => call.index === index)?.slot
    const another = slot !== undefined && id !== '' && slot.id !== '' && slot.id !== id && starts(slot)
    return another ? undefined : slot
  }
  if (id !== '') {
    const same = calls.findLast((call) => call.slot.id === id)
    if (same) return same.slot
    const last = calls.at(-1)?.slot
    return last !== undefined && last.id === '' && !starts(last) ? last : undefined
  }
  const last = calls.at(-1)?.slot
  return last === undefined || starts(last) ? undefined : last
}

function countsOf(given: v.InferOutput<typeof usage>): ReturnType<typeof usageOf> {
  if (!given) return undefined
  const cacheRead = given.prompt_tokens_details?.cached_tokens ?? given.prompt_cache_hit_tokens ?? 0
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
