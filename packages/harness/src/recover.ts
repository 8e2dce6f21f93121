import type { Model, UserMessage } from '@reve/providers/model'
import type { Draft } from '@reve/session-log'
import { argumentCheck } from './arguments.ts'
import { type Toolbox } from './calls.ts'
import type { Environment } from './environment.ts'
import { HarnessError } from './errors.ts'
import type { SettledCall } from './events.ts'
import { waitsForModel } from './project.ts'
import { type OperationPlan, type RecoveryStep, reduce } from './reduce.ts'
import { type Calling, performCall } from './tools.ts'

/** What recovery did for one lane. */
export type RecoveredLane = {
  readonly lane: string
  readonly runId: string
  readonly outcome: 'aborted'
  readonly reason: 'recovered'
  /** Calls whose outcome nobody knows; the model is told so. */
  readonly unknown: readonly SettledCall[]
  /** Calls that were run again. */
  readonly replayed: readonly SettledCall[]
  /** Messages that the dead run had accepted and not delivered (steers and follow-ups): they are the caller's again. */
  readonly returned: readonly UserMessage[]
  /** Whether the conversation waits for the model, so that `continue()` makes sense. */
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
    readonly signal: AbortSignal
    /** Lanes that run in this very process are not dead. */
    readonly isLive: (lane: string) => boolean
  },
): Promise<RecoveryReport> {
  const { log, emitter } = environment
  const plan = reduce(log, (name) => parts.tools.get(name)?.replay)
  if (plan.type === 'corrupt') throw corruptSession(plan.corruption)
  const lanes: RecoveredLane[] = []
  for (const operation of plan.operations) {
    const { lane, runId, returned } = operation
    if (parts.isLive(lane)) continue
    const settled = await carryOut(environment, operation, parts.tools, parts.signal)
    const canContinue = waitsForModel(log.path(log.leaf(lane)), { model: parts.model.id })
    lanes.push({ lane, runId, outcome: 'aborted', reason: 'recovered', ...settled, returned, canContinue })
    emitter.emit(lane, runId, { type: 'recovered', ...settled, canContinue })
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
  environment: Environment,
  { lane, runId, steps, unknown }: OperationPlan,
  tools: Toolbox,
  signal: AbortSignal,
): Promise<{ readonly unknown: readonly SettledCall[]; readonly replayed: readonly SettledCall[] }> {
  const run: Calling = { lane, runId, environment, tools, signal, abortRequested: () => signal.aborted }
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
    await replay(run, step)
    replayed.push(step.call)
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

async function replay(run: Calling, step: Replay): Promise<void> {
  const { toolName: name, toolCallId: id } = step.call
  const tool = run.tools.get(name)
  if (tool !== undefined) await performCall(run, tool, { id, name }, step.arguments, step.resultEntryId)
}
