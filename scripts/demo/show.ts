import { spawn, type ChildProcess } from 'node:child_process'

const colours = process.stdout.isTTY && !process.env['NO_COLOR']
const wrap = (code: number, text: string): string => (colours ? `\u001b[${code}m${text}\u001b[0m` : text)

export const heading = (text: string): void => void process.stdout.write(`\n${wrap(1, text)}\n`)
export const say = (text: string): void => void process.stdout.write(`${text}\n`)
export const dim = (text: string): string => wrap(2, text)

/** Shows a command as a user would type it. */
export const typed = (words: readonly string[]): void =>
  void process.stdout.write(
    `\n${wrap(34, '$')} ${words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`)).join(' ')}\n`,
  )

export type Run = { readonly code: number | null; readonly signal: NodeJS.Signals | null; readonly stdout: string }

/** A program's end that the demonstration cannot go on from. */
export class DemoFailure extends Error {
  override readonly name = 'DemoFailure'
  readonly exitCode: number
  constructor(message: string, exitCode = 1) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * Runs a program to its end with its standard error passed through; its standard output is shown and returned.
 *
 * @param started is given the running process, to do with it what a user might.
 */
export async function run(
  words: readonly [string, ...string[]],
  options: {
    readonly cwd: string
    readonly quiet?: boolean
    readonly env?: Readonly<Record<string, string>>
    readonly started?: (child: ChildProcess) => void
  },
): Promise<Run> {
  const [program, ...args] = words
  if (!options.quiet) typed(words)
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  options.started?.(child)
  return new Promise((resolve, reject) => {
    let stdout = ''
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      stdout += chunk
      if (!options.quiet) process.stdout.write(chunk)
    })
    child.on('error', reject)
    child.on('close', (code, signal) => resolve({ code, signal, stdout }))
  })
}

/** As `run`, and a failure ends the demonstration. */
export async function must(words: readonly [string, ...string[]], options: Parameters<typeof run>[1]): Promise<string> {
  const result = await run(words, options)
  if (result.code !== 0) throw new DemoFailure(`${words.join(' ')} ended with ${result.code ?? result.signal}`)
  return result.stdout
}
