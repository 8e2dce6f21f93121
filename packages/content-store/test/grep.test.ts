import fc from 'fast-check'
import { RE2JS } from 're2js'
import { expect, test } from 'vitest'
import { literalOf } from '../src/grep.ts'

test('a text that must be in every match is in every match', () => {
  const pattern = fc.string({
    unit: fc.constantFrom(
      'a',
      'b',
      'ab',
      '.',
      '*',
      '+',
      '?',
      '\\.',
      '\\d',
      '\\x41',
      '^',
      '$',
      '(a|b)',
      '[ab]',
      'b{2}',
      '\\Qa\\E',
      '(?i)',
      '\\\\',
    ),
    minLength: 1,
    maxLength: 6,
  })
  const line = fc.string({ unit: fc.constantFrom('a', 'b', 'A', '.', '1', '\\'), maxLength: 10 })
  let used = 0
  fc.assert(
    fc.property(pattern, fc.array(line, { minLength: 5, maxLength: 20 }), (text, lines) => {
      let regex: RE2JS
      try {
        regex = RE2JS.compile(text)
      } catch (error) {
        expect(error).toBeInstanceOf(Error)
        return
      }
      const literal = literalOf(text)
      if (literal === undefined) return
      used += 1
      for (const each of lines) {
        const matches = regex.matcher(each).find()
        if (matches) expect(each).toContain(literal.text)
        if (literal.whole) expect(matches).toBe(each.includes(literal.text))
      }
    }),
    { numRuns: 3000 },
  )
  expect(used).toBeGreaterThan(200)
})

test.each([
  ['needle', { text: 'needle', whole: true }],
  ['a\\.b', { text: 'a.b', whole: true }],
  ['foo.*longer', { text: 'longer', whole: false }],
  ['ab?c', { text: 'a', whole: false }],
  ['a|b', undefined],
  ['\\x41', undefined],
  ['\\w+', undefined],
])('%s', (pattern, expected) => {
  expect(literalOf(pattern)).toEqual(expected)
})
