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
    ['a CRLF file, one line by two', 'a\r\nb\r\nc', 'b', 'x\ny', 'a\r\nx\r\ny\r\nc'],
    ['its last line, which has no end', 'a\r\nb', 'b', 'x\ny', 'a\r\nx\r\ny'],
    ['a file with mixed ends', 'a\r\nb\nc\nd\r\n', 'a\nb', 'x\ny', 'x\r\ny\nc\nd\r\n'],
    ['an LF file with text that has CRLF', 'a\nb\n', 'a\r\nb', 'x\r\ny', 'x\ny\n'],
    ['line ends, when they are meant', 'a\r\nb', 'a\r\n', 'a\n', 'a\nb'],
    ['a carriage return of its own', 'a\rb\rc', 'b', 'x\ny', 'a\rx\ny\rc'],
    ['from the middle of a line on', 'one\r\ntwo\r\n', 'e\ntw', 'E\nTW', 'onE\r\nTWo\r\n'],
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
})

test('several matches are told by their lines, or all replaced', () => {
  expect(editText(Buffer.from('x\ny\nx\n\nx'), 'x', 'z', false)).toEqual({
    type: 'ambiguous',
    count: 3,
    lines: [1, 3, 5],
  })
  expect(edit('x\ny\nx\n\nx', 'x', 'z', true)).toBe('z\ny\nz\n\nz')
  expect(edit('x\r\ny\nx\r\ny\n', 'x\ny', '1\n2', true)).toBe('1\r\n2\n1\r\n2\n')
})

test('matches that overlap are several, and of many the first are told', () => {
  expect(editText(Buffer.from('aaa'), 'aa', 'b', false)).toEqual({ type: 'ambiguous', count: 2, lines: [1, 1] })
  expect(edit('aaa', 'aa', 'b', true)).toBe('ba')
  const many = editText(Buffer.from('x\n'.repeat(100_000)), 'x', 'y', false)
  expect(many).toEqual({
    type: 'ambiguous',
    count: 100_000,
    lines: Array.from({ length: 20 }, (_, index) => index + 1),
  })
})

test('for any line ends: what is around stays, and all ends of what is put in are those of a neighbour', () => {
  const line = fc.constantFrom('a\n', 'b\r\n', '\r\n', '\n', 'c\rd\n')
  fc.assert(
    fc.property(fc.array(line), fc.array(line), fc.constantFrom('\n', '\r\n'), (before, after, end) => {
      const [head, tail] = [before.join(''), after.join('')]
      const changed = edit(`${head}one${end}two${end}${tail}`, 'one\ntwo', '1\n2\n3')
      expect(changed).toBe(`${head}1${end}2${end}3${end}${tail}`)
    }),
  )
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
