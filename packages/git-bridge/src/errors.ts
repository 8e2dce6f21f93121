import { ReveError } from '@reve/base'

/** Why a git verb failed. */
export type GitErrorCode =
  | 'not_found'
  | 'bad_ref'
  | 'bad_name'
  | 'bad_argument'
  | 'clone_failed'
  | 'no_such_branch'
  | 'push_rejected'
  | 'unreachable'
  | 'auth_failed'
  | 'shallow'
  | 'unsupported_tree'
  | 'git_missing'
  | 'cancelled'
  | 'io'

/**
 * A git verb that did nothing, and why. Messages hold no credential: addresses with user information are refused before git
 * sees them.
 */
export class GitError extends ReveError<GitErrorCode> {
  override readonly name = 'GitError'
}
