import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { shellText } from '../src/commands/exec.ts'

test('one word is shell text as it stands, several are quoted each', () => {
  expect(shellText(['ls *.md | wc -l'])).toBe('ls *.md | wc -l')
  expect(shellText(['git', 'log', '--format=%H', '-n', '3'])).toBe('git log --format=%H -n 3')
  expect(shellText(['echo', '$HOME', "it's", ''])).toBe(`echo '$HOME' 'it'\\''s' ''`)
})

test('several words arrive in a real shell as they were typed', () => {
  const word = fc.string({
    unit: fc.constantFrom('a', ' ', "'", '"', '$', '`', '\\', '\n', '*', ';', '|', '-', 'é', '🙂'),
  })
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 5 }), (words) => {
      const printed = execFileSync('sh', ['-c', shellText(['printf', '%s\\0', ...words])], { encoding: 'utf8' })
      expect(printed.split('\0').slice(0, -1)).toEqual(words)
    }),
    { numRuns: 150 },
  )
})
