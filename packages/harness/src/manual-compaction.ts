import { messageOf } from '@reve/base'
import type { Model, Usage, UserMessage } from '@reve/providers/model'
import type { Toolbox } from './calls.ts'
import { compact, type Compacted, type CompactionEvent } from './compaction.ts'
import type { Environment } from './environment.ts'
import { tried, withGrace } from './grace.ts'
import { Operation } from './operation.ts'
import type { LaneQueue } from './queue.ts'
import type { Outcome } from './records.ts'
import { createTally } from './tally.ts'

/** How a compaction that somebody asked for ended. */
export type CompactionResult = {
  readonly runId: string
  /** `completed`, `aborted`, `failed` (see `error`), or `rejected`: a hook declined. Unless it completed, the conversation is as before. */
  readonly outcome: Outcome
  readonly reason?: string
  /** The entry of the summary, the tokens that the next request would have had, and those that it has now. */
  readonly compacted?: { readonly entryId: string; readonly tokensBefore: number; readonly tokensAfter: number }
  readonly usage: Usage
  readonly cost?: number
  readonly error?: { readonly code: string; readonly message: string }
  /** Messages that were accepted meanwhile and given back because of an abort. */
  readonly returned: readonly UserMessage[]
  /** Messages that were accepted meanwhile and wait for the next run: `continue()` delivers them. */
  readonly waiting: number
}

/** A compaction as an operation of its own. Messages that come meanwhile wait for what comes after it. */
export class ManualCompaction {
  readonly operation: Operation
  readonly #model: Model
  readonly #tools: Toolbox
  readonly #queue: LaneQueue

  constructor(parts: {
    readonly environment: Environment
    readonly lane: string
    readonly model: Model
    readonly tools: Toolbox
    readonly queue: LaneQueue
    readonly onEnd: () => void
  }) {
    const { environment, lane, queue, onEnd } = parts
    this.operation = new Operation({ environment, lane, queue, onEnd })
    this.#model = parts.model
    this.#tools = parts.tools
    this.#queue = queue
  }

  /** Rejects only when the log fails or on a defect: the operation then stays open for recovery. */
  async execute(instructions: string | undefined, systemPrompt: () => Promise<string>): Promise<CompactionResult> {
    const { operation } = this
    const { environment, lane, runId, signal } = operation
    const { log, effects, limits, cleaner } = environment
    const summaryEntryId = effects.newId('e_')
    const asked = instructions === undefined ? {} : { instructions: cleaner.text(instructions) }
    await operation.begin(
      { intent: { kind: 'compaction', summaryEntryId, ...asked }, sourceLeafId: log.leaf(lane) },
      [],
      () => undefined,
    )
    const tally = createTally(environment)
    // Whoever hears of the end finds the lane free.
    let last: CompactionEvent | undefined
    const tell = (event: CompactionEvent): void => {
      if (event.type === 'compaction_finished') last = event
      else operation.emit(event)
    }
    // Only to measure by: the summary is asked for under a system prompt of its own.
    const made = await withGrace(tried(systemPrompt), signal, limits.abortGraceMs, effects.sleep)
    const system = made.type === 'done' && made.value.type === 'output' ? made.value.output : ''
    if (made.type === 'done' && made.value.type === 'threw') {
      const message = cleaner.text(messageOf(made.value.error))
      environment.emitter.emit(lane, runId, { type: 'hook_failed', hook: 'system', message })
    }
    const run = {
      lane,
      runId,
      environment,
      model: this.#model,
      signal,
      abortRequested: () => operation.aborting,
      spent: tally.own.bind(tally),
      overBudget: () => tally.overBudget(),
    }
    const around = {
      system,
      tools: [...this.#tools.values()].map(({ name, description, parameters }) => ({ name, description, parameters })),
    }
    const compacted: Compacted = operation.aborting
      ? { type: 'aborted' }
      : await compact(run, around, { reason: 'manual', step: 0, summaryEntryId, tell, ...asked })
    const end = endOf(compacted)
    const returned = await operation.finish(end, [])
    if (last !== undefined) operation.emit(last)
    return {
      runId,
      ...end,
      ...(compacted.type === 'compacted' && { compacted: withoutType(compacted) }),
      ...tally.total(),
      returned,
      waiting: this.#queue.waiting.length,
    }
  }
}

function withoutType({ entryId, tokensBefore, tokensAfter }: Extract<Compacted, { readonly type: 'compacted' }>) {
  return { entryId, tokensBefore, tokensAfter }
}

function endOf(compacted: Compacted): Pick<CompactionResult, 'outcome' | 'reason' | 'error'> {
  switch (compacted.type) {
    case 'compacted':
      return { outcome: 'completed' }
    case 'aborted':
      return { outcome: 'aborted', reason: 'abort_requested' }
    case 'declined':
      return { outcome: 'rejected', reason: 'declined', error: { code: 'declined', message: compacted.reason } }
    case 'failed':
      return { outcome: 'failed', reason: 'summary_failed', error: compacted.error }
    case 'nothing':
      return {
        outcome: 'failed',
        reason: 'nothing_to_compact',
        error: { code: 'nothing', message: 'there is not enough history to compact' },
      }
    default:
      return compacted satisfies never
  }
}
