/** What bytes are when they are read as one JSON text: `cut` is the beginning of one that something stopped. */
export type JsonVerdict = 'whole' | 'cut' | 'bad'

const CUT = -1
const BAD = -2

const QUOTE = 0x22
const BACKSLASH = 0x5c
const TRUE = Buffer.from('true')
const FALSE = Buffer.from('false')
const NULL = Buffer.from('null')
const ESCAPES: ReadonlySet<number> = new Set(Buffer.from('"\\/bfnrt'))

/** Bytes of a text, and the same memory four at a time: long strings are looked through by words. */
export type Text = { readonly bytes: Uint8Array; readonly words: Int32Array }

/** A {@link Text} of bytes that begin where their memory does; without its words of any others. */
export function textOf(bytes: Uint8Array): Text {
  const words = bytes.byteOffset === 0 ? bytes.byteLength >> 2 : 0
  return { bytes, words: new Int32Array(bytes.buffer, 0, words) }
}

/**
 * Judges `[from, to)` by the grammar of JSON, making nothing of it: what is `whole` is what `JSON.parse` takes. Bytes from
 * 0x80 on are let through in strings; whether they are UTF-8 is another question.
 */
export function judgeJson(text: Text, from: number, to: number): JsonVerdict {
  const { bytes } = text
  /** The brackets that are open: true for an object. */
  const open: boolean[] = []
  let at = from
  for (;;) {
    // A value begins here.
    at = skipSpace(bytes, at, to)
    const first = bytes[at]
    if (at === to || first === undefined) return 'cut'
    if (first === QUOTE) at = stringEnd(text, at + 1, to)
    else if (first === 0x7b || first === 0x5b) {
      const isObject = first === 0x7b
      at = skipSpace(bytes, at + 1, to)
      if (at === to) return 'cut'
      if (bytes[at] !== (isObject ? 0x7d : 0x5d)) {
        open.push(isObject)
        if (!isObject) continue
        at = keyEnd(text, at, to)
        if (at < 0) return at === CUT ? 'cut' : 'bad'
        continue
      }
      at++
    } else at = scalarEnd(bytes, at, to, first)
    if (at < 0) return at === CUT ? 'cut' : 'bad'

    // A value ended: what it stands in ends too, or goes on.
    for (;;) {
      at = skipSpace(bytes, at, to)
      const inObject = open.at(-1)
      if (inObject === undefined) return at === to ? 'whole' : 'bad'
      if (at === to) return 'cut'
      const next = bytes[at++]
      if (next === 0x2c) {
        if (!inObject) break
        at = keyEnd(text, skipSpace(bytes, at, to), to)
        if (at < 0) return at === CUT ? 'cut' : 'bad'
        break
      }
      if (next !== (inObject ? 0x7d : 0x5d)) return 'bad'
      open.pop()
    }
  }
}

function skipSpace(bytes: Uint8Array, from: number, to: number): number {
  let at = from
  for (; at < to; at++) {
    const byte = bytes[at]
    if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d) break
  }
  return at
}

/** After a key and its colon; CUT or BAD. */
function keyEnd(text: Text, from: number, to: number): number {
  const { bytes } = text
  if (from === to) return CUT
  if (bytes[from] !== QUOTE) return BAD
  const end = stringEnd(text, from + 1, to)
  if (end < 0) return end
  const colon = skipSpace(bytes, end, to)
  if (colon === to) return CUT
  return bytes[colon] === 0x3a ? colon + 1 : BAD
}

/** After the closing quote of a string whose first character is at `from`; CUT or BAD. */
function stringEnd({ bytes, words }: Text, from: number, to: number): number {
  const lastWord = Math.min(words.length, to >> 2)
  let at = from
  while (at < to) {
    if ((at & 3) === 0) {
      let word = at >> 2
      while (word < lastWord && isPlain(words[word] ?? 0)) word++
      at = word << 2
      if (at >= to) return CUT
    }
    const byte = bytes[at++]
    if (byte === QUOTE) return at
    if (byte === BACKSLASH) {
      at = escapeEnd(bytes, at, to)
      if (at < 0) return at
    } else if (byte === undefined || byte < 0x20) return BAD
  }
  return CUT
}

/**
 * Whether none of four bytes is a quote, a backslash or a control character: `x - 1 & ~x` has the top bit of a byte set
 * where the byte is zero. It may say no of four plain bytes, never yes of others.
 */
function isPlain(four: number): boolean {
  const quote = four ^ 0x22222222
  const backslash = four ^ 0x5c5c5c5c
  const found =
    ((quote - 0x01010101) & ~quote) | ((backslash - 0x01010101) & ~backslash) | ((four - 0x20202020) & ~four)
  return (found & 0x80808080) === 0
}

function escapeEnd(bytes: Uint8Array, from: number, to: number): number {
  if (from >= to) return CUT
  const byte = bytes[from] ?? 0
  if (byte !== 0x75) return ESCAPES.has(byte) ? from + 1 : BAD
  for (let at = from + 1; at < from + 5; at++) {
    if (at >= to) return CUT
    if (!isHex(bytes[at] ?? 0)) return BAD
  }
  return from + 5
}

const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39
const isHex = (byte: number) => isDigit(byte) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66)

/** After a literal or a number; CUT or BAD. */
function scalarEnd(bytes: Uint8Array, from: number, to: number, first: number): number {
  const word = first === TRUE[0] ? TRUE : first === FALSE[0] ? FALSE : first === NULL[0] ? NULL : undefined
  if (word === undefined) return numberEnd(bytes, from, to)
  for (let index = 0; index < word.length; index++) {
    if (from + index >= to) return CUT
    if (bytes[from + index] !== word[index]) return BAD
  }
  return from + word.length
}

function numberEnd(bytes: Uint8Array, from: number, to: number): number {
  let at = bytes[from] === 0x2d ? from + 1 : from
  if (at >= to) return CUT
  // No digit follows a leading zero.
  at = bytes[at] === 0x30 ? at + 1 : digitsEnd(bytes, at, to)
  if (at > 0 && at < to && bytes[at] === 0x2e) at = digitsEnd(bytes, at + 1, to)
  if (at > 0 && at < to && ((bytes[at] ?? 0) | 0x20) === 0x65) {
    const sign = bytes[at + 1]
    at = digitsEnd(bytes, at + 1 + (sign === 0x2b || sign === 0x2d ? 1 : 0), to)
  }
  return at
}

/** After one or more digits; CUT or BAD. */
function digitsEnd(bytes: Uint8Array, from: number, to: number): number {
  let at = from
  while (at < to && isDigit(bytes[at] ?? 0)) at++
  return at > from ? at : from >= to ? CUT : BAD
}
