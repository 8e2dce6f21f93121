import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { editText } from '../src/edit-text.ts'
import { refusal } from './support.ts'

const edit = (text: string, old: string, replacement: string, all = false): string =>
  editText('f', Buffer.from(text), old, replacement, all).bytes.toString()

describe('a replacement is taken as it stands', () => {
  test.each(['$$', '$&', '$`', "$'", '$1', '$<n>', '\\0', '\\n', '%s'])('%s', (text) => {
    expect(edit('a b c', 'b', text)).toBe(`a ${text} c`)
    expect(edit('b b', 'b', text, true)).toBe(`${text} ${text}`)
  })

  test('and a file that grows or shrinks is whole', () => {
    const long = 'x'.repeat(100_000)
    expect(edit('a b c\n', 'b', long)).toBe(`a ${long} c\n`)
    expect(edit(`a ${long} c\n`, long, '')).toBe('a  c\n')
  })
})

describe('line ends', () => {
  test('LF input stands for CRLF where every line ends so; other lines keep their bytes', () => {
    expect(edit('one\r\ntwo\r\nthree\r\n', 'one\ntwo', 'ONE\nand\nTWO')).toBe('ONE\r\nand\r\nTWO\r\nthree\r\n')
    expect(edit('one\r\ntwo\r\n', 'one', 'first\nsecond')).toBe('first\r\nsecond\r\ntwo\r\n')
    expect(edit('one\r\ntwo\r\n', 'one\r\ntwo', 'a\r\nb')).toBe('a\r\nb\r\n')
    expect(edit('one\r\ntwo\r\nlast', 'two\nlast', 'last')).toBe('one\r\nlast')
  })

  test('a file of mixed ends needs exact bytes, and is told so', () => {
    const error = refusal('no_match', () => edit('one\r\ntwo\nthree\n', 'one\ntwo', 'x'))
    expect(error.message).toContain('CRLF')
    expect(edit('one\r\ntwo\nthree\n', 'two\nthree', 'x\ny')).toBe('one\r\nx\ny\n')
  })

  test('an LF file is not changed to CRLF', () => {
    expect(edit('one\ntwo\n', 'one\n', 'a\nb\n')).toBe('a\nb\ntwo\n')
  })

  test('a byte order mark stays', () => {
    expect(edit('\ufeffone\ntwo\n', 'one', 'eins')).toBe('\ufeffeins\ntwo\n')
  })
})

describe('refusals', () => {
  test('several matches are told with their lines', () => {
    const error = refusal('ambiguous', () => edit('a\nb\na\nc a\n', 'a', 'x'))
    expect(error.details.lines).toEqual([1, 3, 4])
    expect(error.message).toContain('1, 3, 4')
  })

  test('no match names the nearest line', () => {
    const error = refusal('no_match', () => edit('a\n  return  value\n}\n', 'return value\n}', 'x'))
    expect(error.details.lines).toEqual([2])
  })

  test('nothing to find, or nothing to change', () => {
    refusal('bad_argument', () => edit('a', '', 'x'))
    refusal('bad_argument', () => edit('a', 'a', 'a'))
    refusal('bad_argument', () => edit('a', 'a', '\ud800'))
  })

  test('a miss in a large file of one repeated line is quick to say', () => {
    refusal('no_match', () => edit('abababab\n'.repeat(400_000), `${'abababab\n'.repeat(1000)}x`, 'y'))
  })
})

test('equals splitting and joining', () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'b', '\n', '$', 'é'), maxLength: 40 })
  fc.assert(
    fc.property(
      text,
      fc.string({ unit: fc.constantFrom('a', 'b', '\n', '$', 'é'), minLength: 1, maxLength: 3 }),
      text,
      (file, old, replacement) => {
        fc.pre(old !== replacement && file.includes(old))
        expect(edit(file, old, replacement, true)).toBe(file.split(old).join(replacement))
      },
    ),
  )
})
