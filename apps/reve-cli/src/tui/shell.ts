import type { Agent, AgentSession } from '@reve/agent'
import type { UiBlock } from './block.ts'
import type { Conversation } from './conversation.ts'
import type { TuiDeps } from './ports.ts'
import type { Store } from './store.ts'
import type { Overlay, PickItem, PickPurpose } from './ui-state.ts'

/** What a session is opened with. */
export type SessionChoice = {
  readonly session: 'new' | 'newest' | { readonly file: string }
  readonly model?: string
  readonly thinking?: Parameters<Agent['openSession']>[0]['thinking']
}

/** What commands work with. */
export type Shell = {
  readonly deps: TuiDeps
  readonly store: Store
  readonly conversation: Conversation
  readonly agent: () => Agent | undefined
  readonly session: () => AgentSession | undefined
  /** Writes a block to the scrollback. */
  readonly say: (block: UiBlock) => void
  readonly note: (text: string, level?: 'info' | 'good' | 'warning' | 'error') => void
  readonly pick: (purpose: PickPurpose, title: string, items: readonly PickItem[], selected?: string) => void
  readonly open: (overlay: Overlay) => void
  /** Something that takes a while, seen with its last lines; Escape aborts `signal`. */
  readonly job: <T>(
    label: string,
    work: (signal: AbortSignal, show: (text: string) => void) => Promise<T>,
  ) => Promise<T | undefined>
  /** Closes the session that is open and opens another one. Says so when a run is in the way. */
  readonly change: (choice: SessionChoice) => Promise<void>
  /** A run with this prompt, or the message into the one that goes on. */
  readonly send: (text: string) => Promise<void>
  /** The tasks of `HEARTBEAT.yml` and when each is due. */
  readonly heartbeats: () => readonly { readonly task: string; readonly next: number }[]
  readonly quit: () => void
  readonly setTheme: (name: string) => void
  /** Bytes for the terminal itself, for example to its clipboard. */
  readonly clipboard: (text: string) => void
}
