import { codeOf, messageOf } from '@reve/base'
import type { AssistantMessage, Model, Usage, UserMessage } from '@reve/providers/model'
import type { Toolbox } from './calls.ts'
import { compact, measure, type Surroundings } from './compaction.ts'
import type { Environment } from './environment.ts'
import { tried, withGrace } from './grace.ts'
import { asUserMessage, callHooks } from './hooks.ts'
import { type LoopState, noLoop } from './loop-guard.ts'
import { callsOf, textOf } from './messages.ts'
import { Operation } from './operation.ts'
import { livePath, paired, project } from './project.ts'
import { deliveredEntry, type LaneQueue, type QueuedMessage } from './queue.ts'
import { type Delivery, leafRecord, type Outcome } from './records.ts'
import { type Answered, type Asking, requestAnswer } from './request.ts'
import { messageEntry } from './settle.ts'
import { createTally, type Tally } from './tally.ts'
import type { ToolContext } from './tool.ts'
import { type Calling, runCalls, type Running } from './tools.ts'

/** How a run ended. */
export type RunResult = {
  readonly runId: string
  readonly outcome: Outcome
  /**
   * `completed`: absent, or `length` (the last answer was cut). `aborted`: `abort_requested`. `rejected`: `before_run`.
   * `failed`: `max_turns`, `loop`, `budget`, `retries_exhausted`, `provider_error`, `context_overflow`; `system_prompt`,
   * `tools` (they could not be made).
   */
  readonly reason?: string
  /** Of the run's last answer; '' when there was none. */
  readonly text: string
  /** Answers asked for. */
  readonly turns: number
  /** Of all requests, the failed ones and those for summaries too; sub-agents' apart. */
  readonly usage: Usage
  /** US dollars; absent without a price. */
  readonly cost?: number
  readonly error?: { readonly code: string; readonly message: string }
  /** Messages that were accepted and not delivered: they are the caller's again. Those that `abort()` gave back are among them. */
  readonly returned: readonly UserMessage[]
}

/** What a run asks for at its start, in this order: whoever makes the system prompt may find out what tools there are. */
export type Preparation = { readonly system: () => Promise<string>; readonly tools: () => Toolbox }

/** What a run begins with, and where: `from` is the entry that it goes on from, when that is not the lane's leaf. */
export type Start = { readonly from?: string | null } & (
  | { readonly type: 'prompt'; readonly message: UserMessage }
  | {
      readonly type: 'continue'
      /** Null: no run of this log has made the conversation. */
      readonly continues: string | null
      /** Attempts at the answer that it waits for, made by runs that died of it. */
      readonly attemptsMade: number
      /** The runs before it died in their summaries as often as may be: this one goes on without. */
      readonly withoutSummary: boolean
    }
)

/** Who started a run: a call of another one. */
export type Parent = {
  readonly lane: string
  readonly runId: string
  readonly toolCallId: string
  /** Sub-agents of sub-agents: 1 for a run that no tool started. */
  readonly depth: number
  /** What a sub-agent spends is spent by its caller too, and by whoever called that one; absent in a recovery. */
  readonly tally?: Tally
}

type End = {
  readonly outcome: Outcome
  readonly reason?: string
  readonly error?: { readonly code: string; readonly message: string }
}

/** One run on one lane, from its intent to its end. */
export class Run {
  readonly operation: Operation
  readonly depth: number
  readonly #environment: Environment
  readonly #model: Model
  #tools: Toolbox = new Map()
  readonly #maxTurns: number
  readonly #queue: LaneQueue
  readonly #parent: Parent | undefined
  readonly #subagent: (run: Run, ...call: Parameters<Calling['subagent']>) => ToolContext['subagent']
  readonly tally: Tally
  #turns = 0
  #text = ''
  #loop: LoopState = noLoop
  /** What did not help at the threshold is not tried again before the server itself says that it is too much. */
  #thresholdFailed = false
  /** The server said so, and a summary was made: once for each thing that was said to the run. */
  #overflowed = false
  #source: string | null = null
  #queued: readonly QueuedMessage[] = []

