import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createGrepParser, type GrepLine, ripgrepLineOf } from '../src/grep-lines.ts'
import { createGrepResult, type GrepWindow } from '../src/grep-result.ts'
import { createPieces } from '../src/pieces.ts'

const line = (number: number, isMatch: boolean, given: Partial<GrepLine> = {}): GrepLine => ({
  path: Buffer.from('./f'),
  number,
  text: `text ${number}`,
  isMatch,
  at: 0,
  ...given,
})
const shown = (lines: readonly GrepLine[], window: Partial<GrepWindow> = {}): string => {
  const result = createGrepResult({ offset: 1, limit: 10, context: 0, ...window })
  for (const one of lines) if (!result.add(one)) break
  return result.text()
}

describe('what a search shows', () => {
  test('groups of two files, of the same lines, are two groups', () => {
    const other = { path: Buffer.from('./g') }
    const lines = [line(1, true), line(2, false), line(2, false, other), line(3, true, other)]
    expect(shown(lines, { context: 1 })).toBe('f:1:text 1\nf-2-text 2\n--\ng-2-text 2\ng:3:text 3')
  })

  test('lines around a match that is not shown are not shown', () => {
    const lines = [line(1, true), line(2, false), line(9, false), line(10, true), line(11, false)]
    expect(shown(lines, { context: 1, offset: 2 })).toBe('f-9-text 9\nf:10:text 10\nf-11-text 11')
    expect(shown(lines, { context: 1, limit: 1 })).toMatch(/^f:1:text 1\nf-2-text 2\n\n\[More lines match/)
  })

  test('a long line is shown around its match, and no character is split', () => {
    const text = `${'😀'.repeat(300)}needle${'😀'.repeat(300)}`
    const told = shown([line(1, true, { text, at: 600 })])
    expect(told).toContain('needle')
    expect(told.isWellFormed()).toBe(true)
    expect(told.length).toBeLessThan(450)
  })

  test('never is more than a result, and each match is shown by reading on', () => {
    const lines = Array.from({ length: 300 }, (_, index) => line(index + 1, true, { text: 'x'.repeat(index * 7) }))
    const seen: string[] = []
    for (let offset: number | undefined = 1; offset !== undefined;) {
      const text = shown(lines, { offset, limit: 1000 })
      expect(text.length).toBeLessThanOrEqual(24_000)
      seen.push(...text.split('\n').flatMap((one) => /^f:(\d+):/.exec(one)?.[1] ?? []))
      const [, next] = /Use offset=(\d+)/.exec(text) ?? []
      offset = next === undefined ? undefined : Number(next)
    }
    expect(seen).toEqual(lines.map(({ number }) => String(number)))
  })
})

describe('the lines of a program', () => {
  test('of ripgrep, also those that are no text', () => {
    const json = (value: unknown) => ripgrepLineOf(Buffer.from(JSON.stringify(value)))
    const bytes = Buffer.from('caf\xe9 x\n', 'latin1').toString('base64')
    const data = { path: { text: './f' }, lines: { bytes }, line_number: 3, submatches: [{ start: 5 }] }
    expect(json({ type: 'match', data })).toEqual(line(3, true, { text: 'caf\uFFFD x', at: 5 }))
    expect(json({ type: 'begin', data: { path: { text: './f' } } })).toBeUndefined()
    expect(ripgrepLineOf(Buffer.from('{"type":'))).toBeUndefined()
  })

  test('of grep, in whatever pieces, with any name', () => {
    const output = './f\x001:a\n./f\x002-b:c\n--\n./two\n--\nlines\x007:\x1b[2J\n'
    fc.assert(
      fc.property(fc.array(fc.nat(output.length)), (cuts) => {
        const found: GrepLine[] = []
        const take = createPieces(
          0x0a,
          createGrepParser((one) => found.push(one)),
        )
        const places = [0, ...cuts.toSorted((one, other) => one - other), output.length]
        for (const [index, place] of places.entries()) take(Buffer.from(output.slice(place, places[index + 1])))
        expect(found.map(({ path, ...rest }) => ({ path: Buffer.from(path).toString(), ...rest }))).toEqual([
          { path: './f', number: 1, text: 'a', isMatch: true, at: 0 },
          { path: './f', number: 2, text: 'b:c', isMatch: false, at: 0 },
          { path: './two\n--\nlines', number: 7, text: '\x1b[2J', isMatch: true, at: 0 },
        ])
      }),
    )
  })

  test('one without an end takes no memory', () => {
    const pieces: number[] = []
    const take = createPieces(0x0a, (piece) => pieces.push(piece.length))
    for (let index = 0; index < 20; index++) take(Buffer.alloc(1 << 20))
    take(Buffer.from('\nnext\n'))
    expect(pieces).toEqual([4])
  })
})
