import xterm from '@xterm/headless'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Frame, Screen } from '../../src/tui/screen.ts'
import { type Line, span } from '../../src/tui/spans.ts'
import { createPainter } from '../../src/tui/theme.ts'

const paint = createPainter({ name: 'none', colours: {} }, 'none', { links: false })
const line = (text: string): Line => [span(text)]
const frame = (rows: readonly string[], cursor?: Frame['cursor']): Frame => ({
  rows: rows.map(line),
  cursor,
})

function terminal(cols: number, rows: number) {
  const screen = new xterm.Terminal({ cols, rows, scrollback: 10_000, allowProposedApi: true })
  const write = (bytes: string): Promise<void> => new Promise((done) => screen.write(bytes, done))
  const text = (): readonly string[] => {
    const { active } = screen.buffer
    const all = Array.from(
      { length: active.length },
      (_, at) => active.getLine(at)?.translateToString(true).trimEnd() ?? '',
    )
    return all.slice(0, all.findLastIndex((row) => row !== '') + 1)
  }
  return { screen, write, text }
}

const row = fc.integer({ min: 0, max: 9 }).chain((length) => fc.stringMatching(new RegExp(`^[a-z]{${length}}$`)))
const step = fc.record({
  rows: fc.array(row, { minLength: 1, maxLength: 8 }),
  commit: fc.array(
    row.filter((text) => text !== ''),
    { maxLength: 30 },
  ),
  cursor: fc.option(fc.record({ row: fc.nat(7), column: fc.nat(9) }), { nil: undefined }),
})

describe('the live area', () => {
  test('whatever is drawn after whatever, the screen is what was committed and then the last frame', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), async (steps) => {
        const { screen, write, text } = terminal(10, 9)
        const live = new Screen(10)
        const committed: string[] = []
        for (const { rows, commit, cursor } of steps) {
          const at =
            cursor === undefined ? undefined : { row: Math.min(cursor.row, rows.length - 1), column: cursor.column }
          await write(live.draw(frame(rows, at), paint, commit.map(line)))
          committed.push(...commit)
          const expected = [...committed, ...rows]
          expect(text()).toEqual(expected.slice(0, expected.findLastIndex((shown) => shown !== '') + 1))
          if (at !== undefined) {
            const { cursorX, cursorY, baseY } = screen.buffer.active
            expect([cursorX, baseY + cursorY]).toEqual([at.column, committed.length + at.row])
          }
        }
        await write(live.clear())
        expect(text()).toEqual(committed)
        screen.dispose()
      }),
      { numRuns: 60 },
    )
  })

  test('of a frame only the rows that changed are written, and none when nothing did', () => {
    const live = new Screen(80)
    const rows = Array.from({ length: 20 }, (_, at) => `row ${at} ${'x'.repeat(50)}`)
    const whole = live.draw(frame(rows, { row: 0, column: 0 }), paint).length
    expect(live.draw(frame(rows, { row: 0, column: 0 }), paint)).toBe('')
    const changed = live.draw(frame(rows.with(7, 'other'), { row: 0, column: 0 }), paint)
    expect(changed).toContain('other')
    expect(changed.length).toBeLessThan(whole / 8)
    expect(live.draw(frame(rows.with(7, 'other'), { row: 3, column: 4 }), paint).length).toBeLessThan(60)
  })

  test('each frame is one synchronised update', () => {
    const live = new Screen(80)
    for (const rows of [['a'], ['b', 'c'], ['c']])
      expect(live.draw(frame(rows), paint, [line('done')])).toMatch(/^\u001b\[\?2026h[\s\S]*\u001b\[\?2026l$/)
  })

  test('of another width: what was committed stays, the live rows are there once', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          row.filter((text) => text !== ''),
          { minLength: 0, maxLength: 12 },
        ),
        fc.array(
          row.filter((text) => text !== ''),
          { minLength: 1, maxLength: 4 },
        ),
        fc.array(fc.integer({ min: 3, max: 30 }), { minLength: 1, maxLength: 5 }),
        fc.nat(3),
        async (commit, live, widths, at) => {
          const { screen, write, text } = terminal(10, 12)
          const area = new Screen(10, 'sinks')
          const cursor = { row: Math.min(at, live.length - 1), column: 1 }
          await write(area.draw(frame(live, cursor), paint, commit.map(line)))
          for (const width of widths) {
            screen.resize(width, 12)
            await write(area.resize(width))
            const shown = live.map((text) => text.slice(0, width - 1) || '.')
            await write(area.draw(frame(shown, { ...cursor, column: Math.min(1, width - 1) }), paint))
            const now = text()
            expect(now.slice(-live.length)).toEqual(shown)
            // The terminal wraps long rows of the scrollback anew: their letters are all there, once.
            expect(now.slice(0, -live.length).join('')).toBe(commit.join(''))
          }
          screen.dispose()
        },
      ),
      { numRuns: 60 },
    )
  })
})
