import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { createIdSource, timeOrderedId } from '../src/index.ts'

test('an id has its prefix, its time and its randomness', () => {
  expect(timeOrderedId('e_', 0, (count) => new Uint8Array(count))).toBe(`e_${'0'.repeat(20)}`)
  expect(timeOrderedId('e_', Date.UTC(2026, 0, 1), randomBytes)).toMatch(/^e_[0-9a-hjkmnp-tv-z]{20}$/)
})

test('ids rise strictly, within one millisecond and when the clock steps back', () => {
  let now = 1_000_000
  const next = createIdSource({ now: () => now, random: randomBytes })
  const ids = Array.from({ length: 500 }, (_, index) => {
    if (index === 250) now -= 10_000
    return next('r_')
  })
  expect(ids.toSorted()).toEqual(ids)
  expect(new Set(ids).size).toBe(500)
})
