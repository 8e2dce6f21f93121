import { describe, expect, test } from 'vitest'
import { blockView } from '../../src/tui/block-view.ts'
import { MarkdownStream } from '../../src/tui/markdown-stream.ts'
import { clip, type Line, lineWidth, span } from '../../src/tui/spans.ts'
import { createPainter, themes } from '../../src/tui/theme.ts'

const text = (line: Line): string => line.map((piece) => piece.text).join('')
const rows = (lines: readonly Line[]): readonly string[] => lines.map(text)
const dark = themes['dark'] ?? { name: 'none', colours: {} }

describe('markdown that streams', () => {
  const document = `# Title

A paragraph with **bold**, *italic*, \`code\` and [a link](https://example.com/x).

- one
  - two
    1. three

\`\`\`python
def f():
    return '''
text'''
\`\`\`

| a | b |
|---|--:|
| 日本語 | 1 |

> quoted
> > deeper

The end.
`

  test('is the same however it is cut, and what is out does not change', () => {
    const whole = new MarkdownStream()
    const wanted = rows([...whole.push(document, 60), ...whole.end(60)])
    for (const size of [1, 2, 3, 7, 50]) {
      const stream = new MarkdownStream()
      const out: Line[] = []
      for (let at = 0; at < document.length; at += size) {
        out.push(...stream.push(document.slice(at, at + size), 60))
        // What is open can be looked at whenever a frame is drawn.
        expect(stream.tail(60).every((line) => lineWidth(line) <= 60)).toBe(true)
      }
      out.push(...stream.end(60))
      expect(rows(out)).toEqual(wanted)
    }
  })

  test('a fence that is not closed yet does not flicker', () => {
    const stream = new MarkdownStream()
    stream.push('```ts\nconst a = 1\n``', 40)
    expect(rows(stream.tail(40)).join('\n')).not.toContain('``')
  })

  test('quotes in quotes, and one very long line, are bounded', () => {
    const stream = new MarkdownStream()
    stream.push(`${'> '.repeat(5000)}deep\n\n`, 40)
    stream.push('word '.repeat(100_000), 40)
    expect(rows(stream.end(40)).length).toBeGreaterThan(1)
  })
})

describe('rows', () => {
  test.each([1, 2, 5, 10, 39])('are never wider than %i cells', (width) => {
    const block = {
      type: 'assistant',
      text: '日本語 👩‍👧‍👦 é नमस्ते 🇩🇪 text | a | b |\n|---|---|\n| long cell | x |',
    } as const
    for (const line of blockView(block, width)) expect(lineWidth(line)).toBeLessThanOrEqual(width)
  })

  test('an edit is shown as what it changed', () => {
    const block = {
      type: 'tool',
      name: 'edit',
      arguments: { path: 'a.ts', old: 'one\ntwo\nthree', new: 'one\n2\nthree' },
      content: [{ type: 'text', text: 'done' }],
      state: 'ok',
    } as const
    const shown = rows(blockView(block, 60)).join('\n')
    expect(shown).toContain('- two')
    expect(shown).toContain('+ 2')
    const painted = blockView(block, 60)
      .map(createPainter(dark, '16', { links: false }))
      .join('\n')
    expect(painted).toMatch(/\u001b\[31m- two/)
    expect(painted).toMatch(/\u001b\[32m\+ 2/)
  })

  test('a link is closed where its row is cut, and is plain text where links do not work', () => {
    const line: Line = [span('a very long link text', { link: 'https://example.com/é' })]
    const linked = createPainter(dark, 'truecolor', { links: true })(clip(line, 6))
    expect(linked).toBe('\u001b]8;;https://example.com/%C3%A9\u001b\\a very\u001b]8;;\u001b\\')
    expect(createPainter(dark, 'truecolor', { links: false })(clip(line, 6))).toBe('a very')
  })

  test('nothing of a control sequence reaches the terminal, and no style reaches over a row', () => {
    const painter = createPainter(dark, 'truecolor', { links: false })
    expect(painter([span('a\u001b[2Jb\u009b', 'danger')])).not.toMatch(/\u001b\[2J|\u009b/)
    for (const line of blockView({ type: 'assistant', text: '**bold words that wrap over rows**' }, 12))
      expect(painter(line).split('\u001b[0m').at(-1)).not.toContain('\u001b[')
  })
})
