import * as v from 'valibot'
import type { Answer, CallSlot, ReasoningSlot, TextSlot } from './answer.ts'
import { anyObject, readEvent, text, tokens, typed } from './events.ts'
import { parseServerError, protocolError } from './failure.ts'
import { usageOf } from './usage.ts'
import type { WireEvent } from './wire.ts'

const words = v.nullish(v.array(v.object({ text, refusal: text })))
const item = v.object({
  type: v.string(),
  id: text,
  call_id: text,
  name: text,
  arguments: v.nullish(v.string()),
  content: words,
  summary: words,
  encrypted_content: v.nullish(v.string()),
  phase: text,
})
const place = { output_index: v.nullish(v.number()), item_id: text }
const itemEvent = v.object({ ...place, item: anyObject })
const deltaEvent = v.object({ ...place, delta: text })
const argumentsDone = v.object({ ...place, arguments: v.nullish(v.string()) })
const usage = v.nullish(
  v.object({
    input_tokens: tokens,
    output_tokens: tokens,
    input_tokens_details: v.nullish(v.object({ cached_tokens: tokens, cache_write_tokens: tokens })),
    output_tokens_details: v.nullish(v.object({ reasoning_tokens: tokens })),
  }),
)
const ended = v.object({
  response: v.object({
    status: v.nullish(v.string()),
    usage,
    output: v.nullish(v.array(anyObject)),
    incomplete_details: v.nullish(v.object({ reason: v.nullish(v.string()) })),
    error: v.optional(v.unknown()),
  }),
})

/** An item as it came (`raw`, in which reasoning goes back) and as it is read here. */
type Item = v.InferOutput<typeof item> & { readonly raw: v.InferOutput<typeof anyObject> }
type Place = { readonly output_index?: number | null | undefined; readonly item_id?: string | null | undefined }
type Open = {
  readonly slot: TextSlot | ReasoningSlot | CallSlot
  readonly order: number
  readonly id: string
  done: boolean
}
type Kind = Open['slot']['kind']

/** Reads the events of OpenAI Responses. Parts stand in the order of `output_index`, in whatever order they came. */
export function responsesReader(answer: Answer): (event: WireEvent) => void {
  const items = new Items(answer)
  return ({ name, data }) => {
    // Not of this API, but some servers that imitate it end with the mark of the older one.
    if (data === '[DONE]') return
    const type = readEvent(typed, data).type || (name ?? '')
    switch (type) {
      case 'response.output_item.added': {
        const event = readEvent(itemEvent, data)
        return items.announce(itemOf(event.item), event)
      }
      case 'response.output_text.delta':
      case 'response.refusal.delta':
        return items.extend(readEvent(deltaEvent, data), 'text')
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        return items.extend(readEvent(deltaEvent, data), 'reasoning')
      case 'response.reasoning_summary_part.added':
        return items.separate(readEvent(v.object(place), data))
      case 'response.function_call_arguments.delta': {
        const event = readEvent(deltaEvent, data)
        return items.withCall(event, (slot) => answer.appendArguments(slot, event.delta ?? ''))
      }
      case 'response.function_call_arguments.done': {
        const event = readEvent(argumentsDone, data)
        return items.withCall(event, (slot) => {
          if (typeof event.arguments === 'string') answer.completeArguments(slot, event.arguments)
          slot.unfinished = false
        })
      }
      case 'response.output_item.done': {
        const event = readEvent(itemEvent, data)
        return items.settle(itemOf(event.item), event)
      }
      case 'response.completed':
      case 'response.incomplete': {
        const { response } = readEvent(ended, data)
        answer.usage = countsOf(response.usage) ?? answer.usage
        items.settleRest((response.output ?? []).map(itemOf))
        const cut = type === 'response.incomplete' || response.status === 'incomplete'
        if (!cut) return answer.settle('done', 'stop')
        return response.incomplete_details?.reason === 'content_filter'
          ? answer.fail({ message: "the server's content filter stopped the answer", as: 'refused' })
          : answer.settle('done', 'length')
      }
      case 'response.failed': {
        const { response } = readEvent(ended, data)
        answer.usage = countsOf(response.usage) ?? answer.usage
        return answer.fail(parseServerError(response) ?? { message: 'the server failed without a message' })
      }
      case 'error':
        return answer.fail(parseServerError(data) ?? { message: 'the server reported an error without a message' })
      default:
    }
  }
}

/** The output items of one response, found by index, by id, or by being the only one that waits. */
class Items {
  readonly #answer: Answer
  readonly #open: Open[] = []

  constructor(answer: Answer) {
    this.#answer = answer
  }

  announce(given: Item, at: Place): void {
    const kind = kindOf(given.type)
    if (kind === undefined) return
    const known = typeof at.output_index === 'number' && this.#find(at, kind) !== undefined
    if (!known) this.#add(given, kind, at)
  }

