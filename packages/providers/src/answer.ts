import { parseArguments } from './arguments.ts'
import { protocolError } from './failure.ts'
import type { ServerError } from './failure.ts'
import type { AssistantMessage, JsonObject, ModelEvent, StopReason, ToolCallPart, Usage } from './model.ts'
import type { Api } from './wire.ts'

type Part = AssistantMessage['content'][number]

/** One part of an answer while it is being written. `order` is its place in the answer. */
type WordsSlot<Kind extends 'text' | 'reasoning'> = {
  readonly kind: Kind
  readonly order: number
  text: string
  opaque?: Readonly<Partial<Record<Api, JsonObject>>>
}
export type TextSlot = WordsSlot<'text'>
export type ReasoningSlot = WordsSlot<'reasoning'>
export type CallSlot = {
  readonly kind: 'call'
  readonly order: number
  readonly index: number
  id: string
  name: string
  /** All of the argument text so far. */
  raw: string
  /** Its API says of each call when it is complete, and has not yet: then the empty text is none that needs no arguments. */
  unfinished: boolean
}
type Slot = TextSlot | ReasoningSlot | CallSlot

/** How a stream stands: `settled` has its terminal evidence but may still bring usage, `done` has nothing more to say. */
export type AnswerState =
  | { readonly type: 'open' }
  | { readonly type: 'settled' | 'done'; readonly stop: 'stop' | 'length' }
  | { readonly type: 'failed'; readonly error: ServerError }

/** An answer assembled from a stream's pieces. The readers of the three protocols write it; nothing here knows a wire shape. */
export class Answer {
  state: AnswerState = { type: 'open' }
  usage: Usage | undefined
  readonly #slots: Slot[] = []
  #calls = 0
  #events: ModelEvent[] = []
  readonly #fallbackId: string

  /** @param fallbackId starts the ids of calls that come without one; must be new in the conversation. */
  constructor(fallbackId: string) {
    this.#fallbackId = fallbackId
  }

  /** Nothing has come yet. */
  get isEmpty(): boolean {
    return this.#slots.length === 0
  }

  openText(order: number = this.#slots.length): TextSlot {
    return this.#add({ kind: 'text', order, text: '' })
  }

  openReasoning(order: number = this.#slots.length): ReasoningSlot {
    return this.#add({ kind: 'reasoning', order, text: '' })
  }

  /** @param unfinished that the API will say of this call that it is complete. */
  openCall(id: string, name: string, unfinished: boolean, order: number = this.#slots.length): CallSlot {
    const slot = this.#add<CallSlot>({ kind: 'call', order, index: this.#calls++, id, name, raw: '', unfinished })
    if (name !== '') this.#events.push({ type: 'toolCall', index: slot.index, name, delta: '' })
    return slot
  }

  append(slot: TextSlot | ReasoningSlot, delta: string): void {
    if (delta === '') return
    slot.text += delta
    this.#events.push({ type: slot.kind, delta })
  }

  /** Sets the whole text where a server repeats it at the end; shows only what was not shown yet. */
  complete(slot: TextSlot | ReasoningSlot, whole: string): void {
    if (whole.startsWith(slot.text)) this.append(slot, whole.slice(slot.text.length))
    else slot.text = whole
  }

  /** Shown at once, unless the name is still to come. (No slice of `raw` here: that would cost its length each time.) */
  appendArguments(slot: CallSlot, delta: string): void {
    slot.raw += delta
    this.#showArguments(slot, delta)
  }

  /** Sets all of the arguments where a server repeats them at the end: they decide, even where the pieces differ. */
  completeArguments(slot: CallSlot, whole: string): void {
    const rest = whole.startsWith(slot.raw) ? whole.slice(slot.raw.length) : ''
    slot.raw = whole
    this.#showArguments(slot, rest)
  }

  nameCall(slot: CallSlot, name: string): void {
    if (slot.name !== '' || name === '') return
    slot.name = name
    this.#events.push({ type: 'toolCall', index: slot.index, name, delta: slot.raw })
  }

  /** The server says that the answer is whole: `settled` where it may still send usage, `done` where it sends no more. */
  settle(type: 'settled' | 'done', stop: 'stop' | 'length'): void {
    const nameless = this.#slots.some((slot) => slot.kind === 'call' && slot.name === '')
    if (nameless) this.fail(protocolError('the server sent a tool call without a name'))
    else this.state = { type, stop }
  }

  fail(error: ServerError): void {
    this.state = { type: 'failed', error }
  }

  /** The events since the last time. */
  take(): readonly ModelEvent[] {
    const events = this.#events
    this.#events = []
    return events
  }

  /** The message as far as it came. A call that has no name yet is left out. */
  message(model: string, end: 'stop' | 'length' | 'aborted'): AssistantMessage {
    const ids = new Set<string>()
    const content: Part[] = []
    for (const slot of this.#slots.toSorted((a, b) => a.order - b.order)) {
      if (slot.kind === 'text') {
        if (slot.text !== '') content.push({ type: 'text', ...wordsOf(slot) })
      } else if (slot.kind === 'reasoning') {
        if (slot.text !== '' || slot.opaque) content.push({ type: 'reasoning', ...wordsOf(slot) })
      } else if (slot.name !== '') content.push(this.#call(slot, ids, end === 'stop'))
    }
    const called = content.some((part) => part.type === 'toolCall')
    const stopReason: StopReason = end === 'stop' && called ? 'toolUse' : end
    return { role: 'assistant', model, content, stopReason, ...(this.usage && { usage: this.usage }) }
  }

  #call(slot: CallSlot, ids: Set<string>, complete: boolean): ToolCallPart {
    const wanted = slot.id === '' ? `${this.#fallbackId}_${slot.index}` : slot.id
    let id = wanted
    for (let n = slot.index; ids.has(id); n++) id = `${wanted}_${n}`
    ids.add(id)
    return { type: 'toolCall', id, name: slot.name, ...parseArguments(slot.raw, complete && !slot.unfinished) }
  }

  #showArguments(slot: CallSlot, delta: string): void {
    if (slot.name === '' || delta === '') return
    this.#events.push({ type: 'toolCall', index: slot.index, name: slot.name, delta })
  }

  #add<S extends Slot>(slot: S): S {
    this.#slots.push(slot)
    return slot
  }
}

function wordsOf({ text, opaque }: TextSlot | ReasoningSlot): { readonly text: string; readonly opaque?: JsonObject } {
  return { text, ...(opaque && { opaque }) }
}
