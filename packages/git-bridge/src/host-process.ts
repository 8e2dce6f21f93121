import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process'

/** Every reason for which this package starts a process on the host; a test checks that no other file of the package can. */
export const HOST_PROGRAMS = {
  git: 'the git program: its formats and protocols are its own, and it runs no hook, helper or monitor of a repository',
  sh: 'a guard of a few lines around a git that talks to another side: it ends git when this process dies, however it dies',
} as const
/** One of the reasons. */
export type SpawnReason = keyof typeof HOST_PROGRAMS

type HostCommand = {
  readonly file: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly stdio: StdioOptions
}

/** Starts a process in a group of its own. Its environment is exactly `env`: nothing of this process is inherited. */
export function startHostProcess(_reason: SpawnReason, command: HostCommand): ChildProcess {
  return spawn(command.file, [...command.args], {
    cwd: command.cwd,
    env: { ...command.env },
    stdio: command.stdio,
    detached: true,
    windowsHide: true,
  })
}

/**
 * The command in the foreground, and beside it one that reads what should never end: the pipe at standard input, whose other
 * end this process holds. When it ends, the whole group is killed.
 */
const guard = [
  'exec 4<&0 </dev/null',
  '(read -r line <&4; kill -KILL 0) >/dev/null 2>&1 3>&- &',
  '"$@" 4<&-',
  'code=$?',
  'kill -KILL $!',
  'exit $code',
].join('\n')

/**
 * Starts a process that does not outlive this one. A git that waits for a network would: nothing that it does tells it that nobody
 * waits for it any more. It has no standard input; the child's own is what keeps it alive.
 */
export function startGuarded(reason: SpawnReason, command: HostCommand): ChildProcess {
  return startHostProcess(reason, {
    ...command,
    file: '/bin/sh',
    args: ['-c', guard, 'sh', command.file, ...command.args],
  })
}
