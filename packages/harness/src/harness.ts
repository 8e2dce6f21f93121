import type { Message, UserMessage } from '@reve/providers/model'
import type { EntryLine } from '@reve/session-log'
import type { Listener } from './events.ts'
import { LaneHarness } from './lane-harness.ts'
import type { LedgerReport } from './ledger.ts'
import type { LiveLane } from './live.ts'
import type { CompactionResult } from './manual-compaction.ts'
import type { Observed } from './observe.ts'
import type { HarnessOptions } from './options.ts'
import type { RecoveryReport } from './recover.ts'
import type { RunResult } from './run.ts'
import type { RunOverrides } from './tool.ts'

/** Which lane; default `main`. */
export type LaneOption = { readonly lane?: string }
/** An abort of `signal` is an `abort()` of the lane; one that has happened already starts nothing. */
export type Stoppable = { readonly signal?: AbortSignal }
/** Options of a run that continues. */
export type RunOptions = LaneOption & Stoppable & RunOverrides
/** Options of a run with a prompt. */
export type PromptOptions = RunOptions & {
  /** The entry that the prompt follows, of any lane; null for an empty conversation. Default: the lane's leaf. The lane goes on from there: what it had said before stays in the log, on a branch of its own. */
  readonly from?: string | null
}

/** What a lane does at the moment. `waiting`: messages that were accepted and not yet delivered. */
export type LaneStatus = { readonly waiting: number } & (
  | { readonly state: 'idle' }
  | { readonly state: 'running' | 'compacting'; readonly runId: string; readonly aborting: boolean }
  | { readonly state: 'needs_recovery'; readonly runId: string }
)

/** What an observer begins with, lane by lane. */
export type LaneSnapshot = {
  readonly lane: string
  readonly status: LaneStatus
  /** The conversation, compacted parts too, up to the last entry that events have told of. */
  readonly path: readonly EntryLine[]
  /** What goes on and is not in the log yet. */
  readonly live?: LiveLane
}
/** The state that the events so far have led to. */
export type Snapshot = { readonly lanes: readonly LaneSnapshot[] }

/** Options of `observe`. */
export type ObserveOptions = {
  /** Events that may wait for the observer; default 1024. */
  readonly capacity?: number
  readonly signal?: AbortSignal
}

/** Operations on one session log. Lanes are independent of each other; a lane has one operation at a time. */
export interface Harness extends AsyncDisposable {
  /**
   * Closes every operation that a dead process left: a pure reduction of the log, then its appends. A second call
   * appends nothing. Until then lanes with an open operation take no prompt. Replays of tools can be aborted (`abort`, `close`).
   *
   * @throws HarnessError `corrupt_session` naming the line, before anything is changed.
   */
  recover(): Promise<RecoveryReport>
  /**
   * One run: the prompt, then answers and calls until the model is done. Resolves however the run ends.
   *
   * @throws HarnessError `lane_busy`, `needs_recovery`, `unknown_entry`, `invalid_message`, `invalid_tools`,
   * `corrupt_session`, `closed`: nothing was written; `log_faulted`: the session has to be reopened and recovered.
   */
  prompt(message: string | UserMessage, options?: PromptOptions): Promise<RunResult>
  /**
   * A new run on the conversation as it stands, with no new prompt: after a recovery, an abort or a failure, or for messages
   * that wait. The lane of a sub-agent goes on only with `system` or `tools` given. Throws also `nothing_to_continue`.
   */
  continue(options?: RunOptions): Promise<RunResult>
  /** Says something to a running run: delivered between two turns. Durable when this resolves. Throws `lane_idle`. While the lane compacts, it waits for the next run. */
  steer(message: string | UserMessage, options?: LaneOption): Promise<{ readonly entryId: string }>
  /** As `steer`, delivered when the run would otherwise end. */
  followUp(message: string | UserMessage, options?: LaneOption): Promise<{ readonly entryId: string }>
  /** Waits, also across restarts, for the lane's next run and goes in front of its prompt. */
  nextRun(message: string | UserMessage, options?: LaneOption): Promise<{ readonly entryId: string }>
  /**
   * Takes back a message that was accepted and waits (`entryId` is what its acceptance gave), durably. Undefined when it
   * does not wait any more: it was delivered, or given back.
   */
  withdraw(entryId: string, options?: LaneOption): Promise<UserMessage | undefined>
  /**
   * Records the wish, then signals model and tools; resolves with that, the operation's own promise tells of its end.
   * Undelivered steers and follow-ups are cancelled and given back. Idempotent; on an idle lane it does nothing. While
   * `recover()` makes calls again, it stops those of the lane, or of all lanes when none is named.
   */
  abort(options?: LaneOption): Promise<{ readonly returned: readonly UserMessage[] }>
  /**
   * Puts a summary in the place of the older part of a conversation, for the model; the log keeps all of it. Resolves
   * however it ends. `instructions`: what the summary should mind.
   *
   * @throws HarnessError as `prompt`, and `nothing_to_compact`.
   */
  compact(options?: LaneOption & Stoppable & { readonly instructions?: string }): Promise<CompactionResult>
  /**
   * Moves the lane to another entry (null: to an empty conversation), durably: what is said next branches off there.
   *
   * @throws HarnessError as `prompt`.
   */
  navigate(entryId: string | null, options?: LaneOption): Promise<void>
  /** Calls `listener` with every event from now on, in order; returns how to stop that. */
  subscribe(listener: Listener): () => void
  /**
   * The state, then every event after it. A reader that is too slow gets a new snapshot and how many events it stands for:
   * nothing is lost in silence, and nothing waits for a reader. Ends with `close()`.
   */
  observe(options?: ObserveOptions): AsyncGenerator<Observed<Snapshot>, void, void>
  /** What a lane does. Throws `corrupt_session`, as all that reads the log. */
  status(lane?: string): LaneStatus
  /** The conversation of a lane, as the model would get it. */
  messages(lane?: string): readonly Message[]
  /** What was spent, from the `usage` records: by session, run, lane and day. */
  spending(): LedgerReport
  /** Aborts all operations and waits until their promised results are written. The log is the caller's. */
  close(): Promise<void>
}

/** Makes a harness on an open log. Reads nothing and writes nothing yet: call `recover()` first. */
export function createHarness(options: HarnessOptions): Harness {
  return new LaneHarness(options)
}
