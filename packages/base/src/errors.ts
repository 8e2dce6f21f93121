/** Options of every error of ours. */
export type ReveErrorOptions = {
  readonly cause?: unknown
  /** What to do next, when it is not part of the message. */
  readonly hint?: string
}

/**
 * The base of every expected failure: a closed `code` for programs, a message for people that says what, where, and what
 * to do next. A secret never stands in one.
 */
export abstract class ReveError<Code extends string = string> extends Error {
  abstract override readonly name: string
  readonly code: Code
  readonly hint?: string

  constructor(code: Code, message: string, options: ReveErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : {})
    this.code = code
    if (options.hint !== undefined) this.hint = options.hint
  }
}

/** Whether `value` is an expected failure of ours; anything else that was thrown is a defect. */
export function isReveError(value: unknown): value is ReveError {
  return value instanceof ReveError
}

/** The code of a thrown thing that has one: `ENOENT` and its like, or one of ours. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined

/** Characters of a thrown thing's text that are worth showing. */
const shownCharacters = 2000

/** The text of anything that was thrown: one message, bounded, never `[object Object]`. */
export function messageOf(value: unknown): string {
  const text =
    value instanceof Error ? value.message || value.name : typeof value === 'string' ? value : describe(value)
  return text.length > shownCharacters ? `${text.slice(0, shownCharacters)}…` : text
}

function describe(value: unknown): string {
  if (typeof value === 'object' && value !== null && 'message' in value && typeof value.message === 'string')
    return value.message
  try {
    return JSON.stringify(value) ?? String(value)
  } catch (error) {
    return `something that cannot be shown (${error instanceof Error ? error.name : typeof error})`
  }
}
