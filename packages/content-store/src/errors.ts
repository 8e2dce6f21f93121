import { ReveError, type ReveErrorOptions } from '@reve/base'
import type { RefState } from './types.ts'

/** Every way in which the store refuses. */
export type StoreErrorCode =
  | 'not_found'
  | 'bad_path'
  | 'bad_name'
  | 'bad_argument'
  | 'bad_pattern'
  | 'exists'
  | 'ref_moved'
  | 'no_match'
  | 'ambiguous'
  | 'binary'
  | 'corrupt'
  | 'too_large'
  | 'not_a_directory'
  | 'is_a_directory'
  | 'not_a_file'
  | 'locked'
  | 'unsupported_filesystem'
  | 'newer_format'
  | 'not_a_store'
  | 'closed'
  | 'io'

/** What a program may want to know beside the code; which fields are there depends on it. */
export type StoreErrorDetails = {
  /** The path or object that it is about. */
  readonly path?: string
  /** `ref_moved`: where the ref is now; null when it is gone. */
  readonly found?: RefState | null
  /** `ambiguous`: the 1-based lines on which the matches start. `no_match`: the nearest line, if there is one. */
  readonly lines?: readonly number[]
  /** `corrupt`, `not_found`: the object's id. */
  readonly hash?: string
  /** `locked`: the holder's process id, if known. */
  readonly pid?: number
}

/** An expected failure of the store: `code` for programs, the message for people and models. */
export class StoreError extends ReveError<StoreErrorCode> {
  override readonly name = 'StoreError'
  readonly details: StoreErrorDetails
  constructor(code: StoreErrorCode, message: string, options: ReveErrorOptions & StoreErrorDetails = {}) {
    const { cause, hint, ...details } = options
    super(code, message, { ...(cause === undefined ? {} : { cause }), ...(hint === undefined ? {} : { hint }) })
    this.details = details
  }
}

/** Whether a thrown thing carries the operating system's (or SQLite's) code. */
export const hasCode = (error: unknown, ...codes: readonly string[]): boolean =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code)
