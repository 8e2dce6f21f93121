import type { Message, Model, UserMessage } from '@reve/providers/model'
import { type EntryLine, type SessionLog, SessionLogError } from '@reve/session-log'
import { carriedAttempts, diedSummarising } from './attempts.ts'
import { type Toolbox, toolboxOf } from './calls.ts'
import { createCleaner } from './clean.ts'
import { planCompaction } from './compaction.ts'
import { createEmitter } from './emitter.ts'
import { type Environment, Writer } from './environment.ts'
import { HarnessError } from './errors.ts'
import type { HarnessEvent, Listener } from './events.ts'
import type {
  Harness,
  LaneOption,
  LaneSnapshot,
  LaneStatus,
  ObserveOptions,
  PromptOptions,
  RunOptions,
  Snapshot,
  Stoppable,
} from './harness.ts'
import { createLedger, type Ledger, type LedgerReport } from './ledger.ts'
import { applyEvent, type Live, noLive, without } from './live.ts'
import { type CompactionResult, ManualCompaction } from './manual-compaction.ts'
import { Operation } from './operation.ts'
import { type LastRun, scanOperations } from './operations.ts'
import { createObservation, type Observed } from './observe.ts'
import { effectsOf, type HarnessOptions, limitsOf } from './options.ts'
import { leafWaits, livePath, project } from './project.ts'
import { allPending, cancelledRecord, LaneQueue, queuedRecord } from './queue.ts'
import type { Delivery } from './records.ts'
import { corruptSession, recoverLog, type RecoveryReport } from './recover.ts'
import { type Parent, type Preparation, Run, type RunResult, type Start } from './run.ts'
import type { SubagentOptions, ToolContext } from './tool.ts'
import type { ServedCall } from './tools.ts'
import { readUserMessage } from './user-message.ts'

type Lane = {
  readonly queue: LaneQueue
  /** What goes on, and how to wait for its end. */
  live?: { readonly operation: Operation; readonly state: 'running' | 'compacting'; readonly ended: Promise<unknown> }
  /** An operation without a process: a dead one's, or one that this process had to leave. */
  dead?: string
  lastRun?: LastRun
}

/**
 * Whose a log is. Two harnesses that write to one log would each know half of it, and what they leave no recovery could
 * read; the newest has it, unless another is at work.
 */
const owners = new WeakMap<SessionLog, LaneHarness>()

/** See {@link Harness}. */
export class LaneHarness implements Harness {
  readonly #options: HarnessOptions
  readonly #environment: Environment
  /** Filled from the log at the first question. */
  #lanes: Map<string, Lane> | undefined
  #ledger: Ledger | undefined
  #recovering: { readonly report: Promise<RecoveryReport>; readonly abort: (lane?: string) => void } | undefined
  #closed: Promise<void> | undefined
  readonly #over = new AbortController()
  #live: Live = noLive
  /** The last entry that events have told of. */
  #toldSeq: number

