import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process'

/** Every reason for which this package starts a process on the host; a test checks that no other file of the package can. */
export const HOST_PROGRAMS = {
  git: 'the git program: its formats and protocols are its own, and it runs no hook, helper or monitor of a repository',
} as const
/** One of the reasons. */
export type SpawnReason = keyof typeof HOST_PROGRAMS

/** Starts a process in a group of its own. Its environment is exactly `env`: nothing of this process is inherited. */
export function startHostProcess(
  _reason: SpawnReason,
  command: {
    readonly file: string
    readonly args: readonly string[]
    readonly cwd: string
    readonly env: Readonly<Record<string, string>>
    readonly stdio: StdioOptions
  },
): ChildProcess {
  return spawn(command.file, [...command.args], {
    cwd: command.cwd,
    env: { ...command.env },
    stdio: command.stdio,
    detached: true,
    windowsHide: true,
  })
}
