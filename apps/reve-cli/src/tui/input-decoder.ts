import { StringDecoder } from 'node:string_decoder'

/** Something that a person did, or a terminal answered. */
export type Input =
  /** Characters typed; several when they came together. */
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'key'; readonly key: Key }
  /** A bracketed paste, whole. */
  | { readonly type: 'paste'; readonly text: string }
  /** What a terminal answers to a question: the parameters of a CSI (with its final byte), or the text of an OSC. */
  | { readonly type: 'reply'; readonly kind: 'csi' | 'osc'; readonly text: string }

/** A key that is no character by itself, or one with Ctrl or Alt. `name` is a character or one of the names below. */
export type Key = {
  readonly name: string
  readonly ctrl: boolean
  readonly alt: boolean
  readonly shift: boolean
}

const letters: Readonly<Record<string, string>> = {
  ...{ A: 'up', B: 'down', C: 'right', D: 'left', E: 'begin', F: 'end', H: 'home' },
  ...{ P: 'f1', Q: 'f2', R: 'f3', S: 'f4', M: 'enter' },
}
const tildes: Readonly<Record<string, string>> = {
  ...{ 1: 'home', 2: 'insert', 3: 'delete', 4: 'end', 5: 'pageup', 6: 'pagedown', 7: 'home', 8: 'end' },
  ...{
    11: 'f1',
    12: 'f2',
    13: 'f3',
    14: 'f4',
    15: 'f5',
    17: 'f6',
    18: 'f7',
    19: 'f8',
    20: 'f9',
    21: 'f10',
    23: 'f11',
    24: 'f12',
  },
}
const codes: Readonly<Record<number, string>> = {
  ...{ 9: 'tab', 13: 'enter', 27: 'escape', 32: ' ', 127: 'backspace', 57_414: 'enter' },
  ...{ 57_417: 'left', 57_418: 'right', 57_419: 'up', 57_420: 'down', 57_421: 'pageup', 57_422: 'pagedown' },
  ...{ 57_423: 'home', 57_424: 'end', 57_425: 'insert', 57_426: 'delete' },
}
/** Keys of the number pad that write what stands on them. */
const padCharacters = '0123456789./*-+'

const pasteStart = '\u001b[200~'
const pasteEnd = '\u001b[201~'
/** A string sequence beyond this is garbage, and what follows is typed text again. */
const longestString = 64 * 1024

/**
 * Bytes of a terminal to what they mean, in pieces of any size: a key, a character or a paste that is cut anywhere comes out as if it
 * had come at once. Knows the keys of xterm, the Kitty protocol and `modifyOtherKeys`. What it does not know it drops, and goes on with
 * what follows.
 */
export class InputDecoder {
  readonly #utf8 = new StringDecoder('utf8')
  #pending = ''
  /** The pieces of the paste that is open. */
  #paste: string[] | undefined

  /** Something waits for its end: without more input within a moment, call {@link flush}. */
  get waiting(): boolean {
    return this.#pending !== '' && this.#paste === undefined
  }

  push(bytes: Uint8Array): readonly Input[] {
    this.#pending += this.#utf8.write(bytes)
    return this.#take(false)
  }

  /** Nothing followed for a while: an Escape was the key, not the start of a sequence. */
  flush(): readonly Input[] {
    return this.#take(true)
  }

