import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process'

/**
 * Every reason for which this package starts a process on the host. kc's `local` sandbox runs commands by design: this
 * file is the one place that does it, and a test checks that no other file of the package can.
 */
export const HOST_PROGRAMS = {
  action: 'the command of an action in the local sandbox, behind a gate that waits until it is in its control group',
  pipes:
    'mkfifo, for output pipes that the action can reopen as /dev/stdout and /dev/stderr (Node makes sockets, which cannot be)',
} as const
/** One of the reasons. */
export type SpawnReason = keyof typeof HOST_PROGRAMS

/** What to start. The environment is exactly `env`: nothing of this process is inherited. */
export type HostCommand = {
  readonly file: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly stdio: StdioOptions
  /** In a session and process group of its own, so that the group can be signalled. */
  readonly detached: boolean
  readonly user: { readonly uid: number; readonly gid: number } | undefined
}

/** Starts a process of this host for one of the listed reasons. */
export function startHostProcess(_reason: SpawnReason, command: HostCommand): ChildProcess {
  return spawn(command.file, [...command.args], {
    cwd: command.cwd,
    env: { ...command.env },
    stdio: command.stdio,
    detached: command.detached,
    windowsHide: true,
    ...(command.user === undefined ? {} : { uid: command.user.uid, gid: command.user.gid }),
  })
}
