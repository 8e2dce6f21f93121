import { messageOf } from '@reve/base'
import type {
  AssistantMessage,
  ImagePart,
  JsonObject,
  TextPart,
  ToolCallPart,
  ToolResultMessage,
} from '@reve/providers/model'
import { type Draft, SessionLogError } from '@reve/session-log'
import pLimit from 'p-limit'
import * as v from 'valibot'
import { argumentCheck } from './arguments.ts'
import { judge, type Toolbox } from './calls.ts'
import type { Environment, Owner } from './environment.ts'
import { HarnessError } from './errors.ts'
import { tried, withGrace } from './grace.ts'
import { callHooks } from './hooks.ts'
import { type LoopState, noLoop, observeTurn } from './loop-guard.ts'
import { callsOf } from './messages.ts'
import { blockedNote, hungNote, notStartedNote, stoppedNote } from './notes.ts'
import { record } from './records.ts'
import { boundContent, messageEntry, noteResult } from './settle.ts'
import { type Tool, type ToolContext, toolOutputSchema } from './tool.ts'

/** Of the run whose calls are made. */
export type Calling = Owner & {
  readonly environment: Environment
  readonly tools: Toolbox
  readonly signal: AbortSignal
  readonly abortRequested: () => boolean
  /** Starts a run on another lane, in the name of a tool of this one. */
  readonly subagent: (call: ServedCall) => ToolContext['subagent']
}

/** A call that a sub-agent serves; its signal aborts with the run, and when the call is over. */
export type ServedCall = { readonly id: string; readonly resultEntryId: string; readonly signal: AbortSignal }

/** A run in this process, whose effects can be stopped when the log takes no more. */
export type Running = Calling & { readonly drop: () => void }

/** A settled call: the result as it is kept, and whether the tool wants the run to end on it. */
export type Settled = { readonly result: ToolResultMessage; readonly terminate: boolean }

/** What came of the calls of an answer. */
export type Called = {
  /** All of them want the run to end. */
  readonly terminate: boolean
  readonly loop: LoopState
  /** The run does the same again and again, and was told so before. */
  readonly stuck?: string
}

type Answer = { readonly entryId: string; readonly message: AssistantMessage }
type Call = Pick<ToolCallPart, 'id' | 'name'>

/** A call with its result's id: refused as it stands, or ready to be recorded and run. */
type Prepared = { readonly resultEntryId: string; readonly call: ToolCallPart } & (
  | { readonly type: 'refused'; readonly settled: Settled }
  | { readonly type: 'ready'; readonly tool: Tool; readonly arguments: JsonObject; readonly intent: Draft }
)

/**
 * Makes the calls of an answer and leaves a result for each of them in the log, in source order: one after the other, or
 * at once when all of them are `safe`.
 */
export async function runCalls(run: Running, answer: Answer, loop: LoopState): Promise<Called> {
  const calls = callsOf(answer.message)
  const kept: Settled[] = []
  const turn = () => calls.map((call, index) => ({ call, result: kept[index]?.result }))
  let called: Called = { terminate: true, loop: calls.length === 0 ? noLoop : loop }
  const keep = async (prepared: Prepared, settled: Settled): Promise<void> => {
    kept.push(settled)
    let whole = settled
    if (kept.length === calls.length) {
      // With its last result a turn is whole: only now can it be told from the turns before it.
      const seen = observeTurn(
        loop,
        turn().flatMap(({ call, result }) => (result === undefined ? [] : [{ call, result }])),
        run.environment.limits.loop,
      )
      called = { ...called, loop: seen.state, ...(seen.verdict.type === 'stop' && { stuck: seen.verdict.message }) }
      if (seen.verdict.type === 'nudge') whole = withNote(settled, seen.verdict.note)
    }
    const stored = await keepResult(run, prepared.resultEntryId, whole)
    called = { ...called, terminate: called.terminate && stored.terminate }
    if (prepared.type === 'ready') emitFinished(run, prepared.call, stored)
  }

  if (atOnce(run, answer, calls)) {
    const prepared: Prepared[] = []
    for (const [index, call] of calls.entries()) prepared.push(await prepare(run, answer, call, index))
    await runAtOnce(run, prepared, keep)
  } else {
    for (const [index, call] of calls.entries()) {
      const prepared = await prepare(run, answer, call, index)
      await keep(prepared, await settleOne(run, prepared))
    }
  }
  return called
}

/** Only reading can be done in any order. */
function atOnce(run: Calling, { message }: Answer, calls: readonly ToolCallPart[]): boolean {
  return (
    calls.length > 1 &&
    run.environment.limits.parallelTools > 1 &&
    message.stopReason !== 'length' &&
    calls.every(({ name }) => run.tools.get(name)?.replay === 'safe')
  )
}

