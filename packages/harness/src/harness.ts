import type { Message, Model, UserMessage } from '@reve/providers/model'
import { SessionLogError } from '@reve/session-log'
import * as v from 'valibot'
import { toolboxOf } from './calls.ts'
import { createCleaner } from './clean.ts'
import { createEmitter } from './emitter.ts'
import { type Environment, Writer } from './environment.ts'
import { HarnessError } from './errors.ts'
import type { Listener } from './events.ts'
import { userMessageSchema } from './messages.ts'
import { scanOperations } from './operations.ts'
import { effectsOf, type HarnessOptions, limitsOf } from './options.ts'
import { project, waitsForModel } from './project.ts'
import { allPending, LaneQueue, queuedRecord } from './queue.ts'
import type { Delivery } from './records.ts'
import { corruptSession, recoverLog, type RecoveryReport } from './recover.ts'
import { Run, type RunResult, type Start } from './run.ts'

/** Which lane; default `main`. */
export type LaneOption = { readonly lane?: string }
/** Options of a run. An abort of `signal` is an `abort()` of the lane; one that has happened already starts nothing. */
export type RunOptions = LaneOption & { readonly signal?: AbortSignal }

/** What a lane does at the moment. `waiting`: messages that were accepted and not yet delivered. */
export type LaneStatus = { readonly waiting: number } & (
  | { readonly state: 'idle' }
  | { readonly state: 'running'; readonly runId: string; readonly aborting: boolean }
  | { readonly state: 'needs_recovery'; readonly runId: string }
)

/** Runs on one session log. Lanes are independent of each other; a lane has one run at a time. */
export interface Harness {
  /**
   * Closes every operation that a dead process left: a pure reduction of the log, then its appends. A second call
   * appends nothing. Until then lanes with an open operation take no prompt. Replays of tools can be aborted (`abort`, `close`).
   *
   * @throws HarnessError `corrupt_session` naming the line, before anything is changed.
   */
  recover(): Promise<RecoveryReport>
  /**
   * One run: the prompt, then answers and calls until the model is done. Resolves however the run ends.
   *
   * @throws HarnessError `lane_busy`, `needs_recovery`, `invalid_message`, `invalid_tools`, `corrupt_session`, `closed`:
   * nothing was written; `log_faulted`: the session has to be reopened and recovered.
   */
  prompt(message: string | UserMessage, options?: RunOptions): Promise<RunResult>
  /** A new run on the conversation as it stands, with no new prompt: after a recovery, an abort or a failure. Throws also `nothing_to_continue`. */
  continue(options?: RunOptions): Promise<RunResult>
  /** Says something to a running run: delivered between two turns. Durable when this resolves. Throws `lane_idle`. */
  steer(message: string | UserMessage, options?: LaneOption): Promise<{ readonly entryId: string }>
  /** As `steer`, delivered when the run would otherwise end. */
  followUp(message: string | UserMessage, options?: LaneOption): Promise<{ readonly entryId: string }>
  /** Waits, also across restarts, for the lane's next run and goes in front of its prompt. */
  nextRun(message: string | UserMessage, options?: LaneOption): Promise<{ readonly entryId: string }>
  /**
   * Records the wish, then signals model and tools; resolves with that, the run's own promise tells of its end. Undelivered
   * steers and follow-ups are cancelled and given back. Idempotent; on an idle lane it does nothing.
   */
  abort(options?: LaneOption): Promise<{ readonly returned: readonly UserMessage[] }>
  /** Calls `listener` with every event from now on, in order; returns how to stop that. */
  subscribe(listener: Listener): () => void
  /** What a lane does. Throws `corrupt_session`, as all that reads the log. */
  status(lane?: string): LaneStatus
  /** The conversation of a lane, as the model would get it. */
  messages(lane?: string): readonly Message[]
  /** Aborts all runs and waits until their promised results are written. The log is the caller's. */
  close(): Promise<void>
}

/** Makes a harness on an open log. Reads nothing and writes nothing yet: call `recover()` first. */
export function createHarness(options: HarnessOptions): Harness {
  return new LaneHarness(options)
}

/** So that a message, however its characters are escaped, fits into a line of the log. */
const maxMessageChars = 10_000_000

