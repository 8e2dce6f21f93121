import { graphemes, graphemeWidth } from './cells.ts'
import { chipLabel, type Editor } from './editor.ts'
import type { Line, Style } from './spans.ts'

/** One row of the prompt: which part of the text it shows. */
type Row = { readonly from: number; readonly to: number; readonly line: Line }

/** The prompt as rows of a width, and where the cursor is. */
export type EditorLayout = {
  readonly rows: readonly Row[]
  readonly cursor: { readonly row: number; readonly column: number }
}

const plainRow = /^[\u0020-\u007e]*$/
const chipStyle: Style = { role: 'code' }
const plainStyle: Style = {}

/** Lays the prompt out. One cell of each row is left for a cursor at its end. */
export function layoutEditor(editor: Editor, width: number): EditorLayout {
  const room = Math.max(1, width - 1)
  const rows: Row[] = []
  let from = 0
  for (const line of editor.text.split('\n')) {
    rows.push(...rowsOf(line, from, room, editor.chips))
    from += line.length + 1
  }
  const at = Math.max(
    0,
    rows.findLastIndex((row) => row.from <= editor.cursor),
  )
  const { from: start } = rows[at] ?? { from: 0 }
  return { rows, cursor: { row: at, column: cellsOf(editor.text.slice(start, editor.cursor), editor.chips) } }
}

function rowsOf(text: string, offset: number, room: number, chips: Editor['chips']): readonly Row[] {
  if (text.length <= room && plainRow.test(text)) {
    return [{ from: offset, to: offset + text.length, line: text === '' ? [] : [{ text, style: plainStyle }] }]
  }
  const rows: Row[] = []
  let spans: { text: string; style: Style }[] = []
  let from = 0
  let at = 0
  let used = 0
  let space: { readonly at: number; readonly spans: number; readonly length: number } | undefined
  const add = (piece: string, style: Style): void => {
    const last = spans.at(-1)
    if (last !== undefined && last.style === style) last.text += piece
    else spans.push({ text: piece, style })
  }
  for (const grapheme of graphemes(text)) {
    const chip = chips.get(grapheme)
    const shown = chip === undefined ? grapheme : chipLabel(chip)
    const width = chip === undefined ? graphemeWidth(grapheme) : cellsOf(shown, chips)
    if (used + width > room && used > 0) {
      const rest: typeof spans = []
      let end = at
      if (space !== undefined && space.at > from) {
        // The word that does not fit goes to the next row whole.
        const cut = spans[space.spans]
        end = space.at
        rest.push(
          ...(cut !== undefined && cut.text.length > space.length
            ? [{ ...cut, text: cut.text.slice(space.length) }]
            : []),
          ...spans.slice(space.spans + 1),
        )
        spans = [
          ...spans.slice(0, space.spans),
          ...(cut === undefined ? [] : [{ ...cut, text: cut.text.slice(0, space.length) }]),
        ]
      }
      rows.push({ from: offset + from, to: offset + end, line: spans })
      spans = rest
      from = end
      used = rest.reduce((sum, { text: piece }) => sum + cellsOf(piece, chips), 0)
      space = undefined
    }
    add(shown, chip === undefined ? plainStyle : chipStyle)
    used += width
    at += grapheme.length
    if (grapheme === ' ') space = { at, spans: spans.length - 1, length: spans.at(-1)?.text.length ?? 0 }
  }
  rows.push({ from: offset + from, to: offset + text.length, line: spans })
  return rows
}

function cellsOf(text: string, chips: Editor['chips']): number {
  if (plainRow.test(text)) return text.length
  let cells = 0
  for (const grapheme of graphemes(text)) {
    const chip = chips.get(grapheme)
    cells += chip === undefined ? graphemeWidth(grapheme) : cellsOf(chipLabel(chip), new Map())
  }
  return cells
}

/** The prompt with its cursor a row up or down; undefined when there is no such row. */
export function movedRow(editor: Editor, width: number, rows: number): Editor | undefined {
  const layout = layoutEditor(editor, width)
  const target = layout.rows[layout.cursor.row + rows]
  if (target === undefined) return undefined
  let cursor = target.from
  let column = 0
  for (const grapheme of graphemes(editor.text.slice(target.from, target.to))) {
    const cells = cellsOf(grapheme, editor.chips)
    if (column + cells > layout.cursor.column) break
    column += cells
    cursor += grapheme.length
  }
  // The end of a row that was broken is the start of the next one.
  const last = editor.text[target.to] === '\n' || target.to === editor.text.length
  return { ...editor, cursor: last ? cursor : Math.min(cursor, Math.max(target.from, target.to - 1)), last: 'other' }
}
