import { type EntryLine, isEntry, type RecordLine, type SessionView } from '@reve/session-log'
import type { Place } from './errors.ts'
import { readRecord } from './records.ts'

/** An operation without its end: its records, and the entries that its lane got since. */
export type OpenOperation = {
  readonly lane: string
  readonly runId: string
  readonly started: RecordLine
  readonly records: readonly RecordLine[]
  readonly entries: readonly EntryLine[]
}

/** What no crash can produce, so that recovery refuses to guess. */
export type CorruptionReason =
  | 'malformed_record'
  | 'malformed_message'
  | 'second_operation'
  | 'run_started_twice'
  | 'unknown_run'
  | 'record_after_finish'
  | 'unknown_prompt'
  | 'unknown_queued'
  | 'unknown_assistant'
  | 'unknown_call'
  | 'call_started_twice'
  | 'foreign_result'
  | 'unknown_entry'
  | 'compaction_started_twice'
  | 'unknown_compaction'
  | 'foreign_summary'
  | 'id_taken'

/** One corruption: why, where, and a sentence. */
export type Corruption = { readonly reason: CorruptionReason; readonly at: Place; readonly message: string }

/** A corruption by the `seq` of its line: which line that is costs a look at all of them. */
export type Fault = { readonly reason: CorruptionReason; readonly seq: number; readonly message: string }

/** The corruption of a fault. Line 1 is the header. */
export function corrupt(
  { reason, seq, message }: Fault,
  view: SessionView,
): { readonly type: 'corrupt'; readonly corruption: Corruption } {
  const line = view.lines.findIndex((line) => line.seq === seq) + 2
  return { type: 'corrupt', corruption: { reason, at: { line, seq }, message } }
}

/** The newest run of a lane; a sub-agent's names the call that it serves. */
export type LastRun = { readonly runId: string; readonly parent?: RunParent }

/** A call that started a run. */
export type RunParent = { readonly lane: string; readonly runId: string; readonly toolCallId: string }

/** Every operation of a log: which lanes have one open, and which run of a lane was the last. */
export type Operations =
  | {
      readonly type: 'operations'
      readonly open: ReadonlyMap<string, OpenOperation>
      readonly lastRun: ReadonlyMap<string, LastRun>
      /** Ids of all messages that were ever accepted. */
      readonly accepted: ReadonlySet<string>
    }
  | { readonly type: 'corrupt'; readonly corruption: Corruption }

const inRun: ReadonlySet<string> = new Set([
  'task_attempt',
  'task_failed',
  'tool_started',
  'abort_requested',
  'usage',
  'compaction_started',
  'compaction_finished',
  'operation_finished',
])

/**
 * Reads the frame of all operations: starts, ends, and to whom the records between them belong. Of the conversation only
 * what stands after the start of an open operation is looked at.
 */
export function scanOperations(view: SessionView): Operations {
  const frames = new Map<
    string,
    { readonly runId: string; readonly started: RecordLine; readonly records: RecordLine[] }
  >()
  const lastRun = new Map<string, LastRun>()
  const states = new Map<string, 'open' | 'finished'>()
  const accepted = new Set<string>()

  for (const line of view.records()) {
    if (line.type !== 'operation_started' && line.type !== 'message_queued' && !inRun.has(line.type)) continue
    const refuse = (reason: CorruptionReason, message: string): Operations =>
      corrupt({ reason, seq: line.seq, message: `${line.type} of lane ${quote(line.lane)}: ${message}` }, view)
    if (line.type === 'message_queued') {
      const read = readRecord(line, 'message_queued')
      if (!read.ok) return refuse('malformed_record', read.problem)
      const { entryId } = read.payload
      // Accepted once, and before it is part of the conversation.
      const delivered = view.entry(entryId)
      if (accepted.has(entryId) || (delivered !== undefined && delivered.seq < line.seq))
        return refuse('id_taken', `the message ${quote(entryId)} is there already`)
      accepted.add(entryId)
      continue
    }
    const runId = line['runId']
    if (typeof runId !== 'string') return refuse('malformed_record', 'it names no run')
    const current = frames.get(line.lane)

    if (line.type === 'operation_started') {
      if (current !== undefined) return refuse('second_operation', `run ${quote(current.runId)} is still open`)
      if (states.has(runId)) return refuse('run_started_twice', `run ${quote(runId)} was started before`)
      states.set(runId, 'open')
      const run = runOf(line, runId)
      if (run !== undefined) lastRun.set(line.lane, run)
      frames.set(line.lane, { runId, started: line, records: [] })
      continue
    }
    if (states.get(runId) === 'finished') return refuse('record_after_finish', `run ${quote(runId)} is finished`)
    if (current?.runId !== runId) return refuse('unknown_run', `run ${quote(runId)} is not open here`)
    if (line.type === 'operation_finished') {
      states.set(runId, 'finished')
      frames.delete(line.lane)
    } else current.records.push(line)
  }
  const open = new Map(
    Array.from(frames, ([lane, frame]): readonly [string, OpenOperation] => [
      lane,
      {
        lane,
        ...frame,
        entries: view.since(frame.started.seq).filter((line): line is EntryLine => isEntry(line) && line.lane === lane),
      },
    ]),
  )
  return { type: 'operations', open, lastRun, accepted }
}

/** The run that an operation is; undefined for one of another kind. */
function runOf(started: RecordLine, runId: string): LastRun | undefined {
  const intent = started['intent']
  if (typeof intent !== 'object' || intent === null || !('kind' in intent) || intent.kind !== 'run') return undefined
  const read = readRecord(started, 'operation_started')
  const parent = read.ok && 'parent' in read.payload.intent ? read.payload.intent.parent : undefined
  return { runId, ...(parent !== undefined && { parent }) }
}

/** Text from a file inside a message: bounded, control characters escaped. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
}
