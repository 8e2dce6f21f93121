import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { commandOf, topics } from '../src/command-table.ts'
import { exitCode } from '../src/exit-codes.ts'
import { helpText } from '../src/help.ts'

const doc = await readFile(new URL('../../../docs/cli.md', import.meta.url), 'utf8')
const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8')

test('the table of exit codes has each that there is, and no other', () => {
  const section = doc.slice(doc.indexOf('## Exit codes'), doc.indexOf('## `reve run`'))
  const rows = [...section.matchAll(/^\| (\d+) \| (.+) \|$/gm)].map(([, code]) => Number(code))
  expect(rows).toEqual(Object.values(exitCode).toSorted((a, b) => a - b))
})

test('the overview and the README name the codes in short', () => {
  for (const text of [helpText(undefined), readme]) {
    const short = text.replaceAll('\n', ' ').slice(text.toLowerCase().indexOf('exit codes: '))
    for (const code of Object.values(exitCode).filter((code) => code !== exitCode.execFailed))
      expect(short).toMatch(new RegExp(`[ ,]${code} \\w`))
  }
})

test('each command, action and option is there', () => {
  for (const topic of topics) {
    expect(doc).toMatch(new RegExp(`^\\| \`reve ${topic}\\b`, 'm'))
    const { options, actions = {} } = commandOf(topic)
    for (const word of [...Object.keys(options).map((name) => `--${name}`), ...Object.keys(actions)])
      expect(doc).toMatch(new RegExp(`(?<![\\w-])${word}(?![\\w-])`))
  }
})
