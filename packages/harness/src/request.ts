import type { AssistantMessage, Model, ModelFailure, ModelOutcome, ModelRequest, Usage } from '@reve/providers/model'
import { type Draft, SessionLogError } from '@reve/session-log'
import { ask } from './ask.ts'
import { createDeltaFilter } from './deltas.ts'
import type { Environment, Owner } from './environment.ts'
import type { Limits } from './options.ts'
import { record } from './records.ts'
import { estimateMessage, estimateMessages, estimateText } from './estimate.ts'
import { messageEntry, noUsage, settledAnswer, usageRecord } from './settle.ts'

/** Of the run that asks. */
export type Asking = Owner & {
  readonly environment: Environment
  readonly model: Model
  readonly signal: AbortSignal
  /** Asked for, though its record may still be on the way to the disk. */
  readonly abortRequested: () => boolean
  /** `estimate` is for the budget, where the server told no usage. */
  readonly spent: (usage: Usage | undefined, cost: number | undefined, estimate?: Usage) => void
  /** Why nothing more may be asked for: the budget is used up. */
  readonly overBudget: () => string | undefined
}

/** Attempts of one step have rising numbers that survive the process; after `last` no more are made. */
export type Attempts = { readonly first: number; readonly last: number }

/** One wish, however many requests it takes. */
export type Wish = {
  readonly step: number
  readonly attempts: Attempts
  readonly request: ModelRequest
  /** The id that the next attempt names. */
  readonly entryId: () => string
  /** A request for the run itself: its text is not shown, and its answers may be turned down. */
  readonly summary?: { readonly turnDown: (message: AssistantMessage) => TurnedDown | undefined }
}

/** Why an answer that came is none. */
export type TurnedDown = { readonly code: string; readonly message: string; readonly retryable: boolean }

/** How a wish ended. What failed is in the log by then; an answer and what it used are the caller's to keep. */
export type Asked =
  | {
      readonly type: 'answer'
      readonly entryId: string
      readonly message: AssistantMessage
      readonly usage: Draft
      readonly attempt: number
    }
  | {
      readonly type: 'aborted'
      readonly late?: { readonly entryId: string; readonly partial: AssistantMessage; readonly usage: Draft }
    }
  | {
      readonly type: 'failed'
      readonly reason: 'provider_error' | 'retries_exhausted' | 'context_overflow' | 'budget'
      readonly error: { readonly code: string; readonly message: string }
      /** The last one that was made. */
      readonly attempt: number
    }

/** How the wish for one answer ended. Whatever was said is in the log by then. */
export type Answered =
  | { readonly type: 'answer'; readonly entryId: string; readonly message: AssistantMessage }
  | { readonly type: 'aborted'; readonly partial?: AssistantMessage }
  | Extract<Asked, { readonly type: 'failed' }>

/** Asks for the answer of a step and keeps it, or what was said of it when it was aborted. */
export async function requestAnswer(run: Asking, wish: Pick<Wish, 'step' | 'attempts' | 'request'>): Promise<Answered> {
  const { lane, environment } = run
  const asked = await askUntilAnswered(run, { ...wish, entryId: () => environment.effects.newId('e_') })
  switch (asked.type) {
    case 'answer': {
      const { entryId, message, usage, attempt } = asked
      try {
        await environment.writer.append(run, [messageEntry(lane, entryId, message), usage])
      } catch (error) {
        if (!(error instanceof SessionLogError)) throw error
        // A line has a longest length. Nothing of it was written; that it was asked for and paid is.
        const kept = { code: 'protocol', message: `the answer cannot be kept: ${error.message}` }
        const { runId } = run
        await environment.writer.append(run, [
          record(lane, 'task_failed', { runId, step: wish.step, attempt, error: { ...kept, retryable: false } }),
          usage,
        ])
        return { type: 'failed', reason: 'provider_error', error: kept, attempt }
      }
      return { type: 'answer', entryId, message }
    }
    case 'aborted': {
      if (asked.late === undefined) return { type: 'aborted' }
      const { entryId, partial, usage } = asked.late
      const said = partial.content.length > 0
      await environment.writer.append(run, [...(said ? [messageEntry(lane, entryId, partial)] : []), usage])
      return { type: 'aborted', ...(said && { partial }) }
    }
    case 'failed':
      return asked
    default:
      return asked satisfies never
  }
}

