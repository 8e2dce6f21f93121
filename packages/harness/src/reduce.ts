import type { JsonObject, UserMessage } from '@reve/providers/model'
import type { Draft, SessionView } from '@reve/session-log'
import type { SettledCall } from './events.ts'
import { lostNote, notStartedNote, truncatedNote } from './notes.ts'
import {
  type Corruption,
  corrupt,
  type Fault,
  type OpenOperation,
  quote,
  type RunParent,
  scanOperations,
} from './operations.ts'
import { cancelledRecord, deliveredEntry, type Queues, readQueues } from './queue.ts'
import { leafRecord, type Outcome, record } from './records.ts'
import { type CallState, callStates, readOperation, type ReadOperation } from './rules.ts'
import { messageEntry, noteResult } from './settle.ts'

/** One step of a recovery, in order. A step whose line is on disk is not planned again. */
export type RecoveryStep =
  | { readonly type: 'append'; readonly draft: Draft }
  /** Run the tool again, with the recorded arguments, and append its result under the promised id; `otherwise` when it cannot run. */
  | {
      readonly type: 'replay'
      readonly call: SettledCall
      readonly arguments: JsonObject
      readonly resultEntryId: string
      readonly otherwise: Draft
    }

/** How one open operation is closed. */
export type OperationPlan = {
  readonly lane: string
  readonly runId: string
  /** What it was. */
  readonly operation: string
  /** The call that it served: it was a sub-agent's. */
  readonly parent?: RunParent
  /** A run is `aborted`; what was nothing but lines of the log comes to its own end. */
  readonly outcome: Outcome
  readonly steps: readonly RecoveryStep[]
  /** Calls whose outcome nobody knows. */
  readonly unknown: readonly SettledCall[]
  /** Accepted messages that this run never delivered; their cancellation stands in the log or is among the steps. */
  readonly returned: readonly UserMessage[]
}

/** What recovery has to do; nothing for a log without open operations. */
export type RecoveryPlan =
  | { readonly type: 'plan'; readonly operations: readonly OperationPlan[] }
  | { readonly type: 'corrupt'; readonly corruption: Corruption }

/** What today's tool of that name says of replays; undefined when there is none. */
export type Declared = (toolName: string) => 'safe' | 'never' | undefined

/**
 * Recovery as a pure function of the log and of today's tools: what has to be appended, and which tools to run again, so
 * that every promised result stands and every operation is closed. Carrying out the plan in part and reducing again
 * gives the rest; after all of it there is nothing left to do.
 */
export function reduce(view: SessionView, declared: Declared): RecoveryPlan {
  const scan = scanOperations(view)
  if (scan.type === 'corrupt') return scan
  if (scan.open.size === 0) return { type: 'plan', operations: [] }
  const operations: OperationPlan[] = []
  const queues = readQueues(view)
  for (const open of scan.open.values()) {
    const plan = planOperation(open, { view, declared, queues, accepted: scan.accepted })
    if ('reason' in plan) return corrupt(plan, view)
    operations.push(plan)
  }
  const taken = takenId(operations, view)
  if (taken === undefined) return { type: 'plan', operations }
  const message = `run ${quote(taken.runId)} promised the entry ${quote(taken.id)}, and another line has that id`
  return corrupt({ reason: 'id_taken', seq: scan.open.get(taken.lane)?.started.seq ?? 0, message }, view)
}

/** The first id that the plans would give to a second line. */
function takenId(
  operations: readonly OperationPlan[],
  view: SessionView,
): { readonly lane: string; readonly runId: string; readonly id: string } | undefined {
  if (operations.length === 0) return undefined
  const taken = new Set(view.records().map(({ id }) => id))
  for (const { lane, runId, steps } of operations) {
    for (const step of steps) {
      const { id } = step.type === 'append' ? step.draft : step.otherwise
      if (id === undefined) continue
      if (taken.has(id) || view.entry(id) !== undefined) return { lane, runId, id }
      taken.add(id)
    }
  }
  return undefined
}