  #take(final: boolean): readonly Input[] {
    const inputs: Input[] = []
    let text = ''
    const out = (input: Input): void => {
      if (text !== '') inputs.push({ type: 'text', text })
      text = ''
      inputs.push(input)
    }
    let at = 0
    const pending = this.#pending
    while (at < pending.length) {
      if (this.#paste !== undefined) {
        const end = pending.indexOf(pasteEnd, at)
        if (end < 0) {
          // The end mark may be cut.
          const held = partialSuffix(pending, at, pasteEnd)
          this.#paste.push(pending.slice(at, held))
          at = held
          break
        }
        this.#paste.push(pending.slice(at, end))
        out({ type: 'paste', text: this.#paste.join('') })
        this.#paste = undefined
        at = end + pasteEnd.length
        continue
      }
      const character = pending[at] ?? ''
      if (character !== '\u001b') {
        const key = controlKey(character)
        if (key === undefined) text += character
        else out({ type: 'key', key })
        at += 1
        continue
      }
      if (pending.startsWith(pasteStart, at)) {
        this.#paste = []
        at += pasteStart.length
        if (text !== '') inputs.push({ type: 'text', text })
        text = ''
        continue
      }
      const sequence = sequenceAt(pending, at, final)
      if (sequence === undefined) break
      if (sequence.input !== undefined) {
        if (sequence.input.type === 'text') text += sequence.input.text
        else out(sequence.input)
      }
      at = sequence.end
    }
    this.#pending = pending.slice(at)
    if (text !== '') inputs.push({ type: 'text', text })
    return inputs
  }
}

/** Where the longest start of `mark` at the end of `text` begins; the end when there is none. */
function partialSuffix(text: string, from: number, mark: string): number {
  for (let length = Math.min(mark.length - 1, text.length - from); length > 0; length--) {
    if (mark.startsWith(text.slice(text.length - length))) return text.length - length
  }
  return text.length
}

const key = (name: string, modifiers: Partial<Omit<Key, 'name'>> = {}): Key => ({
  ...{ name, ctrl: false, alt: false, shift: false },
  ...modifiers,
})

function controlKey(character: string): Key | undefined {
  const code = character.charCodeAt(0)
  if (code === 0x7f || code === 0x08) return key('backspace')
  if (code >= 0x20) return undefined
  if (code === 0x0d) return key('enter')
  if (code === 0x09) return key('tab')
  // Ctrl-J is another way to write a new line; terminals without modifiers on Enter have no better one.
  if (code === 0) return key(' ', { ctrl: true })
  if (code <= 26) return key(String.fromCharCode(code + 96), { ctrl: true })
  return key(String.fromCharCode(code + 64), { ctrl: true })
}

type Sequence = { readonly input?: Input; readonly end: number } | undefined

/** The sequence that an ESC at `at` begins; undefined while more of it may come. */
function sequenceAt(text: string, at: number, final: boolean): Sequence {
  const next = text[at + 1]
  if (next === undefined) return final ? keyed(key('escape'), at + 1) : undefined
  switch (next) {
    case '[':
      return csiAt(text, at, final)
    case 'O': {
      const letter = text[at + 2]
      if (letter === undefined) return final ? keyed(key('O', { alt: true, shift: true }), at + 2) : undefined
      const name = letters[letter]
      // Not of ours: Alt-O, then the letter.
      return name === undefined ? keyed(key('O', { alt: true, shift: true }), at + 2) : keyed(key(name), at + 3)
    }
    case ']':
    case 'P':
    case 'X':
    case '^':
    case '_':
      return stringAt(text, at, next, final)
    case '\u001b': {
      // Escape, then another sequence; Alt with an arrow on some terminals.
      const after = text[at + 2]
      if (after === undefined && !final) return undefined
      if (after === '[' || after === 'O') {
        const inner = sequenceAt(text, at + 1, final)
        if (inner?.input?.type === 'key') return keyed({ ...inner.input.key, alt: true }, inner.end)
        if (inner === undefined) return undefined
      }
      return keyed(key('escape'), at + 1)
    }
    default: {
      const control = controlKey(next)
      if (control !== undefined) return keyed({ ...control, alt: true }, at + 2)
      const point = String.fromCodePoint(text.codePointAt(at + 1) ?? 0)
      const upper = point !== point.toLowerCase()
      return keyed(key(point, { alt: true, shift: upper }), at + 1 + point.length)
    }
  }
}

const keyed = (found: Key, end: number): Sequence => ({ input: { type: 'key', key: found }, end })

function csiAt(text: string, at: number, final: boolean): Sequence {
  let end = at + 2
  while (end < text.length && /[ -?]/.test(text[end] ?? '') && end - at < 256) end += 1
  const last = text[end]
  if (last === undefined) {
    if (!final) return undefined
    return end === at + 2 ? keyed(key('[', { alt: true }), end) : { end }
  }
  // A byte that no sequence has: what came so far was none, and the byte is looked at by itself.
  if (!/[@-~]/.test(last)) return { end: end === at + 2 && last !== '\u001b' ? at + 2 : end }
  const parameters = text.slice(at + 2, end)
  // The old form of mouse reports has three more bytes.
  if (last === 'M' && parameters === '') {
    if (text.length < end + 4 && !final) return undefined
    return { end: Math.min(text.length, end + 4) }
  }
  // As function keys of the Linux console: CSI [ A.
  if (last === '[' && parameters === '') {
    if (text[end + 1] === undefined && !final) return undefined
    return { end: Math.min(text.length, end + 2) }
  }
  const input = csiInput(parameters, last)
  return { end: end + 1, ...(input !== undefined && { input }) }
}

function csiInput(parameters: string, last: string): Input | undefined {
  if (/^[?>=<]/.test(parameters)) return { type: 'reply', kind: 'csi', text: parameters + last }
  const fields = parameters.split(';').map((field) => field.split(':').map(Number))
  const modifiers = modifiersOf(fields[1]?.[0])
  // The release of a key is nobody's news.
  if (fields[1]?.[1] === 3) return undefined
  switch (last) {
    case 'u':
      return pressed(fields[0]?.[0] ?? 0, modifiers, fields[0]?.[1])
    case '~': {
      if (fields[0]?.[0] === 27) return pressed(fields[2]?.[0] ?? 0, modifiers, undefined)
      const name = tildes[String(fields[0]?.[0] ?? '')]
      return name === undefined ? undefined : { type: 'key', key: key(name, modifiers) }
    }
    case 'Z':
      return { type: 'key', key: key('tab', { shift: true }) }
    case 'R':
      // F3 with a modifier has the form of an answer to a question that is not asked.
      return parameters === '' || fields[0]?.[0] === 1
        ? { type: 'key', key: key('f3', modifiers) }
        : { type: 'reply', kind: 'csi', text: parameters + last }
    default: {
      const name = last === 'M' ? undefined : letters[last]
      return name === undefined ? undefined : { type: 'key', key: key(name, modifiers) }
    }
  }
}

function modifiersOf(field: number | undefined): Omit<Key, 'name'> {
  // 1 and more: a sum of shift 1, alt 2, ctrl 4 (super and others are not for us).
  const bits = field === undefined || !Number.isFinite(field) || field < 1 ? 0 : field - 1
  return { shift: (bits & 1) !== 0, alt: (bits & 2) !== 0, ctrl: (bits & 4) !== 0 }
}

/** A key by its code point, of the Kitty protocol or `modifyOtherKeys`. */
function pressed(code: number, modifiers: Omit<Key, 'name'>, shifted: number | undefined): Input | undefined {
  const named = codes[code]
  if (named !== undefined && named !== ' ') return { type: 'key', key: key(named, modifiers) }
  const onPad = code >= 57_399 && code < 57_399 + padCharacters.length ? padCharacters[code - 57_399] : undefined
  if (onPad === undefined && (code < 32 || code > 0x10_ff_ff || (code >= 57_344 && code <= 63_743))) return undefined
  if (code >= 0xd8_00 && code <= 0xdf_ff) return undefined
  const character = onPad ?? String.fromCodePoint(code)
  if (modifiers.ctrl || modifiers.alt) return { type: 'key', key: key(character.toLowerCase(), modifiers) }
  const typed = !modifiers.shift
    ? character
    : shifted !== undefined && shifted > 32 && shifted < 0xd8_00
      ? String.fromCodePoint(shifted)
      : character.toUpperCase()
  return { type: 'text', text: typed }
}

/** OSC, DCS, SOS, PM and APC: up to BEL or ST. Nothing in there is ever typed text. */
function stringAt(text: string, at: number, kind: string, final: boolean): Sequence {
  const stop = /\u0007|\u001b\\|\u009c|\u0018|\u001a/g
  stop.lastIndex = at + 2
  const found = stop.exec(text)
  if (found !== null) {
    const body = text.slice(at + 2, found.index)
    const end = found.index + found[0].length
    return kind === ']' ? { input: { type: 'reply', kind: 'osc', text: body }, end } : { end }
  }
  if (text.length - at > longestString) return { end: text.length }
  if (!final) return undefined
  // The key with Alt; with anything after it, a sequence that was given up.
  return text.length === at + 2
    ? keyed(key(kind, { alt: true, shift: kind === 'P' || kind === 'X' }), at + 2)
    : { end: text.length }
}
