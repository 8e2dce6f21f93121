import { showName } from './guest.ts'
import type { GrepLine } from './grep-lines.ts'
import { shownCharacters } from './spill.ts'

/** What of a search's lines is shown. */
export type GrepWindow = {
  /** The first matching line to show, from 1. */
  readonly offset: number
  readonly limit: number
  /** Lines around a match. */
  readonly context: number
}

/** Collects the lines of a search, as far as they are shown. */
export type GrepResult = {
  /** Takes the next line; false when it and those after it are not wanted. */
  add(line: GrepLine): boolean
  text(): string
}

const longestLine = 400
const roomForNotes = 200

/** `path:number:text` of matches, `path-number-text` of lines around, `--` between groups. */
export function createGrepResult({ offset, limit, context }: GrepWindow): GrepResult {
  const shown: string[] = []
  let room = shownCharacters - roomForNotes
  let matches = 0
  let isMore = false
  let waiting: GrepLine[] = []
  let last: GrepLine | undefined
  let lastMatch: GrepLine | undefined

  const rendered = (line: GrepLine): string => {
    const mark = line.isMatch ? ':' : '-'
    return `${shownPath(line.path)}${mark}${line.number}${mark}${excerpt(line)}`
  }
  const costOf = (lines: readonly GrepLine[]): number =>
    lines.reduce((sum, line) => sum + rendered(line).length + '\n--\n'.length, 0)

  const show = (line: GrepLine): void => {
    const isGap = last !== undefined && (line.number !== last.number + 1 || !isSame(line.path, last.path))
    if (context > 0 && isGap) shown.push('--')
    shown.push(rendered(line))
    room -= costOf([line])
    last = line
  }

  const isNear = (line: GrepLine, match: GrepLine | undefined): boolean =>
    match !== undefined && isSame(line.path, match.path) && Math.abs(line.number - match.number) <= context

  return {
    add(line) {
      if (!line.isMatch) {
        waiting.push(line)
        // Before a match stand as many as after one.
        if (waiting.length > 2 * context) waiting.shift()
        return true
      }
      if (matches + 1 < offset) {
        matches++
        waiting = []
        return true
      }
      // Lines around matches that are not shown are not either.
      const around = waiting.filter((near) => isNear(near, lastMatch) || isNear(near, line))
      // The first match is shown whatever it takes.
      if (matches + 1 >= offset + limit || (last !== undefined && room < costOf([...around, line]))) {
        isMore = true
        return false
      }
      matches++
      for (const near of around) show(near)
      waiting = []
      show(line)
      lastMatch = line
      return true
    },
    text() {
      for (const line of waiting) if (isNear(line, lastMatch) && room >= costOf([line])) show(line)
      waiting = []
      if (shown.length === 0) {
        return matches === 0 ? '(nothing found)' : `(nothing found from match ${offset} on: there are ${matches})`
      }
      const next = `[More lines match. Use offset=${matches + 1} to continue, or a narrower pattern, path or glob.]`
      return [...shown, ...(isMore ? ['', next] : [])].join('\n')
    },
  }
}

const isSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0

/** As it was asked for: `./` is ours. */
const shownPath = (path: Uint8Array): string => showName(path[0] === 0x2e && path[1] === 0x2f ? path.subarray(2) : path)

/** A long line by the part around its match. */
function excerpt({ text, at }: GrepLine): string {
  if (text.length <= longestLine) return text
  const start = Math.max(0, Math.min(at - longestLine / 4, text.length - longestLine))
  const part = text.slice(start, start + longestLine).replace(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, '')
  return `${start > 0 ? '…' : ''}${part}${start + longestLine < text.length ? '…' : ''}`
}
