import { EventEmitter } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openAgent } from '@reve/agent'
import { Terminal as Xterm } from '@xterm/headless'
import { onTestFinished } from 'vitest'
import { App, type TuiEnd } from '../../src/tui/app.ts'
import type { TuiDeps } from '../../src/tui/ports.ts'
import { agentFiles, folderWith } from '../run-cli.ts'

/** The rows of an emulated terminal, the scrollback first, without the empty ones at the end. */
export function rowsOf(xterm: Xterm): readonly string[] {
  const { active } = xterm.buffer
  const rows = Array.from({ length: active.length }, (_, row) => active.getLine(row)?.translateToString(true) ?? '')
  return rows.slice(0, rows.findLastIndex((row) => row !== '') + 1)
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Waits until something holds; the message has what was seen last. */
export async function until(holds: () => boolean | Promise<boolean>, seen: () => string, what: string): Promise<void> {
  for (const end = Date.now() + 30_000; Date.now() < end; await pause(10)) if (await holds()) return
  throw new Error(`not within 30 s: ${what}; seen was:\n${seen()}`)
}

class Keyboard extends EventEmitter {
  raw = false
  setRawMode(raw: boolean): this {
    this.raw = raw
    return this
  }
  resume(): this {
    return this
  }
  pause(): this {
    return this
  }
}

class Screen extends EventEmitter {
  columns: number
  rows: number
  readonly fd: number
  readonly #file: string
  readonly xterm: Xterm
  /** All that was written. */
  bytes = ''
  /** How much each frame took. */
  readonly frames: number[] = []

  constructor(columns: number, rows: number) {
    super()
    this.columns = columns
    this.rows = rows
    this.#file = join(mkdtempSync(join(tmpdir(), 'tui-fd-')), 'direct')
    this.fd = openSync(this.#file, 'w')
    this.xterm = new Xterm({ cols: columns, rows, scrollback: 100_000, allowProposedApi: true })
  }

  write(text: string): boolean {
    this.bytes += text
    this.frames.push(text.length)
    this.xterm.write(text)
    return true
  }

  resize(columns: number, rows: number): void {
    this.columns = columns
    this.rows = rows
    this.xterm.resize(columns, rows)
    this.emit('resize')
  }

  /** What was written past the stream, at the end. */
  end(): string {
    closeSync(this.fd)
    const text = readFileSync(this.#file, 'utf8')
    this.xterm.write(text)
    return text
  }
}

export type Options = {
  readonly turns?: string
  readonly files?: Readonly<Record<string, string>>
  readonly folder?: string
  readonly columns?: number
  readonly rows?: number
  readonly env?: Readonly<Record<string, string>>
  readonly options?: TuiDeps['options']
  readonly editFile?: TuiDeps['editFile']
  readonly checkVm?: TuiDeps['checkVm']
}

/** The whole user interface over a real agent and an emulated terminal; the VM is not booted. */
export async function started(given: Options = {}) {
  const folder =
    given.folder ?? (await folderWith({ ...agentFiles(given.turns ?? '- text: Hello.\n'), ...given.files }))
  const keyboard = new Keyboard()
  const screen = new Screen(given.columns ?? 80, given.rows ?? 24)
  const world = Object.assign(new EventEmitter(), { pid: process.pid, kill: () => true })
  const over = new AbortController()
  const env: Readonly<Record<string, string>> = { TERM: 'xterm-256color', ...given.env }
  const app = new App({
    openAgent: ({ onVmEvent, onEgress, onNotice, onLog }) =>
      openAgent(folder, {
        env: () => undefined,
        vm: { cacheDir: join(folder, 'cache'), runtimeDir: join(folder, 'run'), onEvent: onVmEvent },
        onEgress,
        onNotice,
        onLog,
      }),
    checkVm: given.checkVm ?? (async () => undefined),
    stdin: keyboard,
    stdout: screen,
    process: world,
    env: (name) => env[name],
    home: undefined,
    temporaryFolder: tmpdir(),
    editFile: given.editFile,
    signal: over.signal,
    now: Date.now,
    escapeMs: 20,
    beside: {},
    options: { services: false, ...given.options },
  })
  const ended = app.run()
  // As every terminal answers to who it is.
  keyboard.emit('data', Buffer.from('\u001b[?62;22c'))
  const type = (text: string): void => void keyboard.emit('data', Buffer.from(text))
  const all = (): string => rowsOf(screen.xterm).join('\n')
  const shows = (text: string | RegExp): Promise<void> =>
    until(
      () => (typeof text === 'string' ? all().includes(text) : text.test(all())),
      all,
      `the screen shows ${String(text)}`,
    )
  const gone = (text: string): Promise<void> => until(() => !all().includes(text), all, `${text} is gone`)
  let left: Promise<TuiEnd & { readonly direct: string }> | undefined
  const quit = (): Promise<TuiEnd & { readonly direct: string }> => {
    left ??= (async () => {
      over.abort()
      const end = await ended
      return { ...end, direct: screen.end() }
    })()
    return left
  }
  onTestFinished(async () => {
    await quit()
  })
  await until(() => /thesandboxisready|✗|readonly|reveinit/.test(all().replaceAll(/\s/g, '')), all, 'it has begun')
  return { folder, type, all, shows, gone, quit, keyboard, screen, world, ended }
}
