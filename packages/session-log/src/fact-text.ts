import { SessionLogError } from './errors.ts'

/** Longest label or name, in characters (code points). */
const MAX_CHARACTERS = 200

/** What would break the one line that a label or a name is shown in, or what a terminal would obey. */
// oxlint-disable-next-line no-control-regex
const NOT_ONE_LINE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/

/**
 * The text of a label or a name as it is kept: well-formed, without white space around it.
 *
 * @throws SessionLogError `bad_draft`, saying what is wrong with `what`: nothing was written.
 */
export function factText(what: string, text: string): string {
  const bad = (reason: string) => new SessionLogError('bad_draft', `${what}: ${reason}`, {})
  const kept = text.toWellFormed().trim()
  if (kept === '') throw bad('it is empty')
  if (NOT_ONE_LINE.test(kept)) throw bad('it has to be one line without control characters')
  const characters = [...kept].length
  if (characters > MAX_CHARACTERS) throw bad(`it has ${characters} characters; at most ${MAX_CHARACTERS} are allowed`)
  return kept
}
