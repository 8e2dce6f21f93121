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
  /**
   * The one moving line that says what goes on and for how long, below all notes; on terminals only. `stage` (what the VM is
   * at) hides `work` (what the agent is at) while it lasts; undefined ends one.
   */
  readonly status: (slot: 'work' | 'stage', text: string | undefined) => void
  /** Ends the moving line. */
  readonly clear: () => void
}

export const paint = (style: Style, text: string): Piece => ({ style, text })

/** Under this, what goes on needs no clock. */
const clockMs = 1000

/** @param env the process's environment, for `NO_COLOR` and `TERM`. */
export function createOutput(env: NodeJS.ProcessEnv): Output {
  const terminal = process.stderr.isTTY && env['TERM'] !== 'dumb'
  const colours = terminal && !env['NO_COLOR']
  const render = (piece: Piece): string => {
    if (typeof piece === 'string') return sanitiseTerminal(piece)
    const clean = sanitiseTerminal(piece.text)
    return colours ? `\u001b[${codes[piece.style]}m${clean}\u001b[0m` : clean
  }
  // While a command of the guest has the terminal, that adds no return to a line feed.
  const ended = (text: string): string => (terminal && process.stdin.isRaw ? text.replaceAll('\n', '\r\n') : text)
  const slots: { work?: Status; stage?: Status } = {}
  let drawn = false
  let timer: NodeJS.Timeout | undefined

  const erase = (): void => {
    if (drawn) process.stderr.write('\r\u001b[K')
    drawn = false
  }
  const draw = (): void => {
    const status = slots.stage ?? slots.work
    erase()
    if (status === undefined) {
      clearInterval(timer)
      timer = undefined
      return
    }
    const elapsed = performance.now() - status.since
    const clock = elapsed < clockMs ? '' : ` (${Math.floor(elapsed / 1000)}s)`
    const room = Math.max(1, (process.stderr.columns || 80) - 1 - clock.length)
    process.stderr.write(sanitiseLine(`  · ${status.text}`, room) + clock)
    drawn = true
    // It must not keep a program alive that has nothing else to do.
    timer ??= setInterval(draw, clockMs).unref()
  }
  const above = (write: () => void): void => {
    erase()
    write()
    if (terminal) draw()
  }
  return {
    result: (text) => above(() => process.stdout.write(`${process.stdout.isTTY ? sanitiseTerminal(text) : text}\n`)),
    note: (...pieces) => above(() => process.stderr.write(ended(`${pieces.map(render).join('')}\n`))),
    status: (slot, text) => {
      if (!terminal || (text === undefined && slots[slot] === undefined)) return
      if (text === undefined) delete slots[slot]
      else slots[slot] = { text, since: slots[slot]?.text === text ? slots[slot].since : performance.now() }
      draw()
    },
    clear: () => {
      delete slots.work
      delete slots.stage
      if (terminal) draw()
    },
  }
}

type Status = { readonly text: string; readonly since: number }
