import { writeSync } from 'node:fs'
import { codeOf } from '@reve/base'
import { type Input, InputDecoder } from './input-decoder.ts'
import type { TuiDeps } from './ports.ts'

/** Bracketed paste, the Kitty keyboard protocol (keys told apart), `modifyOtherKeys` for xterm. */
const modesOn = '\u001b[?2004h\u001b[>1u\u001b[>4;1m'
/** All of them off, whatever was on; the cursor seen, rows wrap, no style, no frame open. */
const modesOff = '\u001b[?2026l\u001b[?2004l\u001b[<u\u001b[>4m\u001b[0m\u001b[?7h\u001b[?25h'
/** The background's colour, then who the terminal is: that answer comes last, and from every terminal. */
const questions = '\u001b]11;?\u001b\\\u001b[c'
const answerMs = 1000

export type TerminalEvents = {
  readonly input: (inputs: readonly Input[]) => void
  readonly resize: () => void
  /** The terminal's, after it was ours no more for a while: all has to be drawn again. */
  readonly resumed: () => void
  /** What was on the screen below the scrollback has to go before somebody else has the terminal. */
  readonly beforeRelease: () => string
  /** Told the red, green and blue of the background, 0 to 1. */
  readonly background: (rgb: readonly [number, number, number]) => void
  /** The program should end: the terminal is gone, or somebody asked for it. */
  readonly end: (reason: 'hangup' | 'terminated') => void
  /** Something else wanted to write to the terminal. */
  readonly stray: (text: string) => void
}

/**
 * The one writer of the terminal, and the one reader. Whatever ends the process (its end, a defect, a signal), the modes are
 * put back as they were.
 */
export class Terminal {
  readonly #deps: TuiDeps
  readonly #events: TerminalEvents
  readonly #decoder = new InputDecoder()
  readonly #undo: (() => void)[] = []
  #escape: NodeJS.Timeout | undefined
  #state: 'off' | 'on' | 'released' = 'off'
  #asked: number | undefined
  #gone = false

  constructor(deps: TuiDeps, events: TerminalEvents) {
    this.#deps = deps
    this.#events = events
  }

