import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { editText } from '../src/edit-text.ts'

const edit = (file: string, old: string, replacement: string, all = false): string => {
  const result = editText(Buffer.from(file), old, replacement, all)
  if (result.type !== 'edited') return JSON.stringify(result)
  return Buffer.from(result.bytes).toString()
}

describe('one exact match', () => {
  test.each([
    ['a plain text', 'one two three', 'two', 'TWO', 'one TWO three'],
    ['a text that grows', 'ab', 'b', 'b'.repeat(100), `a${'b'.repeat(100)}`],
    ['patterns of String.replace', 'price: X', 'X', "$& $$ $1 $` $' $<n>", "price: $& $$ $1 $` $' $<n>"],
    ['a CRLF file with text that has LF', 'a\r\nb\r\nc\r\n', 'a\nb\n', 'x\ny\n', 'x\r\ny\r\nc\r\n'],
    ['one line of a file with mixed ends', 'a\r\nb\nc\r\n', 'b', 'B', 'a\r\nB\nc\r\n'],
    ['a byte order mark', '\uFEFFvalue = 1', '= 1', '= 2', '\uFEFFvalue = 2'],
    ['a deletion', 'keep drop', ' drop', '', 'keep'],
  ])('%s', (_, file, old, replacement, result) => {
    expect(edit(file, old, replacement)).toBe(result)
  })

  test('bytes that are not UTF-8 stay as they are', () => {
    const file = Buffer.concat([Buffer.from([0xff, 0xfe, 0x00]), Buffer.from('name = old'), Buffer.from([0x80])])
    const result = editText(file, 'old', 'new', false)
    expect(result.type === 'edited' && Buffer.from(result.bytes)).toEqual(
      Buffer.concat([Buffer.from([0xff, 0xfe, 0x00]), Buffer.from('name = new'), Buffer.from([0x80])]),
    )
  })
})

test('what is not there is said, with a hint for pasted line numbers', () => {
  expect(editText(Buffer.from('a'), 'b', 'c', false)).toEqual({ type: 'absent' })
  expect(editText(Buffer.from('a\n'), '    1  a', 'c', false)).toEqual({
    type: 'absent',
    hint: 'leave out the line numbers that read shows',
  })
  // A file with mixed ends is not made over for text with other ends.
  expect(editText(Buffer.from('a\r\nb\nc'), 'a\nb', 'x', false)).toEqual({ type: 'absent' })
})

test('several matches are told by their lines, or all replaced', () => {
  expect(editText(Buffer.from('x\ny\nx\n\nx'), 'x', 'z', false)).toEqual({ type: 'ambiguous', lines: [1, 3, 5] })
  expect(edit('x\ny\nx\n\nx', 'x', 'z', true)).toBe('z\ny\nz\n\nz')
})

test('for any text: what surrounds the match keeps its bytes', () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string(), (before, after, replacement) => {
      const marker = '⟦marker⟧'
      fc.pre(!before.includes('⟦') && !after.includes('⟦'))
      expect(edit(before + marker + after, marker, replacement)).toBe(before + replacement + after)
    }),
  )
})
