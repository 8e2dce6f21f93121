import { messageOf } from '@reve/base'
import type { AssistantMessage, Model, Usage, UserMessage } from '@reve/providers/model'
import { type Toolbox } from './calls.ts'
import type { Environment } from './environment.ts'
import { tried, withGrace } from './grace.ts'
import { callsOf, textOf } from './messages.ts'
import { project } from './project.ts'
import { cancelledRecord, deliveredEntry, type LaneQueue } from './queue.ts'
import { type Delivery, type Outcome, record, type RecordPayload } from './records.ts'
import { requestAnswer } from './request.ts'
import { addUsage, messageEntry, noUsage } from './settle.ts'
import { runCalls } from './tools.ts'

/** How a run ended. */
export type RunResult = {
  readonly runId: string
  readonly outcome: Outcome
  /**
   * `completed`: absent, or `length` (the last answer was cut). `aborted`: `abort_requested`. `failed`: `max_turns`,
   * `retries_exhausted`, `provider_error`, `context_overflow`, `system_prompt` (it could not be made).
   */
  readonly reason?: string
  /** Of the run's last answer; '' when there was none. */
  readonly text: string
  /** Answers asked for. */
  readonly turns: number
  /** Of all requests, the failed ones too. */
  readonly usage: Usage
  /** US dollars; absent without a price. */
  readonly cost?: number
  readonly error?: { readonly code: string; readonly message: string }
  /** Messages that were accepted and not delivered: they are the caller's again. */
  readonly returned: readonly UserMessage[]
}

/** What a run begins with. */
export type Start =
  | { readonly type: 'prompt'; readonly message: UserMessage }
  | { readonly type: 'continue'; readonly continues: string }

type End = {
  readonly outcome: Outcome
  readonly reason?: string
  readonly error?: { readonly code: string; readonly message: string }
}

/** One run on one lane, from its intent to its end. */
export class Run {
  readonly lane: string
  readonly runId: string
  readonly #environment: Environment
  readonly #model: Model
  readonly #tools: Toolbox
  readonly #queue: LaneQueue
  readonly #onEnd: () => void
  readonly #controller = new AbortController()
  #phase: 'beginning' | 'running' | 'finishing' = 'beginning'
  #aborting: Promise<readonly UserMessage[]> | undefined
  #turns = 0
  #text = ''
  #usage = noUsage
  #cost: number | undefined

  constructor(parts: {
    readonly environment: Environment
    readonly lane: string
    readonly model: Model
    readonly tools: Toolbox
    readonly queue: LaneQueue
    /** Called when the lane is free again, before anybody hears of the end. */
    readonly onEnd: () => void
  }) {
    this.#environment = parts.environment
    this.lane = parts.lane
    this.runId = parts.environment.effects.newId('run_')
    this.#model = parts.model
    this.#tools = parts.tools
    this.#queue = parts.queue
    this.#onEnd = parts.onEnd
  }

  /** Whether a message that is accepted now is sure to be delivered or given back. */
  get takesMessages(): boolean {
    return this.#phase !== 'finishing' && this.#aborting === undefined
  }

  /** Whether the operation is in the log. */
  get begun(): boolean {
    return this.#phase !== 'beginning'
  }

  get aborting(): boolean {
    return this.#aborting !== undefined
  }

  /** Records the wish first, then signals. A second call is the first one; a run that is about to end just ends. */
  abort(): Promise<readonly UserMessage[]> {
    if (this.#aborting !== undefined) return this.#aborting
    if (this.#phase === 'finishing') return Promise.resolve([])
    this.#aborting = this.#abort()
    return this.#aborting
  }

  async #abort(): Promise<readonly UserMessage[]> {
    const { lane, runId } = this
    const left = this.#queue.take('steer', 'follow_up')
    try {
      await this.#append(
        [record(lane, 'abort_requested', { runId }), ...left.map((message) => cancelledRecord(lane, message))],
        'fsync',
        () => this.#emit({ type: 'abort_requested' }),
      )
    } finally {
      // Even if the disk fails: what was asked to stop stops.
      this.#controller.abort()
    }
    return left.map(({ message }) => message)
  }

  /** Stops effects without a record: for a log that takes none any more. */
  drop(): void {
    this.#controller.abort()
  }

  /** Runs to the end. Rejects only when the log fails or on a defect: the operation then stays open for recovery. */
  async execute(start: Start, systemPrompt: () => Promise<string>): Promise<RunResult> {
    await this.#begin(start)
    const { cleaner, limits, effects } = this.#environment
    // Read once: the requests of a run have one prefix.
    const made = await withGrace(tried(systemPrompt), this.#controller.signal, limits.abortGraceMs, effects.sleep)
    if (made.type === 'left') return this.#finish(aborted)
    if (made.value.type === 'threw') {
      const message = cleaner.text(messageOf(made.value.error))
      return this.#finish({ outcome: 'failed', reason: 'system_prompt', error: { code: 'system_prompt', message } })
    }
    const system = cleaner.text(made.value.output)
    for (;;) {
      const end = await this.#turn(system)
      if (end !== undefined) return this.#finish(end)
    }
  }

  async #begin(start: Start): Promise<void> {
    const { lane, runId } = this
    const { log, effects } = this.#environment
    const queued = this.#queue.take('next_run', 'follow_up', 'steer')
    const promptEntryId = effects.newId('e_')
    const asked: RecordPayload<'operation_started'>['intent'] = {
      kind: 'run',
      ...(start.type === 'prompt' ? { prompt: start.message, promptEntryId } : { continues: start.continues }),
      ...(queued.length > 0 && { queued: queued.map(({ entryId }) => entryId) }),
    }
    const drafts = [
      record(lane, 'operation_started', { runId, intent: asked, sourceLeafId: log.leaf(lane) }),
      ...queued.map((message) => deliveredEntry(lane, message)),
      ...(start.type === 'prompt' ? [messageEntry(lane, promptEntryId, start.message)] : []),
    ]
    await this.#append(drafts, 'fsync', () => this.#emitStarted(start))
    this.#phase = 'running'
  }

