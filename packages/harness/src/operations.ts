import { type EntryLine, isEntry, type RecordLine, type SessionView } from '@reve/session-log'
import type { Place } from './errors.ts'
import { readRecord } from './records.ts'

/** A record and where it stands. */
type PlacedRecord = { readonly at: Place; readonly record: RecordLine }

/** An operation without its end: its records, and the entries that its lane got since. */
export type OpenOperation = {
  readonly lane: string
  readonly runId: string
  readonly started: PlacedRecord
  readonly records: readonly PlacedRecord[]
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

/** One corruption: why, where, and a sentence. */
export type Corruption = { readonly reason: CorruptionReason; readonly at: Place; readonly message: string }

/** Every operation of a log: which lanes have one open, and which run of a lane was the last. */
export type Operations =
  | {
      readonly type: 'operations'
      readonly open: ReadonlyMap<string, OpenOperation>
      readonly lastRun: ReadonlyMap<string, string>
    }
  | { readonly type: 'corrupt'; readonly corruption: Corruption }

const inRun: ReadonlySet<string> = new Set([
  'task_attempt',
  'task_failed',
  'tool_started',
  'abort_requested',
  'usage',
  'operation_finished',
])

type Growing = OpenOperation & { readonly records: PlacedRecord[]; readonly entries: EntryLine[] }

/** Reads the frame of all operations in one pass: starts, ends, and to whom the records between them belong. */
export function scanOperations(view: SessionView): Operations {
  const open = new Map<string, Growing>()
  const lastRun = new Map<string, string>()
  const states = new Map<string, 'open' | 'finished'>()

  for (const [index, line] of view.lines.entries()) {
    if (isEntry(line)) {
      open.get(line.lane)?.entries.push(line)
      continue
    }
    if (line.type !== 'operation_started' && line.type !== 'message_queued' && !inRun.has(line.type)) continue
    // Line 1 is the header.
    const at: Place = { line: index + 2, seq: line.seq }
    const corrupt = (reason: CorruptionReason, message: string): Operations => ({
      type: 'corrupt',
      corruption: { reason, at, message: `${line.type} of lane ${quote(line.lane)}: ${message}` },
    })
    if (line.type === 'message_queued') {
      const read = readRecord(line, 'message_queued')
      if (!read.ok) return corrupt('malformed_record', read.problem)
      continue
    }
    const runId = line['runId']
    if (typeof runId !== 'string') return corrupt('malformed_record', 'it names no run')
    const current = open.get(line.lane)

    if (line.type === 'operation_started') {
      if (current !== undefined) return corrupt('second_operation', `run ${quote(current.runId)} is still open`)
      if (states.has(runId)) return corrupt('run_started_twice', `run ${quote(runId)} was started before`)
      states.set(runId, 'open')
      lastRun.set(line.lane, runId)
      open.set(line.lane, { lane: line.lane, runId, started: { at, record: line }, records: [], entries: [] })
      continue
    }
    if (states.get(runId) === 'finished') return corrupt('record_after_finish', `run ${quote(runId)} is finished`)
    if (current?.runId !== runId) return corrupt('unknown_run', `run ${quote(runId)} is not open here`)
    if (line.type === 'operation_finished') {
      states.set(runId, 'finished')
      open.delete(line.lane)
    } else current.records.push({ at, record: line })
  }
  return { type: 'operations', open, lastRun }
}

/** Text from a file inside a message: bounded, control characters escaped. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
}
