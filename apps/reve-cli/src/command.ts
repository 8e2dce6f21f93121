import type { exportFormats, thinkingWords, Topic } from './command-table.ts'

/** One parsed command line. */
export type Command =
  | { readonly type: 'help'; readonly topic: Topic | undefined }
  | { readonly type: 'version' }
  | TerminalCommand
  | { readonly type: 'init'; readonly folder: string; readonly json: boolean }
  | { readonly type: 'info'; readonly json: boolean }
  | {
      readonly type: 'exec'
      readonly words: readonly string[]
      /** Wait until another process lets the VM go, in place of a refusal. */
      readonly wait: boolean
    }
  | { readonly type: 'tool'; readonly name: string | undefined; readonly args: string; readonly json: boolean }
  | {
      readonly type: 'run'
      /** The words of the prompt, joined; undefined when there are none. */
      readonly prompt: string | undefined
      /** The last word is `-`: what standard input holds comes after the others. */
      readonly stdin: boolean
      readonly resume: boolean
      readonly json: boolean
      readonly model: string | undefined
      readonly maxTurns: number | undefined
      /** A session to go on with, in place of the newest. */
      readonly session: string | undefined
      readonly thinking: ThinkingWord | number | undefined
    }
  | RewindCommand
  | SessionsCommand
  | ServeCommand
  | ImageCommand
  | { readonly type: 'doctor'; readonly json: boolean }
  | {
      readonly type: 'completion'
      readonly shell: string | undefined
      /** What stands on a command line after the program's name, the last one being typed: what could it become? */
      readonly line: readonly string[] | undefined
    }

/** Bare `reve` */
export type TerminalCommand = {
  readonly type: 'terminal'
  readonly model: string | undefined
  readonly session: string | undefined
  readonly thinking: ThinkingWord | number | undefined
  /** `dark`, `light`, `none`, or a file. */
  readonly theme: string | undefined
  /** Whether heartbeats and channels run. */
  readonly services: boolean
}

/** `reve rewind` */
export type RewindCommand = {
  readonly type: 'rewind'
  /** The last entry that stays: its id, or its label. */
  readonly entry: string
  /** Whether the files go back as well. */
  readonly files: boolean
  /** Default: the newest. */
  readonly session: string | undefined
  readonly lane: string | undefined
  readonly json: boolean
}

/** `reve serve` */
export type ServeCommand = {
  readonly type: 'serve'
  readonly heartbeats: boolean
  readonly channels: boolean
  /** The port of the HTTP channel; 0 lets the system choose. */
  readonly http: number | undefined
  /** Default: the newest, or a new one where there is none. */
  readonly session: string | undefined
  readonly json: boolean
}

/** `reve sessions`; where a session is named, the word may be a path, or the file name or the id of one of this agent's. */
export type SessionsCommand = { readonly type: 'sessions'; readonly json: boolean } & (
  | { readonly action: 'list' }
  /** Default: the newest. */
  | { readonly action: 'verify'; readonly session: string | undefined }
  /** A target that is not given: a new session of this agent, which is its newest then. */
  | { readonly action: 'salvage'; readonly session: string; readonly target: string | undefined }
  | {
      readonly action: 'fork'
      readonly session: string
      readonly target: string | undefined
      readonly at: string | undefined
      readonly lane: string | undefined
    }
  | { readonly action: 'name'; readonly session: string; readonly name: string }
  /** Without a label, the one that the entry has is taken off. */
  | { readonly action: 'label'; readonly session: string; readonly entry: string; readonly label: string | undefined }
  /** Default: the newest, and the lane `main`. */
  | { readonly action: 'show'; readonly session: string | undefined; readonly lane: string | undefined }
  | { readonly action: 'search'; readonly text: string; readonly regex: boolean }
  /** Without a target: standard output. */
  | {
      readonly action: 'export'
      readonly session: string
      readonly target: string | undefined
      readonly format: ExportFormat
      readonly lane: string | undefined
    }
)

/** @see thinkingWords */
export type ThinkingWord = (typeof thinkingWords)[number]
export type ExportFormat = (typeof exportFormats)[number]

/** `reve image` */
export type ImageCommand = { readonly type: 'image'; readonly json: boolean } & (
  | { readonly action: 'ls' }
  | { readonly action: 'pull'; readonly ref: string }
  /** Without a reference: that of the agent in the current folder, with its packages. */
  | { readonly action: 'build'; readonly ref: string | undefined; readonly packages: readonly string[] }
  | { readonly action: 'rm'; readonly names: readonly string[]; readonly force: boolean }
)
