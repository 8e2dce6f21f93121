import { ReveError } from '@reve/base'

/** Why the computer, or something asked of it, was refused. */
export type ComputerErrorCode =
  /** `KC_ROOT` holds no computer. */
  | 'not_a_computer'
  /** A call names no family, action or field that exists, or a field is wrong. */
  | 'bad_call'
  /** A seat's name is taken, unknown or not a name; a token is too short. */
  | 'bad_seat'
  | 'seat_exists'
  | 'no_such_seat'
  /** The address is in use, or may not be bound. */
  | 'address_in_use'
  | 'bad_address'
  /** An option is wrong; the message names it. */
  | 'bad_option'

/** A refusal of this package; the message says what, where, and what to do next. */
export class ComputerError extends ReveError<ComputerErrorCode> {
  override readonly name = 'ComputerError'
}
