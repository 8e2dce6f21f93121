import { expect, test } from 'vitest'
import { isReveError, messageOf, ReveError } from '../src/index.ts'

class Refusal extends ReveError<'too_big' | 'too_small'> {
  override readonly name = 'Refusal'
}

test('an error carries its code, cause and hint', () => {
  const cause = new Error('inside')
  const error = new Refusal('too_big', 'the file is too big', { cause, hint: 'make it smaller' })
  expect(error).toMatchObject({
    code: 'too_big',
    message: 'the file is too big',
    cause,
    hint: 'make it smaller',
    name: 'Refusal',
  })
  expect(isReveError(error)).toBe(true)
  expect(isReveError(cause)).toBe(false)
})

test.each([
  [new Error('plain'), 'plain'],
  [new TypeError(''), 'TypeError'],
  ['text', 'text'],
  [{ message: 'from afar' }, 'from afar'],
  [{ reason: 1 }, '{"reason":1}'],
  [undefined, 'undefined'],
  [12n, 'something that cannot be shown (TypeError)'],
])('the text of %o', (thrown, text) => {
  expect(messageOf(thrown)).toBe(text)
})

test('a text without end is bounded', () => {
  expect(messageOf(new Error('x'.repeat(10_000)))).toHaveLength(2001)
})
