import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { GitProgress } from '../src/index.ts'
import { Messages } from '../src/messages.ts'
import { progressOf } from '../src/progress.ts'

const secret = 'sentinel-4711'

function read(
  text: string,
  cuts: readonly number[] = [],
): { readonly said: string; readonly progress: readonly GitProgress[] } {
  const progress: GitProgress[] = []
  const messages = new Messages([secret], (step) => progress.push(step))
  const bytes = Buffer.from(text)
  let from = 0
  for (const cut of [...cuts, bytes.length]) {
    messages.push(bytes.subarray(from, cut))
    from = Math.max(from, cut)
  }
  return { said: messages.text(), progress }
}

test('progress goes to its listener, messages are kept', () => {
  const { said, progress } = read(
    [
      'remote: Enumerating objects: 5, done.        \n',
      'remote: Counting objects:  20% (1/5)\rremote: Counting objects: 100% (5/5), done.\n',
      'Receiving objects:  50% (5/10), 1.00 MiB | 2.00 MiB/s\rReceiving objects: 100% (10/10), done.\n',
      'Resolving deltas: 100% (3/3), done.\n',
      'remote: Total 10 (delta 3), reused 10 (delta 3)\n',
      'Writing objects:   3% (1/33)\r',
      'fatal: it went wrong',
    ].join(''),
  )
  expect(said).toBe('fatal: it went wrong')
  expect(progress).toEqual([
    { stage: 'receiving', done: 5, total: 10 },
    { stage: 'receiving', done: 10, total: 10 },
    { stage: 'resolving', done: 3, total: 3 },
    { stage: 'sending', done: 1, total: 33 },
  ])
})

test.each(['fatal: Receiving objects: 100% (1/1)', 'remote: rule: 1', 'error: x', ' ! [rejected] main -> main'])(
  '%j is no progress',
  (line) => expect(progressOf(line)).toBe(undefined),
)

test('a secret is not seen, wherever the pieces of the text are cut, and however long the line is', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(fc.constant(secret), fc.string({ maxLength: 5 }), fc.constant('\n'), fc.constant('x'.repeat(9_000))),
      ),
      fc.array(fc.nat(60_000)),
      (parts, cuts) => {
        const text = parts.join('')
        expect(
          read(
            text,
            cuts.toSorted((a, b) => a - b),
          ).said.includes(secret),
        ).toBe(false)
      },
    ),
    { numRuns: 200 },
  )
})

test('control sequences do not come through, and the end is what stays of a flood', () => {
  const { said } = read(`${'flood\n'.repeat(100_000)}remote: \u001b]0;title\u0007\u001b[31mred\n`)
  expect(said.endsWith('remote: red')).toBe(true)
  expect(said.length).toBeLessThan(10_000)
})
