import type { Readable } from 'node:stream'
import type { CheckedAction, SandboxName } from './action.ts'
import type { Slot } from './slot.ts'

/** How far an action is kept from its host. */
export type Isolation = {
  readonly sandbox: SandboxName
  /** True if an action cannot reach what belongs to the server's own user. */
  readonly contained: boolean
  /** Name of the user that actions run as; null: the server's own. */
  readonly user: string | null
  /** What is killed at the end of a run: everything that it started, or its group and what is found by its slot. */
  readonly kill: 'cgroup' | 'process group'
  readonly network: 'open' | 'closed unless asked'
  /** What an owner of this computer should be told at start, in full sentences. */
  readonly warnings: readonly string[]
}

/** How a command ended: by itself with a code, or by a signal. */
export type Exit = { readonly exitCode: number | null; readonly signal: string | null }

/** Processes that were still there when the command itself had ended, or would not end. `names` has at most ten. */
export type LeftRunning = { readonly count: number; readonly names: readonly string[] }

/** A command that runs. */
export type RunningCommand = {
  readonly stdout: Readable
  readonly stderr: Readable
  /** Settles when the command itself has ended, whatever it left behind. */
  readonly exited: Promise<Exit>
  /** What is alive in the sandbox beside the command itself. */
  leftRunning(): Promise<LeftRunning>
  /** Asks all of it to end (SIGTERM). */
  terminate(): void
  /** Ends all of it (SIGKILL), and waits until it is gone. */
  kill(): Promise<void>
  /** Undefined if the command began; else why it did not (no such program, not executable), judged by its end. */
  startFailure(exit: Exit, stderrText: string): string | undefined
}

/** One way of running a command in a slot. Everything above it (slots, capture, cache, limits of time) is the same for all. */
export interface Sandbox {
  readonly name: SandboxName
  isolation(): Isolation
  /** What enters the action's key: the name and all of the isolation that an action can see. */
  keyPart(action: CheckedAction): string
  /**
   * Starts the command.
   *
   * @param cwd absolute path of its directory, checked to be a real one below the slot's tree.
   * @throws ActionError `setup_failed`.
   */
  start(
    slot: Slot,
    command: {
      readonly argv: readonly [string, ...string[]]
      readonly cwd: string
      readonly env: Readonly<Record<string, string>>
    },
  ): Promise<RunningCommand>
}
