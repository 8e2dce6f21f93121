import { spawnSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseCommand, topics, UsageError } from '../src/arguments.ts'
import { completionScript, shells, words } from '../src/completion-scripts.ts'
import { reve } from './run-cli.ts'

const values: Readonly<Record<string, readonly string[]>> = {
  '--args': ['{}'],
  '--at': ['e_1'],
  '--format': ['md'],
  '--lane': ['side'],
  '--max-turns': ['3'],
  '--model': ['a/b'],
  '--packages': ['git'],
  '--session': ['s'],
  '--thinking': ['low'],
}

describe('what is completed', () => {
  test('the parser takes: no word is refused for being unknown', () => {
    for (const topic of topics) {
      for (const word of words[topic]) {
        try {
          parseCommand([topic, word, ...(values[word] ?? [])])
        } catch (error) {
          if (!(error instanceof UsageError)) throw error
          expect(error.message).not.toMatch(/Unknown option|has no|no command/)
        }
      }
    }
  })

  test('is all that the help tells of a command', async () => {
    for (const topic of topics) {
      const { stdout } = await reve([topic, '--help'], '/')
      const told = [...stdout.matchAll(/^ +(?:-\w, )?(--[a-z][a-z-]+)/gm)].map(([, option]) => option)
      expect(words[topic]).toEqual(expect.arrayContaining(told))
    }
  })
})

const complete = (line: string): readonly string[] => {
  const script = `${completionScript('bash')}
COMP_WORDS=(${line
    .split(' ')
    .map((word) => `'${word}'`)
    .join(' ')}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _reve; printf '%s\\n' "\${COMPREPLY[@]}"`
  const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', script], {
    encoding: 'utf8',
    cwd: mkdtempSync(join(tmpdir(), 'c-')),
  })
  expect([status, stderr]).toEqual([0, ''])
  return stdout.split('\n').filter((word) => word !== '')
}

describe('the script for bash', () => {
  test('completes commands, their words, and what an option takes', () => {
    expect(complete('reve ses')).toEqual(['sessions'])
    expect(complete('reve sessions s')).toEqual(['show', 'search', 'salvage'])
    expect(complete('reve run --')).toContain('--continue')
    expect(complete('reve run --thinking m')).toEqual(['minimal', 'medium'])
    expect(complete('reve help im')).toEqual(['image'])
    expect(complete('reve frob ')).toEqual([])
  })
})

test('scripts are printed by name, others are refused with those that there are', async () => {
  for (const shell of shells) expect((await reve(['completion', shell], '/')).stdout).toContain('reve')
  expect(await reve(['completion'], '/')).toMatchObject({ code: 2, stderr: expect.stringContaining('bash, zsh, fish') })
  expect(await reve(['completion', 'tcsh'], '/')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no script for "tcsh"'),
  })
})