/** Asks as often as the limits allow; each attempt is in the log before it is made, and each failure after it. */
export async function askUntilAnswered(run: Asking, wish: Wish): Promise<Asked> {
  const { lane, runId, environment } = run
  const { writer, effects, limits, cleaner, emitter } = environment
  const { step, attempts, request, summary } = wish
  const failed = (
    reason: Extract<Asked, { readonly type: 'failed' }>['reason'],
    attempt: number,
    error: { readonly code: string; readonly message: string },
  ): Asked => ({ type: 'failed', reason, error, attempt })
  if (attempts.first > attempts.last) {
    const message = `this step was tried ${attempts.first - 1} times by runs that were cut off in the middle of it`
    return failed('retries_exhausted', attempts.first - 1, { code: 'interrupted', message })
  }
  for (let attempt = attempts.first; ; attempt++) {
    const spentUp = run.overBudget()
    if (spentUp !== undefined) return failed('budget', attempt - 1, { code: 'budget', message: spentUp })
    const entryId = wish.entryId()
    const purpose = summary === undefined ? {} : ({ purpose: 'summary' } as const)
    await writer.append(run, [
      record(lane, 'task_attempt', { runId, step, attempt, resultEntryId: entryId, ...purpose }),
    ])
    if (run.abortRequested()) return { type: 'aborted' }
    const outcome = judged(await stream(run, request, summary !== undefined), summary)
    switch (outcome.type) {
      case 'answer': {
        const message = cleaner.assistant(settledAnswer(outcome.message, run.model.id))
        const usage = spend(run, entryId, outcome.message.usage, request, message)
        return { type: 'answer', entryId, message, usage, attempt }
      }
      case 'aborted': {
        const partial = cleaner.assistant(settledAnswer(outcome.partial, run.model.id))
        const usage = spend(run, entryId, outcome.partial.usage, request, partial)
        return { type: 'aborted', late: { entryId, partial, usage } }
      }
      case 'failed': {
        const { failure, usage } = outcome
        const error = { code: failure.code, message: cleaner.text(failure.message) }
        const failedRecord = record(lane, 'task_failed', {
          runId,
          step,
          attempt,
          error: { ...error, retryable: failure.retryable },
        })
        await writer.append(run, [failedRecord, spend(run, entryId, usage)])
        if (run.abortRequested()) return { type: 'aborted' }
        if (!failure.retryable)
          return failed(failure.code === 'overflow' ? 'context_overflow' : 'provider_error', attempt, error)
        if (attempt >= attempts.last) return failed('retries_exhausted', attempt, error)
        const delayMs = retryDelay(attempt - attempts.first + 1, failure, limits.retries, effects.random)
        const discard = outcome.outputShown && summary === undefined
        emitter.emit(lane, runId, { type: 'retry', attempt: attempt + 1, delayMs, discard, error })
        await effects.sleep(delayMs, run.signal)
        if (run.abortRequested()) return { type: 'aborted' }
        break
      }
      default:
        outcome satisfies never
    }
  }
}

type Judged =
  | Exclude<ModelOutcome, { readonly type: 'failed' }>
  | {
      readonly type: 'failed'
      readonly failure: TurnedDown & Pick<ModelFailure, 'retryAfterMs'>
      readonly outputShown: boolean
      readonly usage?: Usage
    }

function judged(outcome: ModelOutcome, summary: Wish['summary']): Judged {
  if (outcome.type !== 'answer') return outcome
  const failure = summary?.turnDown(outcome.message)
  if (failure === undefined) return outcome
  const { usage } = outcome.message
  return { type: 'failed', failure, outputShown: false, ...(usage !== undefined && { usage }) }
}

/** Counts and tells what a request used; gives the record of it. */
function spend(
  run: Asking,
  entryId: string,
  usage: Usage | undefined,
  request?: ModelRequest,
  answer?: AssistantMessage,
): Draft {
  const { draft, cost } = usageRecord(run.lane, run.runId, entryId, usage, run.model)
  run.spent(usage, cost, usage === undefined && request !== undefined ? guess(request, answer) : undefined)
  return draft
}

function guess({ system, messages }: ModelRequest, answer: AssistantMessage | undefined): Usage {
  const input = estimateText(system) + estimateMessages(messages)
  return { ...noUsage, input, output: answer === undefined ? 0 : estimateMessage(answer) }
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

async function stream(run: Asking, request: ModelRequest, quiet: boolean): Promise<ModelOutcome> {
  const { environment, lane, runId } = run
  const { cleaner, redacts, emitter, effects, limits } = environment
  const filters = { text: createDeltaFilter(cleaner, redacts), reasoning: createDeltaFilter(cleaner, redacts) }
  const show = (type: 'text' | 'reasoning', delta: string): void => {
    if (delta !== '' && !quiet) emitter.emit(lane, runId, { type, delta })
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
