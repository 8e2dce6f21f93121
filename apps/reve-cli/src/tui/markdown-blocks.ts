/** A piece of a Markdown document. */
export type Block =
  | { readonly type: 'heading'; readonly level: number; readonly text: string }
  | { readonly type: 'paragraph'; readonly text: string }
  | { readonly type: 'code'; readonly info: string; readonly lines: readonly string[] }
  | { readonly type: 'quote'; readonly blocks: readonly Block[] }
  | { readonly type: 'list'; readonly items: readonly ListItem[] }
  | { readonly type: 'table'; readonly align: readonly Align[]; readonly rows: readonly (readonly string[])[] }
  | { readonly type: 'rule' }

export type Align = 'left' | 'right' | 'center'
export type ListItem = { readonly marker: string; readonly blocks: readonly Block[] }

/** Deeper nesting is shown as text: what nobody writes must not cost anything. */
const deepest = 6

const fence = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})\s*(.*)$/
const heading = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/
const rule = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/
const item = /^( {0,3})([-*+•]|\d{1,9}[.)])(\s+|$)(.*)$/
const quote = /^ {0,3}> ?/
const tableRule = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/

/** Whether a line opens a fence; gives what closes it. */
export function fenceOf(line: string): Fence | undefined {
  const [, indent = '', mark, info] = fence.exec(line) ?? []
  return mark === undefined ? undefined : { indent: indent.length, mark, info: info ?? '' }
}

/** What opens a block of code. `indent`: so many spaces before each line are not code. */
type Fence = { readonly indent: number; readonly mark: string; readonly info: string }

/** Lines of code as they are meant. */
export const outdented = (lines: readonly string[], { indent }: Pick<Fence, 'indent'>): readonly string[] =>
  indent === 0 ? lines : lines.map((line) => line.replace(new RegExp(`^ {0,${indent}}`), ''))

