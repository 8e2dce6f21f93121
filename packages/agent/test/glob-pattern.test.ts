import { matchesGlob } from 'node:path/posix'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { globMatcher } from '../src/glob-pattern.ts'

const matches = (pattern: string, path: string): boolean => {
  const matcher = globMatcher(pattern)
  if (typeof matcher !== 'function') throw new Error(matcher.problem)
  return matcher(path)
}

describe('a pattern means', () => {
  test.each([
    ['*.ts', 'a.ts'],
    ['*.ts', 'deep/er/.hidden.ts'],
    ['./*.ts', 'a.ts'],
    ['src/*.ts', 'src/a.ts'],
    ['src/**/*.ts', 'src/a.ts'],
    ['src/**/*.ts', 'src/x/y/a.ts'],
    ['**/test/**', 'a/test/b/c'],
    ['**', 'a/b'],
    ['a?c', 'a€c'],
    ['a?c', 'a😀c'],
    ['[a-c][!0-9]', 'bx'],
    ['[]]', ']'],
    ['[a', '[a'],
    ['a-[x-]', 'a--'],
    ['*.{ts,tsx}', 'a.tsx'],
    ['{a,b{c,d}}.x', 'bd.x'],
    ['{a}', '{a}'],
    ['a{,.bak}', 'a'],
    ['\\*', '*'],
    ['\\{a,b\\}', '{a,b}'],
    ['two words', 'x/two words'],
    ['src/', 'src'],
  ])('%j: %j', (pattern, path) => {
    expect(matches(pattern, path)).toBe(true)
  })

  test.each([
    ['*.ts', 'a.tsx'],
    ['./*.ts', 'src/a.ts'],
    ['src/*.ts', 'src/x/a.ts'],
    ['src/*.ts', 'other/src/a.ts'],
    ['src/**/*.ts', 'srcs/a.ts'],
    ['a?c', 'ac'],
    ['a?c', 'a/c'],
    ['[!a]', 'a'],
    ['\\*', 'a'],
    ['*.{ts,tsx}', 'a.js'],
    ['A', 'a'],
    ['a.c', 'abc'],
  ])('%j: not %j', (pattern, path) => {
    expect(matches(pattern, path)).toBe(false)
  })
})

test('patterns that are made to take long do not, and too many alternatives are refused', () => {
  expect(matches(`${'*a'.repeat(100)}b`, 'a'.repeat(255))).toBe(false)
  expect(matches(`${'**/a/'.repeat(50)}b`, 'a/'.repeat(500))).toBe(false)
  expect(globMatcher('{a,b}'.repeat(20))).toEqual({ problem: '{…} stands for more than 256 patterns' })
  expect(globMatcher('{'.repeat(10_000))).toBeTypeOf('function')
})

test("means what Node's own matcher means by the same", () => {
  const name = fc.stringMatching(/^[abc]{1,3}$/)
  const part = fc.stringMatching(/^([abc]|\*|\?|\[a-b\]|\{a,bc\}){1,4}$/).filter((text) => !text.includes('**'))
  const pattern = fc
    .array(fc.oneof(part, fc.constant('**')), { minLength: 2, maxLength: 4 })
    .map((parts) => [...parts, 'a*'].join('/'))
  const path = fc.array(name, { minLength: 1, maxLength: 5 }).map((names) => names.join('/'))
  fc.assert(
    fc.property(pattern, path, (glob, file) => {
      expect(matches(glob, file)).toBe(matchesGlob(file, glob))
    }),
    { numRuns: 2000 },
  )
})
