import { ReveError } from '@reve/base'

/**
 * What can go wrong before or beside a run (what goes wrong inside one is its outcome, see `RunResult`):
 * - `lane_busy`: the lane has a run; nothing was written
 * - `lane_idle`: there is no run that could take the message
 * - `needs_recovery`: a dead process left an operation open: call `recover()` first
 * - `nothing_to_continue`: the conversation does not wait for the model
 * - `nothing_to_compact`: there is not enough history for a summary
 * - `unknown_entry`: no such entry to go on from
 * - `too_deep`: sub-agents call sub-agents beyond `limits.subagentDepth`
 * - `invalid_message`: a message without content, or of the wrong shape
 * - `invalid_tools`: two tools of one name, or a tool without one
 * - `corrupt_session`: the log says what no crash can produce; `at` names the line
 * - `invalid_options`: an option of `createHarness` that cannot be meant
 * - `log_in_use`: another harness has an operation on this log
 * - `closed`: the harness was closed
 * - `log_faulted`: an append failed (`cause`): reopen the log, make a new harness, recover
 */
export type HarnessErrorCode =
  | 'lane_busy'
  | 'lane_idle'
  | 'needs_recovery'
  | 'nothing_to_continue'
  | 'nothing_to_compact'
  | 'unknown_entry'
  | 'too_deep'
  | 'invalid_message'
  | 'invalid_tools'
  | 'invalid_options'
  | 'log_in_use'
  | 'corrupt_session'
  | 'closed'
  | 'log_faulted'

/** Where in a session file something stands: its line (1 is the header), and the `seq` of that line. */
export type Place = { readonly line: number; readonly seq: number }

/** Every expected failure of this package. */
export class HarnessError extends ReveError<HarnessErrorCode> {
  override readonly name = 'HarnessError'
  /** With `corrupt_session`. */
  readonly at?: Place

  constructor(
    code: HarnessErrorCode,
    message: string,
    details: { readonly at?: Place; readonly cause?: unknown; readonly hint?: string } = {},
  ) {
    super(code, message, {
      ...('cause' in details && { cause: details.cause }),
      ...(details.hint !== undefined && { hint: details.hint }),
    })
    if (details.at !== undefined) this.at = details.at
  }
}
