import type { AssistantMessage, Message, ToolCallPart } from '@reve/providers/model'
import { type SessionView } from '@reve/session-log'
import { callsOf, readMessage } from './messages.ts'
import { type CorruptionReason, type Fault, type OpenOperation, quote } from './operations.ts'
import { type Intent, readRecord, type RecordPayload } from './records.ts'

/** A recorded intent to run a tool. */
type ToolStart = RecordPayload<'tool_started'> & { readonly seq: number }

/** A compaction of the operation: whether its summary is in place, and whether its end is recorded. */
export type CompactionState = {
  readonly summaryEntryId: string
  readonly summarised: boolean
  readonly finished: boolean
}

/** An open operation with everything in it read. */
export type ReadOperation = {
  readonly lane: string
  readonly runId: string
  readonly seq: number
  readonly intent: Intent
  readonly sourceLeafId: string | null
  readonly abortRequested: boolean
  readonly starts: readonly ToolStart[]
  readonly compactions: readonly CompactionState[]
  readonly entries: readonly { readonly id: string; readonly message: Message }[]
  /** Nothing at all was added to the lane since the operation began. */
  readonly untouched: boolean
}

type Rule = (operation: ReadOperation, view: SessionView, accepted: ReadonlySet<string>) => Fault | undefined

const fault = (reason: CorruptionReason, seq: number, message: string): Fault => ({ reason, seq, message })

/** Reads an open operation and holds it against the rules; the first that is broken is what comes back. */
export function readOperation(
  open: OpenOperation,
  view: SessionView,
  accepted: ReadonlySet<string>,
): ReadOperation | Fault {
  const started = readRecord(open.started, 'operation_started')
  if (!started.ok) return fault('malformed_record', open.started.seq, `operation_started: ${started.problem}`)
  const starts: ToolStart[] = []
  for (const record of open.records) {
    if (record.type !== 'tool_started') continue
    const read = readRecord(record, 'tool_started')
    if (!read.ok) return fault('malformed_record', record.seq, `tool_started: ${read.problem}`)
    starts.push({ ...read.payload, seq: record.seq })
  }
  const compactions = readCompactions(open, view)
  if ('reason' in compactions) return compactions
  const entries: { readonly id: string; readonly message: Message }[] = []
  for (const entry of open.entries) {
    const read = readMessage(entry)
    if (read.type === 'invalid') {
      return fault('malformed_message', entry.seq, `entry ${quote(entry.id)}: ${read.problem}`)
    }
    if (read.type === 'message') entries.push({ id: entry.id, message: read.message })
  }
  const operation: ReadOperation = {
    lane: open.lane,
    runId: open.runId,
    seq: open.started.seq,
    intent: started.payload.intent,
    sourceLeafId: started.payload.sourceLeafId,
    abortRequested: open.records.some(({ type }) => type === 'abort_requested'),
    starts,
    compactions: compactions.states,
    entries,
    untouched: open.entries.length === 0,
  }
  for (const rule of rules) {
    const broken = rule(operation, view, accepted)
    if (broken !== undefined) return broken
  }
  return operation
}

/** Compactions come one after the other, and what stands under a summary's id is that summary. */
function readCompactions(
  open: OpenOperation,
  view: SessionView,
): { readonly states: readonly CompactionState[] } | Fault {
  const states: CompactionState[] = []
  for (const record of open.records) {
    const current = states.at(-1)
    if (record.type === 'compaction_started') {
      const read = readRecord(record, 'compaction_started')
      if (!read.ok) return fault('malformed_record', record.seq, `compaction_started: ${read.problem}`)
      const { summaryEntryId } = read.payload
      if (current?.finished === false || states.some((state) => state.summaryEntryId === summaryEntryId))
        return fault('compaction_started_twice', record.seq, `the summary ${quote(summaryEntryId)} was begun before`)
      const entry = view.entry(summaryEntryId)
      if (entry !== undefined && (entry.type !== 'compaction' || entry.seq < record.seq))
        return fault(
          'foreign_summary',
          record.seq,
          `entry ${quote(summaryEntryId)} is not the summary of this compaction`,
        )
      states.push({ summaryEntryId, summarised: entry !== undefined, finished: false })
    } else if (record.type === 'compaction_finished') {
      const read = readRecord(record, 'compaction_finished')
      if (!read.ok) return fault('malformed_record', record.seq, `compaction_finished: ${read.problem}`)
      if (current === undefined || current.finished || current.summaryEntryId !== read.payload.summaryEntryId)
        return fault('unknown_compaction', record.seq, `no compaction to ${quote(read.payload.summaryEntryId)} is open`)
      states[states.length - 1] = { ...current, finished: true }
    }
  }
  return { states }
}

