import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { literalsOf, lostIn, missing, rowsOf, shownIn, twiceIn } from './evidence.ts'
import { root } from './sources.ts'

describe('docs/cases.md', () => {
  const rows = rowsOf(readFileSync(join(root, 'docs/cases.md'), 'utf8'))

  test('has a test for each case, or says why there is none', () => {
    expect(rows.length).toBeGreaterThan(300)
    const wrong = rows.flatMap(({ line, cells: [wrong = '', right = '', shown = '', ...more] }) => {
      const excused = /^Not (ours|yet): \S.{20,}/.test(shown)
      const told = wrong !== '' && right !== '' && more.length === 0
      return told && (excused || shownIn(shown).length > 0) ? [] : [`line ${line}: ${wrong}`]
    })
    expect(wrong).toEqual([])
  })

  test('names tests that are there', () => {
    expect(lostIn(rows)).toEqual([])
  })

  test('has each case once', () => {
    expect(twiceIn(rows)).toEqual([])
  })
})

describe('what a page says of tests', () => {
  test('is read from its tables, with rows, bars and backticks', () => {
    const page = 'x\n| head | b |\n|---|---|\n| a \\| b | `p › t` and ``q › `t` › r`` |'
    const [row, ...others] = rowsOf(page)
    expect(others).toEqual([])
    expect(row).toEqual({ line: 4, cells: ['a | b', '`p › t` and ``q › `t` › r``'] })
    expect(shownIn(row?.cells[1] ?? '')).toEqual([
      { path: 'p', title: 't' },
      { path: 'q', title: '`t`', row: 'r' },
    ])
    expect(shownIn('a `word` alone')).toEqual([])
  })

  test('is looked for among the titles of a file, which no other text is', () => {
    const source = [
      `test('one', () => {})`,
      `describe.each([['row']])("it's %s", (name) => {})`,
      `test.skipIf(why)(\n  \`\${many} of them\`,\n  { timeout: 1 },\n  async () => {})`,
      `expect('two').toBe('one more') // test('three'`,
    ].join('\n')
    const { titles, all } = literalsOf(source)
    expect([...titles]).toEqual(['one', "it's %s", '${many} of them'])
    expect(all).toContain('row')
  })

  test('is not there when the file, the title or the row is another', () => {
    const path = 'scripts/test/cases.test.ts'
    expect(missing({ path, title: 'has each case once' })).toBeUndefined()
    expect(missing({ path, title: 'has each case twice' })).toMatch('has no test')
    const ids = { path: 'packages/base/test/ids.test.ts', title: 'an id has its prefix, its time and its randomness' }
    expect(missing(ids)).toBeUndefined()
    expect(missing({ ...ids, row: 'no row of it' })).toMatch('has no row')
    expect(missing({ path: 'scripts/test/none.test.ts', title: 'x' })).toMatch('does not exist')
    expect(missing({ path: 'scripts/run.mjs', title: 'x' })).toMatch('not the path of a test')
  })
})
