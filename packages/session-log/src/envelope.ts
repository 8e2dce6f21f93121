/** What an entry says of itself; that its shape is right is known, and its message begins at `messageAt`. */
export type Envelope = {
  readonly id: string
  readonly seq: number
  readonly lane: string
  readonly parentId: string | null
  readonly messageAt: number
}

const BEFORE_ID = 0
const BEFORE_SEQ = 1
const BEFORE_TS = 2
const BEFORE_LANE = 3
const BEFORE_TYPE = 4
const BEFORE_PARENT = 5
const BEFORE_MESSAGE = 6
/** What stands before each value. */
const KEYS = ['{"kind":"entry","id":', ',"seq":', ',"ts":', ',"lane":', ',"type":', ',"parentId":', ',"message":'].map(
  (text) => Buffer.from(text),
)
const MESSAGE = Buffer.from('"message"')
/** Digits stand where it has zeros. */
const TIME = Buffer.from('"0000-00-00T00:00:00.000Z"')
const LONGEST_NAME = 256
const QUOTE = 0x22
const NULL = 0x6e
const ZERO = 0x30
/** No such place. */
const NONE = -1

/**
 * Reads the envelopes of entries that are messages from their bytes, but only of those that are spelled as writers spell
 * them: these keys in this order, no escapes, no space, nothing beyond ASCII. Of all others it says nothing, and they go
 * the usual way. It remembers the last line, because most lanes and parents are those of the line before.
 */
export class EnvelopeReader {
  readonly #starts = new Int32Array(KEYS.length)
  readonly #ends = new Int32Array(KEYS.length)
  #id = ''
  #lane = ''

  read(bytes: Buffer, from: number, to: number): Envelope | undefined {
    const messageAt = this.#measure(bytes, from, to)
    if (messageAt === NONE) return undefined
    const isRoot = bytes[this.#starts[BEFORE_PARENT] ?? 0] === NULL
    const parentId = isRoot ? null : this.#text(bytes, BEFORE_PARENT, this.#id)
    this.#id = this.#text(bytes, BEFORE_ID, '')
    this.#lane = this.#text(bytes, BEFORE_LANE, this.#lane)
    const seq = numberIn(bytes, this.#starts[BEFORE_SEQ] ?? 0, this.#ends[BEFORE_SEQ] ?? 0)
    return { id: this.#id, seq, lane: this.#lane, parentId, messageAt }
  }

  /** Notes where each value stands, quotes counted. Says where the message begins. */
  #measure(bytes: Uint8Array, from: number, to: number): number {
    let at = from
    for (let key = 0; key < KEYS.length; key++) {
      const text = KEYS[key]
      if (text === undefined || !standsAt(bytes, at, text)) return NONE
      at += text.length
      if (key === BEFORE_MESSAGE) return at < to ? at : NONE
      this.#starts[key] = at
      at = valueEnd(bytes, at, to, key)
      if (at === NONE) return NONE
      this.#ends[key] = at
    }
    return NONE
  }

  /** A string between its quotes; `last` itself when that says the same, so that there is one of it. */
  #text(bytes: Buffer, key: number, last: string): string {
    const from = (this.#starts[key] ?? 0) + 1
    const to = (this.#ends[key] ?? 0) - 1
    return isText(bytes, from, to, last) ? last : bytes.toString('latin1', from, to)
  }
}

function isText(bytes: Uint8Array, from: number, to: number, text: string): boolean {
  if (to - from !== text.length) return false
  for (let index = 0; index < text.length; index++) if (bytes[from + index] !== text.charCodeAt(index)) return false
  return true
}

function numberIn(bytes: Uint8Array, from: number, to: number): number {
  let value = 0
  for (let at = from; at < to; at++) value = value * 10 + (bytes[at] ?? 0) - ZERO
  return value
}

function standsAt(bytes: Uint8Array, at: number, text: Uint8Array): boolean {
  for (let index = 0; index < text.length; index++) if (bytes[at + index] !== text[index]) return false
  return true
}

/** After a value that fits the key; NONE for what fits it not, or is spelled otherwise. */
function valueEnd(bytes: Uint8Array, from: number, to: number, key: number): number {
  switch (key) {
    case BEFORE_SEQ:
      return digitsEnd(bytes, from, to)
    case BEFORE_TS:
      return isTime(bytes, from) ? from + TIME.length : NONE
    case BEFORE_TYPE:
      return standsAt(bytes, from, MESSAGE) ? from + MESSAGE.length : NONE
    case BEFORE_PARENT:
      return isNull(bytes, from) ? from + 4 : nameEnd(bytes, from, to)
    default:
      return nameEnd(bytes, from, to)
  }
}

function isTime(bytes: Uint8Array, from: number): boolean {
  for (let index = 0; index < TIME.length; index++) {
    const byte = bytes[from + index] ?? 0
    if (TIME[index] === ZERO ? !isDigit(byte) : byte !== TIME[index]) return false
  }
  return true
}

const isDigit = (byte: number) => byte >= ZERO && byte <= 0x39
const isNull = (bytes: Uint8Array, at: number) =>
  bytes[at] === NULL && bytes[at + 1] === 0x75 && bytes[at + 2] === 0x6c && bytes[at + 3] === 0x6c

/** After a name in quotes: printable ASCII without a backslash, of the length that a name may have. */
function nameEnd(bytes: Uint8Array, from: number, to: number): number {
  if (bytes[from] !== QUOTE) return NONE
  for (let at = from + 1; at < to; at++) {
    const byte = bytes[at] ?? 0
    if (byte === QUOTE) return at === from + 1 || at > from + 1 + LONGEST_NAME ? NONE : at + 1
    if (byte < 0x20 || byte > 0x7e || byte === 0x5c) return NONE
  }
  return NONE
}

/** After a number without a sign, a fraction or a leading zero, small enough to be exact and to go on counting. */
function digitsEnd(bytes: Uint8Array, from: number, to: number): number {
  let at = from
  while (at < to && isDigit(bytes[at] ?? 0)) at++
  return at === from || at - from > 15 || bytes[from] === ZERO ? NONE : at
}
