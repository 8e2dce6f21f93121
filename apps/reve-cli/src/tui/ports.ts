import type { Agent } from '@reve/agent'
import type { Thinking } from '@reve/providers/model'
import type { EgressEvent, MicroVmEvent } from '@reve/sandbox-microvm'

type Listener = (value?: unknown) => void

/** Something that tells what happens to it. */
type Source = {
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
}

/** The terminal's keyboard: standard input when it is one. */
export type TerminalInput = {
  setRawMode(raw: boolean): unknown
  on(event: string, listener: Listener): unknown
  removeAllListeners(event: string): unknown
  resume(): unknown
  pause(): unknown
}

/** The terminal's screen: standard output when it is one. `fd` is written to directly when the process is about to end. */
export type TerminalOutput = Source & {
  readonly fd: number
  readonly columns: number
  readonly rows: number
  write(text: string): boolean
}

/** What the process is told, and can do to itself. */
export type ProcessPort = Source & {
  readonly pid: number
  /** Those of Node itself are there too: it writes its warnings to the terminal. */
  listeners(event: 'warning'): readonly Listener[]
  kill(pid: number, signal: NodeJS.Signals): unknown
}

/** What is built beside the terminal; what is not given is not offered. */
export type BesidePorts = {
  /** Writes a session to a file and gives its path. */
  readonly exportSession?: (
    session: string,
    format: 'md' | 'html' | 'json',
    target: string | undefined,
  ) => Promise<string>
}

/** What an agent tells beside the events of its sessions. */
export type Watch = {
  readonly onVmEvent: (event: MicroVmEvent) => void
  readonly onEgress: (event: EgressEvent) => void
  readonly onNotice: (notice: string) => void
  readonly onLog: (source: string, text: string) => void
}

/** All that the terminal needs from outside. */
export type TuiDeps = {
  /** Opens the agent of the folder; `watch` is told what it does beside its runs. */
  readonly openAgent: (watch: Watch) => Promise<Agent>
  /** Boots the VM once, to know that it can. Default: `agent.vm.start`. */
  readonly checkVm?: (agent: Agent, signal: AbortSignal) => Promise<void>
  readonly stdin: TerminalInput
  readonly stdout: TerminalOutput
  readonly process: ProcessPort
  readonly env: (name: string) => string | undefined
  /** Where the user's `~` is, for pasted paths. */
  readonly home: string | undefined
  /** Folder for the file that an external editor gets. */
  readonly temporaryFolder: string
  /** Lets the user's editor edit a file in this terminal; resolves when it ended. Undefined: there is none. */
  readonly editFile: ((file: string) => Promise<void>) | undefined
  /** Aborted when the program has to end: nobody reads the terminal any more, or a signal came. */
  readonly signal: AbortSignal
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly options?: {
    /** `dark`, `light`, `none`, or the path of a theme file. Default: `theme.yml` of the agent, else what suits the background. */
    readonly theme?: string
    readonly model?: string
    readonly thinking?: Thinking
    /** A session's file, in place of the newest. */
    readonly session?: string
    /** Whether the tasks of `HEARTBEAT.yml` run here, and the channels. Default true. */
    readonly services?: boolean
  }
  readonly beside?: BesidePorts
  /** Default 50: milliseconds after which an Escape without anything behind it is the key. */
  readonly escapeMs?: number
}
