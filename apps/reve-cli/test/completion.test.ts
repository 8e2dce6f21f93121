import { spawnSync, type SpawnSyncReturns } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createSession, labelDraft } from '@reve/session-log'
import { beforeAll, describe, expect, test } from 'vitest'
import { parseCommand, UsageError } from '../src/arguments.ts'
import { commandOf, commands, shells, topics, type Topic } from '../src/command-table.ts'
import { candidates } from '../src/complete.ts'
import { helpText } from '../src/help.ts'
import { agentFiles, folderWith, main, reve } from './run-cli.ts'

const words = (...line: readonly string[]) => candidates(line).words.map(({ word }) => word)

describe('the table of commands', () => {
  test('is what the parser takes: no option or action of it is unknown', () => {
    for (const topic of topics) {
      const { options, actions = {} } = commandOf(topic)
      const lines = [
        ...Object.keys(actions).map((action) => [action, 'a', 'b', 'c']),
        ...Object.entries(options).map(([name, { takes, of }]) => [
          ...(of === undefined ? [] : of.slice(0, 1)),
          `--${name}`,
          ...(takes === undefined ? [] : [typeof takes === 'string' ? '1' : (takes[0] ?? '')]),
        ]),
      ]
      for (const line of lines) {
        try {
          parseCommand([topic, ...line])
        } catch (error) {
          if (!(error instanceof UsageError)) throw error
          expect(error.message).not.toMatch(/Unknown option|has no|no command|is an option of/)
        }
      }
    }
  })

  test('is what the help tells: every command, action and option, and no other', () => {
    const hidden: Partial<Record<Topic, readonly string[]>> = { completion: ['--words'], sessions: ['rename'] }
    for (const topic of topics) {
      const text = helpText(topic)
      expect(text).toMatch(new RegExp(`^usage: reve ${topic}\\b`))
      expect(helpText(undefined)).toMatch(new RegExp(`^  ${topic}\\b.* {2,}\\S`, 'm'))
      const { options, actions = {} } = commandOf(topic)
      const told = new Set([...text.matchAll(/(?<![\w-])--[a-z][a-z-]+/g)].map(([option]) => option))
      const mine = Object.keys(options).map((name) => `--${name}`)
      for (const word of [...mine, ...Object.keys(actions)])
        if (!hidden[topic]?.includes(word)) expect(text).toMatch(new RegExp(`(?<![\\w-])${word}(?![\\w-])`))
      // exec and the examples of others show options of other programs.
      const others = ['--oneline', '--continue', '--help']
      expect([...told].filter((option) => !mine.includes(option) && !others.includes(option))).toEqual([])
      for (const [name, { short }] of Object.entries(options))
        if (short !== undefined) expect(text).toMatch(new RegExp(`-${short}, --${name}`))
    }
  })
})

describe('what a word may become', () => {
  test('commands, actions, options of the action, and what an option or a word takes', () => {
    expect(words('')).toEqual([...topics, 'help', '--help', '--version'])
    expect(words('help', '')).toEqual(topics)
    expect(words('sessions', '')).toEqual(Object.keys(commands.sessions.actions))
    expect(words('sessions', 'fork', 'a', '--')).toEqual(['--json', '--at', '--lane', '--help'])
    expect(words('sessions', 'show', '-')).toEqual(['--json', '--lane', '--help'])
    expect(words('run', '--thinking', '')).toEqual(['off', 'minimal', 'low', 'medium', 'high'])
    expect(candidates(['run', '--thinking='])).toMatchObject({
      prefix: '--thinking=',
      words: [{ word: 'off' }, {}, {}, {}, {}],
    })
    expect(words('completion', '')).toEqual([...shells])
    expect(candidates(['run', '-m', 'd'])).toEqual({ words: [], list: 'models' })
    expect(candidates(['run', '--session=x'])).toEqual({ words: [], list: 'sessions', prefix: '--session=' })
    expect(candidates(['sessions', '--lane', 'x', 'show', ''])).toEqual({ words: [], list: 'sessions' })
    expect(candidates(['sessions', 'label', 'a', ''])).toEqual({ words: [], list: 'entries' })
    expect(candidates(['rewind', ''])).toEqual({ words: [], list: 'entries' })
    expect(candidates(['tool', ''])).toEqual({ words: [], list: 'tools' })
  })

  test('nothing where nobody knows: a prompt, a command in the guest, what comes after --', () => {
    for (const line of [
      ['run', 'x'],
      ['exec', ''],
      ['frob', ''],
      ['run', '--', '--'],
      ['sessions', 'frob', ''],
      ['tool', 'a', ''],
    ])
      expect(candidates(line)).toEqual({ words: [] })
  })
})

