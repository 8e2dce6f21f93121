import { messageOf } from '@reve/base'
import { Cron } from 'croner'

/** When a task is due. */
export type Schedule =
  /** Every `ms` milliseconds from the moment on at which the task was first seen. */
  | { readonly type: 'every'; readonly ms: number }
  /** Five fields (minute, hour, day of month, month, day of week) as the clocks on the wall of `timezone` show them. */
  | { readonly type: 'cron'; readonly expression: string; readonly timezone: string }

const units = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const longestMs = 366 * units.d

/** `10m`, `4h`, `1d` in milliseconds: whole minutes, hours or days, a year at most. Undefined for any other text. */
export function parseEvery(text: string): number | undefined {
  const [, count, unit] = /^([1-9]\d{0,5})([mhd])$/.exec(text) ?? []
  if (count === undefined || (unit !== 'm' && unit !== 'h' && unit !== 'd')) return undefined
  const ms = Number(count) * units[unit]
  return ms <= longestMs ? ms : undefined
}

/** What is wrong with a cron expression; undefined when it is good and there is a moment that it names. */
export function cronProblem(expression: string): string | undefined {
  // No seconds, and no nicknames that are in no manual page.
  if (expression.trim().split(/\s+/).length !== 5)
    return 'takes five fields: minute, hour, day of month, month, day of week'
  try {
    return cron(expression, 'UTC').nextRun(new Date(0)) === null ? 'names a moment that never comes' : undefined
  } catch (error) {
    return messageOf(error).replace(/^CronPattern: /, '')
  }
}

/** Whether the system knows the time zone (`Europe/Berlin`, `UTC`). */
export function isTimezone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== ''
  } catch (error) {
    if (error instanceof RangeError) return false
    throw error
  }
}

/**
 * The first moment after `now` at which a schedule is due, in milliseconds since 1970; undefined when none comes any more.
 *
 * Where clocks are put forward, a moment that they leave out is due when they go on; where they are put back, a fixed time of
 * the hour that comes twice is due the first time only, and every minute of `*` each time.
 *
 * @param due a moment at which it was due: `every` keeps its step from there, and does not drift.
 */
export function nextAfter(schedule: Schedule, now: number, due = now): number | undefined {
  switch (schedule.type) {
    case 'every':
      return due > now ? due : due + (Math.floor((now - due) / schedule.ms) + 1) * schedule.ms
    case 'cron':
      return cron(schedule.expression, schedule.timezone).nextRun(new Date(now))?.getTime()
    default:
      return schedule satisfies never
  }
}

const mostCounted = 1000

/** How often a schedule was due after `due` and up to `now`: what one late beat stands for besides itself. At most 1000. */
export function missedSince(schedule: Schedule, due: number, now: number): number {
  if (schedule.type === 'every') return Math.min(mostCounted, Math.max(0, Math.floor((now - due) / schedule.ms)))
  let count = 0
  for (
    let at = nextAfter(schedule, due);
    at !== undefined && at <= now && count < mostCounted;
    at = nextAfter(schedule, at)
  )
    count += 1
  return count
}

/** The same text for the same times. */
export const scheduleKey = (schedule: Schedule): string =>
  schedule.type === 'every' ? `every ${schedule.ms}` : `cron ${schedule.expression} ${schedule.timezone}`

/** Without a function to call it starts no timer: it only tells moments. */
const cron = (expression: string, timezone: string): Cron =>
  new Cron(expression.trim(), { timezone, mode: '5-part', paused: true })
