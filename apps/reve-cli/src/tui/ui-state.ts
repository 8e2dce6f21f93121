import type { QueuedMessage } from '@reve/harness'
import type { Completion } from './completion.ts'
import { type Editor, emptyEditor } from './editor.ts'
import { idleLane, type LaneState } from './lane-state.ts'
import type { Line } from './spans.ts'
import type { Tree } from './tree.ts'

/** Something to choose from. */
export type PickItem = { readonly value: string; readonly label: string; readonly detail?: string }

/** What is chosen, so that whoever gets the value knows what it is for. */
export type PickPurpose =
  | { readonly type: 'model' }
  | { readonly type: 'thinking' }
  | { readonly type: 'theme' }
  | { readonly type: 'session' }
  | { readonly type: 'queue' }
  | { readonly type: 'rewind' }
  | { readonly type: 'go_back'; readonly entryId: string | null; readonly text: string | undefined }
  | { readonly type: 'held' }
  | { readonly type: 'agent' }
  | { readonly type: 'skill' }

/** What takes the keys in place of the prompt. */
export type Overlay =
  | {
      readonly type: 'picker'
      readonly purpose: PickPurpose
      readonly title: string
      readonly items: readonly PickItem[]
      readonly filter: string
      readonly selected: number
    }
  /** Text to look at. `from` says what it is, for who brings it up to date or wants the next one. */
  | {
      readonly type: 'viewer'
      readonly title: string
      readonly rows: readonly Line[]
      readonly from:
        | { readonly type: 'text' }
        /** Of the blocks that were folded, the one so many before the last. */
        | { readonly type: 'folded'; readonly back: number }
        | { readonly type: 'agent'; readonly lane: string }
      readonly offset: number
      /** Stays at the end while more comes. */
      readonly follow: boolean
    }
  | { readonly type: 'tree'; readonly tree: Tree }

/** Something that goes on beside the run: a command in the VM, an export. Escape ends the last one. */
export type Job = {
  readonly id: number
  readonly label: string
  readonly since: number
  readonly output: readonly string[]
}

/** How far the start is. */
export type Phase =
  | { readonly type: 'opening' }
  | { readonly type: 'ready' }
  /** Another process writes the session. */
  | { readonly type: 'reading'; readonly holder: string }
  /** The agent does not work: no VM, or its files are wrong. */
  | { readonly type: 'refused'; readonly reason: string }

/** All that is seen below the scrollback. */
export type UiState = {
  readonly phase: Phase
  readonly editor: Editor
  readonly history: History
  readonly completion: Completion | undefined
  /** The token that Escape closed the list for: it stays closed until the text changes. */
  readonly closedFor: string | undefined
  readonly overlay: Overlay | undefined
  readonly main: LaneState
  /** Sub-agents that work, or did in this run, in the order of their start. */
  readonly agents: readonly { readonly state: LaneState; readonly title: string; readonly done: boolean }[]
  readonly queue: readonly QueuedMessage[]
  /** Prompts that were sent before the session was open. */
  readonly early: readonly string[]
  readonly jobs: readonly Job[]
  /** What the microVM is at. */
  readonly vm: { readonly label: string; readonly since: number } | undefined
  readonly hint: string | undefined
  /** The conversation waits for the model: Enter on an empty prompt goes on. */
  readonly canContinue: boolean
  /** Ctrl-C was pressed once. */
  readonly quitArmed: boolean
  /** Escape was pressed once: the second one clears the prompt. */
  readonly escapeArmed: boolean
  readonly footer: {
    readonly model: string
    readonly thinking: string | undefined
    readonly place: string
    readonly session: string | undefined
    readonly contextWindow: number | undefined
    readonly next: string | undefined
  }
}

/** Earlier prompts, the newest last, and where in them one is. */
export type History = {
  readonly entries: readonly string[]
  readonly at: number | undefined
  /** What was being written before. */
  readonly draft: Editor | undefined
}

export const initialState: UiState = {
  phase: { type: 'opening' },
  editor: emptyEditor,
  history: { entries: [], at: undefined, draft: undefined },
  completion: undefined,
  closedFor: undefined,
  overlay: undefined,
  main: idleLane('main'),
  agents: [],
  queue: [],
  early: [],
  jobs: [],
  vm: undefined,
  hint: undefined,
  canContinue: false,
  quitArmed: false,
  escapeArmed: false,
  footer: { model: '', thinking: undefined, place: '', session: undefined, contextWindow: undefined, next: undefined },
}

const mostHistory = 1000

/** Adds a prompt; one that is there already moves to the end. */
export function remembered(history: History, text: string): History {
  if (text.trim() === '') return { ...history, at: undefined, draft: undefined }
  const entries = [...history.entries.filter((entry) => entry !== text), text].slice(-mostHistory)
  return { entries, at: undefined, draft: undefined }
}

/** Adds prompts of earlier times in front. */
export function withOlder(history: History, older: readonly string[]): History {
  const known = new Set(history.entries)
  const fresh = [...new Set(older.toReversed())]
    .toReversed()
    .filter((entry) => !known.has(entry) && entry.trim() !== '')
  const entries = [...fresh, ...history.entries].slice(-mostHistory)
  const shift = entries.length - history.entries.length
  return { ...history, entries, at: history.at === undefined ? undefined : history.at + shift }
}

/** Whether something goes on that Escape would end. */
export const isBusy = (state: UiState): boolean => state.main.work !== 'idle' || state.jobs.length > 0
