import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseHeartbeats } from '../../src/heartbeats/heartbeat-file.ts'
import { begun, ended, nextDue, reconcile, type TaskStates } from '../../src/heartbeats/plan.ts'

const minute = 60_000
const hour = 60 * minute
const tasksOf = (text: string) => parseHeartbeats(`tasks: [${text}]`, 'f')
const hourly = tasksOf('{ name: a, every: 1h, prompt: x }')
const fit = (tasks: typeof hourly, states: TaskStates, now: number) => reconcile(tasks, states, now).states
const nextOf = (states: TaskStates) => [...states.values()].map(({ next }) => next)

/** Runs the first that is due, at once. */
function serve(tasks: typeof hourly, states: TaskStates, now: number): TaskStates {
  const [first] = nextDue(tasks, states, now).due
  const state = first === undefined ? undefined : states.get(first.task.name)
  if (first === undefined || state === undefined) throw new Error('nothing is due')
  return new Map([...states, [first.task.name, ended(begun(state, first, 'b', now), { outcome: 'silence' }, now)]])
}

describe('a plan', () => {
  test('a new task is first due after one step; the longest due comes first', () => {
    const tasks = tasksOf('{ name: slow, every: 2h, prompt: x }, { name: quick, every: 1h, prompt: x }')
    const states = fit(tasks, new Map(), 0)
    expect(nextDue(tasks, states, hour - 1)).toEqual({ due: [], wakeAt: hour })
    expect(nextDue(tasks, states, 2 * hour).due.map(({ task, missed }) => [task.name, missed])).toEqual([
      ['quick', 1],
      ['slow', 0],
    ])
  })

  test('after downtime there is one beat, and the step is kept', () => {
    let states = fit(hourly, new Map(), 0)
    const now = 10 * hour + 7 * minute
    states = fit(hourly, states, now)
    expect(nextDue(hourly, states, now).due).toEqual([{ task: hourly[0], due: hour, missed: 9 }])
    states = serve(hourly, states, now)
    expect([nextDue(hourly, states, now).due, nextOf(states)]).toEqual([[], [11 * hour]])
  })

  test('a prompt may change and keep the step; another schedule begins anew; what is known stays', () => {
    let states = serve(hourly, fit(hourly, new Map(), 0), hour)
    const reworded = reconcile(tasksOf('{ name: a, every: 1h, prompt: other }'), states, hour + minute)
    expect([reworded.changed, nextOf(reworded.states)]).toEqual([['a'], [2 * hour]])
    const moved = reconcile(
      tasksOf('{ name: a, every: 2h, prompt: x }, { name: b, every: 1h, prompt: x }'),
      states,
      hour + minute,
    )
    expect([moved.added, moved.changed, nextOf(moved.states)]).toEqual([
      ['b'],
      ['a'],
      [3 * hour + minute, 2 * hour + minute],
    ])
    expect(moved.states.get('a')?.past).toHaveLength(1)
    states = moved.states
    expect(reconcile([], states, hour).removed).toEqual(['a', 'b'])
  })

  test('a clock that was put back begins anew; one that was set right by a little does not', () => {
    const wrong = serve(hourly, fit(hourly, new Map(), 1000 * hour), 1001 * hour)
    expect(nextOf(fit(hourly, wrong, hour))).toEqual([2 * hour])
    const daily = tasksOf('{ name: a, cron: 0 1 * * *, prompt: x }')
    const served = serve(daily, fit(daily, new Map(), 0), hour)
    // Half a second before the hour again: the beat of this hour is done.
    expect(nextOf(fit(daily, served, hour - 500))).toEqual([25 * hour])
    expect(nextOf(fit(daily, served, hour - 10 * minute))).toEqual([hour])
  })

  test('a cron that comes no more is never due', () => {
    const state = { schedule: 'cron 0 1 * * * UTC', digest: '', setAt: 0, past: [] }
    const daily = tasksOf('{ name: a, cron: 0 1 * * *, prompt: x }')
    expect(nextDue(daily, new Map([['a', state]]), 10 ** 12)).toEqual({ due: [], wakeAt: undefined })
  })

  test('however the clock goes, no task is due more often than its step allows, and none is forgotten', () => {
    const tasks = tasksOf('{ name: a, every: 1h, prompt: x }, { name: b, cron: "*/30 * * * *", prompt: x }')
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 5 * hour }), { maxLength: 40 }), (steps) => {
        let now = 0
        let states = fit(tasks, new Map(), now)
        const beats = { a: 0, b: 0 }
        for (const step of steps) {
          now += step
          states = fit(tasks, states, now)
          while (nextDue(tasks, states, now).due.length > 0) {
            const name = nextDue(tasks, states, now).due[0]?.task.name === 'a' ? 'a' : 'b'
            beats[name] += 1
            states = serve(tasks, states, now)
          }
          // Quiet, and each will come again within its step.
          for (const [name, step] of [
            ['a', hour],
            ['b', 30 * minute],
          ] as const) {
            const next = states.get(name)?.next ?? Number.NaN
            expect(next > now && next <= now + step).toBe(true)
          }
        }
        expect(beats.a).toBeLessThanOrEqual(Math.min(steps.length, Math.floor(now / hour)))
        expect(beats.b).toBeLessThanOrEqual(Math.min(steps.length, Math.floor(now / (30 * minute))))
      }),
    )
  })

  test('of the past the newest is kept', () => {
    let states = fit(hourly, new Map(), 0)
    for (let n = 1; n <= 30; n++) states = serve(hourly, states, n * hour)
    expect(states.get('a')?.past.map(({ due }) => due / hour)).toEqual(Array.from({ length: 20 }, (_, n) => n + 11))
  })
})