async function settleOne(run: Calling, prepared: Prepared): Promise<Settled> {
  if (prepared.type === 'refused') return prepared.settled
  const { tool, call } = prepared
  // An effect that must not happen twice needs an intent that outlives the machine.
  await run.environment.writer.append(run, [prepared.intent], tool.replay === 'safe' ? 'flush' : 'fsync')
  // Between the intent and the effect: here we know that it did not run.
  if (run.abortRequested()) return refusal(run, call, notStartedNote)
  return execute(run, tool, call, prepared.arguments, prepared.resultEntryId)
}

/** All intents in one append, then the effects side by side, then the results in source order as they come in. */
async function runAtOnce(
  run: Running,
  prepared: readonly Prepared[],
  keep: (prepared: Prepared, settled: Settled) => Promise<void>,
): Promise<void> {
  const intents = prepared.flatMap((one) => (one.type === 'ready' ? [one.intent] : []))
  await run.environment.writer.append(run, intents)
  const limit = pLimit(run.environment.limits.parallelTools)
  const settling = prepared.map((one) =>
    one.type === 'refused'
      ? Promise.resolve(one.settled)
      : limit(async () =>
          run.abortRequested() || run.signal.aborted
            ? refusal(run, one.call, notStartedNote)
            : execute(run, one.tool, one.call, one.arguments, one.resultEntryId),
        ),
  )
  try {
    for (const [index, one] of prepared.entries()) {
      const settled = await settling[index]
      if (settled !== undefined) await keep(one, settled)
    }
  } catch (error) {
    // The log takes no more: what still runs is stopped, and none is left behind without anybody who waits for it.
    run.drop()
    await Promise.allSettled(settling)
    throw error
  }
}

async function prepare(run: Calling, answer: Answer, call: ToolCallPart, toolIndex: number): Promise<Prepared> {
  const { lane, runId, environment } = run
  const resultEntryId = environment.effects.newId('e_')
  const refused = (note: string, terminate = false): Prepared => ({
    type: 'refused',
    resultEntryId,
    call,
    settled: { ...refusal(run, call, note), terminate },
  })
  const verdict = judge(call, answer.message.stopReason, run.tools, run.abortRequested())
  if (verdict.type === 'refuse') return refused(verdict.note)
  const { tool } = verdict
  // Decoding what was encoded twice may uncover what a redaction could not see.
  const given =
    'arguments' in call && verdict.arguments === call.arguments
      ? call.arguments
      : environment.cleaner.json(verdict.arguments)
  const hooked = await beforeTool(run, call, given)
  if (hooked.type === 'blocked') return refused(blockedNote(hooked.reason), hooked.terminate)
  if (run.abortRequested()) return refused(notStartedNote)
  const args = hooked.arguments
  const problems = args === given ? undefined : argumentCheck(tool)(args)
  if (problems !== undefined) {
    return refused(
      `Not executed: a hook changed the arguments of "${call.name}" so that they do not fit its schema.\n${problems}`,
    )
  }
  const intent = record(lane, 'tool_started', {
    runId,
    assistantEntryId: answer.entryId,
    toolIndex,
    toolCallId: call.id,
    toolName: call.name,
    arguments: args,
    resultEntryId,
    replay: tool.replay,
  })
  return { type: 'ready', resultEntryId, call, tool, arguments: args, intent }
}

type Gate =
  | { readonly type: 'open'; readonly arguments: JsonObject }
  | { readonly type: 'blocked'; readonly reason: string; readonly terminate: boolean }

async function beforeTool(run: Calling, call: ToolCallPart, args: JsonObject): Promise<Gate> {
  let gate: Gate = { type: 'open', arguments: args }
  const input = { toolCallId: call.id, toolName: call.name, arguments: args }
  await callHooks(run, 'beforeTool', input, (answer, before) => {
    switch (answer.type) {
      case 'silent':
        return before
      case 'failed':
        // A guard that is broken guards nothing: better no effect than an unguarded one.
        gate = { type: 'blocked', reason: `a hook failed (${answer.message})`, terminate: false }
        return undefined
      case 'said': {
        const { output } = answer
        if ('block' in output) {
          gate = { type: 'blocked', reason: output.block, terminate: output.terminate === true }
          return undefined
        }
        const cleaned = run.environment.cleaner.json(output.arguments)
        gate = { type: 'open', arguments: cleaned }
        return { ...before, arguments: cleaned }
      }
      default:
        return answer satisfies never
    }
  })
  return gate
}

/** Runs a tool whose intent is recorded and keeps its result under the promised id. */
export async function performCall(
  run: Calling,
  tool: Tool,
  call: Call,
  args: JsonObject,
  resultEntryId: string,
): Promise<Settled> {
  const settled = await keepResult(run, resultEntryId, await execute(run, tool, call, args, resultEntryId))
  emitFinished(run, call, settled)
  return settled
}

function emitFinished({ environment, lane, runId }: Calling, call: Call, { result }: Settled): void {
  environment.emitter.emit(lane, runId, {
    type: 'tool_finished',
    toolCallId: call.id,
    toolName: call.name,
    result,
  })
}