  get columns(): number {
    return Math.max(1, this.#deps.stdout.columns || 80)
  }

  get rows(): number {
    return Math.max(2, this.#deps.stdout.rows || 24)
  }

  /** Takes the terminal. */
  start(): void {
    const { stdin, stdout, process, signal } = this.#deps
    this.#enter()
    stdin.on('data', (bytes) => this.#read(bytes instanceof Uint8Array ? bytes : Buffer.from(String(bytes))))
    stdin.on('end', () => this.#lost())
    stdin.on('close', () => this.#lost())
    stdin.on('error', () => this.#lost())
    this.#listen(stdout, 'resize', () => this.#events.resize())
    this.#listen(stdout, 'error', () => this.#lost())
    this.#listen(process, 'SIGTERM', () => this.#events.end('terminated'))
    this.#listen(process, 'SIGHUP', () => this.#lost())
    // Sent by somebody: the key comes as a byte.
    this.#listen(process, 'SIGINT', () => this.#events.end('terminated'))
    this.#listen(process, 'SIGTSTP', () => this.#stop())
    this.#listen(process, 'SIGCONT', () => this.#continued())
    // A defect is told after this, on a screen that is as it was.
    this.#listen(process, 'uncaughtExceptionMonitor', () => this.restore())
    this.#listen(process, 'exit', () => this.restore())
    const ended = (): void => this.#events.end('terminated')
    this.#catchWarnings()
    signal.addEventListener('abort', ended)
    this.#undo.push(() => signal.removeEventListener('abort', ended))
    if (signal.aborted) ended()
    if (this.#deps.env('TERM') !== 'linux') {
      this.#asked = this.#deps.now()
      this.write(questions)
    }
  }

  /** Writes bytes that are fit for a terminal. */
  write(bytes: string): void {
    if (bytes !== '' && this.#state === 'on' && !this.#gone) this.#deps.stdout.write(bytes)
  }

  /** Gives the terminal to somebody else while `use` lasts: an editor. */
  async lend(use: () => Promise<void>): Promise<void> {
    this.#leave()
    this.#state = 'released'
    try {
      await use()
    } finally {
      this.#enter()
      this.#events.resumed()
    }
  }

  /** Stops this process and those it was started with, as the shell expects of Ctrl-Z. */
  suspend(): void {
    // Those that stand between the shell and us must stop too, or the shell would wait for ever.
    this.#deps.process.kill(0, 'SIGTSTP')
  }

  /** Gives the terminal back for good. Answers that are still on their way are waited for: they would be typed into the shell. */
  async stop(): Promise<void> {
    if (this.#state === 'off') return
    const until = (this.#asked ?? 0) + 150
    while (this.#asked !== undefined && !this.#gone && this.#deps.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 10))
    this.restore()
    for (const undo of this.#undo.splice(0)) undo()
    for (const event of ['data', 'end', 'close', 'error']) this.#deps.stdin.removeAllListeners(event)
    this.#deps.stdin.pause()
  }

  /** Puts the modes back, at once and without waiting for anything. */
  restore(): void {
    if (this.#state === 'off') return
    const ours = this.#state === 'on'
    this.#state = 'off'
    clearTimeout(this.#escape)
    if (!ours) return
    this.#direct(this.#events.beforeRelease() + modesOff)
    this.#raw(false)
  }

  #enter(): void {
    this.#state = 'on'
    this.#raw(true)
    this.#deps.stdin.resume()
    this.write(modesOn)
  }

  #leave(): void {
    clearTimeout(this.#escape)
    this.#direct(this.#events.beforeRelease() + modesOff)
    this.#raw(false)
    this.#deps.stdin.pause()
  }

  /** Past every buffer: the process may be at its end. */
  #direct(bytes: string): void {
    if (this.#gone) return
    try {
      writeSync(this.#deps.stdout.fd, bytes)
    } catch (error) {
      // A terminal that is gone has no modes.
      if (codeOf(error) === 'EAGAIN') this.#deps.stdout.write(bytes)
      else this.#gone = true
    }
  }

  #raw(raw: boolean): void {
    try {
      this.#deps.stdin.setRawMode(raw)
    } catch (error) {
      if (codeOf(error) === undefined) throw error
      this.#gone = true
    }
  }

  #stop(): void {
    if (this.#state === 'on') {
      this.#leave()
      this.#state = 'released'
      this.#deps.process.kill(this.#deps.process.pid, 'SIGSTOP')
    } else this.#deps.process.kill(this.#deps.process.pid, 'SIGSTOP')
  }

  /** After a stop; also one that nobody told us of, while which the shell had the terminal. */
  #continued(): void {
    if (this.#state === 'off') return
    // To set a mode that is set already would do nothing: the shell has changed it behind our back.
    this.#raw(false)
    this.#enter()
    this.#events.resumed()
  }

  /** Node writes its warnings to standard error, over what is drawn. */
  #catchWarnings(): void {
    const { process } = this.#deps
    const before = process.listeners('warning')
    for (const listener of before) process.removeListener('warning', listener)
    const take = (warning: unknown): void => this.#events.stray(String(warning))
    process.on('warning', take)
    this.#undo.push(() => {
      process.removeListener('warning', take)
      for (const listener of before) process.on('warning', listener)
    })
  }

  #lost(): void {
    this.#gone = true
    this.#events.end('hangup')
  }

  #read(bytes: Uint8Array): void {
    clearTimeout(this.#escape)
    this.#deliver(this.#decoder.push(bytes))
    if (!this.#decoder.waiting) return
    // An answer that is on its way comes in pieces over a slow line; nobody presses Alt-] in the first second.
    const slow = this.#asked !== undefined && this.#deps.now() - this.#asked < answerMs
    const wait = slow ? Math.max(200, this.#deps.escapeMs ?? 0) : (this.#deps.escapeMs ?? 50)
    this.#escape = setTimeout(() => this.#deliver(this.#decoder.flush()), wait)
  }

  #deliver(inputs: readonly Input[]): void {
    for (const input of inputs) if (input.type === 'reply') this.#answered(input)
    const others = inputs.filter(({ type }) => type !== 'reply')
    if (others.length > 0) this.#events.input(others)
  }

  #answered({ kind, text }: Input & { readonly type: 'reply' }): void {
    if (kind === 'csi' && text.startsWith('?') && text.endsWith('c')) this.#asked = undefined
    const [, r, g, b] =
      kind === 'osc' ? (/^11;rgb:([0-9a-f]{1,4})\/([0-9a-f]{1,4})\/([0-9a-f]{1,4})$/i.exec(text) ?? []) : []
    if (r === undefined || g === undefined || b === undefined) return
    const part = (hex: string): number => Number.parseInt(hex, 16) / (16 ** hex.length - 1)
    this.#events.background([part(r), part(g), part(b)])
  }

  #listen(
    source: {
      on(event: string, listener: () => void): unknown
      removeListener(event: string, listener: () => void): unknown
    },
    event: string,
    listener: () => void,
  ): void {
    source.on(event, listener)
    this.#undo.push(() => source.removeListener(event, listener))
  }
}
