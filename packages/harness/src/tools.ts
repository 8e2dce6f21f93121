import { messageOf } from '@reve/base'
import type { AssistantMessage, JsonObject, ToolCallPart, ToolResultMessage } from '@reve/providers/model'
import { SessionLogError } from '@reve/session-log'
import * as v from 'valibot'
import { judge, type Toolbox } from './calls.ts'
import type { Environment, Owner } from './environment.ts'
import { tried, withGrace } from './grace.ts'
import { callsOf } from './messages.ts'
import { hungNote, notStartedNote, stoppedNote } from './notes.ts'
import { record } from './records.ts'
import { boundContent, messageEntry, noteResult } from './settle.ts'
import { type Tool, toolOutputSchema } from './tool.ts'

/** Of the run whose calls are made. */
export type Calling = Owner & {
  readonly environment: Environment
  readonly tools: Toolbox
  readonly signal: AbortSignal
  readonly abortRequested: () => boolean
}

/** A settled call: the result as it is kept, and whether the tool wants the run to end on it. */
export type Settled = { readonly result: ToolResultMessage; readonly terminate: boolean }

/**
 * Makes the calls of an answer, one after the other in source order, and leaves a result for each of them in the log.
 *
 * @returns whether all of them want the run to end.
 */
export async function runCalls(
  run: Calling,
  answer: { readonly entryId: string; readonly message: AssistantMessage },
): Promise<boolean> {
  let terminate = true
  for (const [toolIndex, call] of callsOf(answer.message).entries()) {
    const settled = await runCall(run, answer, call, toolIndex)
    terminate &&= settled.terminate
  }
  return terminate
}

async function runCall(
  run: Calling,
  answer: { readonly entryId: string; readonly message: AssistantMessage },
  call: ToolCallPart,
  toolIndex: number,
): Promise<Settled> {
  const { lane, runId, environment } = run
  const resultEntryId = environment.effects.newId('e_')
  const verdict = judge(call, answer.message.stopReason, run.tools, run.abortRequested())
  if (verdict.type === 'refuse') {
    return keepResult(run, resultEntryId, refusal(run, call, verdict.note))
  }
  const { tool } = verdict
  const intent = {
    runId,
    assistantEntryId: answer.entryId,
    toolIndex,
    toolCallId: call.id,
    toolName: call.name,
    arguments: verdict.arguments,
    resultEntryId,
    replay: tool.replay,
  }
  // An effect that must not happen twice needs an intent that outlives the machine.
  const durability = tool.replay === 'safe' ? 'flush' : 'fsync'
  await environment.writer.append(run, [record(lane, 'tool_started', intent)], durability)
  // Between the intent and the effect: here we know that it did not run.
  if (run.abortRequested()) return keepResult(run, resultEntryId, refusal(run, call, notStartedNote))
  return performCall(run, tool, call, verdict.arguments, resultEntryId)
}

/** Runs a tool whose intent is recorded and keeps its result under the promised id. */
export async function performCall(
  run: Calling,
  tool: Tool,
  call: Pick<ToolCallPart, 'id' | 'name'>,
  args: JsonObject,
  resultEntryId: string,
): Promise<Settled> {
  const { lane, runId, environment } = run
  const { id: toolCallId, name: toolName } = call
  environment.emitter.emit(lane, runId, { type: 'tool_started', toolCallId, toolName, arguments: args, resultEntryId })
  const settled = await execute(run, tool, call, args, resultEntryId)
  const kept = await keepResult(run, resultEntryId, settled)
  environment.emitter.emit(lane, runId, { type: 'tool_finished', toolCallId, toolName, result: kept.result })
  return kept
}

async function execute(
  run: Calling,
  tool: Tool,
  call: Pick<ToolCallPart, 'id' | 'name'>,
  args: JsonObject,
  idempotencyKey: string,
): Promise<Settled> {
  const { lane, runId, signal, environment } = run
  const { limits, effects, emitter, cleaner } = environment
  let over = false
  const context = {
    signal,
    lane,
    runId,
    toolCallId: call.id,
    idempotencyKey,
    progress: (text: string): void => {
      if (!over) emitter.emit(lane, runId, { type: 'tool_progress', toolCallId: call.id, text: cleaner.text(text) })
    },
  }
  const ended = await withGrace(
    tried(() => tool.run(args, context)),
    signal,
    limits.abortGraceMs,
    effects.sleep,
  )
  over = true
  if (ended.type === 'left') return failure(call, hungNote(call.name, limits.abortGraceMs), true)
  if (ended.value.type === 'output') return settleOutput(run, call, ended.value.output)
  const message = cleaner.text(messageOf(ended.value.error))
  return signal.aborted
    ? failure(call, stoppedNote(call.name, message), true)
    : failure(call, `The tool "${call.name}" failed: ${message}`, false)
}

/** What a tool gave back is its result, whatever else has happened meanwhile. */
function settleOutput(run: Calling, call: Pick<ToolCallPart, 'id' | 'name'>, output: unknown): Settled {
  const { cleaner, limits } = run.environment
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
  const parts = typeof content === 'string' ? [{ type: 'text', text: content } as const] : content
  const kept = boundContent(cleaner.content(parts), limits.toolResultChars)
  const result = { role: 'toolResult', toolCallId: call.id, toolName: call.name, content: kept, isError } as const
  return { result, terminate }
}

const failure = (call: Pick<ToolCallPart, 'id' | 'name'>, note: string, interrupted: boolean): Settled => ({
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
