import type { AssistantMessage, Message, ToolCallPart } from '@reve/providers/model'
import { type SessionView } from '@reve/session-log'
import type { Place } from './errors.ts'
import { callsOf, readMessage } from './messages.ts'
import { type Corruption, type CorruptionReason, type OpenOperation, quote } from './operations.ts'
import { type Intent, readRecord, type RecordPayload } from './records.ts'

/** A recorded intent to run a tool. */
type ToolStart = RecordPayload<'tool_started'> & { readonly at: Place }

/** An open operation with everything in it read. */
export type ReadOperation = {
  readonly lane: string
  readonly runId: string
  readonly at: Place
  readonly intent: Intent
  readonly sourceLeafId: string | null
  readonly abortRequested: boolean
  readonly starts: readonly ToolStart[]
  readonly entries: readonly { readonly id: string; readonly message: Message }[]
  /** Nothing at all was added to the lane since the operation began. */
  readonly untouched: boolean
}

type Rule = (operation: ReadOperation, view: SessionView) => Corruption | undefined

const corruption = (reason: CorruptionReason, at: Place, message: string): Corruption => ({ reason, at, message })

/** Reads an open operation and holds it against the rules; the first that is broken is what comes back. */
export function readOperation(open: OpenOperation, view: SessionView): ReadOperation | Corruption {
  const started = readRecord(open.started.record, 'operation_started')
  if (!started.ok) return corruption('malformed_record', open.started.at, `operation_started: ${started.problem}`)
  const starts: ToolStart[] = []
  for (const { at, record } of open.records) {
    if (record.type !== 'tool_started') continue
    const read = readRecord(record, 'tool_started')
    if (!read.ok) return corruption('malformed_record', at, `tool_started: ${read.problem}`)
    starts.push({ ...read.payload, at })
  }
  const entries: { readonly id: string; readonly message: Message }[] = []
  for (const entry of open.entries) {
    const read = readMessage(entry)
    if (read.type === 'invalid') {
      const at = { line: view.lines.indexOf(entry) + 2, seq: entry.seq }
      return corruption('malformed_message', at, `entry ${quote(entry.id)}: ${read.problem}`)
    }
    if (read.type === 'message') entries.push({ id: entry.id, message: read.message })
  }
  const operation: ReadOperation = {
    lane: open.lane,
    runId: open.runId,
    at: open.started.at,
    intent: started.payload.intent,
    sourceLeafId: started.payload.sourceLeafId,
    abortRequested: open.records.some(({ record }) => record.type === 'abort_requested'),
    starts,
    entries,
    untouched: open.entries.length === 0,
  }
  for (const rule of rules) {
    const broken = rule(operation, view)
    if (broken !== undefined) return broken
  }
  return operation
}

/** The prompt is the user's; without it the run cannot have gone on. */
const promptStands: Rule = ({ intent, entries, at }, view) => {
  if (!('promptEntryId' in intent)) return undefined
  const own = entries.find(({ id }) => id === intent.promptEntryId)
  if (own !== undefined && own.message.role === 'user') return undefined
  if (own !== undefined || view.entry(intent.promptEntryId) !== undefined)
    return corruption('unknown_prompt', at, `entry ${quote(intent.promptEntryId)} is not this run's prompt`)
  return entries.some(({ message }) => message.role !== 'user')
    ? corruption('unknown_prompt', at, `the run went on without its prompt ${quote(intent.promptEntryId)}`)
    : undefined
}

/** A run that takes waiting messages along names messages that were accepted. */
const queuedWereAccepted: Rule = ({ intent, lane, at }, view) => {
  if (!('queued' in intent)) return undefined
  const accepted = new Set(
    view.records(lane).flatMap((line) => (line.type === 'message_queued' ? [line['entryId']] : [])),
  )
  const unknown = intent.queued?.find((id) => !accepted.has(id))
  return unknown === undefined
    ? undefined
    : corruption('unknown_queued', at, `message ${quote(unknown)} was never accepted`)
}

/** An intent to run a tool belongs to a call that an answer of this run made. */
const startsNameCalls: Rule = ({ starts, entries }) => {
  for (const start of starts) {
    const message = entries.find(({ id }) => id === start.assistantEntryId)?.message
    if (message?.role !== 'assistant')
      return corruption(
        'unknown_assistant',
        start.at,
        `tool_started names ${quote(start.assistantEntryId)}, which is no answer of this run`,
      )
    const call = callsOf(message)[start.toolIndex]
    if (call?.id !== start.toolCallId || call.name !== start.toolName)
      return corruption(
        'unknown_call',
        start.at,
        `call ${start.toolIndex} of ${quote(start.assistantEntryId)} is not ${quote(start.toolName)} ${quote(start.toolCallId)}`,
      )
  }
  return undefined
}

/** No call is begun twice: a replay keeps the first intent. */
const startsOnce: Rule = ({ starts }) => {
  const seen = new Set<string>()
  for (const { assistantEntryId, toolIndex, resultEntryId, at } of starts) {
    const call = JSON.stringify([assistantEntryId, toolIndex])
    if (seen.has(call) || seen.has(resultEntryId))
      return corruption('call_started_twice', at, `call ${toolIndex} of ${quote(assistantEntryId)} was started before`)
    seen.add(call).add(resultEntryId)
  }
  return undefined
}

/** What stands under a promised id is the result of that call. */
const resultsFit: Rule = ({ starts, entries }, view) => {
  for (const { resultEntryId, toolCallId, at } of starts) {
    const message = entries.find(({ id }) => id === resultEntryId)?.message
    const fits =
      message === undefined
        ? view.entry(resultEntryId) === undefined
        : message.role === 'toolResult' && message.toolCallId === toolCallId
    if (!fits)
      return corruption('foreign_result', at, `entry ${quote(resultEntryId)} is not the result of ${quote(toolCallId)}`)
  }
  return undefined
}

const rules: readonly Rule[] = [promptStands, queuedWereAccepted, startsNameCalls, startsOnce, resultsFit]

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
