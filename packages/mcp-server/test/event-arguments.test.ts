import fc from 'fast-check'
import { expect, test } from 'vitest'
import { argumentCharacters, createHide, jsonBytes, loggedArguments } from '../src/event-arguments.ts'

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
  expect(createHide()('https://me:sentinel@example.com/x and ssh://git@host/y')).toBe(
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

test('takes tokens, authorizations and known values out, whatever stands around them', () => {
  const hide = createHide('a-token-that-a-host-handed-in')
  const own = `kc_${'A'.repeat(43)}`
  expect(hide(`x${own} a-token-that-a-host-handed-in, Authorization: bearer sentinel-1`)).toBe(
    'x(secret) (secret), Authorization: bearer (secret)',
  )
  expect(hide('https://me:senti@nel@example.com/x')).toBe('https://example.com/x')
  const { json } = loggedArguments(
    { argv: ['curl', '-H', `Authorization: Bearer ${own}`], [own]: 1, action: { nested: own } },
    new Set(['argv', 'action']),
    hide,
  )
  expect(JSON.parse(json)).toEqual({
    argv: ['curl', '-H', 'Authorization: Bearer (secret)'],
    '(secret)': '(number)',
    action: '(1 fields)',
  })
})

test('a long text and a deep value cost what they are long', () => {
  let deep: unknown = 'x'
  for (let depth = 0; depth < 100_000; depth++) deep = [deep]
  const args = { path: deep, note: 'a.'.repeat(2_000_000), name: '://@'.repeat(500_000) }
  // The limit of a test is a minute; a scan that goes over its text again and again would take hours.
  expect(loggedArguments(args, new Set(['path', 'note', 'name'])).cut).toBe(true)
  expect(jsonBytes(args)).toBeGreaterThan(6_000_000)
})

test('counts the bytes of arguments as JSON, but for escapes', () => {
  const args = { action: 'write', path: 'ä', argv: ['a', 1, true, null], env: {} }
  expect(Math.abs(jsonBytes(args) - Buffer.byteLength(JSON.stringify(args)))).toBeLessThan(6)
})
