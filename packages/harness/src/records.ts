import type { Draft, JsonObject, RecordLine } from '@reve/session-log'
import * as v from 'valibot'
import { jsonObject, usageSchema, userMessageSchema } from './messages.ts'

const id = v.pipe(v.string(), v.nonEmpty())
const count = v.pipe(v.number(), v.integer(), v.minValue(0))
const outcome = v.picklist(['completed', 'aborted', 'failed', 'rejected'])
const delivery = v.picklist(['steer', 'follow_up', 'next_run'])
const knownKinds: ReadonlySet<string> = new Set(['run', 'compaction', 'navigation'])

const reason = v.picklist(['manual', 'threshold', 'overflow'])
/** Whose tool started the run: sub-agents are lanes. */
const parent = v.object({ lane: id, runId: id, toolCallId: v.string() })
const ofRun = { kind: v.literal('run'), queued: v.exactOptional(v.array(id)), parent: v.exactOptional(parent) }

/**
 * What an operation was asked to do, with the ids it will produce. A run: a prompt, or the continuation of an earlier
 * run (null: of a conversation that no run of this log has made); `queued` names waiting messages that go in front. A compaction: what the summary should mind. A navigation: where
 * the lane goes on. Kinds of later versions are kept open: recovery only closes them.
 */
const intent = v.union([
  v.object({ ...ofRun, prompt: userMessageSchema, promptEntryId: id }),
  v.object({ ...ofRun, continues: v.nullable(id) }),
  v.object({ kind: v.literal('compaction'), summaryEntryId: id, instructions: v.exactOptional(v.string()) }),
  v.object({ kind: v.literal('navigation'), leafId: v.nullable(id) }),
  v.object({
    kind: v.pipe(
      v.string(),
      v.check(
        (kind) => !knownKinds.has(kind),
        'a run needs prompt and promptEntryId, or continues; a compaction summaryEntryId; a navigation leafId',
      ),
    ),
  }),
])

/** The payload of every record that the harness writes (table in `docs/session-format.md`). */
const schemas = {
  operation_started: v.object({ runId: id, intent, sourceLeafId: v.nullable(id) }),
  /** `purpose` is there when the request is not for the step's answer. */
  task_attempt: v.object({
    runId: id,
    step: count,
    attempt: count,
    resultEntryId: id,
    purpose: v.exactOptional(v.literal('summary')),
  }),
  task_failed: v.object({
    runId: id,
    step: count,
    attempt: count,
    error: v.object({ code: v.string(), message: v.string(), retryable: v.boolean() }),
  }),
  tool_started: v.object({
    runId: id,
    assistantEntryId: id,
    toolIndex: count,
    toolCallId: v.string(),
    toolName: v.string(),
    arguments: jsonObject,
    resultEntryId: id,
    replay: v.picklist(['safe', 'never']),
  }),
  message_queued: v.object({ entryId: id, delivery, message: userMessageSchema }),
  message_cancelled: v.object({ entryId: id, delivery }),
  abort_requested: v.object({ runId: id }),
  /** `usage` is null when the server reported none; `cost`, in US dollars, is absent when there is no price. */
  usage: v.object({ runId: id, entryId: id, usage: v.nullable(usageSchema), cost: v.exactOptional(v.number()) }),
  /** `tokensBefore` is what the next request was thought to have. */
  compaction_started: v.object({
    runId: id,
    reason,
    summaryEntryId: id,
    firstKeptEntryId: v.nullable(id),
    tokensBefore: count,
  }),
  compaction_finished: v.object({
    runId: id,
    summaryEntryId: id,
    outcome: v.picklist(['completed', 'aborted', 'failed']),
    error: v.exactOptional(v.object({ code: v.string(), message: v.string() })),
  }),
  operation_finished: v.object({ runId: id, outcome, reason: v.exactOptional(v.string()) }),
} as const

type Schemas = typeof schemas
/** A record type of the harness. */
export type RecordType = keyof Schemas
/** The payload of one record type. */
export type RecordPayload<T extends RecordType> = v.InferOutput<Schemas[T]>
/** What an operation was asked to do. */
export type Intent = RecordPayload<'operation_started'>['intent']
/** How a run ended. */
export type Outcome = v.InferOutput<typeof outcome>
/** Why a conversation was compacted. */
export type CompactionReason = v.InferOutput<typeof reason>
/** When a queued message goes in: between turns, when the run would end, before the next run's prompt. */
export type Delivery = v.InferOutput<typeof delivery>

/** A record to append. What recovery could not read again is a defect, and is found before it is written. */
export function record<T extends RecordType>(lane: string, type: T, payload: RecordPayload<T>): Draft {
  v.assert(schemas[type], payload)
  return { kind: 'record', lane, type, payload: toJson(payload) }
}

/** The lane goes on at that entry. The log itself knows this record. */
export function leafRecord(lane: string, leafId: string | null): Draft {
  return { kind: 'record', lane, type: 'lane_leaf_set', payload: { leafId } }
}

/** A payload read from the log, or what is wrong with it. */
export type ReadRecord<T extends RecordType> =
  | { readonly ok: true; readonly payload: RecordPayload<T> }
  | { readonly ok: false; readonly problem: string }

/** Reads the payload of a record of that type: the trust edge to the file. */
export function readRecord<T extends RecordType>(line: RecordLine, type: T): ReadRecord<T> {
  const result = v.safeParse(schemas[type], line, { abortEarly: true })
  if (result.success) return { ok: true, payload: result.output }
  const issue = result.issues[0]
  return { ok: false, problem: `${v.getDotPath(issue) ?? 'record'}: ${issue.message}`.slice(0, 300) }
}

/** A value of ours as the log takes it. The log itself checks that it is JSON. */
export function toJson(value: object): JsonObject {
  return { ...value }
}
