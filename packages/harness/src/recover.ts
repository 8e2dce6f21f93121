import type { Model, UserMessage } from '@reve/providers/model'
import type { Draft } from '@reve/session-log'
import { argumentCheck } from './arguments.ts'
import { type Toolbox } from './calls.ts'
import type { Environment } from './environment.ts'
import { HarnessError } from './errors.ts'
import type { SettledCall } from './events.ts'
import type { RunParent } from './operations.ts'
import { leafWaits } from './project.ts'
import type { Outcome } from './records.ts'
import { type OperationPlan, type RecoveryStep, reduce } from './reduce.ts'
import { type Calling, performCall, type Settled } from './tools.ts'

/** What recovery did for one lane. */
export type RecoveredLane = {
  readonly lane: string
  readonly runId: string
  /** `run`, `compaction`, `navigation`, or a kind of a later version. */
  readonly operation: string
  /** The call that it served: it was a sub-agent's. */
  readonly parent?: RunParent
  /** `aborted`; `completed` for a navigation, and for a compaction whose summary was in place. */
  readonly outcome: Outcome
  readonly reason: 'recovered'
  /** Calls whose outcome nobody knows; the model is told so. */
  readonly unknown: readonly SettledCall[]
  /** Calls that were run again. */
  readonly replayed: readonly SettledCall[]
  /** Messages that the dead run had accepted and not delivered (steers and follow-ups): they are the caller's again. */
  readonly returned: readonly UserMessage[]
  /** Whether the conversation waits for the model, so that `continue({ lane })` makes sense; never for a sub-agent's. */
  readonly canContinue: boolean
}

/** What recovery did; no lanes when there was nothing to do. */
export type RecoveryReport = { readonly lanes: readonly RecoveredLane[] }

/** Plans the recovery of a log and carries it out, lane after lane. */
export async function recoverLog(
  environment: Environment,
  parts: {
    readonly model: Model
    readonly tools: Toolbox
    /** Aborted when the replays of that lane should stop. */
    readonly signalOf: (lane: string) => AbortSignal
    /** Lanes that run in this very process are not dead. */
    readonly isLive: (lane: string) => boolean
    readonly subagent: (lane: string, runId: string) => Calling['subagent']
    /** The lane is free again. */
    readonly onClosed: (lane: string) => void
  },
): Promise<RecoveryReport> {
  const { log, emitter } = environment
  const plan = reduce(log, (name) => parts.tools.get(name)?.replay)
  if (plan.type === 'corrupt') throw corruptSession(plan.corruption)
  const lanes: RecoveredLane[] = []
  // Now, not when their turn comes: what is at work by itself at this moment may have ended by then.
  const dead = plan.operations.filter(({ lane }) => !parts.isLive(lane))
  // The last that began first: a sub-agent's lane is free before the call that runs it is made again.
  for (const closing of dead.toReversed()) {
    const { lane, runId, operation, outcome, returned, parent } = closing
    const { tools } = parts
    const signal = parts.signalOf(lane)
    const run: Calling = {
      ...{ lane, runId, environment, tools, signal },
      abortRequested: () => signal.aborted,
      subagent: parts.subagent(lane, runId),
    }
    const settled = await carryOut(run, closing)
    parts.onClosed(lane)
    // A sub-agent is its caller's to start again: it has a system prompt and tools of its own.
    const canContinue = parent === undefined && leafWaits(log, log.leaf(lane), parts.model.id)
    const of = parent === undefined ? {} : { parent }
    lanes.push({ lane, runId, ...of, operation, outcome, reason: 'recovered', ...settled, returned, canContinue })
    if (operation === 'navigation') emitter.emit(lane, runId, { type: 'navigated', leafId: log.leaf(lane) })
    emitter.emit(lane, runId, { type: 'recovered', operation, ...settled, canContinue })
  }
  return { lanes }
}

/** The error of a log that recovery refuses to guess about. */
export function corruptSession(corruption: {
  readonly at: { readonly line: number; readonly seq: number }
  readonly message: string
}): HarnessError {
  const { line, seq } = corruption.at
  return new HarnessError('corrupt_session', `line ${line} (seq ${seq}): ${corruption.message}`, {
    at: corruption.at,
    hint: 'nothing was changed; salvage copies the good lines before this one to a new file',
  })
}

async function carryOut(
  run: Calling,
  { steps, unknown }: OperationPlan,
): Promise<{ readonly unknown: readonly SettledCall[]; readonly replayed: readonly SettledCall[] }> {
  const { environment, tools, signal } = run
  const lost: SettledCall[] = []
  const replayed: SettledCall[] = []
  let waiting: readonly Draft[] = []
  for (const step of steps) {
    if (step.type === 'append') {
      waiting = [...waiting, step.draft]
      continue
    }
    if (!runnable(step, tools) || signal.aborted) {
      waiting = [...waiting, step.otherwise]
      lost.push(step.call)
      continue
    }
    // Results stand in the order of their calls, so what comes before this one is written before it runs.
    await environment.writer.append(run, waiting)
    waiting = []
    const settled = await replay(run, step)
    // An abort may have cut it off: then it is as unknown as before.
    if (settled?.result.interrupted === true) lost.push(step.call)
    else replayed.push(step.call)
  }
  await environment.writer.append(run, waiting, 'fsync')
  return { unknown: [...unknown, ...lost], replayed }
}

type Replay = RecoveryStep & { readonly type: 'replay' }

/** Today's tool may take other arguments than the recorded ones. */
function runnable(step: Replay, tools: Toolbox): boolean {
  const tool = tools.get(step.call.toolName)
  return tool !== undefined && argumentCheck(tool)(step.arguments) === undefined
}

async function replay(run: Calling, step: Replay): Promise<Settled | undefined> {
  const { toolName: name, toolCallId: id } = step.call
  const tool = run.tools.get(name)
  return tool && performCall(run, tool, { id, name }, step.arguments, step.resultEntryId)
}
