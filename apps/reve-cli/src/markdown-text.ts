import { visible } from './visible.ts'

/** Headings of what was said are lower than those of the page, so that nobody can write a turn of somebody else's. */
const LOWER = 2

/**
 * What a model or a human wrote in Markdown, made fit to stand in a page with others: emphasis, lists, tables and code stay; HTML, links and
 * images become the text that they are written as; nothing that is left open reaches over its end.
 *
 * It does not guess how a renderer reads a line but leaves it one way to: code between fences is written anew at the beginning of a line
 * with fences of its own, and on every other line each run of backticks has its partner on that very line or is no backtick any more.
 */
export function prose(text: string): string {
  const written: string[] = []
  let open:
    | { readonly mark: string; readonly info: string; readonly indent: number; readonly lines: string[] }
    | undefined
  const close = (): void => {
    if (open !== undefined) written.push('', fenced(open.lines.join('\n'), open.info), '')
    open = undefined
  }
  for (const line of visible(text).split('\n')) {
    if (open !== undefined) {
      const { mark, indent, lines } = open
      const [, end] = /^[\s>]*(`{3,}|~{3,})\s*$/.exec(line) ?? []
      if (end?.startsWith(mark) === true) close()
      else lines.push(line.slice(Math.min(indent, line.length - line.trimStart().length)))
      continue
    }
    const [, before, mark, info] = /^([\s>*+.):\d-]*)(`{3,}(?=[^`]*$)|~{3,})(.*)$/.exec(line) ?? []
    if (before === undefined || mark === undefined) {
      written.push(...proseLine(line))
      continue
    }
    if (before.trim() !== '') written.push(...proseLine(before.trimEnd()))
    open = { mark, info: info ?? '', indent: before.length, lines: [] }
  }
  close()
  const first = written.findIndex((line) => line !== '')
  return written.slice(first, written.findLastIndex((line) => line !== '') + 1).join('\n')
}

function proseLine(line: string): readonly string[] {
  // What would make a heading of the line before it stands alone.
  if (/^ {0,3}(?:=+|-+)\s*$/.test(line)) return ['', line]
  const lower = line.replace(/^ {0,3}#{1,6}(?=\s|$)/, (marks) => '#'.repeat(Math.min(6, marks.trim().length + LOWER)))
  // A table's cells are read one by one.
  return [lower.replaceAll('\\`', '&#96;').split('|').map(inline).join('|')]
}

/** Text without line feeds, of which the pairs of backticks are code. */
function inline(text: string): string {
  const pieces = text.split(/(`+)/)
  const word = addressWatch()
  let out = ''
  const add = (piece: string): void => {
    out += piece
    word.add(piece)
  }
  for (let at = 0; at < pieces.length; at++) {
    const piece = pieces[at] ?? ''
    if (at % 2 === 0) {
      add(inert(piece))
      continue
    }
    // Runs of backticks stand at the odd places, and nowhere else.
    const partner = word.isAddress() ? -1 : pieces.indexOf(piece, at + 1)
    if (partner < 0) add('&#96;'.repeat(piece.length))
    else {
      add(pieces.slice(at, partner + 1).join(''))
      at = partner
    }
  }
  return out
}

/** Whether a line's last word is an address, of which some dialects make a link that goes on to the next space, through backticks too. */
function addressWatch(): { readonly add: (piece: string) => void; readonly isAddress: () => boolean } {
  let tail = ''
  let found = false
  return {
    add: (piece) => {
      const words = piece.split(/\s/)
      if (words.length > 1) {
        tail = ''
        found = false
      }
      const word = tail + (words.at(-1) ?? '')
      found ||= /:\/\/|www\.|mailto:|xmpp:/i.test(word)
      tail = word.slice(-10)
    },
    isAddress: () => found,
  }
}

/** No tag, link or image begins in it; an entity is one whatever stands before it, a backslash would not be. */
const inert = (text: string): string => text.replaceAll(/<(?=[a-z/!?])/gi, '&lt;').replaceAll(/\](?=[([:])/g, '&#93;')

/** Text as it stands, in a fence longer than any that it has. */
export function fenced(text: string, info: string): string {
  const mark = fence(text, 3)
  return `${mark}${/^[\w+.#-]{0,30}/.exec(info.trim())?.[0] ?? ''}\n${visible(text)}\n${mark}`
}

/** A name, as code on one line. */
export function code(text: string): string {
  const line = visible(text).replaceAll(/\s+/g, ' ')
  const mark = fence(line, 1)
  return line.includes('`') || line.trim() === '' ? `${mark} ${line} ${mark}` : `${mark}${line}${mark}`
}

/** Words of a heading or of a line of ours. */
export const words = (text: string): string =>
  inert(visible(text).replaceAll(/\s+/g, ' ')).replaceAll(/[`*_~|\\#$]/g, (mark) => `&#${mark.charCodeAt(0)};`)

const fence = (text: string, shortest: number): string =>
  '`'.repeat([...text.matchAll(/`+/g)].reduce((longest, [run]) => Math.max(longest, run.length + 1), shortest))