type Lane = {
  readonly queue: LaneQueue
  run?: { readonly run: Run; readonly ended: Promise<unknown> }
  /** An operation without a process: a dead one's, or one that this process had to leave. */
  dead?: string
  lastRun?: string
}

class LaneHarness implements Harness {
  readonly #options: HarnessOptions
  readonly #environment: Environment
  /** Filled from the log at the first question. */
  #lanes: Map<string, Lane> | undefined
  #recovering: { readonly report: Promise<RecoveryReport>; readonly controller: AbortController } | undefined
  #closed: Promise<void> | undefined

  constructor(options: HarnessOptions) {
    this.#options = options
    const cleaner = createCleaner(options.redact)
    const emitter = createEmitter((text) => cleaner.text(text))
    this.#environment = {
      log: options.log,
      effects: effectsOf(options),
      limits: limitsOf(options),
      cleaner,
      redacts: options.redact !== undefined,
      emitter,
      writer: new Writer(options.log, emitter),
      ...(options.thinking !== undefined && { thinking: options.thinking }),
    }
  }

  recover(): Promise<RecoveryReport> {
    if (this.#recovering !== undefined) return this.#recovering.report
    const controller = new AbortController()
    const report = this.#recover(controller.signal).finally(() => (this.#recovering = undefined))
    this.#recovering = { report, controller }
    return report
  }

  async #recover(signal: AbortSignal): Promise<RecoveryReport> {
    this.#assertOpen()
    const report = await recoverLog(this.#environment, {
      model: this.#model(),
      tools: this.#toolbox(),
      signal,
      isLive: (lane) => this.#lanes?.get(lane)?.run !== undefined,
    })
    for (const { lane: name } of report.lanes) {
      const lane = this.#lane(name)
      delete lane.dead
      // No run is there to take a steer or a follow-up: recovery has given them back.
      lane.queue.take('steer', 'follow_up')
      for (const { entryId } of lane.queue.waiting) if (this.#options.log.entry(entryId)) lane.queue.drop(entryId)
    }
    return report
  }

  async prompt(message: string | UserMessage, options: RunOptions = {}): Promise<RunResult> {
    const start: Start = { type: 'prompt', message: this.#userMessage(message) }
    return this.#start(start, options)
  }

  async continue(options: RunOptions = {}): Promise<RunResult> {
    const name = options.lane ?? 'main'
    const lane = this.#freeLane(name)
    const waits = lane.queue.waiting.length > 0 || waitsForModel(this.#path(name), { model: this.#model().id })
    if (lane.lastRun === undefined || !waits) {
      throw new HarnessError('nothing_to_continue', `the conversation of lane "${name}" does not wait for the model`, {
        hint: 'send a prompt',
      })
    }
    return this.#start({ type: 'continue', continues: lane.lastRun }, options)
  }

  async #start(start: Start, { lane: name = 'main', signal }: RunOptions): Promise<RunResult> {
    signal?.throwIfAborted()
    const lane = this.#freeLane(name)
    const model = this.#model()
    // A conversation that cannot be read is found before anything is written.
    project(this.#path(name), { model: model.id })
    const run = new Run({
      environment: this.#environment,
      lane: name,
      model,
      tools: this.#toolbox(),
      queue: lane.queue,
      onEnd: () => {
        delete lane.run
        lane.lastRun = run.runId
      },
    })
    const stop = (): void => void run.abort().catch(() => run.drop())
    signal?.addEventListener('abort', stop)
    const result = run.execute(start, () => this.#system())
    lane.run = { run, ended: result }
    try {
      return await result
    } catch (error) {
      run.drop()
      if (lane.run?.run === run) delete lane.run
      if (!run.begun) throw refused(error)
      lane.dead = run.runId
      lane.lastRun = run.runId
      throw error
    } finally {
      signal?.removeEventListener('abort', stop)
    }
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
    const run = lane.run?.run
    if (delivery !== 'next_run' && run?.takesMessages !== true) {
      const why = run === undefined ? 'has no run' : 'ends its run'
      throw new HarnessError('lane_idle', `lane "${name}" ${why}`, { hint: 'send it as a prompt' })
    }
    const queued = { entryId: this.#environment.effects.newId('e_'), delivery, message }
    const owner = { lane: name, runId: run?.runId ?? '' }
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

  async abort({ lane = 'main' }: LaneOption = {}): Promise<{ readonly returned: readonly UserMessage[] }> {
    const run = this.#lanes?.get(lane)?.run?.run
    if (run === undefined) {
      this.#recovering?.controller.abort()
      return { returned: [] }
    }
    return { returned: await run.abort() }
  }

  subscribe(listener: Listener): () => void {
    return this.#environment.emitter.subscribe(listener)
  }

  status(name = 'main'): LaneStatus {
    const { queue, run, dead } = this.#lane(name)
    const waiting = queue.waiting.length
    if (run !== undefined) return { state: 'running', runId: run.run.runId, aborting: run.run.aborting, waiting }
    return dead === undefined ? { state: 'idle', waiting } : { state: 'needs_recovery', runId: dead, waiting }
  }

  messages(lane = 'main'): readonly Message[] {
    return project(this.#path(lane), { model: this.#model().id })
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    this.#recovering?.controller.abort()
    const runs = [...(this.#lanes?.values() ?? [])].flatMap(({ run }) => run ?? [])
    await Promise.allSettled([
      ...runs.map(({ run }) => run.abort()),
      ...runs.map(({ ended }) => ended),
      this.#recovering?.report,
    ])
  }

  #assertOpen(): void {
    if (this.#closed !== undefined) throw new HarnessError('closed', 'the harness is closed')
    this.#environment.writer.assertSound()
  }

  /** The lane, when a run may begin on it now. */
  #freeLane(name: string): Lane {
    this.#assertOpen()
    const lane = this.#lane(name)
    if (lane.run !== undefined) {
      throw new HarnessError('lane_busy', `lane "${name}" has a run (${lane.run.run.runId})`, {
        hint: 'wait for it, steer it, or abort it',
      })
    }
    if (lane.dead !== undefined || this.#recovering !== undefined) {
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
      [...new Set([...operations.lastRun.keys(), ...pending.keys()])].map((name): readonly [string, Lane] => {
        const lane: Lane = { queue: new LaneQueue(pending.get(name) ?? []) }
        const lastRun = operations.lastRun.get(name)
        const dead = operations.open.get(name)?.runId
        return [name, { ...lane, ...(lastRun !== undefined && { lastRun }), ...(dead !== undefined && { dead }) }]
      }),
    )
  }

  #path(lane: string) {
    return this.#options.log.path(this.#options.log.leaf(lane))
  }

  #model(): Model {
    return typeof this.#options.model === 'function' ? this.#options.model() : this.#options.model
  }

  #toolbox() {
    return toolboxOf(typeof this.#options.tools === 'function' ? this.#options.tools() : this.#options.tools)
  }

  async #system(): Promise<string> {
    const { system } = this.#options
    return typeof system === 'function' ? system() : system
  }

  #userMessage(message: string | UserMessage): UserMessage {
    const whole = typeof message === 'string' ? { role: 'user', content: [{ type: 'text', text: message }] } : message
    const read = v.safeParse(userMessageSchema, whole, { abortEarly: true })
    if (!read.success) {
      const issue = read.issues[0]
      throw new HarnessError(
        'invalid_message',
        `not a user message: ${v.getDotPath(issue) ?? 'message'}: ${issue.message}`,
      )
    }
    if (!read.output.content.some((part) => part.type === 'image' || part.text.trim() !== '')) {
      throw new HarnessError('invalid_message', 'the message is empty')
    }
    const size = read.output.content.reduce(
      (sum, part) => sum + (part.type === 'text' ? part.text : part.data).length,
      0,
    )
    if (size > maxMessageChars) {
      throw new HarnessError(
        'invalid_message',
        `the message has ${size} characters; at most ${maxMessageChars} are taken`,
      )
    }
    return this.#environment.cleaner.user(read.output)
  }
}

/** The log refused what the caller said (a name for a lane that is none): nothing was written. */
function refused(error: unknown): unknown {
  return error instanceof SessionLogError ? new HarnessError('invalid_message', error.message, { cause: error }) : error
}
