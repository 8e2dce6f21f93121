import { messageOf, ReveError } from '@reve/base'

/**
 * What can go wrong with a session file:
 * - `not_found`: there is no such file (or no such folder to create it in)
 * - `exists`: something is there that must not be overwritten
 * - `not_a_session`: the file is something else, or empty
 * - `foreign_format`: a session of another program, or of a later layout of the header
 * - `newer_version`, `older_version`: a header of this family with another version
 * - `corrupt`: a line that no crash can produce; `line` names it
 * - `locked`: another process (`pid`) has it open for writing
 * - `io`: the operating system refused (`cause`)
 * - `faulted`: an earlier append failed; reopen the file to go on
 * - `bad_draft`: the caller's draft was refused, nothing was written
 * - `unknown_entry`: the caller asked for the path of an entry that is not there
 * - `closed`: the log was closed
 */
export type SessionLogErrorCode =
  | 'not_found'
  | 'exists'
  | 'not_a_session'
  | 'foreign_format'
  | 'newer_version'
  | 'older_version'
  | 'corrupt'
  | 'locked'
  | 'faulted'
  | 'bad_draft'
  | 'unknown_entry'
  | 'closed'
  | 'io'

/** Details of a {@link SessionLogError}. */
export type SessionLogErrorDetails = {
  /** Absent for a draft that was refused before it was given to a session. */
  readonly file?: string
  /** 1 for the header. */
  readonly line?: number
  readonly pid?: number
  readonly cause?: unknown
  readonly hint?: string
}

/** Every expected failure of this package. The message starts with `file:` or `file:line:` where there is a file. */
export class SessionLogError extends ReveError<SessionLogErrorCode> {
  override readonly name = 'SessionLogError'
  readonly file?: string
  readonly line?: number
  readonly pid?: number

  constructor(code: SessionLogErrorCode, reason: string, details: SessionLogErrorDetails) {
    const place = [details.file, details.line].filter((part) => part !== undefined).join(':')
    super(code, place === '' ? reason : `${place}: ${reason}`, {
      ...(details.cause === undefined ? {} : { cause: details.cause }),
      ...(details.hint === undefined ? {} : { hint: details.hint }),
    })
    if (details.file !== undefined) this.file = details.file
    if (details.line !== undefined) this.line = details.line
    if (details.pid !== undefined) this.pid = details.pid
  }
}

/** The errno name (`ENOENT`) of a failure of the operating system. */
export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

/** Turns a failure of the operating system into a typed one; a typed one passes through. */
export function ioError(file: string, doing: string, cause: unknown): SessionLogError {
  if (cause instanceof SessionLogError) return cause
  return errnoOf(cause) === 'ENOENT'
    ? new SessionLogError('not_found', `${doing}: no such file or folder`, { file, cause })
    : new SessionLogError('io', `${doing}: ${messageOf(cause)}`, { file, cause })
}
