import { execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'

/**
 * Every program that this app starts on the host, and why. Nothing that a model wrote ever reaches one.
 *
 * @public read by the house's own test
 */
export const HOST_PROGRAMS = {
  sh: "the user's own editor ($VISUAL, $EDITOR), with the prompt that they are writing, at their key",
  npm: 'reve init asks npm for its registry, to list that host in sandbox.lua',
  stty: 'reve exec hands the terminal to a command of the guest, which says by itself what a line feed does',
} as const

/** The registry that npm is set up with, or undefined where there is no npm. */
export function npmRegistry(): Promise<string | undefined> {
  return new Promise((resolve) => {
    execFile('npm', ['config', 'get', 'registry'], { timeout: 10_000 }, (error, stdout) => {
      resolve(error === null ? stdout.trim() : undefined)
    })
  })
}

/** Lets the user's editor edit a file in this terminal; its command is the user's, as the shell takes it. */
export async function editInTerminal(editor: string, file: string): Promise<void> {
  const child = spawn('sh', ['-c', `${editor} "$1"`, 'sh', file], { stdio: 'inherit' })
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`the editor (${editor}) ended with ${code ?? 'a signal'}`)
}

/**
 * Keeps the terminal from adding returns to line feeds, as raw mode of Node does; leaving raw mode takes this back. Where
 * there is no stty a full screen may be drawn askew, and nothing else happens.
 */
export function passLineFeeds(): void {
  spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'], timeout: 10_000 })
}
