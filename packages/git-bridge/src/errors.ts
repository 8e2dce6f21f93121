import { ReveError } from '@reve/base'

/** Why a git verb failed. */
export type GitErrorCode =
  | 'not_found'
  | 'bad_ref'
  | 'bad_name'
  | 'bad_argument'
  | 'bad_credentials'
  | 'clone_failed'
  | 'no_such_branch'
  | 'push_rejected'
  | 'unreachable'
  | 'auth_failed'
  | 'shallow'
  | 'unsupported_format'
  | 'unsupported_tree'
  | 'git_missing'
  | 'locked'
  | 'cancelled'
  | 'io'

/**
 * A git verb that failed, and why. Messages hold no credential: addresses with user information are refused before git
 * sees them, and what the computer shows to another side is taken out of what git says.
 */
export class GitError extends ReveError<GitErrorCode> {
  override readonly name = 'GitError'
}
