import { mkdtemp, readFile, realpath, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { followPage } from '../follow-page.ts'
import { printed, stepsOf } from '../page.ts'

const fence = '```'
const block = (info: string, text: string): string => `${fence}${info}\n${text}\n${fence}\n`

describe('the steps of a page', () => {
  test('are its commands with what they print, its files, and the end of what runs elsewhere, in order', () => {
    const page = [
      '# A page\n',
      block('sh', 'ls'),
      'prints nothing. Now write `a/b.lua`:\n',
      block('lua', 'return 1'),
      block('sh elsewhere', 'serve'),
      block('text', 'ready'),
      'Stop it with Ctrl-C.\n',
      block('sh fails', 'false'),
    ].join('\n')
    expect(stepsOf(page, 'p.md')).toMatchObject([
      { type: 'commands', text: 'ls\n', prints: undefined, fails: false, elsewhere: false, line: 4 },
      { type: 'file', path: 'a/b.lua', text: 'return 1\n' },
      { type: 'commands', text: 'serve\n', prints: 'ready\n', elsewhere: true },
      { type: 'stop' },
      { type: 'commands', text: 'false\n', fails: true },
    ])
  })

  test.each([
    [block('lua', 'x'), "p.md:2: the text before this block does not end with its file's name"],
    [block('text', 'x'), 'p.md:2: there are no commands before this'],
    [block('sh later', 'x'), 'p.md:2: sh later: there are'],
  ])('no block is left out silently: %j', (page, message) => {
    expect(() => stepsOf(page, 'p.md')).toThrow(message)
  })
})

test.each([
  ['a\n', 'a', true],
  ['a  \nb\n\n', 'a\nb', true],
  ['a\nb\n', 'a', false],
  ['a 12 b\n', 'a … b', true],
  ['a\nb\n', 'a…b', false],
  ['a\n1\n2\nb\n', 'a\n…\nb', true],
  ['a\nb\n', '…\na\nb\n…', true],
  ['(a+b)\n', '(a+b)', true],
  ['  a\n', 'a', false],
])('%j is what %j says: %s', (output, prints, is) => {
  expect(printed(output, prints)).toBe(is)
})

describe('somebody who follows a page', () => {
  const follow = async (text: string): Promise<string> => {
    const cwd = await realpath(await mkdtemp(join(tmpdir(), 'page-test-')))
    const page = join(cwd, 'page.md')
    await writeFile(page, text)
    await followPage(pathToFileURL(page), { cwd, here: { there: 'here' } })
    return cwd
  }

  test('types into one shell, beside which something else runs until it is stopped', async () => {
    const cwd = await follow(
      [
        block('sh', 'mkdir there && cd there && export NAME=Ada'),
        'Write `greeting`:\n',
        block('txt', 'hello'),
        block('sh elsewhere', 'trap "echo over; exit" INT; echo up; while :; do sleep 0.1; done'),
        block('text', 'up'),
        block('sh', 'echo "$(cat greeting) $NAME"; pwd'),
        block('text', 'hello Ada\n…/there'),
        block('sh fails', 'cat nothing'),
      ].join('\n'),
    )
    expect(await readFile(join(cwd, 'here/greeting'), 'utf8')).toBe('hello\n')
  })

  test.each([
    [
      block('sh', 'echo a') + block('text', 'b'),
      /page\.md:2: the commands print something else\necho a\n--- printed\na\n/,
    ],
    [block('sh', 'cat nothing\necho a'), /page\.md:2: the commands fail\n[^]*nothing: No such file/],
    [block('sh fails', 'true'), /page\.md:2: the commands do not fail/],
    [block('sh elsewhere', 'exit 3') + block('text', 'up'), /page\.md:2: the commands end with 3/],
  ])('learns where the page is wrong: %j', async (text, message) => {
    await expect(follow(text)).rejects.toThrow(message)
  })
})
