import { nextGrapheme, previousGrapheme } from './cells.ts'
import { cleanText } from './clean.ts'
import type { Key } from './input-decoder.ts'

/** What stands for something larger in the text: a paste that is too long to show, or an image. */
export type Chip =
  | { readonly type: 'paste'; readonly text: string }
  /** As it was pasted or dropped: a path on this machine. */
  | { readonly type: 'image'; readonly path: string }

type Moment = { readonly text: string; readonly cursor: number }

/** The prompt that is being written. Chips are single characters of a private plane in `text`: they are moved over and deleted as a whole. */
export type Editor = {
  readonly text: string
  /** Index in `text`, between two graphemes. */
  readonly cursor: number
  /** By their character. They stay for undo, wherever their character is. */
  readonly chips: ReadonlyMap<string, Chip>
  readonly undo: readonly Moment[]
  readonly redo: readonly Moment[]
  /** What was cut last. */
  readonly killed: string
  /** Typed characters that follow each other are undone together, and so are cuts. */
  readonly last: 'typing' | 'cutting' | 'other'
}

export const emptyEditor: Editor = {
  ...{ text: '', cursor: 0, chips: new Map(), undo: [], redo: [], killed: '', last: 'other' },
}

const firstChip = 0x10_f0_00
const lastChip = 0x10_ff_fd
const chipCharacters = /[\u{10f000}-\u{10fffd}]/gu
const mostUndo = 300

/** From here on a paste is folded. */
const longestShown = { lines: 8, characters: 1500 } as const

/** Text of anybody's for the editor: without control characters, and without characters that could be taken for chips. */
const typed = (text: string): string => cleanText(text).replaceAll(chipCharacters, '\ufffd')

/** Puts text in at the cursor. */
export function insert(editor: Editor, text: string, last: Editor['last'] = 'other'): Editor {
  return put(editor, typed(text), last)
}

function put(editor: Editor, text: string, last: Editor['last']): Editor {
  if (text === '') return editor
  const { cursor } = editor
  const next = editor.text.slice(0, cursor) + text + editor.text.slice(cursor)
  const together = last === 'typing' && editor.last === 'typing' && !/^\s/.test(text)
  return { ...changed(editor, next, cursor + text.length, together), last }
}

/** Puts a paste in: short ones as they are, long ones as a chip. */
export function paste(editor: Editor, pasted: string): Editor {
  const text = typed(pasted)
  const lines = text.split('\n').length
  if (lines <= longestShown.lines && text.length <= longestShown.characters) return insert(editor, text)
  return withChip(editor, { type: 'paste', text })
}

/** Puts a chip in at the cursor. */
export function withChip(editor: Editor, chip: Chip): Editor {
  const point = firstChip + editor.chips.size
  // Thousands of pastes in one prompt: the next one is text.
  if (point > lastChip) return chip.type === 'paste' ? put(editor, chip.text, 'other') : put(editor, chip.path, 'other')
  const character = String.fromCodePoint(point)
  return put({ ...editor, chips: new Map(editor.chips).set(character, chip) }, character, 'other')
}

/** Replaces everything, as one step to undo. */
export function setText(editor: Editor, text: string): Editor {
  const clean = typed(text)
  return { ...changed(editor, clean, clean.length, false), last: 'other' }
}

/** Replaces `from` to `to` and puts the cursor behind it. */
export function replaceRange(editor: Editor, from: number, to: number, text: string): Editor {
  const clean = typed(text)
  return {
    ...changed(editor, editor.text.slice(0, from) + clean + editor.text.slice(to), from + clean.length, false),
    last: 'other',
  }
}

/** A new prompt: what was cut stays. */
export const cleared = (editor: Editor): Editor => ({ ...emptyEditor, killed: editor.killed })

/** What a chip looks like. */
export function chipLabel(chip: Chip): string {
  switch (chip.type) {
    case 'paste': {
      const lines = chip.text.split('\n').length
      return lines > 1 ? `[pasted ${lines} lines]` : `[pasted ${chip.text.length} characters]`
    }
    case 'image':
      return `[image ${chip.path.slice(chip.path.lastIndexOf('/') + 1)}]`
    default:
      return chip satisfies never
  }
}

/** The prompt as it is sent: pastes whole, images named in the text and given apart. */
export function expand(editor: Editor): { readonly text: string; readonly images: readonly string[] } {
  const images: string[] = []
  const text = editor.text.replaceAll(chipCharacters, (character) => {
    const chip = editor.chips.get(character)
    if (chip === undefined) return ''
    if (chip.type === 'paste') return chip.text
    images.push(chip.path)
    return chipLabel(chip)
  })
  return { text, images }
}

function changed(editor: Editor, text: string, cursor: number, together: boolean): Editor {
  if (text === editor.text) return { ...editor, cursor }
  const undo = together ? editor.undo : [...editor.undo.slice(-mostUndo), { text: editor.text, cursor: editor.cursor }]
  return { ...editor, text, cursor, undo, redo: [] }
}

const moved = (editor: Editor, cursor: number): Editor => ({ ...editor, cursor, last: 'other' })

