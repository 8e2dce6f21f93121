import type { HeartbeatTask } from './heartbeat-file.ts'
import { missedSince, nextAfter, scheduleKey } from './schedule.ts'

/** How a beat ended. */
export type BeatOutcome =
  | 'silence'
  | 'message'
  | 'steer'
  /** The run failed, or its answer was none that there is. */
  | 'error'
  | 'timeout'
  /** The process ended, or was killed, in its midst. */
  | 'interrupted'

/** One beat that is over. Moments are milliseconds since 1970. */
export type PastBeat = {
  readonly id: string
  readonly due: number
  readonly startedAt: number
  readonly endedAt: number
  /** Moments between `due` and `startedAt` at which it was due as well, and that it stands for. */
  readonly missed: number
  readonly outcome: BeatOutcome
  /** What was wrong, when something was. */
  readonly detail?: string
}

/** What an answer says to the conversation; `id` is that of its beat. */
export type BeatMessage = { readonly id: string; readonly kind: 'message' | 'steer'; readonly text: string }

/** What is kept of a task between two looks at it. */
export type TaskState = {
  /** Which schedule `next` was made from. */
  readonly schedule: string
  /** What the task said when it was last seen. */
  readonly digest: string
  /** When it is due next; absent when it never will be. */
  readonly next?: number
  /** What the clock said when `next` was made: a clock that shows less was put back. */
  readonly setAt: number
  /** A beat that began and has not ended. */
  readonly attempt?: Omit<PastBeat, 'endedAt' | 'outcome' | 'detail'>
  /** An answer that may not have reached the conversation. */
  readonly undelivered?: BeatMessage
  /** The newest last. */
  readonly past: readonly PastBeat[]
}

/** By the tasks' names. */
export type TaskStates = ReadonlyMap<string, TaskState>

/** A task that is due. */
export type DueBeat = { readonly task: HeartbeatTask; readonly due: number; readonly missed: number }

/** A clock may be set right by so much without counting as put back. */
const CLOCK_SLACK_MS = 60_000
const KEPT_BEATS = 20

/** What tells one version of a task from another. */
const digestOf = ({ schedule, prompt, continues, timeoutMs }: HeartbeatTask): string =>
  JSON.stringify([scheduleKey(schedule), prompt, continues, timeoutMs])

/** The states of the tasks that there are now, and what is new about them since the states were made. */
export type Reconciled = {
  readonly states: TaskStates
  readonly added: readonly string[]
  readonly changed: readonly string[]
  readonly removed: readonly string[]
}

/**
 * Fits states to tasks. A task that is new, or has another schedule than before, is first due one step from now; so is one whose next
 * moment was made by a clock that has been put back since.
 */
export function reconcile(tasks: readonly HeartbeatTask[], states: TaskStates, now: number): Reconciled {
  const added: string[] = []
  const changed: string[] = []
  const fitted = new Map<string, TaskState>()
  for (const task of tasks) {
    const before = states.get(task.name)
    const digest = digestOf(task)
    if (before === undefined) added.push(task.name)
    else if (before.digest !== digest) changed.push(task.name)
    const isSame = before?.schedule === scheduleKey(task.schedule) && before.setAt <= now + CLOCK_SLACK_MS
    if (isSame) fitted.set(task.name, { ...before, digest })
    else fitted.set(task.name, { ...fresh(task, digest, now), ...kept(before) })
  }
  return { states: fitted, added, changed, removed: [...states.keys()].filter((name) => !fitted.has(name)) }
}

function fresh(task: HeartbeatTask, digest: string, now: number): TaskState {
  const { schedule } = task
  const next = schedule.type === 'every' ? now + schedule.ms : nextAfter(schedule, now)
  return { schedule: scheduleKey(schedule), digest, setAt: now, past: [], ...(next !== undefined && { next }) }
}

/** What stays when a schedule begins anew. */
function kept(before: TaskState | undefined): Partial<TaskState> {
  if (before === undefined) return {}
  const { past, attempt, undelivered } = before
  return { past, ...(attempt !== undefined && { attempt }), ...(undelivered !== undefined && { undelivered }) }
}

/**
 * What is due at `now`, the longest due first, and when the next one will be. However often a task was due since it last ran, it is due
 * once.
 */
export function nextDue(
  tasks: readonly HeartbeatTask[],
  states: TaskStates,
  now: number,
): { readonly due: readonly DueBeat[]; readonly wakeAt: number | undefined } {
  const due: DueBeat[] = []
  let wakeAt: number | undefined
  for (const task of tasks) {
    const next = states.get(task.name)?.next
    if (next === undefined) continue
    if (next <= now) due.push({ task, due: next, missed: missedSince(task.schedule, next, now) })
    else wakeAt = Math.min(wakeAt ?? next, next)
  }
  return { due: due.toSorted((a, b) => a.due - b.due), wakeAt }
}

/** The state to keep before a beat begins: whatever becomes of the process, this beat does not come again. */
export function begun(state: TaskState, { task, due, missed }: DueBeat, id: string, now: number): TaskState {
  const next = nextAfter(task.schedule, now, due)
  const { next: _, ...rest } = state
  return { ...rest, setAt: now, attempt: { id, due, startedAt: now, missed }, ...(next !== undefined && { next }) }
}

/** The state after a beat. What it says to the conversation is kept until it has got there. */
export function ended(
  state: TaskState,
  end: { readonly outcome: BeatOutcome; readonly detail?: string; readonly message?: Omit<BeatMessage, 'id'> },
  now: number,
): TaskState {
  const { attempt, ...rest } = state
  if (attempt === undefined) return state
  const { outcome, detail, message } = end
  const beat: PastBeat = { ...attempt, endedAt: now, outcome, ...(detail !== undefined && { detail }) }
  return {
    ...rest,
    past: [...state.past, beat].slice(-KEPT_BEATS),
    ...(message !== undefined && { undelivered: { id: attempt.id, ...message } }),
  }
}

/** The state once its answer has reached the conversation. */
export function delivered(state: TaskState): TaskState {
  const { undelivered: _, ...rest } = state
  return rest
}
