import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseBlocks } from '../../src/tui/markdown-blocks.ts'
import { MarkdownStream } from '../../src/tui/markdown-stream.ts'
import { blockRows } from '../../src/tui/markdown-view.ts'
import { type Line, lineWidth } from '../../src/tui/spans.ts'
import { CleanStream, cleanText } from '../../src/tui/clean.ts'

const text = (rows: readonly Line[]): readonly string[] =>
  rows.map((row) =>
    row
      .map((span) => span.text)
      .join('')
      .trimEnd(),
  )
const shown = (source: string, width = 60): readonly string[] => text(blockRows(parseBlocks(source), width))

const styled = (source: string): readonly string[] =>
  blockRows(parseBlocks(source), 60).flatMap((row) =>
    row.map(({ text: piece, style }) => {
      const { role = '', ...others } = style
      return `${piece}|${[role, ...Object.keys(others)].filter(Boolean).join(' ')}`
    }),
  )

describe('markdown', () => {
  test.each<readonly [string, string, readonly string[]]>([
    ['headings', '# One\ntext\n\n### Three', ['One', '', 'text', '', 'Three']],
    ['a list', '- one\n- two\n  goes on\n- three', ['• one', '• two goes on', '• three']],
    ['numbers', '1. one\n2. two\n10. ten', ['1. one', '2. two', '10. ten']],
    ['nested', '- a\n  - b\n    1. c\n- d', ['• a', '  • b', '    1. c', '• d']],
    ['tasks', '- [ ] open\n- [x] done', ['• ☐ open', '• ☑ done']],
    ['a quote', '> one\n> two\n>\n> > deep', ['▌ one two', '▌', '▌ ▌ deep']],
    ['code', '```js\nconst a = 1\n\nlet b\n```', ['│ const a = 1', '│', '│ let b']],
    ['code that is not closed', '~~~\n# no heading', ['│ # no heading']],
    ['code in a list', '- a:\n  ```\n  x\n  ```', ['• a:', '', '  │ x']],
    ['a rule', 'a\n\n---\n\nb', ['a', '', '─'.repeat(40), '', 'b']],
    ['a table', '| a | right |\n|---|--:|\n| x | 1 |', ['a │ right', '──┼──────', 'x │     1']],
    ['a wide table', '| 名前 | b |\n|--|--|\n| 日本 | c |', ['名前 │ b', '─────┼──', '日本 │ c']],
    ['hard breaks', 'one  \ntwo\\\nthree', ['one', 'two', 'three']],
    ['what is no markup', 'snake_case_name, 2 * 3 * 4, a_b_', ['snake_case_name, 2 * 3 * 4, a_b_']],
  ])('%s', (_, source, rows) => {
    expect(shown(source)).toEqual(rows)
  })

  test('a table that has no room is a list of its cells', () => {
    expect(shown('| name | what | more |\n|--|--|--|\n| a | b | c |', 12)).toEqual(['name: a', 'what: b', 'more: c'])
  })

  test('inline styles', () => {
    expect(styled('a **bold** *it* `code` ~~gone~~ ***both***')).toEqual([
      'a |',
      'bold|bold',
      ' |',
      'it|italic',
      ' |',
      'code|code',
      ' |',
      'gone|strike',
      ' |',
      'both|bold italic',
    ])
    expect(styled('[name](https://e.org/x) <https://a.b> https://c.d/e.')).toEqual([
      'name|accent underline link',
      ' (https://e.org/x)|faint link',
      ' |',
      'https://a.b|accent underline link',
      ' |',
      'https://c.d/e|accent underline link',
      '.|',
    ])
  })

  test('a link that runs no address of the web is no link', () => {
    expect(styled('[x](javascript:alert(1)) [y](file:///etc/passwd)').join(' ')).not.toContain('link')
  })

  test('code is coloured by its language', () => {
    const roles = blockRows(parseBlocks('```ts\nconst a = "x" // why\n```'), 60)[0]?.map(
      ({ text: piece, style }) => `${piece}:${style.role ?? ''}`,
    )
    expect(roles?.join(' ')).toContain('const:keyword')
    expect(roles?.join(' ')).toContain('"x":string')
    expect(roles?.join(' ')).toContain('// why:comment')
  })

  test('a thousand quotes in each other, and a megabyte of one mark, cost nothing', () => {
    expect(shown(`${'> '.repeat(1000)}deep`).length).toBeGreaterThan(0)
    for (const mark of ['*', '_', '`', '[', '](', '~~', '<', '![', '**a', '|'])
      expect(shown(`x ${mark.repeat(100_000)}`).length).toBeGreaterThan(0)
  })
})

