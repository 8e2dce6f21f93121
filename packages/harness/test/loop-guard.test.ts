import type { JsonObject } from '@reve/providers/model'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type LoopLimits, type LoopState, noLoop, observeTurn, type TurnCall } from '../src/loop-guard.ts'

const limits: LoopLimits = { nudgeAfter: 3, stopAfter: 6 }

function call(name: string, args: JsonObject = {}, text = 'done', isError = false): TurnCall {
  return { call: { name, arguments: args }, result: { content: [{ type: 'text', text }], isError } }
}

/** The verdicts of these turns, one after the other. */
function verdicts(turns: readonly (readonly TurnCall[])[], bounds = limits): readonly string[] {
  let state: LoopState = noLoop
  return turns.map((turn) => {
    const seen = observeTurn(state, turn, bounds)
    state = seen.state
    return seen.verdict.type
  })
}

/** One turn a letter: a call of that tool. A space is a turn without calls. */
const letters = (text: string): readonly (readonly TurnCall[])[] =>
  [...text].map((name) => (name === ' ' ? [] : [call(name)]))
const marks = (text: string, bounds = limits): string =>
  verdicts(letters(text), bounds)
    .map((type) => ({ go_on: '.', nudge: 'n', stop: 's' })[type])
    .join('')

describe('the same turn', () => {
  test.each([
    ['aaaaaa', '..n..s'],
    // It goes on being one.
    ['aaaaaaaa', '..n..sss'],
    ['aabaab', '......'],
    ['aabbaabb', '........'],
    ['aaabaaa', '..n...n'],
    ['aa aa aaa', '........n'],
    ['a a a a a a', '...........'],
    ['      ', '......'],
  ])('%s', (turns, expected) => expect(marks(turns)).toBe(expected))

  test('with a note, once, that says what is the matter', () => {
    let state: LoopState = noLoop
    for (const turn of letters('aa')) state = observeTurn(state, turn, limits).state
    const { verdict } = observeTurn(state, [call('a')], limits)
    expect(verdict).toEqual({
      type: 'nudge',
      count: 3,
      note: expect.stringMatching(/same calls 3 times in a row/),
    })
  })
})

describe('a cycle', () => {
  test.each([
    ['ababab', '.....n'],
    // What came before does not belong to it.
    ['xabababababab', '......n.....s'],
    ['abcabcabc', '........n'],
    ['abcabcabcabcabcabc', '........n........s'],
    ['abcdabcdabcd', '............'],
    ['ababxababx', '..........'],
    ['abababb', '.....n.'],
    // The end of the cycle is the beginning of another loop.
    ['abababbb', '.....n.n'],
  ])('%s', (turns, expected) => expect(marks(turns)).toBe(expected))

  test('is counted in its own length', () => {
    let state: LoopState = noLoop
    const seen = letters('abababababab').map((turn) => {
      const now = observeTurn(state, turn, limits)
      state = now.state
      return now.verdict
    })
    expect(seen.at(-1)).toEqual({ type: 'stop', count: 6, message: expect.stringMatching(/same 2 turns 6 times/) })
  })
})

describe('limits', () => {
  test('0 is never, and a stop comes before a nudge', () => {
    expect(marks('aaaaaaa', { nudgeAfter: 0, stopAfter: 4 })).toBe('...ssss')
    expect(marks('aaaaaaa', { nudgeAfter: 2, stopAfter: 0 })).toBe('.n.....')
    expect(marks('aaaaaaa', { nudgeAfter: 0, stopAfter: 0 })).toBe('.......')
    expect(marks('aaa', { nudgeAfter: 2, stopAfter: 2 })).toBe('.ss')
  })
})

describe('what makes two turns the same', () => {
  const loops = (a: readonly TurnCall[], b: readonly TurnCall[]): boolean =>
    verdicts([a, b], { nudgeAfter: 2, stopAfter: 0 })[1] === 'nudge'

  test('the order of keys and calls, and a call that is made twice, are no difference', () => {
    expect(loops([call('a', { x: 1, y: { p: 1, q: 2 } })], [call('a', { y: { q: 2, p: 1 }, x: 1 })])).toBe(true)
    expect(loops([call('a'), call('b')], [call('b'), call('a'), call('b')])).toBe(true)
  })

  test.each([
    ['name', call('b', { x: 1 })],
    ['arguments', call('a', { x: 2 })],
    ['order of a list', call('a', { x: [1, 2] })],
    ['type of an argument', call('a', { x: '1' })],
    ['result', call('a', { x: 1 }, 'other')],
    ['success', call('a', { x: 1 }, 'done', true)],
  ])('%s is a difference', (_, other) => {
    expect(loops([call('a', { x: 1 })], [call('a', { x: 1 })])).toBe(true)
    expect(loops([call('a', { x: 1 })], [other])).toBe(false)
    expect(loops([call('a', { x: [2, 1] })], [call('a', { x: [1, 2] })])).toBe(false)
  })

  test('pictures count, and text is told from its parts', () => {
    const shown = (...content: TurnCall['result']['content']): readonly TurnCall[] => [
      { call: { name: 'a', arguments: {} }, result: { content, isError: false } },
    ]
    const image = (data: string) => ({ type: 'image', mimeType: 'image/png', data }) as const
    const text = (text: string) => ({ type: 'text', text }) as const
    expect(loops(shown(image('AAAA')), shown(image('AAAA')))).toBe(true)
    expect(loops(shown(image('AAAA')), shown(image('BBBB')))).toBe(false)
    expect(loops(shown(text('ab')), shown(text('a'), text('b')))).toBe(false)
  })

  test('calls that could not be read are compared by their text', () => {
    const malformed = (raw: string): readonly TurnCall[] => [
      { call: { name: 'a', malformed: raw }, result: { content: [], isError: true } },
    ]
    expect(loops(malformed('{x'), malformed('{x'))).toBe(true)
    expect(loops(malformed('{x'), malformed('{y'))).toBe(false)
    expect(loops([call('a', { malformed: 'x' })], malformed('x'))).toBe(false)
  })
})

test('counts as a plain search for repeated suffixes does', () => {
  const turns = fc.array(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 40 }).map((names) => names.join(''))
  const cyclic = fc
    .tuple(turns, fc.constantFrom('a', 'ab', 'abc', 'aab', 'abcd'), fc.nat(8), turns)
    .map(([before, cycle, times, after]) => before + cycle.repeat(times) + after)
  fc.assert(
    fc.property(cyclic, (text) => {
      let state: LoopState = noLoop
      letters(text).forEach((turn, index) => {
        state = observeTurn(state, turn, limits).state
        expect(state.count, text.slice(0, index + 1)).toBe(repeats(text.slice(0, index + 1)))
      })
      expect(state.recent.length).toBeLessThanOrEqual(3)
    }),
    { numRuns: 300 },
  )
})

/** How often the last 1, 2 or 3 letters stand at the end of a text, one after the other. */
function repeats(text: string): number {
  const of = (period: number): number => {
    const cycle = text.slice(-period)
    let times = 0
    while (cycle.length === period && text.endsWith(cycle.repeat(times + 1))) times++
    return times
  }
  return Math.max(of(1), of(2), of(3))
}
