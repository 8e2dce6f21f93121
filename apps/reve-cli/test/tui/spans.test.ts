import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { cellWidth, graphemes, nextGrapheme, previousGrapheme } from '../../src/tui/cells.ts'
import { clip, type Line, lineWidth, pad, span, wrap } from '../../src/tui/spans.ts'
import { createPainter } from '../../src/tui/theme.ts'

const text = (line: Line): string => line.map((piece) => piece.text).join('')

describe('cells', () => {
  test.each([
    ['abc', 3],
    ['é', 1],
    ['e\u0301', 1],
    ['日本語', 6],
    ['ｱ', 1],
    ['Ａ', 2],
    ['한글', 4],
    ['\u1112\u1161\u11ab', 2],
    ['🙂', 2],
    ['👩‍👩‍👧‍👦', 2],
    ['👍🏽', 2],
    ['🇩🇪', 2],
    ['❤️', 2],
    ['1️⃣', 2],
    ['★', 1],
    ['─│◆⟩', 4],
    // Its vowel sign has a cell of its own in most terminals.
    ['नि', 2],
    ['\u200b', 0],
    ['\u00ad', 1],
    ['', 0],
  ])('%j takes %i', (shown, cells) => {
    expect(cellWidth(shown)).toBe(cells)
  })

  test('cursor moves go over whole graphemes', () => {
    const typed = 'a👩‍👩‍👧e\u0301🇩🇪'
    const pieces = graphemes(typed)
    expect(pieces).toHaveLength(4)
    let at = 0
    for (const piece of pieces) {
      expect(nextGrapheme(typed, at)).toBe(at + piece.length)
      expect(previousGrapheme(typed, at + piece.length)).toBe(at)
      at += piece.length
    }
  })
})

const anyText = fc
  .array(fc.constantFrom('a', 'word', ' ', '  ', '日本', '🙂', 'e\u0301', 'averyveryverylongword', '\n', '-', '👩‍👩‍👧'), {
    maxLength: 40,
  })
  .map((parts) => parts.join(''))

describe('rows', () => {
  test('are never wider than their width, however narrow, and lose nothing but spaces at their ends', () => {
    fc.assert(
      fc.property(fc.array(anyText, { maxLength: 4 }), fc.integer({ min: 1, max: 30 }), (parts, width) => {
        const rows = wrap(
          parts.map((part, index) => span(part, index % 2 === 0 ? 'dim' : {})),
          width,
        )
        for (const row of rows) expect(lineWidth(row)).toBeLessThanOrEqual(width)
        const kept = (shown: string): string => shown.replaceAll(/\s/g, '')
        const whole = kept(parts.join(''))
        if (width >= 2) expect(kept(rows.map(text).join(''))).toBe(whole)
      }),
      { numRuns: 500 },
    )
  })

  test('with prefixes wider than all the room they are cut, not endless', () => {
    const rows = wrap([span('some words')], 3, { first: [span('      ')], rest: [span('    ')] })
    for (const row of rows) expect(lineWidth(row)).toBeLessThanOrEqual(3)
  })

  test('of a word of a million letters', () => {
    expect(wrap([span('x'.repeat(1_000_000))], 80)).toHaveLength(12_500)
  })

  test('are cut and filled by cells', () => {
    expect(text(clip([span('日本語')], 5))).toBe('日本')
    expect(text(clip([span('日本語')], 5, true))).toBe('日本…')
    expect(text(clip([span('abc')], 0, true))).toBe('')
    expect(text(pad([span('日')], 5, 'right'))).toBe('   日')
    expect(text(pad([span('日')], 5, 'center'))).toBe(' 日  ')
  })

  test('open and close their styles and links in themselves, also where they are cut', () => {
    const paint = createPainter({ name: 't', colours: { accent: '#5aa0ff' } }, 'truecolor', { links: true })
    const rows = wrap(
      [span('a link of many words', { role: 'accent', underline: true, link: 'https://example.org/x' })],
      8,
    )
    expect(rows.length).toBeGreaterThan(2)
    for (const row of [...rows, clip(rows[0] ?? [], 3, true)]) {
      const painted = paint(row)
      expect(painted.match(/\u001b\]8;;https/g)?.length).toBe(1)
      expect(painted.match(/\u001b\]8;;\u001b\\/g)?.length).toBe(1)
      expect(painted.match(/\u001b\[0m/g)?.length).toBe(painted.match(/\u001b\[[^0]/g)?.length)
    }
  })
})

test('what is told apart without the segmenter is what the segmenter tells apart', () => {
  const segmenter = new Intl.Segmenter('en', { granularity: 'grapheme' })
  const letters = fc.constantFrom(...'aé ─│◆⟩•…ßЖλ日本かなカ한글→↔©®■▲◼〈〉~\u0301\u200d\ufe0f👩🇩नि')
  fc.assert(
    fc.property(fc.array(letters, { maxLength: 12 }), (parts) => {
      const shown = parts.join('')
      const pieces = Array.from(segmenter.segment(shown), ({ segment }) => segment)
      expect(graphemes(shown)).toEqual(pieces)
      expect(cellWidth(shown)).toBe(pieces.reduce((sum, piece) => sum + cellWidth(piece), 0))
    }),
    { numRuns: 2000 },
  )
})
