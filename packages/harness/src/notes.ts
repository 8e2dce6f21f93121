/*
 * What a model reads where a result or an answer was cut off. These texts are part of conversations on disk.
 * "Unknown" never says "did not run": the effect may have reached the world before its result was lost.
 */

const unknown = 'Its outcome is unknown: it may or may not have happened. Check before doing it again.'

/** The process died while the call was in flight. */
export function lostNote(toolName: string, exists: boolean): string {
  const gone = exists ? '' : ` The tool "${toolName}" no longer exists.`
  return `Interrupted: the process ended while "${toolName}" was running. ${unknown}${gone}`
}

/** The run was aborted and the tool ended by throwing. */
export function stoppedNote(toolName: string, message: string): string {
  return `Interrupted: the run was aborted while "${toolName}" was running (${message}). ${unknown}`
}

/** The run was aborted and the tool did not end. */
export function hungNote(toolName: string, graceMs: number): string {
  return `Interrupted: the run was aborted and "${toolName}" had not stopped ${graceMs} ms later. ${unknown}`
}

/** A call whose intent was never recorded, or whose effect was never begun: this one certainly did not run. */
export const notStartedNote = 'Not executed: the run ended before this call was started.'

/** The answer was cut by the output cap: its calls may be incomplete even when they parse. */
export const truncatedNote =
  'Not executed: the answer was truncated by the output limit, so this call may be incomplete. Send it again, in smaller pieces.'

/** A hook said no. */
export const blockedNote = (reason: string): string => `Not executed: blocked: ${reason}`

/** In place of a result that is nowhere: a projection must never leave a call without one. */
export const missingNote = `Interrupted: the result of this call is missing. ${unknown}`

/** Ends the text of an answer that was aborted. */
export const abortedNote = '[This answer was interrupted before its end.]'

/** In place of an empty tool result, which some APIs reject. */
export const emptyNote = '(no output)'