  constructor(parts: {
    readonly environment: Environment
    readonly lane: string
    readonly model: Model
    readonly maxTurns: number
    readonly queue: LaneQueue
    readonly parent?: Parent
    readonly subagent: (run: Run, ...call: Parameters<Calling['subagent']>) => ToolContext['subagent']
    readonly onEnd: () => void
  }) {
    const { environment, lane, queue, onEnd } = parts
    this.operation = new Operation({ environment, lane, queue, onEnd })
    this.depth = parts.parent?.depth ?? 1
    this.#environment = environment
    this.#model = parts.model
    this.#maxTurns = parts.maxTurns
    this.#queue = queue
    this.#parent = parts.parent
    this.#subagent = parts.subagent
    this.tally = createTally(environment, parts.parent?.tally)
  }

  /** Runs to the end. Rejects only when the log fails or on a defect: the operation then stays open for recovery. */
  async execute(start: Start, prepare: Preparation): Promise<RunResult> {
    await this.#begin(start)
    this.#thresholdFailed = start.type === 'continue' && start.withoutSummary
    const { cleaner, limits, effects } = this.#environment
    // Read once: the requests of a run have one prefix.
    const made = await withGrace(tried(prepare.system), this.operation.signal, limits.abortGraceMs, effects.sleep)
    if (made.type === 'left') return this.#finish(aborted)
    if (made.value.type === 'threw') {
      const message = cleaner.text(messageOf(made.value.error))
      return this.#finish({ outcome: 'failed', reason: 'system_prompt', error: { code: 'system_prompt', message } })
    }
    try {
      this.#tools = prepare.tools()
    } catch (error) {
      const failure = { code: codeOf(error) ?? 'tools', message: cleaner.text(messageOf(error)) }
      return this.#finish({ outcome: 'failed', reason: 'tools', error: failure })
    }
    const begun = await this.#beforeRun(start, made.value.output)
    if (typeof begun !== 'string') return this.#finish(begun)
    const around: Surroundings = {
      system: cleaner.text(begun),
      tools: [...this.#tools.values()].map(({ name, description, parameters }) => ({ name, description, parameters })),
    }
    let attemptsMade = start.type === 'continue' ? start.attemptsMade : 0
    for (;;) {
      const end = await this.#turn(around, attemptsMade)
      if (end !== undefined) return this.#finish(end)
      attemptsMade = 0
    }
  }

  async #begin(start: Start): Promise<void> {
    const { operation } = this
    const { log, effects } = this.#environment
    const queued = this.#queue.take('next_run', 'follow_up', 'steer')
    const promptEntryId = effects.newId('e_')
    const sourceLeafId = start.from === undefined ? log.leaf(operation.lane) : start.from
    this.#source = sourceLeafId
    this.#queued = queued
    const parent = this.#parent
    const entries = [
      ...queued.map((message) => deliveredEntry(operation.lane, message)),
      ...(start.type === 'prompt' ? [messageEntry(operation.lane, promptEntryId, start.message)] : []),
    ]
    // The lane's leaf may be elsewhere.
    const placed = entries.map((draft, index) =>
      draft.kind === 'entry' && index === 0 ? { ...draft, parentId: sourceLeafId } : draft,
    )
    await operation.begin(
      {
        intent: {
          kind: 'run',
          ...(start.type === 'prompt' ? { prompt: start.message, promptEntryId } : { continues: start.continues }),
          ...(queued.length > 0 && { queued: queued.map(({ entryId }) => entryId) }),
          ...(parent !== undefined && {
            parent: { lane: parent.lane, runId: parent.runId, toolCallId: parent.toolCallId },
          }),
        },
        sourceLeafId,
      },
      placed,
      () => {
        if (start.from !== undefined) operation.emit({ type: 'navigated', leafId: start.from })
        this.#emitStarted(start)
      },
    )
  }

