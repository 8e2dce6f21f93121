import type { Answer, CallSlot } from './answer.ts'

/** A piece of a call, as Chat Completions brings it; whatever a server leaves out is empty. */
export type CallPiece = {
  readonly index: number | undefined
  readonly id: string
  readonly name: string
  readonly arguments: string
}
type Call = { readonly slot: CallSlot; readonly index: number | undefined }

/** The calls of one Chat Completions answer. */
export class CompletionsCalls {
  readonly #answer: Answer
  readonly #calls: Call[] = []

  constructor(answer: Answer) {
    this.#answer = answer
  }

  /** The call that a piece belongs to, opened if it begins one. */
  of(piece: CallPiece): CallSlot {
    const found = this.#find(piece)
    if (found !== undefined) {
      if (found.id === '') found.id = piece.id
      this.#answer.nameCall(found, piece.name)
      return found
    }
    const slot = this.#answer.openCall(piece.id, piece.name, false)
    this.#calls.push({ slot, index: piece.index })
    return slot
  }

  /**
   * Servers differ in what they leave out: by index; else by id; else the one before, unless the piece names a function and the
   * one before has a name already.
   */
  #find(piece: CallPiece): CallSlot | undefined {
    const { index, id, name } = piece
    const last = this.#calls.at(-1)
    if (index !== undefined) {
      const slot = this.#calls.findLast((call) => call.index === index)?.slot
      if (slot !== undefined) return isAnother(slot, piece) ? undefined : slot
      // The first piece of a call lacked what the next has.
      return id === '' && name === '' && last?.index === undefined ? last?.slot : undefined
    }
    if (id !== '') {
      const same = this.#calls.findLast((call) => call.slot.id === id)
      if (same) return same.slot
      return last !== undefined && last.slot.id === '' && !begins(last.slot, piece) ? last.slot : undefined
    }
    return last === undefined || begins(last.slot, piece) ? undefined : last.slot
  }
}

function begins(slot: CallSlot, { name }: CallPiece): boolean {
  return name !== '' && slot.name !== ''
}

/** Under one index a new name is a new call where its id is new as well, or where the call before it is whole. */
function isAnother(slot: CallSlot, piece: CallPiece): boolean {
  if (!begins(slot, piece)) return false
  if (piece.id !== '') return slot.id !== '' && slot.id !== piece.id
  return piece.arguments.trimStart().startsWith('{') && isWhole(slot.raw)
}

function isWhole(raw: string): boolean {
  if (!raw.trimEnd().endsWith('}')) return false
  try {
    JSON.parse(raw)
    return true
  } catch {
    return false
  }
}