function cut(editor: Editor, from: number, to: number): Editor {
  if (from === to) return editor
  const piece = editor.text.slice(from, to)
  const joins = editor.last === 'cutting'
  const before = to === editor.cursor
  const killed = joins ? (before ? piece + editor.killed : editor.killed + piece) : piece
  return {
    ...changed(editor, editor.text.slice(0, from) + editor.text.slice(to), from, joins),
    killed,
    last: 'cutting',
  }
}

const remove = (editor: Editor, from: number, to: number): Editor => ({
  ...changed(editor, editor.text.slice(0, from) + editor.text.slice(to), from, false),
  last: 'other',
})

const lineStart = ({ text, cursor }: Editor): number => text.lastIndexOf('\n', cursor - 1) + 1
const lineEnd = ({ text, cursor }: Editor): number => {
  const end = text.indexOf('\n', cursor)
  return end < 0 ? text.length : end
}

const wordBefore = ({ text, cursor }: Editor): number => {
  // What stands before is looked at in a window, so that a long prompt costs no more.
  const from = Math.max(0, cursor - 2000)
  const [found = ''] = /(?:[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]+|)\s*$/u.exec(text.slice(from, cursor)) ?? []
  return cursor - found.length
}
const spaceBefore = ({ text, cursor }: Editor): number => {
  const from = Math.max(0, cursor - 2000)
  const [found = ''] = /\S*\s*$/.exec(text.slice(from, cursor)) ?? []
  return cursor - found.length
}
const wordAfter = ({ text, cursor }: Editor): number => {
  const [found = ''] = /^\s*(?:[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]+|)/u.exec(text.slice(cursor, cursor + 2000)) ?? []
  return cursor + found.length
}

/** What a key does to the prompt; undefined when it is not the editor's. Enter without a modifier and the arrows up and down are not. */
export function editorKey(editor: Editor, key: Key): Editor | undefined {
  const { text, cursor } = editor
  const word = key.alt || key.ctrl
  switch (key.name) {
    case 'left':
      return moved(editor, word ? wordBefore(editor) : previousGrapheme(text, cursor))
    case 'right':
      return moved(editor, word ? wordAfter(editor) : nextGrapheme(text, cursor))
    case 'home':
      return moved(editor, key.ctrl ? 0 : lineStart(editor))
    case 'end':
      return moved(editor, key.ctrl ? text.length : lineEnd(editor))
    case 'backspace':
      return word ? cut(editor, wordBefore(editor), cursor) : remove(editor, previousGrapheme(text, cursor), cursor)
    case 'delete':
      return word ? cut(editor, cursor, wordAfter(editor)) : remove(editor, cursor, nextGrapheme(text, cursor))
    case 'enter':
      return (key.shift || key.ctrl) && !key.alt ? put(editor, '\n', 'other') : undefined
    default:
      return key.ctrl && !key.alt
        ? controlled(editor, key)
        : key.alt && !key.ctrl
          ? alternative(editor, key)
          : undefined
  }
}

function controlled(editor: Editor, key: Key): Editor | undefined {
  const { text, cursor } = editor
  switch (key.name) {
    case 'a':
      return moved(editor, lineStart(editor))
    case 'e':
      return moved(editor, lineEnd(editor))
    case 'b':
      return moved(editor, previousGrapheme(text, cursor))
    case 'f':
      return moved(editor, nextGrapheme(text, cursor))
    case 'h':
      return remove(editor, previousGrapheme(text, cursor), cursor)
    case 'd':
      return text === '' ? undefined : remove(editor, cursor, nextGrapheme(text, cursor))
    case 'j':
      return put(editor, '\n', 'other')
    case 'w':
      return cut(editor, spaceBefore(editor), cursor)
    case 'u': {
      const start = lineStart(editor)
      return cut(editor, start === cursor ? Math.max(0, cursor - 1) : start, cursor)
    }
    case 'k': {
      const end = lineEnd(editor)
      return cut(editor, cursor, end === cursor ? Math.min(text.length, cursor + 1) : end)
    }
    case 'y':
      return put(editor, editor.killed, 'other')
    case '_':
    case '/':
    case '-':
      return undone(editor)
    default:
      return undefined
  }
}

function alternative(editor: Editor, key: Key): Editor | undefined {
  switch (key.name) {
    case 'b':
      return moved(editor, wordBefore(editor))
    case 'f':
      return moved(editor, wordAfter(editor))
    case 'd':
      return cut(editor, editor.cursor, wordAfter(editor))
    case '_':
    case '/':
      return redone(editor)
    default:
      return undefined
  }
}

function undone(editor: Editor): Editor {
  const moment = editor.undo.at(-1)
  if (moment === undefined) return editor
  const now = { text: editor.text, cursor: editor.cursor }
  return { ...editor, ...moment, undo: editor.undo.slice(0, -1), redo: [...editor.redo, now], last: 'other' }
}

function redone(editor: Editor): Editor {
  const moment = editor.redo.at(-1)
  if (moment === undefined) return editor
  const now = { text: editor.text, cursor: editor.cursor }
  return { ...editor, ...moment, redo: editor.redo.slice(0, -1), undo: [...editor.undo, now], last: 'other' }
}
