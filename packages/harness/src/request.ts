import type { AssistantMessage, Model, ModelFailure, ModelRequest, Usage } from '@reve/providers/model'
import { ask } from './ask.ts'
import { createDeltaFilter } from './deltas.ts'
import type { Environment, Owner } from './environment.ts'
import type { Limits } from './options.ts'
import { record } from './records.ts'
import { messageEntry, settledAnswer, usageRecord } from './settle.ts'

/** How the wish for one answer ended. Whatever was said is in the log by then. */
export type Answered =
  | { readonly type: 'answer'; readonly entryId: string; readonly message: AssistantMessage }
  | { readonly type: 'aborted'; readonly partial?: AssistantMessage }
  | {
      readonly type: 'failed'
      readonly reason: string
      readonly error: { readonly code: string; readonly message: string }
    }

/** Of the run that asks. */
export type Asking = Owner & {
  readonly environment: Environment
  readonly model: Model
  readonly signal: AbortSignal
  /** Asked for, though its record may still be on the way to the disk. */
  readonly abortRequested: () => boolean
  readonly spent: (usage: Usage, cost: number | undefined) => void
}

/** Asks for one answer, as often as the limits allow; each attempt is in the log before it is made. */
export async function requestAnswer(run: Asking, step: number, request: ModelRequest): Promise<Answered> {
  const { lane, runId, environment } = run
  const { writer, effects, limits, cleaner } = environment
  for (let attempt = 1; ; attempt++) {
    const entryId = effects.newId('e_')
    await writer.append(run, [record(lane, 'task_attempt', { runId, step, attempt, resultEntryId: entryId })])
    if (run.abortRequested()) return { type: 'aborted' }
    const outcome = await stream(run, request)
    switch (outcome.type) {
      case 'answer': {
        const message = cleaner.assistant(settledAnswer(outcome.message, run.model.id))
        await settle(run, entryId, message, outcome.message.usage)
        return { type: 'answer', entryId, message }
      }
      case 'aborted': {
        const message = cleaner.assistant(settledAnswer(outcome.partial, run.model.id))
        await settle(run, entryId, message.content.length > 0 ? message : undefined, outcome.partial.usage)
        return { type: 'aborted', ...(message.content.length > 0 && { partial: message }) }
      }
      case 'failed': {
        const { failure, usage } = outcome
        const error = { code: failure.code, message: cleaner.text(failure.message) }
        const failed = { runId, step, attempt, error: { ...error, retryable: failure.retryable } }
        await settle(run, entryId, undefined, usage, [record(lane, 'task_failed', failed)])
        if (run.abortRequested()) return { type: 'aborted' }
        if (!failure.retryable)
          return { type: 'failed', reason: failure.code === 'overflow' ? 'context_overflow' : 'provider_error', error }
        if (attempt >= limits.retries.attempts) return { type: 'failed', reason: 'retries_exhausted', error }
        const delayMs = retryDelay(attempt, failure, limits.retries, effects.random)
        environment.emitter.emit(lane, runId, {
          type: 'retry',
          attempt: attempt + 1,
          delayMs,
          discard: outcome.outputShown,
          error,
        })
        await effects.sleep(delayMs, run.signal)
        if (run.abortRequested()) return { type: 'aborted' }
        break
      }
      default:
        outcome satisfies never
    }
  }
}

/** The wait before the attempt after this one, in milliseconds. The server's own wish beats ours, and nothing beats the cap. */
export function retryDelay(
  attempt: number,
  failure: Pick<ModelFailure, 'retryAfterMs'>,
  retries: Limits['retries'],
  random: () => number,
): number {
  const wish = failure.retryAfterMs
  if (wish !== undefined && Number.isFinite(wish) && wish >= 0) return Math.min(wish, retries.capMs)
  // Half of it is random, so that many clients do not come back at once.
  return Math.min(retries.capMs, retries.baseMs * 2 ** (attempt - 1)) * (0.5 + random() / 2)
}

async function stream(run: Asking, request: ModelRequest): ReturnType<typeof ask> {
  const { environment, lane, runId } = run
  const { cleaner, redacts, emitter, effects, limits } = environment
  const filters = { text: createDeltaFilter(cleaner, redacts), reasoning: createDeltaFilter(cleaner, redacts) }
  const show = (type: 'text' | 'reasoning', delta: string): void => {
    if (delta !== '') emitter.emit(lane, runId, { type, delta })
  }
  const flush = (type: 'text' | 'reasoning'): void => show(type, filters[type].flush())
  const outcome = await ask(run.model, request, {
    signal: run.signal,
    graceMs: limits.abortGraceMs,
    sleep: effects.sleep,
    onEvent: (event) => {
      // What was held back of one part comes before the next part.
      if (event.type !== 'reasoning') flush('reasoning')
      if (event.type !== 'text') flush('text')
      if (event.type !== 'toolCall') show(event.type, filters[event.type].push(event.delta))
    },
  })
  flush('reasoning')
  flush('text')
  return outcome
}

/** What a request leaves behind, in one append: its answer or its failure, and what it used. */
async function settle(
  run: Asking,
  entryId: string,
  message: AssistantMessage | undefined,
  usage: Usage | undefined,
  before: Parameters<Environment['writer']['append']>[1] = [],
): Promise<void> {
  const { lane, runId, environment } = run
  const { draft, cost } = usageRecord(lane, runId, entryId, usage, run.model)
  const entry = message === undefined ? [] : [messageEntry(lane, entryId, message)]
  await environment.writer.append(run, [...before, ...entry, draft])
  if (usage === undefined) return
  run.spent(usage, cost)
  environment.emitter.emit(lane, runId, { type: 'usage', usage, ...(cost !== undefined && { cost }) })
}
