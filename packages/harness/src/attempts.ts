import type { SessionView } from '@reve/session-log'
import { readRecord } from './records.ts'

/**
 * Attempts at an answer that died with their process: a run that continues one which recovery had to close goes on
 * counting, so that what kills the process each time is not tried for ever. 0 after any other end, and when somebody had
 * asked to stop, or the lane has gone elsewhere since.
 */
export function carriedAttempts(view: SessionView, lane: string, runId: string): number {
  const records = view.records(lane).filter((record) => record['runId'] === runId)
  const end = records.find(({ type, reason }) => type === 'operation_finished' && reason === 'recovered')
  if (end === undefined || movedSince(view, lane, end.seq) || records.some(({ type }) => type === 'abort_requested'))
    return 0
  const attempts = records.flatMap((record) => {
    const read = record.type === 'task_attempt' ? readRecord(record, 'task_attempt') : undefined
    return read?.ok === true && read.payload.purpose === undefined ? [read.payload] : []
  })
  const last = attempts.at(-1)
  return last === undefined || view.entry(last.resultEntryId) !== undefined ? 0 : last.attempt
}

function movedSince(view: SessionView, lane: string, seq: number): boolean {
  return view.records(lane).some((record) => record.type === 'lane_leaf_set' && record.seq > seq)
}

/** How many runs in a row died while the conversation was summarised, the one named the last of them. */
export function diedSummarising(view: SessionView, lane: string, runId: string): number {
  const records = view.records(lane)
  let count = 0
  for (let id: unknown = runId; typeof id === 'string'; count++) {
    const own = records.filter((record) => record['runId'] === id)
    const stopped = own.some(({ type }) => type === 'abort_requested')
    const cut = own.some(({ type, outcome }) => type === 'compaction_finished' && outcome === 'aborted')
    const recovered = own.some(({ type, reason }) => type === 'operation_finished' && reason === 'recovered')
    if (stopped || !cut || !recovered) break
    const intent = own.find(({ type }) => type === 'operation_started')?.['intent']
    id = typeof intent === 'object' && intent !== null && 'continues' in intent ? intent.continues : undefined
  }
  return count
}