  constructor(options: HarnessOptions) {
    this.#options = options
    const { log, thinking, compaction, queue, budget, hooks = [] } = options
    if (owners.get(log)?.isAtWork === true) {
      throw new HarnessError('log_in_use', `${log.file}: another harness of this process is at work on this log`, {
        hint: 'close it first',
      })
    }
    owners.set(log, this)
    const cleaner = createCleaner(options.redact)
    const emitter = createEmitter((text) => cleaner.text(text))
    this.#toldSeq = log.lastSeq
    emitter.subscribe((event) => this.#follow(event))
    this.#environment = {
      log,
      effects: effectsOf(options),
      limits: limitsOf(options),
      cleaner,
      redacts: options.redact !== undefined,
      emitter,
      writer: new Writer(log, emitter, {
        usage: (line) => this.#ledger?.add(line),
        fault: (message) => {
          this.#recovering?.abort()
          for (const { live } of this.#lanes?.values() ?? []) live?.operation.drop()
          emitter.emit('', '', { type: 'log_faulted', message: cleaner.text(message) })
        },
      }),
      hooks: typeof hooks === 'function' ? hooks : () => hooks,
      ledger: () => (this.#ledger ??= createLedger(log)),
      ...(thinking !== undefined && { thinking }),
      ...(compaction !== undefined && { compaction }),
      ...(queue !== undefined && { queue }),
      ...(budget !== undefined && { budget }),
    }
  }

  /** Whether an operation or a recovery goes on. */
  get isAtWork(): boolean {
    return this.#recovering !== undefined || [...(this.#lanes?.values() ?? [])].some(({ live }) => live !== undefined)
  }

  recover(): Promise<RecoveryReport> {
    if (this.#recovering !== undefined) return this.#recovering.report
    const all = new AbortController()
    const lanes = new Map<string, AbortController>()
    const of = (lane: string): AbortController => {
      const controller = lanes.get(lane) ?? new AbortController()
      lanes.set(lane, controller)
      return controller
    }
    const signalOf = (lane: string): AbortSignal => AbortSignal.any([all.signal, of(lane).signal])
    const report = this.#recover(signalOf).finally(() => (this.#recovering = undefined))
    this.#recovering = { report, abort: (lane) => (lane === undefined ? all : of(lane)).abort() }
    return report
  }

  async #recover(signalOf: (lane: string) => AbortSignal): Promise<RecoveryReport> {
    this.#assertOpen()
    try {
      return await this.#recoverLog(signalOf)
    } catch (error) {
      // What it was replaying ended with no event.
      for (const lane of this.#live.keys()) {
        if (this.#lanes?.get(lane)?.live === undefined) this.#live = without(this.#live, lane)
      }
      throw error
    }
  }

  #recoverLog(signalOf: (lane: string) => AbortSignal): Promise<RecoveryReport> {
    return recoverLog(this.#environment, {
      model: this.#model(),
      tools: this.#toolbox(),
      signalOf,
      isLive: (lane) => this.#lanes?.get(lane)?.live !== undefined,
      subagent: (lane, runId) => (call) => this.#subagent({ lane, runId, toolCallId: call.id, depth: 1 }, call),
      onClosed: (name) => {
        const lane = this.#lane(name)
        delete lane.dead
        // No run is there to take a steer or a follow-up: recovery has given them back.
        lane.queue.take('steer', 'follow_up')
        for (const { entryId } of lane.queue.waiting) if (this.#options.log.entry(entryId)) lane.queue.drop(entryId)
      },
    })
  }

  async prompt(message: string | UserMessage, options: PromptOptions = {}): Promise<RunResult> {
    const { from } = options
    const start: Start = { type: 'prompt', message: this.#userMessage(message), ...(from !== undefined && { from }) }
    return this.#start(start, options)
  }

  async continue(options: RunOptions = {}): Promise<RunResult> {
    const name = options.lane ?? 'main'
    const lane = this.#freeLane(name)
    const { log } = this.#options
    const waits = lane.queue.waiting.length > 0 || leafWaits(log, log.leaf(name), this.#model().id)
    if (!waits) {
      throw new HarnessError('nothing_to_continue', `the conversation of lane "${name}" does not wait for the model`, {
        hint: 'send a prompt',
      })
    }
    const { runId, parent } = lane.lastRun ?? {}
    if (parent !== undefined && options.system === undefined && options.tools === undefined) {
      throw new HarnessError(
        'nothing_to_continue',
        `lane "${name}" is that of a sub-agent, whose system prompt and tools are its caller's to give`,
        { hint: 'continue the caller, or give system and tools' },
      )
    }
    const { attempts } = this.#environment.limits.retries
    return this.#start(
      {
        type: 'continue',
        continues: runId ?? null,
        attemptsMade: runId === undefined ? 0 : carriedAttempts(log, name, runId),
        withoutSummary: runId !== undefined && diedSummarising(log, name, runId) >= attempts,
      },
      options,
    )
  }

  async #start(start: Start, options: RunOptions, parent?: Parent): Promise<RunResult> {
    const { lane: name = 'main', signal } = options
    signal?.throwIfAborted()
    const lane = this.#freeLane(name, parent)
    const model = options.model ?? this.#model()
    // A conversation that cannot be read is found before anything is written.
    project(this.#pathFrom(name, start.from), { model: model.id })
    // What is wrong with tools that are given as they are is found before anything is written, too.
    const given = options.tools ?? (typeof this.#options.tools === 'function' ? undefined : this.#options.tools)
    const tools = given === undefined ? undefined : toolboxOf(given)
    const run: Run = new Run({
      environment: this.#environment,
      lane: name,
      model,
      maxTurns: options.maxTurns ?? this.#environment.limits.maxTurns,
      queue: lane.queue,
      ...(parent !== undefined && { parent }),
      subagent: ({ operation: { runId }, depth, tally }, call) =>
        this.#subagent({ lane: name, runId, toolCallId: call.id, depth, tally }, call),
      onEnd: () => {
        delete lane.live
        lane.lastRun = lastRunOf(run.operation.runId, parent)
      },
    })
    const prepare: Preparation = {
      system: async () => options.system ?? this.#system(),
      tools: () => tools ?? this.#toolbox(),
    }
    return this.#supervise(name, run.operation, 'running', signal, () => run.execute(start, prepare))
  }

  /** Lets an operation have its lane from this moment to its end, and keeps account of how it went. */
  async #supervise<T>(
    name: string,
    operation: Operation,
    state: 'running' | 'compacting',
    signal: AbortSignal | undefined,
    execute: () => Promise<T>,
  ): Promise<T> {
    const lane = this.#lane(name)
    const stop = (): void => void operation.abort().catch(() => operation.drop())
    signal?.addEventListener('abort', stop)
    const result = execute()
    lane.live = { operation, state, ended: result }
    try {
      return await result
    } catch (error) {
      operation.drop()
      if (lane.live?.operation === operation) delete lane.live
      this.#live = without(this.#live, name)
      if (!operation.begun) throw refused(error)
      lane.dead = operation.runId
      if (state === 'running') lane.lastRun = { runId: operation.runId }
      throw error
    } finally {
      signal?.removeEventListener('abort', stop)
    }
  }

  #subagent(parent: Parent, { resultEntryId, signal }: ServedCall): ToolContext['subagent'] {
    return async (message: string | UserMessage, options: SubagentOptions = {}) => {
      const { subagentDepth } = this.#environment.limits
      if (parent.depth > subagentDepth) {
        throw new HarnessError('too_deep', `sub-agents may call sub-agents ${subagentDepth} deep, not deeper`)
      }
      const { from, lane = `sub-${resultEntryId}`, ...overrides } = options
      const start: Start = { type: 'prompt', message: this.#userMessage(message), ...(from !== undefined && { from }) }
      return this.#start(start, { ...overrides, lane, signal }, { ...parent, depth: parent.depth + 1 })
    }
  }

  async compact(options: LaneOption & Stoppable & { readonly instructions?: string } = {}): Promise<CompactionResult> {
    const { lane: name = 'main', signal, instructions } = options
    signal?.throwIfAborted()
    const lane = this.#freeLane(name)
    const model = this.#model()
    project(this.#path(name), { model: model.id })
    if (planCompaction({ environment: this.#environment, lane: name, model }, 'manual').type === 'nothing') {
      throw new HarnessError('nothing_to_compact', `lane "${name}": there is not enough history to compact`)
    }
    const compaction = new ManualCompaction({
      environment: this.#environment,
      lane: name,
      model,
      tools: this.#toolbox(),
      queue: lane.queue,
      onEnd: () => delete lane.live,
    })
    return this.#supervise(name, compaction.operation, 'compacting', signal, () =>
      compaction.execute(instructions, () => this.#system()),
    )
  }

  async navigate(entryId: string | null, { lane: name = 'main' }: LaneOption = {}): Promise<void> {
    const lane = this.#freeLane(name)
    project(this.#pathFrom(name, entryId), { model: this.#model().id })
    const operation = new Operation({
      environment: this.#environment,
      lane: name,
      queue: lane.queue,
      onEnd: () => delete lane.live,
    })
    await this.#supervise(name, operation, 'running', undefined, () => operation.navigate(entryId))
  }

  steer(message: string | UserMessage, options: LaneOption = {}): Promise<{ readonly entryId: string }> {
    return this.#accept('steer', message, options)
  }

  followUp(message: string | UserMessage, options: LaneOption = {}): Promise<{ readonly entryId: string }> {
    return this.#accept('follow_up', message, options)
  }

  nextRun(message: string | UserMessage, options: LaneOption = {}): Promise<{ readonly entryId: string }> {
    return this.#accept('next_run', message, options)
  }

  async #accept(
    delivery: Delivery,
    text: string | UserMessage,
    { lane: name = 'main' }: LaneOption,
  ): Promise<{ readonly entryId: string }> {
    const message = this.#userMessage(text)
    this.#assertOpen()
    const lane = this.#lane(name)
    const operation = lane.live?.operation
    if (delivery !== 'next_run' && operation?.takesMessages !== true) {
      const why = operation === undefined ? 'has no run' : 'ends its run'
      throw new HarnessError('lane_idle', `lane "${name}" ${why}`, { hint: 'send it as a prompt' })
    }
    const queued = { entryId: this.#environment.effects.newId('e_'), delivery, message }
    const owner = { lane: name, runId: operation?.runId ?? '' }
    // Into the file's order and into the queue in one breath: the record stands before whatever delivers it.
    const durable = this.#environment.writer.append(owner, [queuedRecord(name, queued)], 'fsync', () =>
      this.#environment.emitter.emit(name, owner.runId, { type: 'queued', delivery, entryId: queued.entryId }),
    )
    lane.queue.add(queued)
    try {
      await durable
    } catch (error) {
      lane.queue.drop(queued.entryId)
      throw refused(error)
    }
    return { entryId: queued.entryId }
  }

  async withdraw(entryId: string, { lane: name = 'main' }: LaneOption = {}): Promise<UserMessage | undefined> {
    this.#assertOpen()
    const lane = this.#lane(name)
    const queued = lane.queue.waiting.find((message) => message.entryId === entryId)
    if (queued === undefined) return undefined
    // Out of the queue in the same breath: it is delivered or given back, never both.
    lane.queue.drop(entryId)
    const owner = { lane: name, runId: lane.live?.operation.runId ?? '' }
    await this.#environment.writer.append(owner, [cancelledRecord(name, queued)], 'fsync')
    return queued.message
  }

  async abort({ lane }: LaneOption = {}): Promise<{ readonly returned: readonly UserMessage[] }> {
    const operation = this.#lanes?.get(lane ?? 'main')?.live?.operation
    if (operation === undefined) {
      this.#recovering?.abort(lane)
      return { returned: [] }
    }
    return { returned: await operation.abort() }
  }

  subscribe(listener: Listener): () => void {
    return this.#environment.emitter.subscribe(listener)
  }

  observe({ capacity, signal }: ObserveOptions = {}): AsyncGenerator<Observed<Snapshot>, void, void> {
    return createObservation({
      subscribe: (listener) => this.subscribe(listener),
      snapshot: () => this.#snapshot(),
      closed: this.#over.signal,
      ...(capacity !== undefined && { capacity }),
      ...(signal !== undefined && { signal }),
    })
  }

  #follow(event: HarnessEvent): void {
    this.#live = applyEvent(this.#live, event)
    const entryId = event.type === 'message' || event.type === 'compaction_finished' ? event.entryId : undefined
    const seq = entryId === undefined ? undefined : this.#options.log.entry(entryId)?.seq
    if (seq !== undefined) this.#toldSeq = Math.max(this.#toldSeq, seq)
  }

  #snapshot(): Snapshot {
    const { log } = this.#options
    const names = new Set([...log.lanes(), ...(this.#lanes ?? this.#readLanes()).keys(), ...this.#live.keys()])
    return {
      lanes: [...names].map((lane): LaneSnapshot => {
        const live = this.#live.get(lane)
        // What is in the log and has not been told of comes as an event after the snapshot.
        const path = this.#path(lane).filter(({ seq }) => seq <= this.#toldSeq)
        return { lane, status: this.status(lane), path, ...(live !== undefined && { live }) }
      }),
    }
  }

  status(name = 'main'): LaneStatus {
    this.#lanes ??= this.#readLanes()
    const { queue, live, dead } = this.#lanes.get(name) ?? noLane
    const waiting = queue.waiting.length
    if (live !== undefined) {
      const { runId, aborting } = live.operation
      return { state: live.state, runId, aborting, waiting }
    }
    return dead === undefined ? { state: 'idle', waiting } : { state: 'needs_recovery', runId: dead, waiting }
  }

  messages(lane = 'main'): readonly Message[] {
    const { log } = this.#options
    return project(livePath(log, log.leaf(lane)), { model: this.#model().id })
  }

  spending(): LedgerReport {
    return this.#environment.ledger().report()
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    this.#recovering?.abort()
    const operations = [...(this.#lanes?.values() ?? [])].flatMap(({ live }) => live ?? [])
    await Promise.allSettled([
      ...operations.map(({ operation }) => operation.abort()),
      ...operations.map(({ ended }) => ended),
      this.#recovering?.report,
    ])
    this.#over.abort()
  }

  #assertOpen(): void {
    if (this.#closed !== undefined) throw new HarnessError('closed', 'the harness is closed')
    if (owners.get(this.#options.log) !== this)
      throw new HarnessError('closed', 'another harness was made on this log since')
    this.#environment.writer.assertSound()
  }

  /** The lane, when an operation may begin on it now. A tool that recovery runs again may use the lanes that are closed by then. */
  #freeLane(name: string, parent?: Parent): Lane {
    this.#assertOpen()
    const lane = this.#lane(name)
    if (lane.live !== undefined) {
      const what = lane.live.state === 'running' ? 'has a run' : 'is being compacted'
      throw new HarnessError('lane_busy', `lane "${name}" ${what} (${lane.live.operation.runId})`, {
        hint: 'wait for it, steer it, or abort it',
      })
    }
    if (lane.dead !== undefined || (this.#recovering !== undefined && parent === undefined)) {
      const what = lane.dead === undefined ? 'the session is being recovered' : `run ${lane.dead} was left open`
      throw new HarnessError('needs_recovery', `lane "${name}": ${what}`, { hint: 'call recover() and wait for it' })
    }
    return lane
  }

  #lane(name: string): Lane {
    this.#lanes ??= this.#readLanes()
    const known = this.#lanes.get(name)
    if (known !== undefined) return known
    const lane: Lane = { queue: new LaneQueue([]) }
    this.#lanes.set(name, lane)
    return lane
  }

  #readLanes(): Map<string, Lane> {
    const { log } = this.#options
    const operations = scanOperations(log)
    if (operations.type === 'corrupt') throw corruptSession(operations.corruption)
    const pending = allPending(log)
    return new Map(
      [...new Set([...operations.open.keys(), ...operations.lastRun.keys(), ...pending.keys()])].map(
        (name): readonly [string, Lane] => {
          const lane: Lane = { queue: new LaneQueue(pending.get(name) ?? []) }
          const lastRun = operations.lastRun.get(name)
          const dead = operations.open.get(name)?.runId
          return [name, { ...lane, ...(lastRun !== undefined && { lastRun }), ...(dead !== undefined && { dead }) }]
        },
      ),
    )
  }

  #path(lane: string): readonly EntryLine[] {
    return this.#options.log.path(this.#options.log.leaf(lane))
  }

  #pathFrom(lane: string, from: string | null | undefined): readonly EntryLine[] {
    if (from === undefined) return this.#path(lane)
    if (from !== null && this.#options.log.entry(from) === undefined) {
      throw new HarnessError('unknown_entry', `there is no entry ${JSON.stringify(from)} to go on from`)
    }
    return this.#options.log.path(from)
  }

  #model(): Model {
    return typeof this.#options.model === 'function' ? this.#options.model() : this.#options.model
  }

  #toolbox(): Toolbox {
    return toolboxOf(typeof this.#options.tools === 'function' ? this.#options.tools() : this.#options.tools)
  }

  async #system(): Promise<string> {
    const { system } = this.#options
    return typeof system === 'function' ? system() : system
  }

  #userMessage(message: string | UserMessage): UserMessage {
    return this.#environment.cleaner.user(readUserMessage(message))
  }
}

/** The parts of a caller that stand in records. */
function lastRunOf(runId: string, parent: Parent | undefined): LastRun {
  if (parent === undefined) return { runId }
  return { runId, parent: { lane: parent.lane, runId: parent.runId, toolCallId: parent.toolCallId } }
}

/** What nobody has used yet. */
const noLane: Lane = { queue: new LaneQueue([]) }

/** The log refused what the caller said (a name for a lane that is none): nothing was written. */
function refused(error: unknown): unknown {
  return error instanceof SessionLogError ? new HarnessError('invalid_message', error.message, { cause: error }) : error
}
