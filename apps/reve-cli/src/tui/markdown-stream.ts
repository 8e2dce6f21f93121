import type { HighlightState } from './highlight.ts'
import { closesFence, fenceOf, isItem, outdented, parseBlocks } from './markdown-blocks.ts'
import { blockRows, codeRows } from './markdown-view.ts'
import type { Line } from './spans.ts'

/** An open block is cut here at the latest, so that what a frame costs does not grow with it. */
const longestOpen = 4 * 1024

/**
 * Markdown that is being written. What is complete is handed out once, as rows, and never changes again; the rest can be looked at as
 * often as a frame is drawn, and is bounded.
 */
export class MarkdownStream {
  /** What is not handed out yet: it begins at a block's start, or within the fence that is open. */
  #open = ''
  #fence: (Fence & { readonly state: HighlightState }) | undefined
  /** Whether rows were handed out, so that the next block needs a space before it. */
  #begun = false
  /** The next rows belong to the block of those before. */
  #continued = false
  /** The tail as it was looked at last. */
  #seen: { readonly open: string; readonly width: number; readonly rows: readonly Line[] } | undefined

  /** Takes text that was cleaned; gives the rows that are final now. */
  push(text: string, width: number): readonly Line[] {
    this.#open += text
    this.#seen = undefined
    return this.#settle(width, false)
  }

  /** The message is complete. */
  end(width: number): readonly Line[] {
    const rows = this.#settle(width, true)
    this.#open = ''
    this.#fence = undefined
    this.#begun = false
    this.#continued = false
    this.#seen = undefined
    return rows
  }

  /** The rows of what is open, as far as it is written. */
  tail(width: number): readonly Line[] {
    const seen = this.#seen
    // Many frames come between two pieces of an answer.
    if (seen !== undefined && seen.open === this.#open && seen.width === width) return seen.rows
    const rows = this.#tail(width)
    this.#seen = { open: this.#open, width, rows }
    return rows
  }

  #tail(width: number): readonly Line[] {
    if (this.#fence !== undefined) {
      return this.#spaced(codeRows(shownCode(this.#open, this.#fence), this.#fence.info, width, this.#fence.state).rows)
    }
    return this.#spaced(blockRows(parseBlocks(withoutPartialFence(this.#open)), width))
  }

