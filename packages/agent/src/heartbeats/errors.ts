import { ReveError } from '@reve/base'

/** Why a heartbeat, or all of them, did not go. */
export type HeartbeatErrorCode =
  /** The run of a beat ended otherwise than with an answer. */
  | 'run_failed'
  /** The file of due times is of a newer version; it is left as it is. */
  | 'newer_state'
  /** The file of due times cannot be read. */
  | 'io'

/** A failure of the heartbeats; the message says what, where, and what to do next. */
export class HeartbeatError extends ReveError<HeartbeatErrorCode> {
  override readonly name = 'HeartbeatError'
}
