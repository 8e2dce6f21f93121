import { describe, expect, test } from 'vitest'
import { missHint } from '../src/edit-hint.ts'

const hint = (file: string, old: string): string | undefined => missHint(Buffer.from(file), old)
const code = 'function one() {\n  return 1\n}\n\nfunction two() {\n\treturn 2\n}\n'

describe('what is told about a text that is not there', () => {
  test.each([
    [
      'line numbers of read',
      code,
      '    1  function one() {\n    2    return 1',
      'leave out the line numbers that read shows',
    ],
    [
      'white space',
      code,
      'function two() {\n  return 2\n}',
      'lines 5 to 7 differ only in white space; the file has "function two() {" "\\treturn 2" "}"',
    ],
    ['white space of one line', 'a\n  b\n', 'b ', 'line 2 differs only in white space; the file has "  b"'],
    [
      'a later line',
      code,
      'function two() {\n\treturn 3\n}',
      'it begins like line 5, but then, at line 6, the file has "\\treturn 2", not "\\treturn 3"',
    ],
    [
      'the end of the file',
      'long enough\n',
      'long enough\nmore\nstill',
      'it begins like line 1, but then, at line 2, the file has "", not "more"',
    ],
    ['a word', code, '  retrun 1', 'the nearest is line 2: "  return 1"'],
    ['nothing near', code, 'zzzzzz', undefined],
    ['blank lines', code, '\n\n\n\n', undefined],
    ['a bracket', '}\n', '}\nx', undefined],
  ])('%s', (_, file, old, expected) => {
    expect(hint(file, old)).toBe(expected)
  })

  test('lines that are long are cut between characters, and large files are not searched', () => {
    const told = hint(`${'😀'.repeat(500)}\nb`, ` ${'😀'.repeat(500)}\nb`)
    expect(told).toContain(`"${'😀'.repeat(200)}…"`)
    expect(told?.isWellFormed()).toBe(true)
    expect(hint('a\n'.repeat(60_000), 'b')).toBeUndefined()
    expect(hint(`${'x'.repeat(5_000_000)}\nabcdef`, 'abcdefg')).toBeUndefined()
    // Many lines that begin alike take no time of their product.
    expect(hint('same\n'.repeat(49_000), `${'same\n'.repeat(500)}other`)).toContain('it begins like lines')
  })
})
