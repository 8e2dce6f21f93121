import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { linesOf, shownLines } from '../src/shown-lines.ts'

test('the lines of a file are those of its text', () => {
  const file = fc.array(fc.constantFrom('a', '\n', 'bc', '\r\n', '€')).map((parts) => parts.join(''))
  fc.assert(
    fc.property(
      file,
      fc.integer({ min: 1, max: 12 }),
      fc.option(fc.integer({ min: 1, max: 6 })),
      (text, first, limit) => {
        const lines = text.match(/[^\n]*\n|[^\n]+$/g) ?? []
        const { bytes, total } = linesOf(Buffer.from(text), { first, limit: limit ?? undefined })
        expect(total).toBe(lines.length)
        expect(Buffer.from(bytes).toString()).toBe(
          lines.slice(first - 1, limit === null ? undefined : first - 1 + limit).join(''),
        )
      },
    ),
    { numRuns: 1000 },
  )
})

describe('numbered lines', () => {
  test('stop where the next one does not fit', () => {
    const shown = shownLines(Buffer.from(`${'x'.repeat(990)}\n`.repeat(100)), 5, false)
    expect(shown).toMatchObject({ type: 'lines', last: 27 })
    expect(shown.type === 'lines' && shown.text.split('\n').length).toBe(23)
    expect(shownLines(Buffer.from('x'.repeat(30_000)), 1, false)).toEqual({ type: 'too_long' })
    expect(shownLines(Buffer.from('no end'), 1, true)).toEqual({ type: 'too_long' })
    expect(shownLines(Buffer.from('one\ntw'), 1, true)).toMatchObject({ type: 'lines', text: '    1  one', last: 1 })
  })

  test('are not made of what is no text', () => {
    expect(shownLines(Buffer.from('a\0b\n'), 1, false)).toEqual({ type: 'binary' })
    expect(shownLines(Buffer.from([0x80, 0x81, 0x82, 0x0a]), 1, false)).toEqual({ type: 'binary' })
    expect(shownLines(Buffer.from('caf\xe9 au lait, s\xfcss\n', 'latin1'), 1, false)).toMatchObject({ type: 'lines' })
  })
})
