import { mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import {
  type Confined,
  isReveError,
  type Lock,
  LockHeldError,
  messageOf,
  openConfined,
  tryAcquireLock,
} from '@reve/base'
import { parseAnswer } from './answer.ts'
import { type HeartbeatTask, parseHeartbeats } from './heartbeat-file.ts'
import {
  type BeatMessage,
  type BeatOutcome,
  begun,
  delivered,
  type DueBeat,
  ended,
  nextDue,
  type PastBeat,
  reconcile,
  type TaskState,
  type TaskStates,
} from './plan.ts'
import { readStates, writeStates } from './state-file.ts'

/** A beat that begins. */
export type Beat = {
  /** The same for a beat, what it says and what is kept of it. */
  readonly id: string
  readonly task: HeartbeatTask
  /** When it was due, and how many later moments it stands for. */
  readonly due: number
  readonly missed: number
}

/** What goes on with the heartbeats. Texts may come from files and models: sanitise them before a terminal. */
export type HeartbeatEvent =
  /** The tasks were read; `added`, `changed` and `removed` since they were last, also by an earlier process. */
  | {
      readonly type: 'loaded'
      readonly tasks: readonly HeartbeatTask[]
      readonly added: readonly string[]
      readonly changed: readonly string[]
      readonly removed: readonly string[]
    }
  /** Something has to be mended; the tasks that were good last still count. Told once. */
  | { readonly type: 'problem'; readonly message: string }
  /** Another process runs the heartbeats of this agent; they are taken over when it ends. */
  | { readonly type: 'elsewhere'; readonly pid: number | undefined }
  /** The agent is at work: the beat waits for its end. Told once a beat. */
  | { readonly type: 'deferred'; readonly task: string }
  | { readonly type: 'started'; readonly beat: Beat }
  | { readonly type: 'finished'; readonly task: string; readonly beat: PastBeat; readonly message?: BeatMessage }

/** What the heartbeats of an agent need. */
export type HeartbeatOptions = {
  /** The folder that holds `HEARTBEAT.yml`; the guest may be changing it. */
  readonly workspace: string
  /** What is kept across restarts, `.reve/heartbeats.json`; a lock is made beside it. */
  readonly stateFile: string
  /** Runs a beat and gives the whole answer. What it throws is the beat's error; it must end soon after `signal` aborts. */
  readonly run: (beat: Beat, signal: AbortSignal) => Promise<string>
  /** Hands a message on. Called again with the same `id` after a crash, and when it rejected: the second time must do nothing. */
  readonly deliver: (message: BeatMessage, task: string) => Promise<void>
  /** Whether the agent is at something that a beat must not disturb. */
  readonly isBusy: () => boolean
  readonly onEvent?: (event: HeartbeatEvent) => void
  /** A new id. */
  readonly newId: () => string
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Resolves after `ms` milliseconds or at the abort, whichever comes first; does not reject. */
  readonly after: (ms: number, signal: AbortSignal) => Promise<void>
  /** How often file and clock are looked at (default 5000 ms). */
  readonly pollMs?: number
}

/** What is known of a task. */
export type HeartbeatStatus = {
  readonly task: HeartbeatTask
  /** When it is due next; undefined when it never is. */
  readonly next: number | undefined
  /** The newest last. */
  readonly past: readonly PastBeat[]
}

/** The heartbeats of an agent, running. */
export interface Heartbeats extends AsyncDisposable {
  status(): readonly HeartbeatStatus[]
  /** Stops the beat that goes on, if one does, and waits for its end. */
  close(): Promise<void>
}

const FILE = 'HEARTBEAT.yml'
const MOST_BYTES = 1 << 18
const POLL_MS = 5000

/** Starts the heartbeats of an agent; beats come one at a time. Nothing that goes wrong is thrown: it is an event. */
export function startHeartbeats(options: HeartbeatOptions): Heartbeats {
  const runner = new Runner(options)
  const stop = new AbortController()
  const over = runner.go(stop.signal)
  const close = async (): Promise<void> => {
    stop.abort()
    await over
  }
  return { status: () => runner.status(), close, [Symbol.asyncDispose]: close }
}

/** What something that is told is about. */
type Topic = 'file' | 'state' | 'delivery' | 'run' | 'elsewhere'

class Runner {
  readonly #options: HeartbeatOptions
  #tasks: readonly HeartbeatTask[] = []
  #states: TaskStates = new Map()
  /** The file as it was when it was last read, or found missing. */
  #stamp: string | undefined
  readonly #deferred = new Set<string>()
  /** What was told last of each thing, so that it is told once. */
  readonly #told = new Map<Topic, string>()

  constructor(options: HeartbeatOptions) {
    this.#options = options
  }

  status(): readonly HeartbeatStatus[] {
    return this.#tasks.map((task) => {
      const state = this.#states.get(task.name)
      return { task, next: state?.next, past: state?.past ?? [] }
    })
  }

  async go(signal: AbortSignal): Promise<void> {
    const { after, pollMs = POLL_MS, now } = this.#options
    let lock: Lock | undefined
    try {
      while (!signal.aborted) {
        try {
          lock ??= await this.#begin()
          if (lock !== undefined) await this.#tick(signal)
          this.#told.delete('run')
        } catch (error) {
          this.#problem('run', messageOf(error))
        }
        if (signal.aborted) break
        // Never for long: the clock may be set, the file may be written.
        const { wakeAt } = nextDue(this.#tasks, this.#states, now())
        await after(Math.max(1, Math.min(pollMs, (wakeAt ?? Number.POSITIVE_INFINITY) - now())), signal)
      }
    } finally {
      lock?.release()
    }
  }

  /** Takes the lock and reads what an earlier process left. Undefined: another one has it. */
  async #begin(): Promise<Lock | undefined> {
    const { stateFile, now } = this.#options
    let lock: Lock
    await mkdir(dirname(stateFile), { recursive: true, mode: 0o700 })
    try {
      lock = tryAcquireLock(`${stateFile}.lock`)
    } catch (error) {
      if (!(error instanceof LockHeldError)) throw error
      if (this.#isNews('elsewhere', String(error.pid))) this.#emit({ type: 'elsewhere', pid: error.pid })
      return undefined
    }
    try {
      const { states, problem } = await readStates(stateFile)
      if (problem !== undefined) this.#problem('state', problem)
      // A beat that was cut off is over: what it did is done, and it is not done again.
      const detail = 'the process ended before the beat did'
      this.#states = new Map(
        [...states].map(([name, state]) => [name, ended(state, { outcome: 'interrupted', detail }, now())]),
      )
      return lock
    } catch (error) {
      lock.release()
      throw error
    }
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const { now } = this.#options
    await this.#reload()
    await this.#fit()
    for (const name of this.#states.keys()) await this.#deliver(name)
    for (;;) {
      // What a task said last comes first.
      const waits = ({ name }: HeartbeatTask): boolean => this.#states.get(name)?.undelivered !== undefined
      const due = nextDue(this.#tasks, this.#states, now()).due.filter(({ task }) => !waits(task))
      const [first] = due
      if (first === undefined || signal.aborted) return
      if (this.#options.isBusy()) return this.#defer(due)
      await this.#beat(first, signal)
      await this.#reload()
      await this.#fit()
    }
  }

  #defer(due: readonly DueBeat[]): void {
    for (const { task } of due) {
      if (this.#deferred.has(task.name)) continue
      this.#deferred.add(task.name)
      this.#emit({ type: 'deferred', task: task.name })
    }
  }

  async #beat({ task }: DueBeat, signal: AbortSignal): Promise<void> {
    const { now, newId } = this.#options
    const state = this.#states.get(task.name)
    // Looked at again: what was due a moment ago may have been taken out of the file.
    const due = nextDue([task], this.#states, now()).due[0]
    if (state === undefined || due === undefined) return
    const beat: Beat = { id: newId(), ...due }
    // First on the disk, then done. What cannot be kept is not begun.
    await this.#keep(task.name, begun(state, due, beat.id, now()))
    this.#deferred.delete(task.name)
    this.#emit({ type: 'started', beat })
    const end = await this.#answered(beat, signal)
    const over = ended(this.#states.get(task.name) ?? state, end, now())
    // Also when it cannot be kept: the schedule goes on in memory.
    this.#states = new Map([...this.#states, [task.name, over]])
    const past = over.past.at(-1)
    const message = over.undelivered
    if (past !== undefined)
      this.#emit({ type: 'finished', task: task.name, beat: past, ...(message !== undefined && { message }) })
    await writeStates(this.#options.stateFile, this.#states)
    await this.#deliver(task.name)
  }

  async #answered(beat: Beat, stop: AbortSignal): Promise<Parameters<typeof ended>[1]> {
    const timeout = new AbortController()
    const over = new AbortController()
    const { timeoutMs } = beat.task
    void this.#options.after(timeoutMs, AbortSignal.any([stop, over.signal])).then(() => {
      if (!stop.aborted && !over.signal.aborted) timeout.abort()
    })
    try {
      const answer = parseAnswer(await this.#options.run(beat, AbortSignal.any([stop, timeout.signal])))
      if (answer.type === 'silence') return { outcome: 'silence' }
      if (answer.type === 'invalid') return failed(stop, timeout.signal, answer.problem, timeoutMs)
      return { outcome: answer.type, message: { kind: answer.type, text: answer.text } }
    } catch (error) {
      return failed(stop, timeout.signal, messageOf(error), timeoutMs)
    } finally {
      over.abort()
    }
  }

  async #deliver(name: string): Promise<void> {
    const state = this.#states.get(name)
    if (state?.undelivered === undefined) return
    try {
      await this.#options.deliver(state.undelivered, name)
    } catch (error) {
      return this.#problem('delivery', `${name}: what it says could not be handed on: ${messageOf(error)}`)
    }
    this.#told.delete('delivery')
    await this.#keep(name, delivered(state))
  }

  /** Reads the file when it is another than before. A bad one changes nothing but what is said about it. */
  async #reload(): Promise<void> {
    let stamp: string
    try {
      const workspace = await openConfined(this.#options.workspace)
      stamp = await stampOf(workspace)
      if (stamp === this.#stamp) return
      const tasks =
        stamp === MISSING ? [] : parseHeartbeats(await workspace.readText(FILE, { maxBytes: MOST_BYTES }), FILE)
      this.#stamp = stamp
      this.#tasks = tasks
      this.#told.delete('file')
      const { added, changed, removed } = reconcile(tasks, this.#states, this.#options.now())
      this.#emit({ type: 'loaded', tasks, added, changed, removed })
    } catch (error) {
      if (!isReveError(error)) throw error
      this.#problem(
        'file',
        `${error.message}${this.#tasks.length > 0 ? '\nthe tasks that were good before go on' : ''}`,
      )
    }
  }

  async #fit(): Promise<void> {
    // Before a good file was read once, nothing is known to be gone.
    if (this.#stamp === undefined) return
    const { states } = reconcile(this.#tasks, this.#states, this.#options.now())
    if (sameStates(states, this.#states)) return
    await writeStates(this.#options.stateFile, states)
    this.#states = states
  }

  async #keep(name: string, state: TaskState): Promise<void> {
    const states = new Map([...this.#states, [name, state]])
    await writeStates(this.#options.stateFile, states)
    this.#states = states
  }

  #problem(topic: Topic, message: string): void {
    if (this.#isNews(topic, message)) this.#emit({ type: 'problem', message })
  }

  #isNews(topic: Topic, text: string): boolean {
    if (this.#told.get(topic) === text) return false
    this.#told.set(topic, text)
    return true
  }

  #emit(event: HeartbeatEvent): void {
    this.#options.onEvent?.(event)
  }
}

const MISSING = 'missing'

async function stampOf(workspace: Confined): Promise<string> {
  try {
    const { size, modifiedMs, changedMs } = await workspace.stat(FILE)
    return `${size} ${modifiedMs} ${changedMs}`
  } catch (error) {
    if (isReveError(error) && error.code === 'not_found') return MISSING
    throw error
  }
}

function failed(
  stop: AbortSignal,
  timeout: AbortSignal,
  detail: string,
  timeoutMs: number,
): { readonly outcome: BeatOutcome; readonly detail: string } {
  if (stop.aborted) return { outcome: 'interrupted', detail: 'it was stopped' }
  if (timeout.aborted) return { outcome: 'timeout', detail: `it took more than ${timeoutMs / 60_000} min` }
  return { outcome: 'error', detail }
}

const sameStates = (a: TaskStates, b: TaskStates): boolean => JSON.stringify([...a]) === JSON.stringify([...b])