function planOperation(
  open: OpenOperation,
  {
    view,
    declared,
    queues,
    accepted,
  }: {
    readonly view: SessionView
    readonly declared: Declared
    readonly queues: Queues
    readonly accepted: ReadonlySet<string>
  },
): OperationPlan | Fault {
  const operation = readOperation(open, view, accepted)
  if ('reason' in operation) return operation
  const { lane, runId } = operation
  const pending = queues.pending.filter((message) => message.lane === lane)
  const cancelled = queues.cancelled.filter((message) => message.lane === lane && message.cancelledAt > operation.seq)
  const taken = new Set('queued' in operation.intent ? operation.intent.queued : [])
  const undelivered = pending.filter(({ delivery, entryId }) => delivery !== 'next_run' && !taken.has(entryId))
  const calls = operation.entries.flatMap(({ id, message }) =>
    message.role === 'assistant' ? callStates(operation, { id, message }) : [],
  )
  const steps = calls.flatMap((state) => settleCall(state, operation, declared))
  const outcome = outcomeOf(operation)
  const finished = record(lane, 'operation_finished', { runId, outcome, reason: 'recovered' })
  return {
    lane,
    runId,
    operation: operation.intent.kind,
    ...('parent' in operation.intent && { parent: operation.intent.parent }),
    outcome,
    steps: [
      ...append(navigationLeft(operation, view)),
      ...append(openCompactions(operation)),
      ...missingInput(
        operation,
        pending.filter(({ entryId }) => taken.has(entryId)).map((message) => deliveredEntry(lane, message)),
      ),
      ...steps,
      ...append(undelivered.map((message) => cancelledRecord(lane, message))),
      ...append([finished]),
    ],
    unknown: calls.flatMap((state) =>
      state.type === 'in_flight' && !replays(state, operation, declared)
        ? [{ toolName: state.call.name, toolCallId: state.call.id }]
        : [],
    ),
    // Also what an abort cancelled: whoever should have got it back died with the run.
    returned: [...cancelled, ...undelivered].map(({ message }) => message),
  }
}

function outcomeOf({ intent, compactions }: ReadOperation): Outcome {
  if (intent.kind === 'navigation') return 'completed'
  return intent.kind === 'compaction' && compactions.some(({ summarised }) => summarised) ? 'completed' : 'aborted'
}

/** Moving a lane is nothing but a line: what was asked for is done. */
function navigationLeft({ lane, intent }: ReadOperation, view: SessionView): readonly Draft[] {
  return 'leafId' in intent && view.leaf(lane) !== intent.leafId ? [leafRecord(lane, intent.leafId)] : []
}

function openCompactions({ lane, runId, compactions }: ReadOperation): readonly Draft[] {
  return compactions
    .filter(({ finished }) => !finished)
    .map(({ summaryEntryId, summarised }) =>
      record(lane, 'compaction_finished', { runId, summaryEntryId, outcome: summarised ? 'completed' : 'aborted' }),
    )
}

const append = (drafts: readonly Draft[]): readonly RecoveryStep[] => drafts.map((draft) => ({ type: 'append', draft }))

/** The intent names what the user said; a crash right after it must not swallow that. */
function missingInput(operation: ReadOperation, queued: readonly Draft[]): readonly RecoveryStep[] {
  const { lane, intent, entries, sourceLeafId, untouched } = operation
  const prompt =
    'promptEntryId' in intent && !entries.some(({ id }) => id === intent.promptEntryId)
      ? [messageEntry(lane, intent.promptEntryId, intent.prompt)]
      : []
  const missing = [...queued, ...prompt]
  const [first] = missing
  if (first?.kind !== 'entry' || !untouched) return append(missing)
  // The lane's leaf may not be where the operation began (a lane that branches off another's entry).
  return append([{ ...first, parentId: sourceLeafId }, ...missing.slice(1)])
}

function settleCall(state: CallState, operation: ReadOperation, declared: Declared): readonly RecoveryStep[] {
  const { lane } = operation
  switch (state.type) {
    case 'settled':
      return []
    case 'not_started':
      return append([
        messageEntry(lane, undefined, noteResult(state.call, state.truncated ? truncatedNote : notStartedNote)),
      ])
    case 'in_flight': {
      const { call, start } = state
      const note = lostNote(call.name, declared(call.name) !== undefined)
      const otherwise = messageEntry(lane, start.resultEntryId, noteResult(call, note, { interrupted: true }))
      if (!replays(state, operation, declared)) return append([otherwise])
      const settled = { toolName: call.name, toolCallId: call.id }
      return [
        { type: 'replay', call: settled, arguments: start.arguments, resultEntryId: start.resultEntryId, otherwise },
      ]
    }
    default:
      return state satisfies never
  }
}

/** Both say so, the record and today's tool, and nobody had asked to stop. */
function replays(state: CallState & { type: 'in_flight' }, operation: ReadOperation, declared: Declared): boolean {
  return !operation.abortRequested && state.start.replay === 'safe' && declared(state.call.name) === 'safe'
}
