import { once } from 'node:events'
import { closeSync } from 'node:fs'
import { Cgroup } from './cgroup.ts'
import type { CgroupSupport } from './cgroup.ts'
import { ActionError } from './errors.ts'
import { startHostProcess } from './host-process.ts'
import { makeOutputPipes } from './output-pipe.ts'
import { commandName, processesOfSlot, signalQuietly } from './processes.ts'
import type { Exit, LeftRunning, RunningCommand, Sandbox } from './sandbox.ts'
import { endProcessesOfSlot, type ActionUser, type Slot } from './slot.ts'

/**
 * Waits for a line on descriptor 3, then becomes the command: so the process is in its control group before the command's
 * first instruction, under its own user already. If the server dies first, the read ends and nothing runs. The mask of modes is not
 * inherited, and a crash leaves no core file in the result.
 */
const gate = 'umask 022; ulimit -c 0; IFS= read -r _ <&3 || exit 125; exec "$@" 3<&-'

/** What the local sandbox needs of its surroundings. */
export type LocalOptions = {
  readonly user: ActionUser | undefined
  /** Uid of this process, undefined where there are none. */
  readonly ownUid: number | undefined
  readonly cgroups: CgroupSupport
  readonly cgroupOf: (slotId: string) => string | null
  /** A word that no program prints by chance: the gate's own messages start with it. */
  readonly token: () => string
}

/** The sandbox that the seed calls `local`: the host itself, with a closed environment, a slot and a certain end. */
export function createLocalSandbox(options: LocalOptions): Sandbox {
  const { user } = options
  const contained = user !== undefined && user.uid !== options.ownUid
  const isolation = {
    sandbox: 'local',
    contained,
    user: user?.name ?? null,
    kill: options.cgroups.ok ? 'cgroup' : 'process group',
    network: 'open',
    warnings: [
      ...(contained
        ? []
        : [
            'Local actions run as the user of this server: they can read and change all that it can, this computer included. Name a user for actions to change that.',
          ]),
      ...(options.cgroups.ok
        ? []
        : [`A process that hides from its process group may outlive its action: ${options.cgroups.why}.`]),
    ],
  } as const

  return {
    name: 'local',
    isolation: () => isolation,
    keyPart: () => (user === undefined ? 'local' : `local uid=${user.uid} gid=${user.gid}`),
    async start(slot, command): Promise<RunningCommand> {
      const cgroupPath = options.cgroupOf(slot.id)
      const cgroup = cgroupPath === null ? undefined : new Cgroup(cgroupPath)
      const [stdout, stderr] = await makeOutputPipes(slot, user)
      const token = options.token()
      try {
        cgroup?.create()
        const child = startHostProcess('action', {
          file: '/bin/sh',
          args: ['-c', gate, token, ...command.argv],
          cwd: command.cwd,
          env: command.env,
          stdio: ['ignore', stdout.writerFd, stderr.writerFd, 'pipe'],
          detached: true,
          user,
        })
        const exited = once(child, 'exit').then(([exitCode, signal]: unknown[]) => ({
          exitCode: typeof exitCode === 'number' ? exitCode : null,
          signal: typeof signal === 'string' ? signal : null,
        }))
        // Whoever waits sees it; here only so that a start that fails below is not an unhandled rejection too.
        exited.catch(() => undefined)
        if (child.pid === undefined) await exited
        const pid = child.pid ?? 0
        cgroup?.add(pid)
        const opener = child.stdio[3]
        if (opener === null || opener === undefined || !('end' in opener))
          throw new ActionError('setup_failed', 'the gate has no pipe')
        // The gate may be gone already (killed by hand): its end is then told by `exited`.
        opener.on('error', () => undefined)
        opener.end('\n')
        return running({ pid, exited, slot, cgroup, token, stdout: stdout.reader, stderr: stderr.reader })
      } catch (error) {
        stdout.reader.destroy()
        stderr.reader.destroy()
        await cgroup?.destroy()
        if (error instanceof ActionError) throw error
        throw new ActionError(
          'setup_failed',
          `the action's process could not be started: ${error instanceof Error ? error.message : 'unknown'}`,
          { cause: error },
        )
      } finally {
        closeSync(stdout.writerFd)
        closeSync(stderr.writerFd)
      }
    },
  }
}

type Parts = Pick<RunningCommand, 'stdout' | 'stderr'> & {
  readonly pid: number
  readonly exited: Promise<Exit>
  readonly slot: Slot
  readonly cgroup: Cgroup | undefined
  readonly token: string
}

function running({ pid, exited, slot, cgroup, token, stdout, stderr }: Parts): RunningCommand {
  const inside = (): readonly number[] => cgroup?.pids() ?? processesOfSlot(slot.top)
  // Once killed, the numbers may belong to others.
  let dead = false
  return {
    stdout,
    stderr,
    exited,
    async leftRunning(): Promise<LeftRunning> {
      const others = inside().filter((other) => other !== pid)
      return { count: others.length, names: await Promise.all(others.slice(0, 10).map(commandName)) }
    },
    terminate(): void {
      signalQuietly(-pid, 'SIGTERM')
      for (const other of inside()) signalQuietly(other, 'SIGTERM')
    },
    async kill(): Promise<void> {
      if (dead) return
      dead = true
      if (cgroup !== undefined) return cgroup.destroy()
      signalQuietly(-pid, 'SIGKILL')
      await endProcessesOfSlot(slot)
    },
    startFailure(exit, stderrText): string | undefined {
      if (exit.exitCode !== 126 && exit.exitCode !== 127) return undefined
      if (!stderrText.startsWith(`${token}: `)) return undefined
      return stderrText
        .slice(token.length + 2)
        .replace(/^(?:line )?\d+: (?:exec: )?/, '')
        .trim()
    },
  }
}