let folder = ''
let path = ''
const session = 'main-20260105T100000000Z-0a1b2c3d.jsonl'

beforeAll(async () => {
  folder = await folderWith({
    ...agentFiles('- text: One.\n'),
    'tools/look.lua': 'tool("look", { description = "Looks\\n\\27[31mhard", run = function() return "" end })',
    'models.yml': `providers:
  demo:
    api: scripted
    models:
      - { id: "small:7b", script: turns.yml }
      - { id: "$(touch owned)", script: turns.yml }
      - { id: "two words", script: turns.yml }
      - { id: "es\\ecape", script: turns.yml }
`,
  })
  await mkdir(join(folder, '.reve', 'sessions'), { recursive: true })
  await using log = await createSession(join(folder, '.reve', 'sessions', session), { cwd: 'workspace', id: 's_one' })
  await log.append([
    {
      kind: 'entry',
      lane: 'main',
      id: 'e_1',
      type: 'message',
      payload: { message: { role: 'user', content: [{ type: 'text', text: 'make\tit' }] } },
    },
    {
      kind: 'entry',
      lane: 'main',
      id: 'e_2',
      type: 'message',
      payload: { message: { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] } },
    },
    labelDraft('e_2', 'good'),
  ])
  // What a shell finds as reve.
  path = join(
    await folderWith({ reve: `#!/bin/sh\nexec ${process.execPath} --conditions=@reve/source ${main} "$@"\n` }),
    'reve',
  )
  await chmod(path, 0o755)
})

describe('of the agent of the folder', () => {
  const listed = async (...line: readonly string[]) => (await reve(['completion', '--words', ...line], folder)).stdout

  test('sessions, entries, models and tools are completed, each with what it is', async () => {
    expect(await listed('sessions', 'show', '')).toBe(`${session}\tmake it\n`)
    expect(await listed('rewind', '')).toBe('e_2\tgood\ne_1\tuser make it\n')
    // A name that cannot be typed is none of them.
    expect(await listed('run', '--model', '')).toBe('demo/small:7b\ndemo/$(touch owned)\ndemo/two words\n')
    expect(await listed('run', '--model=')).toContain('--model=demo/small:7b\n')
    expect(await listed('tool', '')).toBe('look\tLooks hard\n')
  })

  test('elsewhere, and where something is wrong, there are none and nothing is said', async () => {
    const elsewhere = await folderWith({})
    const broken = await folderWith({ 'agent.lua': 'agent {', 'models.yml': ':' })
    for (const list of [
      ['run', '-m', ''],
      ['tool', ''],
      ['rewind', ''],
      ['sessions', 'show', ''],
    ])
      for (const where of [elsewhere, broken])
        expect(await reve(['completion', '--words', ...list], where)).toMatchObject({ code: 0, stdout: '', stderr: '' })
    expect(await readdir(elsewhere)).toEqual([])
  })
})

