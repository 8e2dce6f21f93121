import { ReveError } from '@reve/base'

/** Why a message, a value or a channel was refused. */
export type ChannelErrorCode =
  /** As many messages as may be wait already: come again later. */
  | 'inbox_full'
  /** The text, a name or a value is longer than it may be. */
  | 'too_large'
  /** There is nothing in it, or it is no text. */
  | 'invalid_message'
  /** The same key was given to another text before. */
  | 'key_reused'
  /** A name, a key or a value that cannot be one. */
  | 'invalid_value'
  /** Another process has the channels of this agent. */
  | 'locked'
  /** The file is of a newer version, or none of ours; it is left as it is. */
  | 'foreign_file'
  /** What is set up for a channel cannot be used. */
  | 'bad_channel'
  /** The file cannot be read or written. */
  | 'io'

/** A refusal of the channels; the message says what, where, and what to do next. */
export class ChannelError extends ReveError<ChannelErrorCode> {
  override readonly name = 'ChannelError'
}
