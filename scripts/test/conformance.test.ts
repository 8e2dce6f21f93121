import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { lostIn, rowsOf, shownIn, twiceIn } from './evidence.ts'
import { root } from './sources.ts'

const pageOf = (name: string): string => readFileSync(join(root, 'docs', name), 'utf8')
const page = pageOf('conformance.md')
const rows = rowsOf(page)

/** What stands behind `Decided: ` or `Not yet: ` in the last cell of rows. */
const marked = (mark: string): readonly string[] =>
  rows.flatMap(({ cells }) => (cells[2]?.startsWith(mark) ? [cells[2].slice(mark.length)] : []))

describe('docs/conformance.md', () => {
  test('has for each promise its place, and a test, a decision, or what is missing', () => {
    expect(rows.length).toBeGreaterThan(180)
    const wrong = rows.flatMap(({ line, cells: [promise = '', place = '', shown = '', ...more] }) => {
      const marks = /^(Decided|Not yet): \S/.test(shown)
      const told = promise !== '' && place !== '' && more.length === 0
      return told && marks !== shownIn(shown).some(({ path }) => path.endsWith('.test.ts'))
        ? []
        : [`line ${line}: ${promise}`]
    })
    expect(wrong).toEqual([])
  })

  test('names tests that are there', () => {
    expect(lostIn(rows)).toEqual([])
  })

  test('has each promise once', () => {
    expect(twiceIn(rows)).toEqual([])
  })

  test('knows only decisions that are told in docs/deviations.md', () => {
    const decisions = rowsOf(pageOf('deviations.md')).map(({ cells }) => cells[0])
    expect(marked('Decided: ').filter((text) => !decisions.includes(text))).toEqual([])
  })

  test('lists at its end all that does not hold yet, and nothing else', () => {
    const [, end = ''] = page.split('\n## What does not hold yet\n')
    const list = [...end.matchAll(/^- (.*)$/gm)].map((match) => match[1] ?? '')
    expect(list.toSorted()).toEqual([...new Set(marked('Not yet: '))].toSorted())
  })
})