  /** One answer and its calls; the end of the run, or undefined when it goes on. */
  async #turn(system: string): Promise<End | undefined> {
    const { lane, runId } = this
    if (this.#aborting !== undefined) return aborted
    await this.#deliver('steer')
    const { log, limits, thinking } = this.#environment
    if (this.#turns >= limits.maxTurns) {
      const message = `the run asked for ${limits.maxTurns} answers, which is its limit`
      return { outcome: 'failed', reason: 'max_turns', error: { code: 'max_turns', message } }
    }
    this.#turns++
    this.#emit({ type: 'turn_started', step: this.#turns })
    const run = {
      lane,
      runId,
      environment: this.#environment,
      model: this.#model,
      tools: this.#tools,
      signal: this.#controller.signal,
      abortRequested: () => this.#aborting !== undefined,
      spent: (usage: Usage, cost: number | undefined) => this.#spent(usage, cost),
    }
    const request = {
      system,
      messages: project(log.path(log.leaf(lane)), { model: this.#model.id }),
      tools: [...this.#tools.values()].map(({ name, description, parameters }) => ({ name, description, parameters })),
      ...(thinking !== undefined && { thinking }),
      sessionId: log.header.id,
    }
    const answered = await requestAnswer(run, this.#turns, request)
    switch (answered.type) {
      case 'aborted':
        if (answered.partial !== undefined) this.#text = textOf(answered.partial)
        return aborted
      case 'failed':
        return { outcome: 'failed', reason: answered.reason, error: answered.error }
      case 'answer': {
        this.#text = textOf(answered.message)
        return this.#afterAnswer(answered.message, await runCalls(run, answered))
      }
      default:
        return answered satisfies never
    }
  }

  async #afterAnswer(message: AssistantMessage, terminate: boolean): Promise<End | undefined> {
    if (this.#aborting !== undefined) return aborted
    if (callsOf(message).length > 0 && !terminate) return undefined
    // The next turn begins with what was said meanwhile.
    if (this.#queue.has('steer')) return undefined
    if (this.#queue.has('follow_up')) {
      await this.#deliver('follow_up')
      return undefined
    }
    // Decided in the same breath as the look at the queue: no message can be accepted between the two and be left.
    this.#phase = 'finishing'
    return { outcome: 'completed', ...(message.stopReason === 'length' && { reason: 'length' }) }
  }

  async #deliver(delivery: Delivery): Promise<void> {
    const messages = this.#queue.take(delivery)
    await this.#append(messages.map((message) => deliveredEntry(this.lane, message)))
  }

  async #finish(end: End): Promise<RunResult> {
    this.#phase = 'finishing'
    const { lane, runId } = this
    const left = this.#queue.take('steer', 'follow_up')
    const { outcome, reason } = end
    await this.#append(
      [
        ...left.map((message) => cancelledRecord(lane, message)),
        record(lane, 'operation_finished', { runId, outcome, ...(reason !== undefined && { reason }) }),
      ],
      'fsync',
    )
    const returned = [...((await this.#aborting) ?? []), ...left.map(({ message }) => message)]
    this.#onEnd()
    const text = this.#text
    this.#emit({ type: 'run_finished', outcome, ...(reason !== undefined && { reason }), text })
    return {
      runId,
      ...end,
      text,
      turns: this.#turns,
      usage: this.#usage,
      ...(this.#cost !== undefined && { cost: this.#cost }),
      returned,
    }
  }

  #spent(usage: Usage, cost: number | undefined): void {
    this.#usage = addUsage(this.#usage, usage)
    if (cost !== undefined) this.#cost = (this.#cost ?? 0) + cost
  }

  #emitStarted(start: Start): void {
    this.#emit({
      type: 'run_started',
      ...(start.type === 'prompt' ? { prompt: start.message } : { continues: start.continues }),
    })
  }

  #append(...args: Tail<Parameters<Environment['writer']['append']>>): Promise<unknown> {
    return this.#environment.writer.append(this, ...args)
  }

  #emit(body: Parameters<Environment['emitter']['emit']>[2]): void {
    this.#environment.emitter.emit(this.lane, this.runId, body)
  }
}

type Tail<T extends readonly unknown[]> = T extends readonly [unknown, ...infer Rest] ? Rest : never

const aborted: End = { outcome: 'aborted', reason: 'abort_requested' }
