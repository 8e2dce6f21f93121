import { expect, test } from 'vitest'
import { didYouMean, nearest } from '../src/index.ts'

test.each([
  ['modle', 'model'],
  ['packges', 'packages'],
  ['Memory', 'memory'],
  ['alow', 'allow'],
])('%s is near to %s', (word, known) => {
  expect(nearest(word, ['model', 'packages', 'memory', 'allow', 'image'])).toBe(known)
})

test('nothing is near to nonsense', () => {
  expect(nearest('zzzzzz', ['model', 'image'])).toBeUndefined()
  expect(nearest('x'.repeat(1_000_000), ['model'])).toBeUndefined()
  expect(didYouMean('zzzzzz', ['model'])).toBe('')
  expect(didYouMean('imge', ['model', 'image'])).toBe(' (did you mean "image"?)')
})
