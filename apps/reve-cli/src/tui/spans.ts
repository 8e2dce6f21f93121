import { cellWidth, graphemes, graphemeWidth } from './cells.ts'

/** What a piece of text is for; a theme says how that looks. */
export const roles = [
  'text',
  'dim',
  'faint',
  'accent',
  'danger',
  'good',
  'alert',
  'code',
  'added',
  'removed',
  'keyword',
  'string',
  'number',
  'comment',
] as const
export type Role = (typeof roles)[number]

/** How a piece of text looks. `link`: where it leads. */
export type Style = {
  readonly role?: Role
  readonly bold?: true
  readonly italic?: true
  readonly underline?: true
  readonly strike?: true
  readonly inverse?: true
  readonly link?: string
}

/** Text of one look, without line ends. */
export type Span = { readonly text: string; readonly style: Style }

/** One row of a terminal. Each span opens its style and closes it, so that none reaches over the row's end. */
export type Line = readonly Span[]

const plain: Style = {}

/** A span; without a style, as text is. */
export const span = (text: string, style: Style | Role = plain): Span => ({
  text,
  style: typeof style === 'string' ? { role: style } : style,
})

/** Cells that a row takes. */
export const lineWidth = (line: Line): number => line.reduce((sum, { text }) => sum + cellWidth(text), 0)

type Cell = { readonly text: string; readonly width: number; readonly style: Style }

/**
 * Breaks text into rows at spaces, between wide characters, and where nothing else helps inside of a word. A line feed ends a
 * row. Never wider than `width`, however narrow; a character that is wider than the whole row is left out.
 *
 * @param first stands in front of the first row, `rest` of the others (default: spaces of the same width).
 */
export function wrap(
  spans: Line,
  width: number,
  prefix: { readonly first?: Line; readonly rest?: Line } = {},
): readonly Line[] {
  const first = prefix.first ?? []
  const indent = lineWidth(first)
  const rest = prefix.rest ?? (indent === 0 ? [] : [span(' '.repeat(indent))])
  const hang = lineWidth(rest)
  // Most of what is wrapped needs none.
  if (fits(spans, width - indent)) return [[...first, ...spans]]
  const room = (row: number): number => Math.max(1, width - (row === 0 ? indent : hang))
  const rows: Cell[][] = []
  let row: Cell[] = []
  let used = 0
  // Cells of `row` up to here may stay when the rest has to go to the next row.
  let breakAt = 0
  const end = (): void => {
    rows.push(row)
    row = []
    used = 0
    breakAt = 0
  }
  for (const { text, style } of spans) {
    for (const grapheme of graphemes(text)) {
      if (grapheme === '\n') {
        end()
        continue
      }
      const cell = { text: grapheme, width: graphemeWidth(grapheme), style }
      if (used + cell.width > room(rows.length)) {
        if (grapheme === ' ') {
          // The space that a row is broken at stands nowhere.
          end()
          continue
        }
        const moved = breakAt > 0 ? row.splice(breakAt) : []
        end()
        row = moved
        used = moved.reduce((sum, { width: cells }) => sum + cells, 0)
        if (cell.width > room(rows.length)) continue
        if (used + cell.width > room(rows.length)) end()
      }
      if (cell.width === 2 && row.length > 0) breakAt = row.length
      row.push(cell)
      used += cell.width
      if (grapheme === ' ' || cell.width === 2) breakAt = row.length
    }
  }
  rows.push(row)
  return rows.map((cells, index) => clip([...(index === 0 ? first : rest), ...joined(trimmed(cells))], width))
}

const plainRow = /^[\u0020-\u007e]*$/

/** Whether all of it is one row, without a space at its end. False when that costs more to tell than to wrap. */
function fits(spans: Line, room: number): boolean {
  let cells = 0
  for (const { text } of spans) {
    cells += text.length
    if (cells > room || !plainRow.test(text)) return false
  }
  return spans.at(-1)?.text.endsWith(' ') !== true
}

function trimmed(cells: readonly Cell[]): readonly Cell[] {
  let end = cells.length
  while (end > 0 && cells[end - 1]?.text === ' ') end--
  return cells.slice(0, end)
}

function joined(cells: readonly Cell[]): Line {
  const spans: { text: string; style: Style }[] = []
  for (const { text, style } of cells) {
    const last = spans.at(-1)
    if (last !== undefined && last.style === style) last.text += text
    else spans.push({ text, style })
  }
  return spans
}

/** Cuts a row to at most `width` cells; what is cut is marked with `…` when `mark` is set. */
export function clip(line: Line, width: number, mark = false): Line {
  if (lineWidth(line) <= width) return line
  const room = Math.max(0, mark ? width - 1 : width)
  const kept: Span[] = []
  let used = 0
  for (const { text, style } of line) {
    let piece = ''
    for (const grapheme of graphemes(text)) {
      const cells = graphemeWidth(grapheme)
      if (used + cells > room) {
        if (piece !== '') kept.push({ text: piece, style })
        return mark && width > 0 ? [...kept, span('…', 'faint')] : kept
      }
      used += cells
      piece += grapheme
    }
    kept.push({ text: piece, style })
  }
  return kept
}

/** Fills a row with spaces up to `width` cells. */
export function pad(line: Line, width: number, align: 'left' | 'right' | 'center' = 'left'): Line {
  const space = width - lineWidth(line)
  if (space <= 0) return line
  const before = align === 'right' ? space : align === 'center' ? Math.floor(space / 2) : 0
  return [
    ...(before > 0 ? [span(' '.repeat(before))] : []),
    ...line,
    ...(space > before ? [span(' '.repeat(space - before))] : []),
  ]
}
