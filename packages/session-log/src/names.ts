import type { Draft } from './draft.ts'
import { factText } from './fact-text.ts'
import type { Line } from './format.ts'
import type { SessionLog } from './log.ts'
import type { SessionView } from './view.ts'

/** The fact that names a session: `fact_set {key: "name", value: "…"}`. */
export const NAME_FACT = 'name'

/** How much of each end of a file `listSessions` looks at, in bytes. */
export const WINDOW_BYTES = 64 * 1024

/** A name is restated before it can be out of sight: lines of other writers may be longer than we would write them. */
const IN_SIGHT_BYTES = WINDOW_BYTES / 2

/**
 * The record that names a session; a later one replaces it.
 *
 * @param name one line of 1 to 200 characters without control characters; white space around it is left out.
 * @throws SessionLogError `bad_draft`.
 */
export function nameDraft(name: string): Draft {
  return nameFact(factText('the name', name))
}

/** The name of a session, if it has one. */
export function sessionName(view: SessionView): string | undefined {
  const name = view.fact(NAME_FACT)
  return typeof name === 'string' ? name : undefined
}

/**
 * Says the name of a session again when so much was appended since that `listSessions`, which reads the ends of a file
 * only, could not see it. For the owner of a log to call before it closes it (and after it opened one whose owner was
 * killed); costs at most a look at the last 32 KiB of lines.
 *
 * @returns whether the name had to be said again.
 * @throws SessionLogError as `append` does.
 */
export async function restateName(log: SessionLog): Promise<boolean> {
  const name = sessionName(log)
  if (name === undefined || isInSight(log)) return false
  await log.append([nameFact(name)])
  return true
}

/** Whether a line is a fact that names the session (or takes its name off). */
export function isNameFact(line: Line): boolean {
  return line.kind === 'record' && line.type === 'fact_set' && line['key'] === NAME_FACT
}

const nameFact = (value: string): Draft => ({
  kind: 'record',
  lane: 'main',
  type: 'fact_set',
  payload: { key: NAME_FACT, value },
})

/** Looks back from the end, further each time, so that of a long session only the end is read. */
function isInSight(view: SessionView): boolean {
  for (let count = 64; ; count *= 2) {
    const from = Math.max(view.lastSeq - count, 0)
    const lines = view.since(from)
    const named = lines.findLastIndex(isNameFact)
    const bytes = lines.slice(named + 1).reduce((sum, line) => sum + Buffer.byteLength(JSON.stringify(line)) + 1, 0)
    if (bytes > IN_SIGHT_BYTES) return false
    if (named !== -1 || from === 0) return true
  }
}
