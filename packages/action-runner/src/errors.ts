import { isReveError, ReveError } from '@reve/base'

/** Why an action could not be run. A command that ran and failed is a result, never one of these. */
export type ActionErrorCode =
  | 'bad_action'
  | 'sandbox_unavailable'
  | 'setup_failed'
  | 'disk_full'
  | 'capture_failed'
  | 'cancelled'
  | 'closed'

/**
 * A run that gave no result: the action was not valid (`bad_action`), its sandbox is not here (`sandbox_unavailable`), the
 * slot or the process could not be made (`setup_failed`, `disk_full`), the result could not be read back
 * (`capture_failed`), or it was stopped before its process began (`cancelled`, `closed`). None of them is ever cached.
 */
export class ActionError extends ReveError<ActionErrorCode> {
  override readonly name = 'ActionError'
}

/** The typed error for what the system threw: a full disk by its name, anything else as a set-up that failed. */
export function fromSystem(error: unknown): unknown {
  if (!(error instanceof Error) || isReveError(error) || !('syscall' in error)) return error
  const full = 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT')
  return full
    ? new ActionError('disk_full', 'the disk of the slots is full', { cause: error, hint: 'free some space' })
    : new ActionError('setup_failed', `the action could not be run: ${error.message}`, { cause: error })
}
