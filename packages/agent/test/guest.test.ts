import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { pathArgument, showName } from '../src/guest.ts'

test.each([
  ['-n', './-n'],
  ['src/a', './src/a'],
  ['/etc', '/etc'],
  ['.', './'],
  ['..', './..'],
])('%j as an argument is %j', (path, argument) => {
  expect(pathArgument(path)).toBe(argument)
})

describe('a name is shown on one line', () => {
  test.each([
    ['two words', 'two words'],
    ['ファイル', 'ファイル'],
    ['two\nlines', String.raw`$'two\nlines'`],
    ['\u001b]0;x\u0007', String.raw`$'\x1b]0;x\x07'`],
    ["it's\t\\", String.raw`$'it\'s\x09\\'`],
    ['\u202Egpj.exe', String.raw`$'\xe2\x80\xaegpj.exe'`],
  ])('%j', (name, shown) => {
    expect(showName(Buffer.from(name))).toBe(shown)
  })

  test('whatever bytes it has, and the shell takes it back', () => {
    const name = fc.uint8Array({ minLength: 1, maxLength: 12 }).filter((bytes) => !bytes.includes(0))
    fc.assert(
      fc.property(name, (bytes) => {
        const shown = showName(bytes)
        expect(shown).not.toMatch(/[\p{Cc}\p{Cf}\uFFFD]/u)
        if (!shown.startsWith("$'") || Buffer.from(bytes).toString() === shown) return
        const printed = execFileSync('bash', ['-c', `printf %s ${shown}`])
        expect(Buffer.compare(printed, bytes)).toBe(0)
      }),
      { numRuns: 30 },
    )
  })
})
