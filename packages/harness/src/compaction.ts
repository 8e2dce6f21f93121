import type { AssistantMessage, ToolSpec } from '@reve/providers/model'
import type { Draft, EntryLine } from '@reve/session-log'
import { type CompactionBudget, compactionBudget, type Cut, needsCompaction, planCut } from './compaction-cut.ts'
import { contextTokens, estimateText } from './estimate.ts'
import { callHooks } from './hooks.ts'
import type { HarnessEventBody } from './events.ts'
import { textOf } from './messages.ts'
import { livePath, waitsForModel } from './project.ts'
import { type CompactionReason, record } from './records.ts'
import { type Asking, type Attempts, askUntilAnswered, type TurnedDown } from './request.ts'
import { summaryRequest, summarySystem } from './summary-prompt.ts'
import { chunkPieces, transcriptPieces } from './transcript.ts'

/** How a compaction ended. Whatever it was, the conversation is whole; unless it is `compacted`, it is as before. */
export type Compacted =
  | {
      readonly type: 'compacted'
      readonly entryId: string
      readonly tokensBefore: number
      readonly tokensAfter: number
    }
  /** There is nothing that a summary could stand for. */
  | { readonly type: 'nothing' }
  | { readonly type: 'declined'; readonly reason: string }
  | { readonly type: 'failed'; readonly error: { readonly code: string; readonly message: string } }
  | { readonly type: 'aborted' }

/** The conversation of a lane, and the model that has to hold it. */
type Place = Pick<Asking, 'environment' | 'lane' | 'model'>

/** The beginning or the end of a compaction. */
export type CompactionEvent = Extract<HarnessEventBody, { readonly type: 'compaction_started' | 'compaction_finished' }>

/** What stands around the conversation in each request. */
export type Surroundings = { readonly system: string; readonly tools: readonly ToolSpec[] }

/** Tokens that the next request of the lane would have, and whether that leaves too little of the window. */
export function measure(run: Asking, around: Surroundings): { readonly tokens: number; readonly full: boolean } {
  const { tokens } = contextTokens(pathOf(run), { model: run.model.id, ...around })
  return { tokens, full: needsCompaction(tokens, budgetOf(run)) }
}

/** What a compaction would do now. */
export function planCompaction(run: Place, reason: CompactionReason): Cut {
  const path = pathOf(run)
  const { id: model } = run.model
  const waits = waitsForModel(path, { model })
  const settings = budgetOf(run)
  // What still waits for an answer stays in its own words, where it fits at all.
  const budget = waits ? { ...settings, keepRecentTokens: Math.max(1, settings.keepRecentTokens) } : settings
  const cut = planCut(path, { model, budget, aggressive: reason === 'overflow' })
  if (cut.type === 'cut') return cut
  switch (reason) {
    case 'overflow':
      return cut
    case 'threshold':
      // The server counts more than we do: its word is the better one.
      return planCut(path, { model, budget, aggressive: true })
    case 'manual':
      // A short talk too, when a person asks for it.
      return waits
        ? planCut(path, { model, budget, aggressive: true })
        : planCut(path, { model, budget: { ...budget, keepRecentTokens: 0 } })
    default:
      return reason satisfies never
  }
}

/**
 * Summarises the older part of a lane's conversation: intent, requests, then the summary as an entry below the leaf, so
 * that the lane goes on from it and nothing that was said before is lost. A failure leaves the conversation as it was.
 */
