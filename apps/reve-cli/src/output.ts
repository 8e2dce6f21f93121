import { sanitiseLine, sanitiseTerminal } from '@reve/base'

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, blue: 34 } as const
export type Style = keyof typeof codes

/** A piece of a line for standard error. A bare string has no style. */
export type Piece = string | { readonly style: Style; readonly text: string }

/**
 * Where results and the rest go. Every piece is sanitised here and styled after that: no text of a model, a tool or a
 * file name reaches a terminal raw, whoever calls.
 */
export type Output = {
  /** A result, on standard output, with a line feed. */
  readonly result: (text: string) => void
  /** Anything else, on standard error: one line, or several when a piece has line feeds. */
  readonly note: (...pieces: readonly Piece[]) => void
  /** Draws the one line that says what is going on; the next note, result or `clear` replaces it. Terminals only. */
  readonly status: (text: string) => void
  readonly clear: () => void
}

export const paint = (style: Style, text: string): Piece => ({ style, text })

/** @param env the process's environment, for `NO_COLOR` and `TERM`. */
export function createOutput(env: NodeJS.ProcessEnv): Output {
  const terminal = process.stderr.isTTY && env['TERM'] !== 'dumb'
  const colours = terminal && !env['NO_COLOR']
  const render = (piece: Piece): string => {
    if (typeof piece === 'string') return sanitiseTerminal(piece)
    const clean = sanitiseTerminal(piece.text)
    return colours ? `\u001b[${codes[piece.style]}m${clean}\u001b[0m` : clean
  }
  let drawn = false
  const clear = (): void => {
    if (drawn) process.stderr.write('\r\u001b[K')
    drawn = false
  }
  return {
    result: (text) => {
      clear()
      process.stdout.write(`${process.stdout.isTTY ? sanitiseTerminal(text) : text}\n`)
    },
    note: (...pieces) => {
      clear()
      process.stderr.write(`${pieces.map(render).join('')}\n`)
    },
    status: (text) => {
      if (!terminal) return
      process.stderr.write(`\r\u001b[K${sanitiseLine(text, Math.max(1, (process.stderr.columns || 80) - 1))}`)
      drawn = true
    },
    clear,
  }
}
