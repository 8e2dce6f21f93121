import { cellWidth } from './cells.ts'
import { highlight, type HighlightState } from './highlight.ts'
import type { Align, Block, ListItem } from './markdown-blocks.ts'
import { inline } from './markdown-inline.ts'
import { clip, type Line, lineWidth, pad, span, wrap } from './spans.ts'

/** Rows of a document, an empty one between two blocks. `width` in cells. */
export function blockRows(blocks: readonly Block[], width: number): readonly Line[] {
  const shown = blocks.map((block) => rowsOf(block, width)).filter(({ length }) => length > 0)
  return shown.flatMap((rows, index) => (index > 0 ? [[], ...rows] : rows))
}

function rowsOf(block: Block, width: number): readonly Line[] {
  switch (block.type) {
    case 'heading':
      return wrap(inline(block.text, { bold: true, ...(block.level <= 2 ? { role: 'accent' as const } : {}) }), width)
    case 'paragraph':
      return wrap(inline(block.text), width)
    case 'code':
      return codeRows(block.lines, block.info, width).rows
    case 'quote':
      return blockRows(block.blocks, Math.max(1, width - 2)).map((row) => clip([span('▌ ', 'faint'), ...row], width))
    case 'list':
      return listRows(block.items, width)
    case 'table':
      return tableRows(block.rows, block.align, width)
    case 'rule':
      return [[span('─'.repeat(Math.max(1, Math.min(width, 40))), 'faint')]]
    default:
      return block satisfies never
  }
}

/** Rows of code behind a bar; gives how the highlighting goes on after them. */
export function codeRows(
  lines: readonly string[],
  info: string,
  width: number,
  state: HighlightState = {},
): { readonly rows: readonly Line[]; readonly state: HighlightState } {
  const bar = [span('│ ', 'faint')]
  let current = state
  const rows = lines.flatMap((line) => {
    const [coloured, next] = highlight(line, info, current)
    current = next
    return wrap(coloured, width, { first: bar, rest: bar })
  })
  return { rows, state: current }
}

function listRows(items: readonly ListItem[], width: number): readonly Line[] {
  // Items of one paragraph stand close.
  const loose = items.some(({ blocks }) => blocks.filter(({ type }) => type === 'paragraph').length > 1)
  return items.flatMap(({ marker, blocks }, index) => {
    const sign = /\d/.test(marker) ? `${marker} ` : '• '
    const indent = cellWidth(sign)
    const [first, ...rest] = blocks
    const body: readonly Line[] = [
      ...(first === undefined ? [[]] : rowsOf(task(first), Math.max(1, width - indent))),
      ...rest.flatMap((block) => [
        ...(block.type === 'list' ? [] : [[]]),
        ...rowsOf(block, Math.max(1, width - indent)),
      ]),
    ]
    const rows = body.map((row, at): Line => {
      if (at === 0) return [span(sign, 'accent'), ...row]
      return row.length === 0 ? [] : [span(' '.repeat(indent)), ...row]
    })
    return [...(loose && index > 0 ? [[]] : []), ...rows.map((row) => clip(row, width))]
  })
}

function task(block: Block): Block {
  if (block.type !== 'paragraph') return block
  const [whole, mark] = /^\[([ xX])\]\s+/.exec(block.text) ?? []
  if (whole === undefined) return block
  return { ...block, text: `${mark === ' ' ? '☐' : '☑'} ${block.text.slice(whole.length)}` }
}

const narrowestColumn = 4

function tableRows(rows: readonly (readonly string[])[], align: readonly Align[], width: number): readonly Line[] {
  const cells = rows.map((row, index) => row.map((cell) => inline(cell, index === 0 ? { bold: true } : {})))
  const columns = align.length
  const room = width - (columns - 1) * 3
  if (room < columns * narrowestColumn) return listedTable(cells, width)
  const widths = fitted(
    align.map((_, column) => Math.max(1, ...cells.map((row) => lineWidth(row[column] ?? [])))),
    room,
  )
  const between = span(' │ ', 'faint')
  const drawn = cells.map((row) => {
    const wrapped = widths.map((columnWidth, column) => wrap(row[column] ?? [], columnWidth))
    const height = Math.max(1, ...wrapped.map(({ length }) => length))
    return Array.from({ length: height }, (_, line) =>
      widths.flatMap((columnWidth, column) => [
        ...(column > 0 ? [between] : []),
        ...pad(wrapped[column]?.[line] ?? [], columnWidth, align[column]),
      ]),
    )
  })
  const rule = [span(widths.map((columnWidth) => '─'.repeat(columnWidth)).join('─┼─'), 'faint')]
  return [...(drawn[0] ?? []), rule, ...drawn.slice(1).flat()].map((row) => clip(row, width))
}

/** Widths that fit: narrow columns keep theirs, the others share what is left. */
function fitted(wanted: readonly number[], room: number): readonly number[] {
  if (wanted.reduce((sum, width) => sum + width, 0) <= room) return wanted
  let left = room
  let open = wanted.length
  const widths = wanted.map(() => 0)
  for (const [column, width] of [...wanted.entries()].toSorted((a, b) => a[1] - b[1])) {
    const share = Math.floor(left / open)
    widths[column] = Math.max(1, Math.min(width, share))
    left -= widths[column] ?? 0
    open -= 1
  }
  return widths
}

/** Where columns have no room: each row as a list of its cells, under the names of their columns. */
function listedTable(cells: readonly (readonly Line[])[], width: number): readonly Line[] {
  const [head = [], ...rows] = cells
  return rows.flatMap((row, index) => [
    ...(index > 0 ? [[]] : []),
    ...row.flatMap((cell, column) => wrap([...(head[column] ?? []), span(': '), ...cell], width)),
  ])
}