export async function compact(
  run: Asking,
  around: Surroundings,
  parts: {
    readonly reason: CompactionReason
    readonly step: number
    readonly instructions?: string
    /** Named by the operation, when the compaction is all of it. */
    readonly summaryEntryId?: string
    /** Told of the beginning and, if there was one, of the end. */
    readonly tell?: (event: CompactionEvent) => void
  },
): Promise<Compacted> {
  const { lane, runId, environment } = run
  const { reason } = parts
  const cut = planCompaction(run, reason)
  if (cut.type === 'nothing') return { type: 'nothing' }
  const tokensBefore = measure(run, around).tokens
  const tell = parts.tell ?? ((event) => environment.emitter.emit(lane, runId, event))
  const told = (
    outcome: 'completed' | 'aborted' | 'failed' | 'declined',
    more: {
      readonly entryId?: string
      readonly tokensAfter?: number
      readonly error?: { code: string; message: string }
    } = {},
  ): void => tell({ type: 'compaction_finished', reason, outcome, tokensBefore, ...more })

  tell({ type: 'compaction_started', reason, tokens: tokensBefore })
  const decision = await askHooks(run, reason, cut, tokensBefore)
  if (run.abortRequested()) {
    told('aborted')
    return { type: 'aborted' }
  }
  if (decision !== undefined && 'decline' in decision) {
    told('declined')
    return { type: 'declined', reason: environment.cleaner.text(decision.decline) }
  }
  const entryId = parts.summaryEntryId ?? environment.effects.newId('e_')
  const { firstKeptEntryId } = cut
  await environment.writer.append(run, [
    record(lane, 'compaction_started', { runId, reason, summaryEntryId: entryId, firstKeptEntryId, tokensBefore }),
  ])
  const made: Made =
    decision === undefined
      ? await summarise(run, cut, { ...parts, summaryEntryId: entryId })
      : { type: 'summary', text: decision.summary, usage: [] }
  switch (made.type) {
    case 'summary': {
      const summary: Draft = {
        kind: 'entry',
        lane,
        id: entryId,
        type: 'compaction',
        payload: { summary: environment.cleaner.text(made.text), firstKeptEntryId },
      }
      const finished = record(lane, 'compaction_finished', { runId, summaryEntryId: entryId, outcome: 'completed' })
      await environment.writer.append(run, [summary, ...made.usage, finished])
      const tokensAfter = measure(run, around).tokens
      told('completed', { entryId, tokensAfter })
      return { type: 'compacted', entryId, tokensBefore, tokensAfter }
    }
    case 'aborted':
    case 'failed': {
      const outcome = made.type
      const error = made.type === 'failed' ? { error: made.error } : {}
      await environment.writer.append(run, [
        ...made.usage,
        record(lane, 'compaction_finished', { runId, summaryEntryId: entryId, outcome, ...error }),
      ])
      told(outcome, error)
      return made.type === 'failed' ? { type: 'failed', error: made.error } : { type: 'aborted' }
    }
    default:
      return made satisfies never
  }
}

const pathOf = ({ environment: { log }, lane }: Place): readonly EntryLine[] => livePath(log, log.leaf(lane))

function budgetOf({ environment, model }: Place): CompactionBudget {
  return compactionBudget(model.contextWindow, model.maxTokens, environment.compaction ?? {})
}

async function askHooks(
  run: Asking,
  reason: CompactionReason,
  cut: Extract<Cut, { readonly type: 'cut' }>,
  tokens: number,
): Promise<{ readonly decline: string } | { readonly summary: string } | undefined> {
  const { head: messages, previousSummary } = cut
  let decision: { readonly decline: string } | { readonly summary: string } | undefined
  const input = { reason, messages, tokens, ...(previousSummary !== undefined && { previousSummary }) }
  await callHooks(run, 'beforeCompaction', input, (answer, before) => {
    if (answer.type !== 'said') return before
    if ('summary' in answer.output && answer.output.summary.trim() === '') {
      // It would take the place of all that it stands for.
      const message = 'the summary that it brought is empty'
      run.environment.emitter.emit(run.lane, run.runId, { type: 'hook_failed', hook: 'beforeCompaction', message })
      return before
    }
    decision = answer.output
    return undefined
  })
  return decision
}

type Made =
  | { readonly type: 'summary'; readonly text: string; readonly usage: readonly Draft[] }
  | { readonly type: 'aborted'; readonly usage: readonly Draft[] }
  | {
      readonly type: 'failed'
      readonly error: { readonly code: string; readonly message: string }
      readonly usage: readonly Draft[]
    }