/** An operation begins at an entry that is there, and so does what a navigation goes to. */
const entriesStand: Rule = ({ sourceLeafId, intent, seq }, view) => {
  const names = [sourceLeafId, 'leafId' in intent ? intent.leafId : null]
  const unknown = names.find((id) => id !== null && view.entry(id) === undefined)
  return unknown === undefined || unknown === null
    ? undefined
    : fault('unknown_entry', seq, `there is no entry ${quote(unknown)}`)
}

/** The prompt is the user's; without it the run cannot have gone on. */
const promptStands: Rule = ({ intent, entries, seq }, view) => {
  if (!('promptEntryId' in intent)) return undefined
  const own = entries.find(({ id }) => id === intent.promptEntryId)
  if (own !== undefined && own.message.role === 'user') return undefined
  if (own !== undefined || view.entry(intent.promptEntryId) !== undefined)
    return fault('unknown_prompt', seq, `entry ${quote(intent.promptEntryId)} is not this run's prompt`)
  return entries.some(({ message }) => message.role !== 'user')
    ? fault('unknown_prompt', seq, `the run went on without its prompt ${quote(intent.promptEntryId)}`)
    : undefined
}

/** A run that takes waiting messages along names messages that were accepted. */
const queuedWereAccepted: Rule = ({ intent, seq }, _view, accepted) => {
  if (!('queued' in intent)) return undefined
  const unknown = intent.queued?.find((id) => !accepted.has(id))
  return unknown === undefined
    ? undefined
    : fault('unknown_queued', seq, `message ${quote(unknown)} was never accepted`)
}

/** An intent to run a tool belongs to a call that an answer of this run made. */
const startsNameCalls: Rule = ({ starts, entries }) => {
  for (const start of starts) {
    const message = entries.find(({ id }) => id === start.assistantEntryId)?.message
    if (message?.role !== 'assistant')
      return fault(
        'unknown_assistant',
        start.seq,
        `tool_started names ${quote(start.assistantEntryId)}, which is no answer of this run`,
      )
    const call = callsOf(message)[start.toolIndex]
    if (call?.id !== start.toolCallId || call.name !== start.toolName)
      return fault(
        'unknown_call',
        start.seq,
        `call ${start.toolIndex} of ${quote(start.assistantEntryId)} is not ${quote(start.toolName)} ${quote(start.toolCallId)}`,
      )
  }
  return undefined
}

/** No call is begun twice: a replay keeps the first intent. */
const startsOnce: Rule = ({ starts }) => {
  const seen = new Set<string>()
  for (const { assistantEntryId, toolIndex, resultEntryId, seq } of starts) {
    const call = JSON.stringify([assistantEntryId, toolIndex])
    if (seen.has(call) || seen.has(resultEntryId))
      return fault('call_started_twice', seq, `call ${toolIndex} of ${quote(assistantEntryId)} was started before`)
    seen.add(call).add(resultEntryId)
  }
  return undefined
}

/** What stands under a promised id is the result of that call. */
const resultsFit: Rule = ({ starts, entries }, view) => {
  for (const { resultEntryId, toolCallId, seq } of starts) {
    const message = entries.find(({ id }) => id === resultEntryId)?.message
    const fits =
      message === undefined
        ? view.entry(resultEntryId) === undefined
        : message.role === 'toolResult' && message.toolCallId === toolCallId
    if (!fits)
      return fault('foreign_result', seq, `entry ${quote(resultEntryId)} is not the result of ${quote(toolCallId)}`)
  }
  return undefined
}

const rules: readonly Rule[] = [entriesStand, promptStands, queuedWereAccepted, startsNameCalls, startsOnce, resultsFit]

/** One call of an answer of an operation: what became of it. */
export type CallState =
  | { readonly type: 'settled' }
  /** The intent is recorded, the result is not. */
  | { readonly type: 'in_flight'; readonly call: ToolCallPart; readonly start: ToolStart }
  /** Not even the intent is there: the effect was never begun. */
  | { readonly type: 'not_started'; readonly call: ToolCallPart; readonly truncated: boolean }

/** The calls of one answer, in source order. */
export function callStates(
  operation: ReadOperation,
  answer: { readonly id: string; readonly message: AssistantMessage },
): readonly CallState[] {
  // The calls of an aborted answer are not part of the conversation.
  if (answer.message.stopReason === 'aborted') return []
  const after = operation.entries.slice(operation.entries.findIndex(({ id }) => id === answer.id) + 1)
  const promised = new Set(operation.starts.map(({ resultEntryId }) => resultEntryId))
  return callsOf(answer.message).map((call, index): CallState => {
    const start = operation.starts.find((start) => start.assistantEntryId === answer.id && start.toolIndex === index)
    if (start !== undefined) {
      return after.some(({ id }) => id === start.resultEntryId)
        ? { type: 'settled' }
        : { type: 'in_flight', call, start }
    }
    const refused = after.some(
      ({ id, message }) => message.role === 'toolResult' && message.toolCallId === call.id && !promised.has(id),
    )
    return refused
      ? { type: 'settled' }
      : { type: 'not_started', call, truncated: answer.message.stopReason === 'length' }
  })
}