  /** Rows of a block that begins, apart from those before. */
  #spaced(rows: readonly Line[]): readonly Line[] {
    return rows.length > 0 && this.#begun && !this.#continued ? [[], ...rows] : rows
  }

  /** Rows that are final, of a block that goes on after them or not. */
  #handedOut(rows: readonly Line[], goesOn: boolean): readonly Line[] {
    const spaced = this.#spaced(rows)
    if (rows.length > 0) {
      this.#begun = true
      this.#continued = goesOn
    }
    return spaced
  }

  #settle(width: number, whole: boolean): readonly Line[] {
    const rows: Line[] = []
    for (;;) {
      const before = this.#open.length
      rows.push(...(this.#fence === undefined ? this.#settleText(width, whole) : this.#settleCode(width, whole)))
      if (this.#open.length === before || this.#open === '') return rows
    }
  }

  #settleCode(width: number, whole: boolean): readonly Line[] {
    const fence = this.#fence
    if (fence === undefined) return []
    const lines = this.#open.split('\n')
    const rest = whole ? '' : (lines.pop() ?? '')
    const end = lines.findIndex((line) => closesFence(line, fence.mark))
    if (end >= 0) {
      this.#fence = undefined
      this.#open = [...lines.slice(end + 1), ...(whole ? [] : [rest])].join('\n')
      const last = this.#handedOut(
        codeRows(outdented(lines.slice(0, end), fence), fence.info, width, fence.state).rows,
        true,
      )
      this.#continued = false
      return last
    }
    // A line without an end is no line yet, unless it is one that nobody will read to its end.
    const long = rest.length > longestOpen ? [rest] : []
    this.#open = long.length > 0 ? '' : rest
    const body = whole && lines.at(-1) === '' ? lines.slice(0, -1) : lines
    const { rows, state } = codeRows(outdented([...body, ...long], fence), fence.info, width, fence.state)
    this.#fence = { ...fence, state }
    return this.#handedOut(rows, true)
  }

  #settleText(width: number, whole: boolean): readonly Line[] {
    const cut: Cut = whole ? { length: this.#open.length } : frozenLength(this.#open)
    const forced = cut.length === 0 && cut.fence === undefined && this.#open.length > longestOpen
    const length = forced ? forcedLength(this.#open) : cut.length
    if (length === 0 && cut.fence === undefined) return []
    const frozen = parseBlocks(this.#open.slice(0, length))
    this.#open = this.#open.slice(length)
    const rows = this.#handedOut(blockRows(frozen, width), forced)
    if (cut.fence === undefined) return rows
    this.#open = this.#open.slice(this.#open.indexOf('\n') + 1)
    this.#fence = { ...cut.fence, state: {} }
    this.#continued = false
    return rows
  }
}

type Fence = NonNullable<ReturnType<typeof fenceOf>>
type Cut = { readonly length: number; readonly fence?: Fence }

/**
 * How much of a text can not change any more, whatever follows: up to a blank line that a line without indentation follows
 * (else a list goes on), or up to the line that opens a fence.
 */
function frozenLength(text: string): Cut {
  let length = 0
  let at = 0
  let blank = false
  let list = false
  for (;;) {
    const end = text.indexOf('\n', at)
    const line = end < 0 ? text.slice(at) : text.slice(at, end)
    const empty = line.trim() === ''
    const item = !empty && isItem(line)
    // What may become an item is not known yet to be none.
    const unsure = end < 0 && list && /^(?:\d{1,9}[.)]?|[-*+•])$/.test(line)
    if (!empty && !unsure && blank && !/^\s/.test(line) && !(list && item)) {
      length = at
      list = false
    }
    if (end < 0) return { length }
    if (!empty) {
      list ||= item
      const fence = list ? undefined : fenceOf(line)
      if (fence !== undefined) return { length: at, fence }
      const inner = !list ? undefined : fenceOf(line.trimStart().replace(/^(?:[-*+•]|\d{1,9}[.)])\s+/, ''))
      if (inner !== undefined) {
        const closed = fenceEnd(text, end + 1, inner.mark)
        if (closed < 0) return { length }
        at = closed
        blank = false
        continue
      }
    }
    // Without a blank line a list is not over, nor is anything else.
    blank = empty
    at = end + 1
  }
}

function fenceEnd(text: string, from: number, mark: string): number {
  for (let at = from; ;) {
    const end = text.indexOf('\n', at)
    if (end < 0) return -1
    if (closesFence(text.slice(at, end).trimStart(), mark)) return end + 1
    at = end + 1
  }
}

/** A place in a block that is too long: after a line, else after a word. */
function forcedLength(text: string): number {
  const line = text.lastIndexOf('\n', longestOpen)
  if (line > 0) return line + 1
  const word = text.lastIndexOf(' ', longestOpen)
  if (word > 0) return word + 1
  const last = text.charCodeAt(longestOpen - 1)
  return last >= 0xd8_00 && last <= 0xdb_ff ? longestOpen - 1 : longestOpen
}

/** Without a last line that may become the closing fence: shown as code, it would flicker. */
function shownCode(open: string, fence: Fence): readonly string[] {
  const lines = outdented(open.split('\n'), fence)
  const last = lines.at(-1) ?? ''
  return last === '' || /^ {0,3}[`~]+\s*$/.test(last) ? lines.slice(0, -1) : lines
}

const withoutPartialFence = (text: string): string => text.replace(/(^|\n) {0,3}[`~]{1,2}$/, '$1')
