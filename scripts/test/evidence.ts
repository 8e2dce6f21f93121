import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { root } from './sources.ts'

/**
 * Pages that say which test shows what (docs/cases.md, docs/conformance.md). A test is named in a code span as
 * `path › title`, or `path › title › row` for one row of a table of tests, as they stand in the source.
 */
export type Shown = { readonly path: string; readonly title: string; readonly row?: string }

/** A row of a table, its cells as written. */
export type Row = { readonly line: number; readonly cells: readonly string[] }

const separator = ' › '

/** The rows of all tables of a page, without their heads. */
export function rowsOf(page: string): readonly Row[] {
  const lines = page.split('\n')
  return lines.flatMap((text, index) => {
    const isRow = text.startsWith('|') && !text.startsWith('|---') && lines[index + 1]?.startsWith('|---') !== true
    const cells = text.split(/(?<!\\)\|/).slice(1, -1)
    return isRow ? [{ line: index + 1, cells: cells.map((cell) => cell.trim().replaceAll('\\|', '|')) }] : []
  })
}

/** The tests that a cell names. */
export function shownIn(cell: string): readonly Shown[] {
  return [...cell.matchAll(/(?<!`)(`+)(?!`) ?(.*?) ?(?<!`)\1(?!`)/g)].flatMap(([, , span = '']) => {
    const [path = '', title, row] = span.split(separator)
    return title === undefined ? [] : [row === undefined ? { path, title } : { path, title, row }]
  })
}

const literal = /(['"`])((?:\\.|(?!\1)[^\\])*)\1/g
const unescaped = (text: string): string => text.replaceAll(/\\(['"`\\$])/g, '$1')

/** The texts of a source that are string literals, and which of them are titles: the first argument before a function. */
export function literalsOf(source: string): {
  readonly all: ReadonlySet<string>
  readonly titles: ReadonlySet<string>
} {
  const all = new Set<string>()
  const titles = new Set<string>()
  // Literals are looked for from each opening quote: what stands in comments and regular expressions may hold half of one.
  for (const start of source.matchAll(/['"`]/g)) {
    literal.lastIndex = start.index
    const match = literal.exec(source)
    if (match?.index !== start.index) continue
    const text = unescaped(match[2] ?? '')
    all.add(text)
    const before = source.slice(Math.max(0, start.index - 40), start.index).trimEnd()
    const after = source.slice(literal.lastIndex, literal.lastIndex + 40)
    if (before.endsWith('(') && /^\s*,\s*(?:\{|\(|async\b|\w+ =>|\w+[,)])/.test(after)) titles.add(text)
  }
  return { all, titles }
}

const read = new Map<string, ReturnType<typeof literalsOf>>()

/** Why a test that a page names is not there; undefined when it is. */
export function missing({ path, title, row }: Shown): string | undefined {
  if (!/^(packages|apps|scripts)\/.*\.test\.ts$/.test(path)) return `${path} is not the path of a test`
  const file = join(root, path)
  if (!existsSync(file)) return `${path} does not exist`
  const source = readFileSync(file, 'utf8')
  const found = read.get(path) ?? literalsOf(source)
  read.set(path, found)
  if (!found.titles.has(title)) return `${path} has no test "${title}"`
  if (row === undefined || found.all.has(row) || hasKey(source, row)) return undefined
  // Rows that are files: recorded answers of providers.
  if (existsSync(join(dirname(file), 'fixtures', `${row}.json`))) return undefined
  return `${path} has no row "${row}"`
}

const hasKey = (source: string, key: string): boolean => /^\w+$/.test(key) && new RegExp(`\\b${key}:`).test(source)

/** What a page says of tests that are not there, with its lines. */
export const lostIn = (rows: readonly Row[]): readonly string[] =>
  rows.flatMap(({ line, cells }) =>
    cells
      .flatMap(shownIn)
      .flatMap((shown) => missing(shown) ?? [])
      .map((why) => `line ${line}: ${why}`),
  )

/** The first cells that several rows have. */
export function twiceIn(rows: readonly Row[]): readonly string[] {
  const first = rows.map(({ cells }) => cells[0] ?? '')
  return first.filter((text, index) => first.indexOf(text) !== index)
}
