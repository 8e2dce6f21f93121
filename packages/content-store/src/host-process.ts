import { spawn } from 'node:child_process'
import { hasCode } from './errors.ts'

/** Every program that this package starts on the host, and why. A test compares the list with the sources. */
export const HOST_PROGRAMS = {
  git: 'git merge-file merges a text that both sides changed: other implementations merge repetitive texts differently',
} as const

export type HostProgram = keyof typeof HOST_PROGRAMS

export type HostResult =
  | { readonly kind: 'exited'; readonly code: number | null; readonly stdout: Buffer; readonly stderr: string }
  | { readonly kind: 'missing' }

/** Where programs are looked for; the caller's own PATH is not read. */
const searchPath = '/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin'

/**
 * Runs a listed program with a closed environment and no standard input.
 *
 * @returns exit code and output; `missing` when the program is not installed.
 */
export function runHostProgram(
  program: HostProgram,
  args: readonly string[],
  options: { readonly cwd: string; readonly path?: string | undefined },
): Promise<HostResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(options.path ?? program, args, {
      cwd: options.cwd,
      env: {
        PATH: searchPath,
        LC_ALL: 'C',
        HOME: options.cwd,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_CONFIG_GLOBAL: '/dev/null',
        // A repository around the store must not lend its configuration.
        GIT_CEILING_DIRECTORIES: options.cwd,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const stdout: Buffer[] = []
    let stderr = ''
    child.stdout.on('data', (piece: Buffer) => stdout.push(piece))
    child.stderr.setEncoding('utf8').on('data', (piece: string) => {
      if (stderr.length < 4000) stderr += piece
    })
    child.on('error', (error) => (hasCode(error, 'ENOENT', 'EACCES') ? resolve({ kind: 'missing' }) : reject(error)))
    child.on('close', (code) => resolve({ kind: 'exited', code, stdout: Buffer.concat(stdout), stderr }))
  })
}
