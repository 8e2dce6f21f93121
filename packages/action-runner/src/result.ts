import * as v from 'valibot'

const outputSchema = v.object({
  text: v.string(),
  bytes: v.number(),
  cutBytes: v.number(),
  blob: v.string(),
})

/**
 * What stays of a run, and what the cache keeps.
 *
 * - `exitCode` or `signal`: exactly one is not null.
 * - `stdout`, `stderr`: `text` is the whole stream, or its head, a marker line and its tail; `bytes` its length, `cutBytes` what
 *   the text leaves out, `blob` the id of the whole stream.
 * - `tree`: the result tree. A cancelled run has its input tree here.
 * - `changed`: paths that differ from the input tree, `\xHH` for bytes that are not UTF-8.
 * - `notCaptured`: what the slot held that no tree can hold (sockets, FIFOs, devices, `.git`), and why.
 * - `linksLeaving`: symbolic links of the result that point out of it. They are kept as they are, and never followed.
 * - `leftRunning`: processes that the command left behind; they were killed.
 * - `timing`: milliseconds of each phase.
 */
export const recordSchema = v.object({
  exitCode: v.nullable(v.number()),
  signal: v.nullable(v.string()),
  timedOut: v.boolean(),
  cancelled: v.boolean(),
  stdout: outputSchema,
  stderr: outputSchema,
  tree: v.string(),
  changed: v.array(v.object({ path: v.string(), change: v.picklist(['added', 'changed', 'removed', 'mode']) })),
  notCaptured: v.array(v.object({ path: v.string(), why: v.string() })),
  linksLeaving: v.array(v.object({ path: v.string(), target: v.string() })),
  leftRunning: v.object({ count: v.number(), names: v.array(v.string()) }),
  timing: v.object({ queueMs: v.number(), layoutMs: v.number(), runMs: v.number(), captureMs: v.number() }),
})

type DeepReadonly<T> = T extends readonly (infer U)[]
  ? readonly DeepReadonly<U>[]
  : T extends object
    ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
    : T

/** What stays of a run; see `recordSchema` for each field. */
export type ActionRecord = DeepReadonly<v.InferOutput<typeof recordSchema>>

/** The answer to a run: its record, its key, and whether it was known. `since`: ISO time of the run that is answered with; its timing is that run's too. */
export type ActionResult = ActionRecord & { readonly key: string; readonly cached: false | { readonly since: string } }

/** True for a run that ended by itself: only such a run may be answered with again. */
export function mayBeCached(record: ActionRecord): boolean {
  return record.exitCode !== null && record.signal === null && !record.timedOut && !record.cancelled
}
