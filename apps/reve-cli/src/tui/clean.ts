import { sanitiseLine, sanitiseTerminal } from '@reve/base'

const TAB = 4

/** Text of anybody's for rows of a terminal: sanitised, with spaces for tabs. */
export function cleanText(text: string): string {
  const clean = sanitiseTerminal(text)
  if (!clean.includes('\t')) return clean
  return clean
    .split('\n')
    .map((line) => {
      if (!line.includes('\t')) return line
      let out = ''
      for (const [index, piece] of line.split('\t').entries()) {
        if (index > 0) out += ' '.repeat(TAB - (out.length % TAB))
        out += piece
      }
      return out
    })
    .join('\n')
}

/** The same as one line, cut after `most` characters. */
export const cleanLine = (text: string, most = 400): string => sanitiseLine(text, most)

/** Cleans text that comes in pieces: an escape sequence that is cut between two of them is still taken out whole. */
export class CleanStream {
  /** An escape sequence, or a character, that is not whole yet. */
  #open = ''
  /** A CR, whose LF may follow. */
  #cr = ''

  /** What of all text so far is sure. */
  push(delta: string): string {
    const raw = this.#open + delta
    const last = raw.charCodeAt(raw.length - 1)
    const half = last >= 0xd8_00 && last <= 0xdb_ff ? raw.slice(-1) : ''
    const { text, open } = withoutSequences(raw.slice(0, raw.length - half.length).toWellFormed())
    this.#open = shortened(open) + half
    const whole = this.#cr + text
    this.#cr = whole.endsWith('\r') ? '\r' : ''
    return cleanText(whole.slice(0, whole.length - this.#cr.length))
  }

  /** What was held back. */
  end(): string {
    const rest = this.#cr + withoutSequences(this.#open.toWellFormed()).text
    this.#open = ''
    this.#cr = ''
    return cleanText(rest)
  }
}

const introducer = /[\u001b\u0090\u0098\u009b\u009d-\u009f]/g
const stringBegins = /\u001b[\]PX^_]|[\u0090\u0098\u009d-\u009f]/y
const stringEnds = /\u0007|\u001b\\|\u009c/g
const parameters = /(?:\u001b\[|\u009b)[0-?]*[ -/]*/y
const intermediates = /\u001b[ -/]*/y

/** Text without its escape sequences, and the one whose end is still to come. Divides text as the sanitiser does. */
function withoutSequences(raw: string): { readonly text: string; readonly open: string } {
  let text = ''
  let from = 0
  for (let at = next(introducer, raw, 0); at < raw.length; at = next(introducer, raw, from)) {
    text += raw.slice(from, at)
    const end = sequenceEnd(raw, at)
    if (end === undefined) return { text, open: raw.slice(at) }
    if (end === at) text += '\ufffd'
    from = Math.max(end, at + 1)
  }
  return { text: text + raw.slice(from), open: '' }
}

/** Where the sequence at `at` ends: there where it is none; undefined when it is open. */
function sequenceEnd(text: string, at: number): number | undefined {
  const string = matched(stringBegins, text, at)
  if (string > at) {
    const end = next(stringEnds, text, string)
    return end === text.length ? undefined : end + (text[end] === '\u001b' ? 2 : 1)
  }
  const csi = matched(parameters, text, at)
  if (csi > at) {
    if (csi === text.length) return undefined
    if (/[@-~]/.test(text[csi] ?? '')) return csi + 1
    return text[at] === '\u001b' ? at + 2 : at
  }
  const escape = matched(intermediates, text, at)
  if (escape === text.length) return undefined
  return escape > at && /[0-~]/.test(text[escape] ?? '') ? escape + 1 : at
}

function next(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from
  return pattern.exec(text)?.index ?? text.length
}

function matched(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at
  const found = pattern.exec(text)
  return found === null ? at : at + found[0].length
}

/** Of a string that has no end yet only what tells that it is one: what is in it shows nowhere. */
function shortened(held: string): string {
  stringBegins.lastIndex = 0
  const [begin] = stringBegins.exec(held) ?? []
  if (begin === undefined) return held
  const last = held.at(-1) ?? ''
  return held.length > begin.length && last === '\u001b' ? begin + last : begin
}
