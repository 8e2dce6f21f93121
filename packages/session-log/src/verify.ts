import { realpath } from 'node:fs/promises'
import { ioError, type SessionLogError, type SessionLogErrorCode } from './errors.ts'
import type { LineProblem, LineProblemCode } from './format.ts'
import { scan, type Tail } from './scan.ts'
import { reading } from './session.ts'

/** One thing that is wrong, with the line it is in (1 is the header). */
export type VerifyProblem = {
  readonly line: number
  readonly code:
    | LineProblemCode
    | Extract<SessionLogErrorCode, 'not_a_session' | 'foreign_format' | 'newer_version' | 'older_version'>
  readonly message: string
}

/** What {@link verifySession} found. */
export type VerifyReport = {
  /** No problem. A torn tail is none: a crash leaves one, and opening mends it. */
  readonly ok: boolean
  /** Good lines, the header counted. */
  readonly lines: number
  readonly entries: number
  readonly records: number
  readonly tail: Tail
  /** All problems in file order, at most 1000. */
  readonly problems: readonly VerifyProblem[]
}

/** So many problems are listed; a file that is something else altogether has no use for more. */
const MAX_PROBLEMS = 1000

/**
 * Checks every line of a session and reports all that is wrong. Takes no lock, changes nothing.
 *
 * @throws SessionLogError `not_found` and `io` only: whatever the file holds is a report.
 */
export async function verifySession(file: string): Promise<VerifyReport> {
  const problems: LineProblem[] = []
  try {
    const real = await realpath(file)
    const found = await reading(real, (handle) =>
      scan(handle, real, (problem) => (problems.push(problem) < MAX_PROBLEMS ? 'continue' : 'stop')),
    )
    const { entries, records } = found.index.counts
    return { ok: problems.length === 0, lines: 1 + entries + records, entries, records, tail: found.tail, problems }
  } catch (error) {
    const failure = ioError(file, 'cannot read the session', error)
    const problem = headerFailure(failure)
    if (problem === undefined) throw failure
    return { ok: false, lines: 0, entries: 0, records: 0, tail: 'whole', problems: [problem] }
  }
}

function headerFailure(error: SessionLogError): VerifyProblem | undefined {
  const { code, message } = error
  return code === 'not_a_session' || code === 'foreign_format' || code === 'newer_version' || code === 'older_version'
    ? { line: 1, code, message }
    : undefined
}