/** Whether a line closes the fence that `mark` opened. */
export const closesFence = (line: string, mark: string): boolean => {
  const [, end] = /^ {0,3}(`{3,}|~{3,})\s*$/.exec(line) ?? []
  return end?.startsWith(mark) === true
}

/** Whether a line begins an item of a list, which goes on over blank lines. */
export const isItem = (line: string): boolean => item.test(line) && !rule.test(line)

/** Reads a document. Pure; linear but for nesting, which has a bound. */
export function parseBlocks(text: string): readonly Block[] {
  return blocksOf(text.split('\n'), 0)
}

function blocksOf(lines: readonly string[], depth: number): readonly Block[] {
  const blocks: Block[] = []
  let at = 0
  while (at < lines.length) {
    const line = lines[at] ?? ''
    if (line.trim() === '') {
      at += 1
      continue
    }
    const [block, end] = blockAt(lines, at, depth)
    blocks.push(block)
    at = end
  }
  return blocks
}

function blockAt(lines: readonly string[], at: number, depth: number): readonly [Block, number] {
  const line = lines[at] ?? ''
  const opened = fenceOf(line)
  if (opened !== undefined) return codeAt(lines, at, opened)
  const [, marks, title] = heading.exec(line) ?? []
  if (marks !== undefined) return [{ type: 'heading', level: marks.length, text: title ?? '' }, at + 1]
  if (rule.test(line)) return [{ type: 'rule' }, at + 1]
  if (depth < deepest && quote.test(line)) return quoteAt(lines, at, depth)
  if (depth < deepest && item.test(line)) return listAt(lines, at, depth)
  if (line.includes('|') && tableRule.test(lines[at + 1] ?? '') && (lines[at + 1] ?? '').includes('-')) {
    const table = tableAt(lines, at)
    if (table !== undefined) return table
  }
  return paragraphAt(lines, at, depth)
}

function codeAt(lines: readonly string[], at: number, opened: Fence): readonly [Block, number] {
  let end = at + 1
  while (end < lines.length && !closesFence(lines[end] ?? '', opened.mark)) end += 1
  // What follows the last line feed of a document is no line.
  const open = end === lines.length && lines.at(-1) === ''
  const body = outdented(lines.slice(at + 1, open ? end - 1 : end), opened)
  return [{ type: 'code', info: opened.info, lines: body }, end + 1]
}

function quoteAt(lines: readonly string[], at: number, depth: number): readonly [Block, number] {
  const inner: string[] = []
  let end = at
  for (; end < lines.length; end += 1) {
    const line = lines[end] ?? ''
    if (quote.test(line)) inner.push(line.replace(quote, ''))
    else if (line.trim() !== '' && (inner.at(-1) ?? '').trim() !== '' && !startsBlock(line)) inner.push(line)
    else break
  }
  return [{ type: 'quote', blocks: blocksOf(inner, depth + 1) }, end]
}

function listAt(lines: readonly string[], at: number, depth: number): readonly [Block, number] {
  const items: ListItem[] = []
  const [, baseIndent = '', baseMarker = ''] = item.exec(lines[at] ?? '') ?? []
  const ordered = /\d/.test(baseMarker)
  let end = at
  while (end < lines.length) {
    const [, indent, marker, space, rest] = item.exec(lines[end] ?? '') ?? []
    if (indent === undefined || marker === undefined || /\d/.test(marker) !== ordered) break
    if (rule.test(lines[end] ?? '')) break
    const content = indent.length + marker.length + Math.min(Math.max((space ?? '').length, 1), 4)
    const body = [rest ?? '']
    end += 1
    for (; end < lines.length; end += 1) {
      const line = lines[end] ?? ''
      if (line.trim() === '') {
        // It belongs to the item only if something of the item follows.
        const next = lines.slice(end + 1, end + 3).find((other) => other.trim() !== '')
        if (next === undefined || /^ */.exec(next)?.[0].length === 0) break
        body.push('')
        continue
      }
      const own = /^ */.exec(line)?.[0].length ?? 0
      if (own > baseIndent.length + 1) body.push(line.slice(Math.min(own, content)))
      else if (startsBlock(line) || (body.at(-1) ?? '').trim() === '') break
      else body.push(line)
    }
    items.push({ marker, blocks: blocksOf(body, depth + 1) })
    const next = end
    while (end < lines.length && (lines[end] ?? '').trim() === '') end += 1
    if (!item.test(lines[end] ?? '')) {
      end = next
      break
    }
  }
  return [{ type: 'list', items }, end]
}

function tableAt(lines: readonly string[], at: number): readonly [Block, number] | undefined {
  const head = cellsOf(lines[at] ?? '')
  const marks = cellsOf(lines[at + 1] ?? '')
  if (marks.length !== head.length) return undefined
  const align = marks.map((mark): Align => {
    if (!mark.endsWith(':')) return 'left'
    return mark.startsWith(':') ? 'center' : 'right'
  })
  const rows = [head]
  let end = at + 2
  for (; end < lines.length; end += 1) {
    const line = lines[end] ?? ''
    if (!line.includes('|') || line.trim() === '') break
    const cells = cellsOf(line).slice(0, head.length)
    rows.push([...cells, ...Array.from({ length: head.length - cells.length }, () => '')])
  }
  return [{ type: 'table', align, rows }, end]
}

/** A bar after a backslash, or within code, is text. */
function cellsOf(line: string): readonly string[] {
  const cells: string[] = []
  let cell = ''
  let code = false
  for (const [index, character] of [
    ...line
      .trim()
      .replace(/^\|/, '')
      .replace(/(?<!\\)\|$/, ''),
  ].entries()) {
    if (character === '`') code = !code
    if (character === '|' && !code && !cell.endsWith('\\')) {
      cells.push(cell.trim())
      cell = ''
    } else if (character === '|' && cell.endsWith('\\')) cell = `${cell.slice(0, -1)}|`
    else cell += character
    if (index > 20_000) break
  }
  return [...cells, cell.trim()]
}

const startsBlock = (line: string): boolean =>
  fence.test(line) || heading.test(line) || rule.test(line) || quote.test(line) || item.test(line)

function paragraphAt(lines: readonly string[], at: number, depth: number): readonly [Block, number] {
  const text = [(lines[at] ?? '').trimStart()]
  let end = at + 1
  for (; end < lines.length; end += 1) {
    const line = lines[end] ?? ''
    if (line.trim() === '' || (depth < deepest && startsBlock(line)) || fence.test(line)) break
    if (line.includes('|') && tableRule.test(lines[end + 1] ?? '') && (lines[end + 1] ?? '').includes('|')) break
    text.push(line.replace(/^\s+/, ''))
  }
  return [{ type: 'paragraph', text: softBroken(text).trimEnd() }, end]
}

/** A line's end is a space, unless it is meant: two spaces or a backslash before it. */
function softBroken(lines: readonly string[]): string {
  const last = lines.length - 1
  return lines
    .map((line, index) => {
      if (index === last) return line
      if (/ {2}$/.test(line)) return `${line.trimEnd()}\n`
      return line.endsWith('\\') ? `${line.slice(0, -1)}\n` : `${line.trimEnd()} `
    })
    .join('')
}