/** What a real shell makes of a line that ends at the cursor. */
const inBash = (...line: readonly string[]): readonly string[] => {
  const quoted = [path, ...line].map((word) => `'${word}'`).join(' ')
  const script = `eval "$('${path}' completion bash)"
COMP_WORDS=(${quoted}); COMP_CWORD=${line.length}; _reve; printf '%s\\n' "\${COMPREPLY[@]}"`
  return linesOf(spawnSync('bash', ['--norc', '-c', script], { encoding: 'utf8', cwd: folder }))
}
const inFish = (line: string): readonly string[] => {
  const script = `set -x HOME ${folder}; '${path}' completion fish | source; function reve; '${path}' $argv; end; complete -C 'reve ${line}'`
  return linesOf(spawnSync('fish', ['--no-config', '-c', script], { encoding: 'utf8', cwd: folder }))
}
const inZsh = (...line: readonly string[]): readonly string[] => {
  const quoted = [path, ...line].map((word) => `'${word}'`).join(' ')
  // What completes is called as the shell would; compadd is its way to give an answer.
  const script = `compdef() { : }; compadd() { print -rl -- "\${(@P)2}" }; _files() { print files }
eval "$('${path}' completion zsh)"; words=(${quoted}); CURRENT=${line.length + 1}; _reve`
  return linesOf(spawnSync('zsh', ['-f', '-c', script], { encoding: 'utf8', cwd: folder }))
}
const linesOf = ({ stdout, stderr, status }: SpawnSyncReturns<string>) => {
  expect([status, stderr]).toEqual([0, ''])
  return stdout.split('\n').filter((word) => word !== '')
}

const has = (shell: string): boolean => {
  const found = spawnSync(shell, ['-c', 'exit 0']).status === 0
  if (!found) process.stderr.write(`there is no ${shell} here: its completion is not tried\n`)
  return found
}

describe.skipIf(!has('bash'))('in bash', () => {
  test('words that begin as what is typed, quoted, with nothing of a file run', () => {
    expect(inBash('ses')).toEqual(['sessions'])
    expect(inBash('sessions', 's')).toEqual(['show', 'search', 'salvage'])
    expect(inBash('sessions', 'show', 'main')).toEqual([session])
    expect(inBash('run', '--thinking', 'm')).toEqual(['minimal', 'medium'])
    expect(inBash('run', '--model', 'demo/')).toEqual([
      'demo/small:7b',
      'demo/\\$\\(touch\\ owned\\)',
      'demo/two\\ words',
    ])
    expect(existsSync(join(folder, 'owned'))).toBe(false)
    expect(inBash('frob', '')).toEqual([])
  })

  test('also where bash cuts a word into pieces', () => {
    expect(inBash('run', '--model', 'demo/small', ':', '')).toEqual(['7b'])
    expect(inBash('run', '--model', 'demo/small', ':', '7')).toEqual(['7b'])
    expect(inBash('run', '--thinking', '=', 'h')).toEqual(['high'])
    expect(inBash('run', '--thinking', '=', 'low', '--mod')).toEqual(['--model'])
  })
})

describe.skipIf(!has('zsh'))('in zsh', () => {
  test('the same words, else files', () => {
    expect(inZsh('sessions', 'show', '')).toEqual([session])
    expect(inZsh('run', '--model', '')).toEqual(['demo/small:7b', 'demo/$(touch owned)', 'demo/two words'])
    expect(inZsh('init', '')).toEqual(['files'])
    expect(existsSync(join(folder, 'owned'))).toBe(false)
  })
})

describe.skipIf(!has('fish'))('in fish', () => {
  test('the same words, with what they are', () => {
    expect(inFish('sessions show ')).toContain(`${session}\tmake it`)
    expect(inFish('run --thinking m')).toEqual(['medium', 'minimal'])
    expect(inFish('run --model demo/')).toContain('demo/$(touch owned)')
    expect(existsSync(join(folder, 'owned'))).toBe(false)
  })
})

test('scripts are printed by name, others are refused with those that there are', async () => {
  for (const shell of shells) expect((await reve(['completion', shell], '/')).stdout).toContain('completion --words')
  expect(await reve(['completion'], '/')).toMatchObject({ code: 2, stderr: expect.stringContaining('bash, zsh, fish') })
  expect(await reve(['completion', 'tcsh'], '/')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no script for "tcsh"'),
  })
})
