import fc from 'fast-check'
import { expect, test } from 'vitest'
import { argumentCharacters, loggedArguments, withoutUserInfo } from '../src/event-arguments.ts'

test('holds the listed values, and of every other field the size', () => {
  const args = {
    action: 'write',
    path: 'a.txt',
    content: 'sentinel-body',
    env: { TOKEN: 'sentinel-env' },
    made_up: 'sentinel-field',
    n: 3,
  }
  expect(JSON.parse(loggedArguments(args, new Set(['action', 'path'])).json)).toEqual({
    action: 'write',
    path: 'a.txt',
    content: '(13 bytes)',
    env: '(1 fields)',
    made_up: '(14 bytes)',
    n: '(number)',
  })
})

test('takes user info out of addresses, wherever they stand', () => {
  expect(withoutUserInfo('https://me:sentinel@example.com/x and ssh://git@host/y')).toBe(
    'https://example.com/x and ssh://host/y',
  )
  expect(loggedArguments({ src: 'https://me:sentinel@example.com/x' }, new Set(['src'])).json).not.toContain('sentinel')
})

test('is cut at 4,000 characters, on a whole character, and says so', () => {
  const { json, cut } = loggedArguments({ note: `${'x'.repeat(argumentCharacters - 10)}🙂🙂🙂` }, new Set(['note']))
  expect(cut).toBe(true)
  expect(json.length).toBeLessThanOrEqual(argumentCharacters)
  expect(json.isWellFormed()).toBe(true)
})

test('whatever a client sends, an event has a bounded, well-formed text without what is not listed', () => {
  fc.assert(
    fc.property(fc.anything(), (args) => {
      const { json } = loggedArguments(args, new Set(['action']))
      expect(json.length).toBeLessThanOrEqual(argumentCharacters)
      expect(json.isWellFormed()).toBe(true)
    }),
  )
})
