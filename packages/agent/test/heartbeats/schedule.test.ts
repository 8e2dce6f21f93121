import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  cronProblem,
  isTimezone,
  missedSince,
  nextAfter,
  parseEvery,
  type Schedule,
} from '../../src/heartbeats/schedule.ts'

const minute = 60_000
const at = (text: string): number => Date.parse(text)
const times = (schedule: Schedule, from: string, count: number): readonly string[] => {
  const found: string[] = []
  for (let now = at(from); found.length < count;) {
    const next = nextAfter(schedule, now)
    if (next === undefined) break
    found.push(new Date(next).toISOString().replace(':00.000Z', ''))
    now = next
  }
  return found
}
const berlin = (expression: string): Schedule => ({ type: 'cron', expression, timezone: 'Europe/Berlin' })

test('steps are whole minutes, hours or days', () => {
  expect(['1m', '10m', '4h', '1d', '366d'].map(parseEvery)).toEqual([1, 10, 240, 1440, 527_040].map((n) => n * minute))
  for (const text of [
    '',
    '0m',
    '10',
    '10s',
    '1.5h',
    '-1h',
    ' 1h',
    '1h ',
    '1H',
    '1h30m',
    '367d',
    '999999d',
    '1e3m',
    '01m',
  ])
    expect([text, parseEvery(text)]).toEqual([text, undefined])
})

describe('a cron', () => {
  test('with a mistake is told, and so is one that never comes', () => {
    for (const text of ['0 9 * * *', '*/5 8-18 * * MON-FRI', '0 0 29 2 *', '0 0 1,15 * *', ' 0  9 * * 7 '])
      expect([text, cronProblem(text)]).toEqual([text, undefined])
    for (const text of [
      '',
      '* * * *',
      '* * * * * *',
      '@daily',
      '60 * * * *',
      '0 24 * * *',
      '0 0 30 2 *',
      'a * * * *',
      '*/0 * * * *',
    ])
      expect([text, cronProblem(text)]).toEqual([text, expect.any(String)])
  })

  test('follows the clocks on the wall where they are put forward', () => {
    // 2026-03-29: after 01:59:59 (+1) comes 03:00:00 (+2).
    expect(times(berlin('30 2 * * *'), '2026-03-28T12:00Z', 2)).toEqual(['2026-03-29T01:00', '2026-03-30T00:30'])
    expect(times(berlin('0 9 * * *'), '2026-03-27T12:00Z', 2)).toEqual(['2026-03-28T08:00', '2026-03-29T07:00'])
    expect(times(berlin('0 * * * *'), '2026-03-29T00:30Z', 2)).toEqual(['2026-03-29T01:00', '2026-03-29T02:00'])
  })

  test('follows the clocks on the wall where they are put back', () => {
    // 2026-10-25: 02:00 to 02:59 comes twice.
    expect(times(berlin('30 2 * * *'), '2026-10-24T12:00Z', 2)).toEqual(['2026-10-25T00:30', '2026-10-26T01:30'])
    expect(times(berlin('*/30 * * * *'), '2026-10-24T23:50Z', 4)).toEqual([
      '2026-10-25T00:00',
      '2026-10-25T00:30',
      '2026-10-25T01:00',
      '2026-10-25T01:30',
    ])
  })

  test('finds midnight where there is none', () => {
    const schedule: Schedule = { type: 'cron', expression: '0 0 * * *', timezone: 'America/Sao_Paulo' }
    expect(times(schedule, '2018-11-03T12:00Z', 2)).toEqual(['2018-11-04T03:00', '2018-11-05T02:00'])
  })
})

test('every keeps its step, whatever is missed', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 600 }),
      fc.nat(10 ** 12),
      fc.integer({ min: -(10 ** 9), max: 10 ** 12 }),
      (n, due, late) => {
        const schedule: Schedule = { type: 'every', ms: n * minute }
        const now = due + late
        const next = nextAfter(schedule, now, due) ?? Number.NaN
        expect(next).toBeGreaterThan(now)
        expect((next - due) % schedule.ms).toBe(0)
        if (now >= due) expect(next - now).toBeLessThanOrEqual(schedule.ms)
      },
    ),
  )
})

test('what was missed is counted', () => {
  const hourly: Schedule = { type: 'every', ms: 60 * minute }
  expect([0, 59, 60, 150].map((n) => missedSince(hourly, 0, n * minute))).toEqual([0, 0, 1, 2])
  expect(missedSince(berlin('0 9 * * *'), at('2026-06-01T07:00Z'), at('2026-06-04T08:00Z'))).toBe(3)
  expect(missedSince(berlin('* * * * *'), 0, at('2026-06-04T08:00Z'))).toBe(1000)
})

test('time zones are those of the system', () => {
  expect(['UTC', 'Europe/Berlin', 'America/New_York'].map(isTimezone)).toEqual([true, true, true])
  expect(['', 'Mars/Phobos', 'local'].map(isTimezone)).toEqual([false, false, false])
})
