import { expect, test } from 'vitest'
import type { SlashCommand } from '../../src/tui/command-list.ts'
import { commandCandidates, wantedAt, withItems } from '../../src/tui/completion.ts'

const command = (name: string): SlashCommand => ({ name, about: '', takes: 'text' })

test('a command that is typed whole comes first', () => {
  const names = ['quitter', 'unquit', 'quit'].map(command)
  expect(commandCandidates('quit', names).map(({ value }) => value)).toEqual(['/quit', '/quitter', '/unquit'])
})

test('what is asked for: a file after @ at the start of a word, a command at the start of everything, its argument', () => {
  const commands = [{ ...command('model'), takes: 'model' as const }]
  expect(wantedAt('see @src/a', 10, commands)).toMatchObject({ kind: 'file', query: 'src/a', from: 4 })
  expect(wantedAt('mail@host', 9, commands)).toBeUndefined()
  expect(wantedAt('/mo', 3, commands)).toMatchObject({ kind: 'command', query: 'mo' })
  expect(wantedAt('/model a/', 9, commands)).toMatchObject({ kind: 'argument', query: 'a/', takes: 'model' })
  expect(wantedAt('say /mo', 7, commands)).toBeUndefined()
})

test('the highlight follows its value while what fits changes', () => {
  const wanted = { kind: 'file', from: 0, to: 2, query: 'a' } as const
  const items = (...values: readonly string[]) => values.map((value) => ({ value, more: false }))
  const first = withItems(undefined, wanted, items('a', 'b', 'c'))
  if (first === undefined) throw new Error('no list')
  expect(withItems({ ...first, selected: 2 }, wanted, items('x', 'c'))?.selected).toBe(1)
})