  extend(event: v.InferOutput<typeof deltaEvent>, kind: 'text' | 'reasoning'): void {
    // Some servers do not announce an item before they fill it.
    const waiting = this.#open.some((entry) => entry.slot.kind === kind && !entry.done)
    const found = this.#find(event, kind)
    const type = kind === 'text' ? 'message' : 'reasoning'
    const entry = found ?? (waiting ? undefined : this.#add(itemOf({ type, id: event.item_id ?? null }), kind, event))
    if (entry === undefined || entry.slot.kind === 'call') return this.#answer.fail(unplaced('text'))
    this.#answer.append(entry.slot, event.delta ?? '')
  }

  /** A new paragraph of a summary. */
  separate(at: Place): void {
    const slot = this.#find(at, 'reasoning')?.slot
    if (slot?.kind === 'reasoning' && slot.text !== '') this.#answer.append(slot, '\n\n')
  }

  withCall(at: Place, apply: (slot: CallSlot) => void): void {
    const slot = this.#find(at, 'call')?.slot
    // Mixed up, the arguments of two calls could make a third that nobody asked for.
    if (slot?.kind !== 'call') return this.#answer.fail(unplaced('arguments'))
    apply(slot)
  }

  settle(given: Item, at: Place): void {
    const kind = kindOf(given.type)
    if (kind === undefined) return
    const found = this.#find({ output_index: at.output_index, item_id: given.id }, kind)
    this.#finish(found ?? this.#add(given, kind, at), given)
  }

  /** What the last event repeats: all there is, for a server that sends nothing else, or the items that never were finished. */
  settleRest(output: readonly Item[]): void {
    if (this.#open.length === 0) {
      for (const [order, given] of output.entries()) this.settle(given, { output_index: order })
      return
    }
    for (const entry of this.#open.filter(({ done }) => !done)) {
      const given = output.find((candidate) => {
        if (kindOf(candidate.type) !== entry.slot.kind) return false
        return entry.slot.kind === 'call' ? callId(candidate) === entry.slot.id : candidate.id === entry.id
      })
      if (given !== undefined) this.#finish(entry, given)
    }
  }

  #find(at: Place, kind: Kind): Open | undefined {
    const ofKind = this.#open.filter((entry) => entry.slot.kind === kind)
    if (typeof at.output_index === 'number') return ofKind.find((entry) => entry.order === at.output_index)
    const byId = at.item_id ? ofKind.find((entry) => entry.id === at.item_id) : undefined
    if (byId !== undefined) return byId
    const waiting = ofKind.filter((entry) => !entry.done)
    return waiting.length === 1 ? waiting[0] : undefined
  }

  #add(given: Item, kind: Kind, at: Place): Open {
    const order = at.output_index ?? this.#open.length
    const entry: Open = { slot: this.#slot(given, kind, order), order, id: given.id ?? '', done: false }
    this.#open.push(entry)
    return entry
  }

  #slot(given: Item, kind: Kind, order: number): Open['slot'] {
    if (kind === 'text') return this.#answer.openText(order)
    if (kind === 'reasoning') return this.#answer.openReasoning(order)
    const slot = this.#answer.openCall(callId(given), given.name ?? '', true, order)
    this.#answer.appendArguments(slot, given.arguments ?? '')
    return slot
  }

  /** The finished item decides over the pieces that came before it. */
  #finish(entry: Open, given: Item): void {
    if (entry.done) return
    entry.done = true
    const { slot } = entry
    switch (slot.kind) {
      case 'text': {
        const whole = (given.content ?? []).map((part) => part.text || part.refusal || '').join('')
        if (whole !== '') this.#answer.complete(slot, whole)
        if (given.phase) slot.opaque = { 'openai-responses': { phase: given.phase } }
        return
      }
      case 'reasoning': {
        const parts = given.summary?.length ? given.summary : (given.content ?? [])
        const whole = parts.map((part) => part.text ?? '').join('\n\n')
        if (whole !== '') this.#answer.complete(slot, whole)
        if (isReturnable(given)) slot.opaque = { 'openai-responses': given.raw }
        return
      }
      case 'call':
        slot.unfinished = false
        if (slot.id === '') slot.id = callId(given)
        this.#answer.nameCall(slot, given.name ?? '')
        if (given.arguments) this.#answer.completeArguments(slot, given.arguments)
        return
      default:
        slot satisfies never
    }
  }
}

/**
 * With nothing stored at the server, an item without content of its own means nothing to it later; and one that lacks what the
 * API demands would be refused for ever.
 */
function isReturnable({ id, summary, encrypted_content, content }: Item): boolean {
  return Boolean(id) && Array.isArray(summary) && (Boolean(encrypted_content) || Boolean(content?.length))
}

function itemOf(raw: v.InferOutput<typeof anyObject>): Item {
  return { ...readEvent(item, raw), raw }
}

function callId(given: Item): string {
  return given.call_id || given.id || ''
}

function kindOf(type: string): Kind | undefined {
  if (type === 'message') return 'text'
  if (type === 'reasoning') return 'reasoning'
  return type === 'function_call' ? 'call' : undefined
}

function countsOf(given: v.InferOutput<typeof usage>): ReturnType<typeof usageOf> {
  if (!given) return undefined
  const cacheRead = given.input_tokens_details?.cached_tokens ?? 0
  const cacheWrite = given.input_tokens_details?.cache_write_tokens ?? 0
  return usageOf({
    input: (given.input_tokens ?? 0) - cacheRead - cacheWrite,
    cacheRead,
    cacheWrite,
    output: given.output_tokens,
    reasoning: given.output_tokens_details?.reasoning_tokens,
  })
}

function unplaced(what: string): ReturnType<typeof protocolError> {
  return protocolError(`the server does not say which part of the answer its ${what} belong to`)
}
