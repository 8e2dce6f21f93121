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

/** Where an escape sequence may have begun that is not whole yet, at the end of a text. */
const unfinished =
  /(?:\u001b|[\u0090\u0098\u009b\u009d-\u009f])(?:[\]PX^_]?[^\u0007\u009c\u001b]*\u001b?|\[?[0-?]*[ -/]*)$/
const longestHeld = 4096

/** Cleans text that comes in pieces: an escape sequence that is cut between two of them is still taken out whole. */
export class CleanStream {
  #held = ''

  /** What of all text so far is sure. */
  push(delta: string): string {
    let text = this.#held + delta
    this.#held = ''
    const at = Math.max(0, text.length - longestHeld)
    const tail = text.slice(at)
    const found = unfinished.exec(tail)
    if (found !== null && isOpen(tail.slice(found.index))) {
      this.#held = tail.slice(found.index)
      text = text.slice(0, at + found.index)
    } else {
      // Half a pair of surrogates, or a CR whose LF may follow.
      const last = text.charCodeAt(text.length - 1)
      if ((last >= 0xd8_00 && last <= 0xdb_ff) || last === 0x0d) {
        this.#held = text.slice(-1)
        text = text.slice(0, -1)
      }
    }
    return cleanText(text)
  }

  /** What was held back. */
  end(): string {
    const rest = this.#held
    this.#held = ''
    return cleanText(rest)
  }
}

/** Whether a sequence's end is still to come. */
function isOpen(text: string): boolean {
  if (/^(?:\u001b\[|\u009b)/.test(text)) return /^(?:\u001b\[|\u009b)[0-?]*[ -/]*$/.test(text)
  if (/^(?:\u001b[\]PX^_]|[\u0090\u0098\u009d-\u009f])/.test(text)) return true
  return /^\u001b[ -/]*$/.test(text)
}
