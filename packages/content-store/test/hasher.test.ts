import { describe, expect, test } from 'vitest'
import {
  answerInput,
  answersRight,
  chooseHasher,
  hasherMakers,
  type Hasher,
  jsHasher,
  knownAnswers,
  treeKeys,
} from '../src/hasher.ts'

describe('each implementation', () => {
  test.each(hasherMakers.map((make) => [make]))('gives the known answers', async (make) => {
    expect(answersRight(await make())).toBe(true)
  })

  test('agrees with the pure one on lengths around block and chunk borders, and with interleaved streams', async () => {
    for (const make of hasherMakers) {
      const hasher = await make()
      for (const length of [0, 1, 64, 1024, 1025, 3072, 7000, 65_536, 100_001]) {
        const input = answerInput(length)
        expect(hasher.hash(input)).toEqual(jsHasher.hash(input))
        expect(hasher.keyed(treeKeys.chunk, input)).toEqual(jsHasher.keyed(treeKeys.chunk, input))
        const [a, b] = [hasher.stream(), hasher.stream()]
        for (let at = 0; at < length; at += 777) {
          a.update(input.subarray(at, at + 777))
          b.update(Buffer.from('other'))
        }
        expect(a.digest()).toEqual(jsHasher.hash(input))
      }
    }
  })
})

test('the empty answer is the published one', () => {
  expect(knownAnswers[0]?.plain).toBe('af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262')
})

test('an implementation that is wrong for long inputs only is found out', () => {
  const wrong: Hasher = {
    ...jsHasher,
    hash: (bytes) => (bytes.length > 2048 ? jsHasher.hash(bytes.subarray(1)) : jsHasher.hash(bytes)),
  }
  expect(answersRight(wrong)).toBe(false)
})

test('the fastest that works here is taken', async () => {
  expect((await chooseHasher()).name).toBe((await hasherMakers[0]?.())?.name)
})