  /** The system prompt of this run, or its end before it asked for anything. */
  async #beforeRun(start: Start, system: string): Promise<string | End> {
    const { operation } = this
    const { cleaner, effects } = this.#environment
    let now = system
    let rejected: string | undefined
    const added: UserMessage[] = []
    const input = { system, ...(start.type === 'prompt' && { prompt: start.message }) }
    await callHooks(this.#hooked(), 'beforeRun', input, (answer, before) => {
      if (answer.type !== 'said') return before
      const { output } = answer
      added.push(...(output.messages ?? []).map((message) => cleaner.user(asUserMessage(message))))
      now = output.system ?? now
      rejected = output.reject
      return rejected === undefined ? { ...before, system: now } : undefined
    })
    if (operation.aborting) return aborted
    if (rejected !== undefined) {
      const message = cleaner.text(rejected)
      return { outcome: 'rejected', reason: 'before_run', error: { code: 'rejected', message } }
    }
    await operation.append(added.map((message) => messageEntry(operation.lane, effects.newId('e_'), message)))
    return now
  }

  /** One answer and its calls; the end of the run, or undefined when it goes on. */
  async #turn(around: Surroundings, attemptsMade: number): Promise<End | undefined> {
    const { operation } = this
    if (operation.aborting) return aborted
    await this.#deliver('steer')
    if (this.#turns >= this.#maxTurns) {
      const message = `the run asked for ${this.#maxTurns} answers, which is its limit`
      return { outcome: 'failed', reason: 'max_turns', error: { code: 'max_turns', message } }
    }
    this.#turns++
    operation.emit({ type: 'turn_started', step: this.#turns })
    const run = this.#calling()
    const answered = await this.#answer(run, around, attemptsMade)
    switch (answered.type) {
      case 'aborted':
        if (answered.partial !== undefined) this.#text = textOf(answered.partial)
        return aborted
      case 'failed':
        return { outcome: 'failed', reason: answered.reason, error: answered.error }
      case 'answer': {
        this.#text = textOf(answered.message)
        const { terminate, loop, stuck } = await runCalls(run, answered, this.#loop)
        this.#loop = loop
        if (stuck !== undefined && !operation.aborting) {
          return { outcome: 'failed', reason: 'loop', error: { code: 'loop', message: stuck } }
        }
        return this.#afterAnswer(answered.message, terminate)
      }
      default:
        return answered satisfies never
    }
  }

  /** Asks for the answer of this turn, after making room for it where that is needed. */
  async #answer(run: Running & Asking, around: Surroundings, attemptsMade: number): Promise<Answered> {
    const { log, limits, thinking, compaction } = this.#environment
    const auto = compaction?.auto !== false
    const step = this.#turns
    let attempts = { first: attemptsMade + 1, last: limits.retries.attempts }
    // Before each request: a single result may be what makes it too much.
    if (auto && !this.#thresholdFailed && measure(run, around).full) {
      const made = await compact(run, around, { reason: 'threshold', step })
      if (made.type === 'aborted') return made
      // What stays too much after that (a long system prompt, many tools) would be summarised before each request.
      this.#thresholdFailed = made.type === 'failed' || (made.type === 'compacted' && measure(run, around).full)
    }
    for (;;) {
      const messages = await this.#context(run)
      if (run.abortRequested()) return { type: 'aborted' }
      const answered = await requestAnswer(run, {
        step,
        attempts,
        request: {
          ...around,
          messages,
          ...(thinking !== undefined && { thinking }),
          sessionId: log.header.id,
        },
      })
      if (answered.type !== 'failed' || answered.reason !== 'context_overflow' || !auto || this.#overflowed) {
        return answered
      }
      this.#overflowed = true
      const made = await compact(run, around, { reason: 'overflow', step })
      if (made.type === 'aborted') return made
      if (made.type !== 'compacted') {
        const why =
          made.type === 'nothing'
            ? 'there is nothing left to summarise'
            : made.type === 'declined'
              ? made.reason
              : made.error.message
        const message = `${answered.error.message}; and it could not be made shorter: ${why}`
        return { ...answered, error: { ...answered.error, message } }
      }
      attempts = { first: answered.attempt + 1, last: answered.attempt + limits.retries.attempts }
    }
  }

  /** What the model sees, after the hooks. */
  async #context(run: Running & Asking): ReturnType<typeof transformed> {
    const { log } = this.#environment
    return transformed(run, project(livePath(log, log.leaf(run.lane)), { model: this.#model.id }))
  }

  #calling(): Running & Asking {
    const { operation } = this
    return {
      ...this.#hooked(),
      model: this.#model,
      tools: this.#tools,
      abortRequested: () => operation.aborting,
      drop: () => operation.drop(),
      spent: (usage, cost, estimate) => this.tally.own(usage, cost, estimate),
      overBudget: () => this.#unpriced() ?? this.tally.overBudget(),
      subagent: (...call) => this.#subagent(this, ...call),
    }
  }

  #hooked() {
    const { lane, runId, signal } = this.operation
    return { lane, runId, signal, environment: this.#environment, parent: this.#caller() }
  }

  #caller(): { readonly lane: string; readonly runId: string; readonly toolCallId: string } | undefined {
    const parent = this.#parent
    return parent && { lane: parent.lane, runId: parent.runId, toolCallId: parent.toolCallId }
  }

  /** A budget in money bounds nothing where nobody knows what a request costs. */
  #unpriced(): string | undefined {
    const { budget } = this.#environment
    if (this.#model.price !== undefined || (budget?.run?.usd === undefined && budget?.day?.usd === undefined))
      return undefined
    return `the budget is in US dollars, and no price of ${this.#model.id} is known: give it one, or bound tokens`
  }

  async #afterAnswer(message: AssistantMessage, terminate: boolean): Promise<End | undefined> {
    const { operation } = this
    if (operation.aborting) return aborted
    if (callsOf(message).length > 0 && !terminate) return undefined
    // The next turn begins with what was said meanwhile.
    if (this.#queue.has('steer')) return undefined
    if (this.#queue.has('follow_up')) return this.#deliver('follow_up')
    if (this.#environment.hooks().some(({ beforeRunEnd }) => beforeRunEnd !== undefined)) {
      const followUp = await this.#beforeRunEnd()
      if (operation.aborting) return aborted
      if (followUp !== undefined) {
        this.#overflowed = false
        await operation.append([messageEntry(operation.lane, this.#environment.effects.newId('e_'), followUp)])
        return undefined
      }
      // What was said while the hooks thought.
      if (this.#queue.has('steer')) return undefined
      if (this.#queue.has('follow_up')) return this.#deliver('follow_up')
    }
    // Decided in the same breath as the look at the queue: no message can be accepted between the two and be left.
    operation.close()
    return { outcome: 'completed', ...(message.stopReason === 'length' && { reason: 'length' }) }
  }

  async #beforeRunEnd(): Promise<UserMessage | undefined> {
    const { log, cleaner } = this.#environment
    let followUp: UserMessage | undefined
    const { lane } = this.operation
    const input = { text: this.#text, messages: project(livePath(log, log.leaf(lane)), { model: this.#model.id }) }
    await callHooks(this.#hooked(), 'beforeRunEnd', input, (answer, before) => {
      if (answer.type === 'said') followUp = cleaner.user(asUserMessage(answer.output.followUp))
      return before
    })
    return followUp
  }

  /** Puts waiting messages in. */
  async #deliver(delivery: Exclude<Delivery, 'next_run'>): Promise<undefined> {
    const mode = this.#environment.queue?.[delivery === 'steer' ? 'steer' : 'followUp'] ?? 'all'
    const messages = mode === 'all' ? this.#queue.take(delivery) : this.#queue.takeOne(delivery)
    if (messages.length > 0) this.#overflowed = false
    await this.operation.append(messages.map((message) => deliveredEntry(this.operation.lane, message)))
  }

  async #finish(end: End): Promise<RunResult> {
    const { operation } = this
    operation.close()
    const { outcome, reason } = end
    // What was rejected is not said: the lane goes on from where it was, and the messages that came along are given back.
    const rejected = outcome === 'rejected'
    const back = rejected ? [leafRecord(operation.lane, this.#source)] : []
    const left = await operation.finish(end, this.#queue.take('steer', 'follow_up'), back)
    const returned = [...(rejected ? this.#queued.map(({ message }) => message) : []), ...left]
    if (rejected) operation.emit({ type: 'navigated', leafId: this.#source })
    const text = this.#text
    operation.emit({ type: 'run_finished', outcome, ...(reason !== undefined && { reason }), text })
    return { runId: operation.runId, ...end, text, turns: this.#turns, ...this.tally.total(), returned }
  }

  #emitStarted(start: Start): void {
    const parent = this.#parent
    this.operation.emit({
      type: 'run_started',
      ...(start.type === 'prompt'
        ? { prompt: start.message }
        : start.continues === null
          ? {}
          : { continues: start.continues }),
      ...(parent !== undefined && {
        parent: { lane: parent.lane, runId: parent.runId, toolCallId: parent.toolCallId },
      }),
    })
  }
}

async function transformed(
  run: Running & Asking,
  messages: ReturnType<typeof project>,
): Promise<ReturnType<typeof project>> {
  let now = messages
  await callHooks(run, 'transformContext', { messages }, (answer, before) => {
    if (answer.type !== 'said') return before
    now = paired(
      answer.output.messages.map((message) => run.environment.cleaner.message(message)),
      run.model.id,
    )
    return { messages: now }
  })
  return now
}

const aborted: End = { outcome: 'aborted', reason: 'abort_requested' }
