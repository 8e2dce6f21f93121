import { cellWidth } from './cells.ts'
import { cleanLine, cleanText } from './clean.ts'
import { clip, type Line, span, wrap } from './spans.ts'
import type { Tree, TreeNode } from './tree.ts'
import type { Overlay, PickItem, UiState } from './ui-state.ts'

/** Rows of what is open, at most `height`. */
export function overlayRows(state: UiState, width: number, height: number): readonly Line[] {
  const { overlay } = state
  if (overlay === undefined) return []
  switch (overlay.type) {
    case 'picker':
      return pickerRows(overlay, width, height)
    case 'viewer':
      return viewerRows(overlay, width, height)
    case 'tree':
      return treeRows(overlay.tree, width, height)
    default:
      return overlay satisfies never
  }
}

/** What a picker shows after its filter. */
export function picked(items: readonly PickItem[], filter: string): readonly PickItem[] {
  const wanted = filter.toLowerCase()
  return wanted === ''
    ? items
    : items.filter(({ label, detail = '' }) => `${label} ${detail}`.toLowerCase().includes(wanted))
}

function pickerRows(picker: Overlay & { readonly type: 'picker' }, width: number, height: number): readonly Line[] {
  const items = picked(picker.items, picker.filter)
  const room = Math.max(1, height - 3)
  const from = Math.max(0, Math.min(picker.selected - Math.floor(room / 2), items.length - room))
  const shown = items.slice(from, from + room)
  const column = Math.min(
    Math.max(0, ...shown.map(({ label }) => cellWidth(cleanLine(label, 200)))),
    Math.floor(width * 0.65),
  )
  const rows = shown.map((item, index): Line => {
    const here = from + index === picker.selected
    const label = clip([span(cleanLine(item.label, 200), here ? { role: 'accent', bold: true } : {})], column, true)
    const space = ' '.repeat(Math.max(2, column - label.reduce((sum, { text }) => sum + cellWidth(text), 0) + 2))
    return clip(
      [
        span(here ? '❯ ' : '  ', 'accent'),
        ...label,
        ...(item.detail === undefined ? [] : [span(space + cleanLine(item.detail, 300), 'faint')]),
      ],
      width,
      true,
    )
  })
  const filter = picker.filter === '' ? [] : [span(` · ${picker.filter}`, 'accent')]
  return [
    clip([span('── ', 'faint'), span(cleanLine(picker.title, 200), { bold: true }), ...filter], width),
    ...(rows.length > 0 ? rows : [[span('  nothing fits', 'faint')]]),
    clip([span('  ↑↓ choose · Enter takes it · type to filter · Esc closes', 'faint')], width, true),
  ]
}

function viewerRows(viewer: Overlay & { readonly type: 'viewer' }, width: number, height: number): readonly Line[] {
  const { rows } = viewer
  const room = viewerRoom(height)
  const last = Math.max(0, rows.length - room)
  const from = viewer.follow ? last : Math.min(viewer.offset, last)
  const place = rows.length > room ? ` · ${from + 1}–${Math.min(rows.length, from + room)} of ${rows.length}` : ''
  return [
    clip([span('── ', 'faint'), span(cleanLine(viewer.title, 200), { bold: true }), span(place, 'faint')], width),
    ...rows.slice(from, from + room),
    clip(
      [
        span(
          `  ↑↓ PgUp PgDn scroll${viewer.from.type === 'folded' ? ' · ←→ the block before, after' : ''} · Esc closes`,
          'faint',
        ),
      ],
      width,
      true,
    ),
  ]
}

/** Rows of text in a viewer of a height. */
export const viewerRoom = (height: number): number => Math.max(1, height - 2)

const marks: Readonly<Record<TreeNode['kind'], string>> = {
  user: '⟩',
  assistant: '◆',
  tool: '▸',
  summary: '≡',
  other: '·',
}
const previewRows = 5

function treeRows(tree: Tree, width: number, height: number): readonly Line[] {
  const preview = height >= 14 ? previewRows : 0
  const room = Math.max(1, height - 3 - preview)
  const from = Math.max(0, Math.min(tree.selected - Math.floor(room / 2), tree.nodes.length - room))
  const node = tree.nodes[tree.selected]
  const rows = tree.nodes
    .slice(from, from + room)
    .map((shown, index) => nodeRow(shown, from + index === tree.selected, tree, width))
  const whole =
    node === undefined
      ? []
      : wrap([span(cleanText(node.whole).slice(0, 4000), 'dim')], Math.max(1, width - 4), {}).slice(0, preview - 1)
  const keys =
    tree.labelling === undefined
      ? [span('  Enter goes back there · l label · t tools · ⇧↑↓ what you said · Esc closes', 'faint')]
      : [
          span('  label: ', 'accent'),
          span(cleanLine(tree.labelling, 200)),
          span('▏', 'accent'),
          span('  Enter keeps it, empty takes it off', 'faint'),
        ]
  return [
    clip(
      [
        span('── ', 'faint'),
        span('The conversation', { bold: true }),
        span(` · ${tree.nodes.length} entries`, 'faint'),
      ],
      width,
    ),
    ...(rows.length > 0 ? rows : [[span('  nothing was said yet', 'faint')]]),
    ...(preview > 0 ? [[], ...whole.map((row) => [span('    '), ...row])] : []),
    clip(keys, width, true),
  ]
}

function nodeRow(node: TreeNode, here: boolean, tree: Tree, width: number): Line {
  const branch = node.depth === 0 ? '' : `${'  '.repeat(Math.min(node.depth, 10) - 1)}╰ `
  const label = node.label === undefined ? [] : [span(`[${cleanLine(node.label, 40)}] `, 'alert')]
  const role = here ? ({ role: 'accent', bold: true } as const) : node.current ? {} : ('dim' as const)
  const leaf = node.id === tree.leaf ? [span(' ← here', 'good')] : []
  const text = node.text === '' ? '(empty)' : node.text
  return clip(
    [
      span(here ? '❯ ' : '  ', 'accent'),
      span(branch, 'faint'),
      span(`${marks[node.kind]} `, node.kind === 'user' ? 'accent' : 'faint'),
      ...label,
      ...clip([span(text, role)], Math.max(4, width - 16 - branch.length), true),
      ...leaf,
    ],
    width,
    true,
  )
}
