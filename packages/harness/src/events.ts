import type { JsonObject, Message, ToolResultMessage, Usage, UserMessage } from '@reve/providers/model'
import type { CompactionReason, Delivery, Outcome } from './records.ts'

/** A call that recovery had to settle. */
export type SettledCall = { readonly toolName: string; readonly toolCallId: string }

/** What a run is and did, as it happens. Cleaned of secrets, not of control characters: a terminal needs a sanitiser. */
export type HarnessEventBody =
  | {
      readonly type: 'run_started'
      readonly continues?: string
      readonly prompt?: UserMessage
      /** The call that this run serves: it is a sub-agent's. */
      readonly parent?: { readonly lane: string; readonly runId: string; readonly toolCallId: string }
    }
  /** Recovery closed a run that a dead process left; see `RecoveredLane`. */
  | {
      readonly type: 'recovered'
      /** `run`, `compaction`, `navigation`, or a kind of a later version. */
      readonly operation: string
      readonly unknown: readonly SettledCall[]
      readonly replayed: readonly SettledCall[]
      readonly canContinue: boolean
    }
  /** Before a model request; `step` counts the answers of the run from 1. */
  | { readonly type: 'turn_started'; readonly step: number }
  | { readonly type: 'text'; readonly delta: string }
  | { readonly type: 'reasoning'; readonly delta: string }
  /** The entry is durable. */
  | { readonly type: 'message'; readonly entryId: string; readonly message: Message }
  | {
      readonly type: 'tool_started'
      readonly toolCallId: string
      readonly toolName: string
      readonly arguments: JsonObject
      readonly resultEntryId: string
    }
  | { readonly type: 'tool_progress'; readonly toolCallId: string; readonly text: string }
  | {
      readonly type: 'tool_finished'
      readonly toolCallId: string
      readonly toolName: string
      readonly result: ToolResultMessage
    }
  /** A request failed and is sent again after `delayMs`. `discard`: text of it was shown and does not count. */
  | {
      readonly type: 'retry'
      readonly attempt: number
      readonly delayMs: number
      readonly discard: boolean
      readonly error: { readonly code: string; readonly message: string }
    }
  | { readonly type: 'queued'; readonly delivery: Delivery; readonly entryId: string }
  | { readonly type: 'usage'; readonly usage: Usage; readonly cost?: number }
  | { readonly type: 'abort_requested' }
  | { readonly type: 'run_finished'; readonly outcome: Outcome; readonly reason?: string; readonly text: string }
  /** The summary of a conversation is being made; between this and its end there are only retries and usage. */
  | { readonly type: 'compaction_started'; readonly reason: CompactionReason; readonly tokens: number }
  /** `completed`: the summary is in place (the entry is durable). Else the conversation is as it was. */
  | {
      readonly type: 'compaction_finished'
      readonly reason: CompactionReason
      readonly outcome: 'completed' | 'aborted' | 'failed' | 'declined'
      readonly entryId?: string
      readonly tokensBefore: number
      readonly tokensAfter?: number
      readonly error?: { readonly code: string; readonly message: string }
    }
  /** The lane goes on at another entry. */
  | { readonly type: 'navigated'; readonly leafId: string | null }
  /** A hook threw, or gave back something else than it may. */
  | { readonly type: 'hook_failed'; readonly hook: string; readonly message: string }
  /** The log takes no more: all that ran was stopped, and no operation tells its end. Reopen the session and recover. */
  | { readonly type: 'log_faulted'; readonly message: string }
  /** Another listener threw. */
  | { readonly type: 'listener_failed'; readonly message: string }

/** An event: its body, the version of this vocabulary, and whose run it is (`runId` is '' outside of runs). */
export type HarnessEvent = { readonly v: 1; readonly lane: string; readonly runId: string } & HarnessEventBody

/** Takes events in their order. What it throws (or rejects with) is reported to the other listeners. */
export type Listener = (event: HarnessEvent) => void