/** So often the pieces are made smaller when the server finds them too large: our count of tokens is a guess. */
const shrinks = 4

/**
 * Asks for the summary, in as many pieces as the window needs: each request carries the summary so far and the next piece of
 * the transcript, so that no conversation is too long to be summarised.
 */
async function summarise(
  run: Asking,
  cut: Extract<Cut, { readonly type: 'cut' }>,
  parts: { readonly step: number; readonly summaryEntryId: string; readonly instructions?: string },
): Promise<Made> {
  const { environment, model } = run
  let summary = cut.previousSummary
  let room = roomFor(run, parts.instructions)
  let waiting = chunkPieces(transcriptPieces(cut.head), room)
  let shorter = false
  let shrunk = 0
  let attempts: Attempts = { first: 1, last: environment.limits.retries.attempts }
  while (waiting.length > 0) {
    const [transcript = '', ...rest] = waiting
    const text = summaryRequest({
      transcript,
      ...(summary !== undefined && { previousSummary: summary }),
      ...(parts.instructions !== undefined && { instructions: parts.instructions }),
      last: rest.length === 0,
      shorter,
    })
    const asked = await askUntilAnswered(run, {
      step: parts.step,
      attempts,
      entryId: () => parts.summaryEntryId,
      request: {
        system: summarySystem,
        messages: [{ role: 'user', content: [{ type: 'text', text }] }],
        tools: [],
        sessionId: `${environment.log.header.id}:summary`,
      },
      summary: { turnDown },
    })
    switch (asked.type) {
      case 'aborted':
        return { type: 'aborted', usage: asked.late === undefined ? [] : [asked.late.usage] }
      case 'failed': {
        attempts = { first: asked.attempt + 1, last: asked.attempt + environment.limits.retries.attempts }
        if (asked.error.code === cutCode && !shorter) {
          shorter = true
          break
        }
        if (asked.reason !== 'context_overflow' || shrunk === shrinks) {
          return { type: 'failed', error: asked.error, usage: [] }
        }
        shrunk++
        room = Math.floor(Math.min(room, estimateText(transcript)) / 2)
        waiting = chunkPieces(waiting, room)
        break
      }
      case 'answer':
        summary = textOf(asked.message).trim()
        if (rest.length === 0) return { type: 'summary', text: summary, usage: [asked.usage] }
        await environment.writer.append(run, [asked.usage])
        attempts = { first: attempts.last + 1, last: attempts.last + environment.limits.retries.attempts }
        shorter = false
        waiting = rest
        break
      default:
        asked satisfies never
    }
  }
  const message = `${model.id}: there was nothing to summarise`
  return { type: 'failed', error: { code: 'nothing', message }, usage: [] }
}

/** Tokens of transcript that one request can carry beside its instructions, the summary so far and the answer. */
function roomFor({ model, environment }: Asking, instructions = ''): number {
  const { contextWindow, reserveTokens } = compactionBudget(
    model.contextWindow,
    model.maxTokens,
    environment.compaction ?? {},
  )
  const fixed = estimateText(summarySystem) + estimateText(summaryRequest({ transcript: '', last: true, instructions }))
  // One reserve for the answer, one for the summary so far, which is an answer too.
  return contextWindow - 2 * reserveTokens - fixed
}

const cutCode = 'summary_cut'

/** Why an answer is no summary. One that was cut off would be kept for good, with its end missing. */
function turnDown(message: AssistantMessage): TurnedDown | undefined {
  if (message.stopReason === 'length') {
    return {
      code: cutCode,
      message: `${message.model}: the summary was cut off by the output limit`,
      retryable: false,
    }
  }
  if (textOf(message).trim() !== '') return undefined
  return { code: 'summary_empty', message: `${message.model}: the summary is empty`, retryable: true }
}