/** The effect itself, with everything that it may do wrong, and what the hooks make of it. */
async function execute(
  run: Calling,
  tool: Tool,
  call: Call,
  args: JsonObject,
  idempotencyKey: string,
): Promise<Settled> {
  const { lane, runId, signal, environment } = run
  const { limits, effects, emitter, cleaner } = environment
  emitter.emit(lane, runId, {
    type: 'tool_started',
    toolCallId: call.id,
    toolName: call.name,
    arguments: args,
    resultEntryId: idempotencyKey,
  })
  const over = new AbortController()
  const served: Promise<unknown>[] = []
  const serve = run.subagent({
    id: call.id,
    resultEntryId: idempotencyKey,
    signal: AbortSignal.any([signal, over.signal]),
  })
  const context = {
    signal,
    lane,
    runId,
    toolCallId: call.id,
    idempotencyKey,
    subagent: async (...args: Parameters<ToolContext['subagent']>) => {
      if (over.signal.aborted)
        throw new HarnessError('closed', `the call of "${call.name}" is over: it starts no more runs`)
      const run = serve(...args)
      served.push(run)
      return run
    },
    progress: (text: string): void => {
      if (!over.signal.aborted)
        emitter.emit(lane, runId, { type: 'tool_progress', toolCallId: call.id, text: cleaner.text(text) })
    },
  }
  const ended = await withGrace(
    tried(() => tool.run(args, context)),
    signal,
    limits.abortGraceMs,
    effects.sleep,
  )
  over.abort()
  // A run of a sub-agent that is cut off keeps its promises first; it is bounded by grace times of its own.
  await Promise.allSettled(served)
  if (ended.type === 'left') return failure(call, hungNote(call.name, limits.abortGraceMs), true)
  if (ended.value.type === 'output') return afterTool(run, call, args, settleOutput(run, call, ended.value.output))
  const message = cleaner.text(messageOf(ended.value.error))
  return signal.aborted
    ? failure(call, stoppedNote(call.name, message), true)
    : afterTool(run, call, args, failure(call, `The tool "${call.name}" failed: ${message}`, false))
}

async function afterTool(run: Calling, call: Call, args: JsonObject, settled: Settled): Promise<Settled> {
  const { environment } = run
  const inputOf = ({ result, terminate }: Settled) => ({
    toolCallId: call.id,
    toolName: call.name,
    arguments: args,
    content: result.content,
    isError: result.isError,
    terminate,
  })
  let now = settled
  await callHooks(run, 'afterTool', inputOf(now), (answer, before) => {
    if (answer.type !== 'said') return before
    const { content, isError = now.result.isError, terminate = now.terminate } = answer.output
    now = {
      result: { ...now.result, isError, ...(content !== undefined && { content: keptContent(environment, content) }) },
      terminate,
    }
    return inputOf(now)
  })
  return now
}

/** What a tool gave back is its result, whatever else has happened meanwhile. */
function settleOutput(run: Calling, call: Call, output: unknown): Settled {
  const read = v.safeParse(toolOutputSchema, output, { abortEarly: true })
  if (!read.success) {
    const issue = read.issues[0]
    return failure(
      call,
      `The tool "${call.name}" ran, but gave back no result: ${v.getDotPath(issue) ?? 'output'}: ${issue.message}`,
      false,
    )
  }
  const { content, isError = false, terminate = false } = read.output
  const kept = keptContent(run.environment, content)
  const result = { role: 'toolResult', toolCallId: call.id, toolName: call.name, content: kept, isError } as const
  return { result, terminate }
}

function keptContent(
  { cleaner, limits }: Environment,
  content: string | readonly (TextPart | ImagePart)[],
): readonly (TextPart | ImagePart)[] {
  const parts = typeof content === 'string' ? [{ type: 'text', text: content } as const] : content
  return boundContent(cleaner.content(parts), limits.toolResultChars)
}

const withNote = (settled: Settled, note: string): Settled => ({
  ...settled,
  result: { ...settled.result, content: [...settled.result.content, { type: 'text', text: note }] },
})

const failure = (call: Call, note: string, interrupted: boolean): Settled => ({
  result: noteResult(call, note, { interrupted }),
  terminate: false,
})

const refusal = (run: Calling, call: ToolCallPart, note: string): Settled => {
  const { cleaner, limits } = run.environment
  const result = noteResult(call, cleaner.text(note))
  return { result: { ...result, content: boundContent(result.content, limits.toolResultChars) }, terminate: false }
}

async function keepResult(run: Calling, resultEntryId: string, settled: Settled): Promise<Settled> {
  const { lane, environment } = run
  const keep = ({ result, terminate }: Settled) =>
    environment.writer.append(run, [messageEntry(lane, resultEntryId, result, { terminate })])
  try {
    await keep(settled)
    return settled
  } catch (error) {
    if (!(error instanceof SessionLogError)) throw error
    // A line has a longest length. The effect did happen: the model must hear of it.
    const { toolCallId: id, toolName: name } = settled.result
    const instead = failure(
      { id, name },
      `The tool "${name}" ran, but its result could not be kept: too large, or not plain data.`,
      false,
    )
    await keep(instead)
    return instead
  }
}