const pieces = fc.constantFrom(
  'word ',
  'more words of text ',
  '\n',
  '\n\n',
  '# Head\n',
  '- item\n',
  '  - nested\n',
  '1. one\n',
  '> quoted\n',
  '```js\n',
  '```\n',
  '~~~\n',
  'let a = "b" /* open\n',
  '| a | b |\n|---|---|\n| 1 | 2 |\n',
  '**bold** ',
  '*it',
  '`code` ',
  '---\n',
  '    indented\n',
  '日本語 ',
  '`',
  '``',
)

/** What is handed out, and what would be seen of the rest after each piece. */
function streamed(source: string, cuts: readonly number[], width: number) {
  const stream = new MarkdownStream()
  const rows: Line[] = []
  const tails: number[] = []
  let at = 0
  for (let index = 0; at < source.length; index++) {
    const size = cuts[index % cuts.length] ?? 1
    rows.push(...stream.push(source.slice(at, at + size), width))
    tails.push(stream.tail(width).length)
    at += size
  }
  rows.push(...stream.end(width))
  return { rows, tails }
}

describe('markdown as it comes', () => {
  test('is, in the end, what it would be at once', () => {
    fc.assert(
      fc.property(
        fc.array(pieces, { maxLength: 40 }).map((parts) => parts.join('')),
        fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 6 }),
        fc.integer({ min: 8, max: 80 }),
        (source, cuts, width) => {
          const { rows } = streamed(source, cuts, width)
          expect(text(rows)).toEqual(text(blockRows(parseBlocks(source), width)))
        },
      ),
      { numRuns: 1500 },
    )
  })

  test('what is open is bounded, whatever comes: one line, one paragraph, one list, one fence without an end', () => {
    for (const piece of ['word ', 'w', 'a line\n', '- item\n', '> quote\n', '| a | b |\n']) {
      const source = piece.repeat(60_000 / piece.length)
      for (const before of ['', '```\n']) {
        const { rows, tails } = streamed(before + source, [50], 40)
        expect(Math.max(...tails)).toBeLessThan(9000 / Math.min(40, piece.length))
        expect(rows.length).toBeGreaterThan(100)
        for (const row of rows) expect(lineWidth(row)).toBeLessThanOrEqual(40)
      }
    }
  })

  test('a fence that may be closing is not shown as code', () => {
    const stream = new MarkdownStream()
    stream.push('```\ncode\n', 40)
    for (const mark of ['`', '``', '```']) {
      stream.push('`', 40)
      expect(text(stream.tail(40)).join(''), mark).not.toContain('`')
    }
  })
})

describe('text of anybody', () => {
  const nasty = fc.constantFrom(
    'a',
    'text',
    '\n',
    '\r',
    '\u001b',
    '[',
    ']',
    '31m',
    '0;title',
    '\u0007',
    '\\',
    '\u009b',
    '2J',
    '\u0000',
    '🙂',
    '\ud83d',
    '\u202e',
    '\t',
    'P',
    '?25h',
  )

  test('in pieces is cleaned as it would be at once', () => {
    fc.assert(
      fc.property(fc.array(nasty, { maxLength: 30 }), (parts) => {
        const stream = new CleanStream()
        const out = parts.map((part) => stream.push(part)).join('') + stream.end()
        expect(out.replaceAll(/ {2,}/g, ' ')).toBe(cleanText(parts.join('')).replaceAll(/ {2,}/g, ' '))
      }),
      { numRuns: 3000 },
    )
  })

  test('has no control character left but line feeds', () => {
    fc.assert(
      fc.property(fc.array(nasty, { maxLength: 30 }), (parts) => {
        expect(cleanText(parts.join(''))).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
      }),
    )
  })
})
