import { partsText, type NoticeLevel, type ToolBlock, type UiBlock } from './block.ts'
import { cleanLine, cleanText } from './clean.ts'
import { durationText } from './figures.ts'
import { diffLines, hunks } from './line-diff.ts'
import { parseBlocks } from './markdown-blocks.ts'
import { blockRows as markdownRows } from './markdown-view.ts'
import { clip, type Line, type Role, span, type Span, wrap } from './spans.ts'
import { toolSummary } from './tool-summary.ts'

/** How much of a tool's output is shown before it is folded. */
export const foldedLines = { head: 4, tail: 6 } as const
const longestLine = 1000
const mostLines = 5000

/** Rows of a block, no wider than `width`. `whole`: nothing is folded. */
export function blockView(block: UiBlock, width: number, whole = false): readonly Line[] {
  switch (block.type) {
    case 'user':
      return userRows(block, width)
    case 'assistant':
      return assistantRows(markdownRows(parseBlocks(cleanText(block.text).trim()), inner(width)), true).map((row) =>
        clip(row, width),
      )
    case 'tool':
      return [toolHeader(block, width), ...toolBody(block, width, whole)]
    case 'notice':
      return wrap([span(cleanText(block.text).trimEnd(), roleOf(block.level))], width, {
        first: [span(signs[block.level], roleOf(block.level))],
        rest: [span('  ')],
      })
    case 'inbox':
      return wrap([span(`From ${cleanLine(block.from, 60)} · `, 'dim'), span(cleanText(block.text))], width, {
        first: [span('✉ ', 'accent')],
        rest: [span('  ')],
      })
    case 'answer':
      return [
        [span('· ', 'accent'), span(cleanLine(block.title, width), { bold: true })],
        ...markdownRows(parseBlocks(cleanText(block.text).trim()), inner(width)).map(indented),
      ].map((row) => clip(row, width))
    default:
      return block satisfies never
  }
}

/** The room beside the mark of an answer. */
export const inner = (width: number): number => Math.max(1, width - 2)

/** Rows of an answer behind its mark. `first`: they are its first ones. */
export const assistantRows = (rows: readonly Line[], first: boolean): readonly Line[] =>
  rows.map((row, index) =>
    first && index === 0 ? [span('◆ ', { bold: true, role: 'accent' }), ...row] : indented(row),
  )

const indented = (row: Line): Line => (row.length === 0 ? row : [span('  '), ...row])

const signs: Readonly<Record<NoticeLevel, string>> = { info: '· ', good: '✓ ', warning: '! ', error: '✗ ' }

const roleOf = (level: NoticeLevel): Role => {
  switch (level) {
    case 'info':
      return 'dim'
    case 'good':
      return 'good'
    case 'warning':
      return 'alert'
    case 'error':
      return 'danger'
    default:
      return level satisfies never
  }
}

function userRows({ text, as }: UiBlock & { readonly type: 'user' }, width: number): readonly Line[] {
  const lines = cleanText(text).trimEnd().split('\n')
  const label = as === 'steer' ? 'Steer · ' : as === 'follow_up' ? 'Follow-up · ' : ''
  const sign = as === undefined || as === 'next_run' ? '⟩ ' : '⤷ '
  const shown = folded(lines, { head: 30, tail: 10 })
  return shown.flatMap((line, index) => {
    const prefix = [span(index === 0 ? sign : '  ', { role: 'accent', bold: true })]
    if (typeof line === 'number') return [clip([...prefix, span(`… ${line} more lines`, 'faint')], width)]
    const spans: readonly Span[] = [...(index === 0 && label !== '' ? [span(label, 'dim')] : []), span(line, 'accent')]
    return wrap(spans, width, { first: prefix, rest: [span('  ')] })
  })
}

/** The head of a tool's block: what was done, and how it ended. */
function toolHeader(block: ToolBlock, width: number): Line {
  const [glyph, role] = endings[block.state]
  const time = block.ms === undefined ? '' : ` · ${durationText(block.ms)}`
  const end: Line = [span(` ${glyph}`, role), span(time, 'faint')]
  const room = Math.max(1, width - 2 - 1 - time.length - 1)
  const name = cleanLine(block.name, 60)
  const head = clip(
    [
      span(name, { bold: true, ...(block.state === 'ok' ? {} : { role }) }),
      span(` ${toolSummary(block.name, block.arguments)}`, 'dim'),
    ],
    room,
    true,
  )
  return clip([span('▸ ', role === 'good' ? 'accent' : role), ...head, ...end], width)
}

const endings: Readonly<Record<ToolBlock['state'], readonly [string, Role]>> = {
  ok: ['✓', 'good'],
  failed: ['✗', 'danger'],
  unknown: ['?', 'alert'],
  not_run: ['· not run', 'alert'],
}

function toolBody(block: ToolBlock, width: number, whole: boolean): readonly Line[] {
  const text = cleanText(partsText(block.content)).trimEnd()
  const diff = block.state === 'ok' ? diffOf(block) : undefined
  if (diff !== undefined) return folding(diff, width, whole, { head: 30, tail: 6 })
  if (text === '') return []
  const lines = text
    .split('\n')
    .map((line): Line => [span(line.slice(0, longestLine), block.state === 'ok' ? 'dim' : 'text')])
  return folding(lines, width, whole, foldedLines)
}

/** Lines behind a bar; of many, the beginning and the end. */
function folding(
  lines: readonly Line[],
  width: number,
  whole: boolean,
  keep: { readonly head: number; readonly tail: number },
): readonly Line[] {
  const shown = whole ? folded(lines, { head: mostLines, tail: 0 }) : folded(lines, keep)
  const bar = [span('  │ ', 'faint')]
  return shown.flatMap((line) =>
    typeof line === 'number'
      ? [clip([...bar, span(`… ${line} more lines${whole ? '' : ' · Ctrl-O shows them'}`, 'faint')], width)]
      : wrap(line, width, { first: bar, rest: bar }),
  )
}

/** The first and the last of many, and between them how many are not shown. */
function folded<T>(
  items: readonly T[],
  { head, tail }: { readonly head: number; readonly tail: number },
): readonly (T | number)[] {
  // One line that says that a line is left out would help nobody.
  if (items.length <= head + tail + 1) return items
  return [...items.slice(0, head), items.length - head - tail, ...(tail > 0 ? items.slice(-tail) : [])]
}

/** What an edit changed, or what a new file holds. */
function diffOf({ name, arguments: args }: ToolBlock): readonly Line[] | undefined {
  const text = (key: string): string | undefined => {
    const value = args[key]
    return typeof value === 'string' ? cleanText(value) : undefined
  }
  const line = (sign: string, content: string, role: Role): Line => [span(`${sign} ${content}`, role)]
  if (name === 'write') {
    const lines = text('content')?.replace(/\n$/, '').split('\n')
    return lines?.map((content) => line('+', content.slice(0, longestLine), 'added'))
  }
  const before = text('old')
  const after = text('new')
  if (name !== 'edit' || before === undefined || after === undefined) return undefined
  return hunks(diffLines(before, after)).map((found) => {
    if (found === undefined) return [span('⋯', 'faint')]
    const content = found.text.slice(0, longestLine)
    switch (found.kind) {
      case 'same':
        return line(' ', content, 'dim')
      case 'added':
        return line('+', content, 'added')
      case 'removed':
        return line('-', content, 'removed')
      default:
        return found.kind satisfies never
    }
  })
}
