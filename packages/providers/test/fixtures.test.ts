import fc from 'fast-check'
import { isDeepStrictEqual } from 'node:util'
import { describe, expect, test } from 'vitest'
import { createHttpModel } from '../src/index.ts'
import { serve } from './fixture-server.ts'
import { type Case, cases, messageOf } from './fixtures.ts'
import { comparable, official, readOf } from './official.ts'
import { config, cutAt, type Played, play, run } from './play.ts'

/** Shorter streams are cut at every byte, others at some. */
const smallBytes = 600

function check({ outcome }: Case, played: Played): void {
  if (outcome.type === 'answer') {
    expect(played.outcome).toEqual({ type: 'answer', message: messageOf(outcome) })
    return
  }
  const { code, retryable, outputShown } = outcome
  expect(played.outcome).toMatchObject({ type: 'failed', outputShown, failure: { code, retryable } })
}

describe.each(cases)('$name: $case', (given) => {
  const { api, bytes, headers } = given

  test('over HTTP', async () => {
    await using server = await serve(() => ({ pieces: [bytes], headers }))
    check(given, await run(createHttpModel(config({ api, baseUrl: server.url }))))
  })

  test('in any pieces: the same events and the same end', async () => {
    const whole = await play(api, [bytes], undefined, {}, headers)
    check(given, whole)
    const same = async (places: readonly number[]): Promise<void> => {
      expect(await play(api, cutAt(bytes, places), undefined, {}, headers)).toEqual(whole)
    }
    const everywhere = Array.from(bytes, (_, at) => at)
    await same(everywhere)
    if (bytes.length <= smallBytes) for (const at of everywhere) await same([at])
    else {
      const places = fc.array(fc.nat({ max: bytes.length }), { minLength: 1, maxLength: 12 })
      await fc.assert(fc.asyncProperty(places, same), { numRuns: 12 })
    }
  })

  test(`the official client ${given.official}`, async () => {
    const { outcome } = await play(api, [bytes], undefined, {}, headers)
    const theirs = await official[api](bytes).catch((error: unknown) => {
      if (error instanceof Error) return undefined
      throw error
    })
    if (theirs === undefined) expect(given.official).toBe('throws')
    else if (outcome.type !== 'answer') expect(given.official).toBe('takes it for an answer')
    else if (given.official === 'agrees') expect(comparable(api, readOf(outcome.message))).toEqual(theirs)
    else {
      expect(given.official).toBe('reads otherwise')
      expect(isDeepStrictEqual(comparable(api, readOf(outcome.message)), theirs)).toBe(false)
    }
  })
})
