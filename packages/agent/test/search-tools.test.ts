import { mkdir, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Tool } from '@reve/harness'
import type { JsonObject } from '@reve/providers/model'
import type { MicroVm } from '@reve/sandbox-microvm'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { globTool, grepTool, lsTool } from '../src/search-tools.ts'
import { callTool, canBoot, type GuestVm, startVm } from './guest-vm.ts'

const isBootable = await canBoot()

describe.skipIf(!isBootable).each([
  { means: 'ripgrep and fd', packages: ['fd-find', 'git', 'python3', 'ripgrep'], ignores: true },
  { means: 'grep and find', packages: ['git', 'python3'], ignores: false },
])('search in the guest by $means', ({ packages, ignores }) => {
  let guest: GuestVm
  let made = 0
  let folder = ''
  beforeAll(async () => {
    guest = await startVm(packages)
  })
  afterAll(() => guest.vm.stop())
  beforeEach(async () => {
    folder = `search-${made++}`
    await mkdir(join(guest.workspace, folder))
  })

  const call = (make: (vm: MicroVm) => Tool, args: JsonObject) => callTool(make(guest.vm), { path: folder, ...args })
  const lines = async (make: (vm: MicroVm) => Tool, args: JsonObject): Promise<readonly string[]> => {
    const { text, isError } = await call(make, args)
    expect([isError, isError ? text : '']).toEqual([false, ''])
    return text.split('\n').map((line) => line.replaceAll(`${folder}/`, ''))
  }
  /** Files, each a minute older than the one before. */
  const files = async (contents: Readonly<Record<string, string | Uint8Array>>): Promise<void> => {
    let time = 1_700_000_000
    for (const [path, content] of Object.entries(contents)) {
      const file = join(guest.workspace, folder, path)
      await mkdir(dirname(file), { recursive: true })
      await writeFile(file, content)
      await utimes(file, time, (time -= 60))
    }
  }

  describe('glob', () => {
    test('finds names at any depth, or paths from the folder on, the newest first', async () => {
      await files({ 'src/b.ts': '', 'a.ts': '', 'src/deep/er/c.tsx': '', 'src/d.py': '', '.hidden/e.ts': '' })
      expect(await lines(globTool, { pattern: '*.ts' })).toEqual(['src/b.ts', 'a.ts', '.hidden/e.ts'])
      expect(await lines(globTool, { pattern: 'src/**/*.{ts,tsx}' })).toEqual(['src/b.ts', 'src/deep/er/c.tsx'])
      expect(await lines(globTool, { pattern: 'src/*.[!t]?' })).toEqual(['src/d.py'])
      expect(await lines(globTool, { pattern: 'dee*' })).toEqual(['src/deep/'])
      expect(await lines(globTool, { pattern: '*.rs' })).toEqual(['(nothing found)'])
      expect(await lines(globTool, { pattern: '*.ts', limit: 1 })).toEqual([
        'src/b.ts',
        '',
        '[2 more. Use a narrower pattern or a higher limit.]',
      ])
      expect((await call(globTool, { pattern: `/workspace/${folder}/*.ts` })).text).toBe(`/workspace/${folder}/a.ts`)
    })

    test('takes no pattern and no name for an option, and shows each name on a line', async () => {
      await files({
        '--help': '',
        '-rf': '',
        'two\nlines': '',
        'esc\u001b[2J': '',
        "it's": '',
        ファイル: '',
        'a b': '',
      })
      await guest.vm.exec({ argv: ['python3', '-c', `open(b'${folder}/\\xff-x', 'w')`] })
      expect(await lines(globTool, { pattern: '-*' })).toEqual(['--help', '-rf'])
      expect(new Set((await lines(globTool, { pattern: '*' })).map((line) => line.replace(`$'`, '')))).toEqual(
        new Set(['--help', '-rf', "two\\nlines'", "esc\\x1b[2J'", "it's", 'ファイル', 'a b', "\\xff-x'"]),
      )
      expect(await call(globTool, { pattern: '*', path: '-nowhere' })).toEqual({
        text: 'no such folder: ./-nowhere',
        isError: true,
      })
    })

    test('leaves out the repository itself and what it ignores, if asked to not', async () => {
      await files({ '.gitignore': 'built/\n', 'built/out.js': '', 'in.js': '' })
      await guest.vm.exec({ argv: ['git', 'init', '-q', folder] })
      expect(await lines(globTool, { pattern: '*.js' })).toEqual(ignores ? ['in.js'] : ['built/out.js', 'in.js'])
      expect(await lines(globTool, { pattern: '*.js', ignored: true })).toEqual(['built/out.js', 'in.js'])
      expect(await lines(globTool, { pattern: 'HEAD', ignored: true })).toEqual(['(nothing found)'])
    })
  })

  describe('grep', () => {
    test('shows path, number and line, also of hidden files, whatever the pattern begins with', async () => {
      await files({ 'sub/needle.txt': 'hay\n--flag needle\n', '.env': '--flag\r\n', other: '-e\n' })
      expect((await lines(grepTool, { pattern: '--flag' })).toSorted()).toEqual([
        '.env:1:--flag',
        'sub/needle.txt:2:--flag needle',
      ])
      expect(await lines(grepTool, { pattern: '-e$', path: `${folder}/other` })).toEqual(['other:1:-e'])
      expect(await lines(grepTool, { pattern: 'nowhere' })).toEqual(['(nothing found)'])
      expect(await call(grepTool, { pattern: 'x', path: 'nowhere' })).toEqual({
        text: 'no such file or folder: ./nowhere',
        isError: true,
      })
      expect(await call(grepTool, { pattern: '(' })).toMatchObject({ isError: true })
    })

    test('takes a regular expression, a plain text, either case, only some files', async () => {
      await files({ 'a.ts': 'call(42)\nCall(x)\n', 'sub/a.py': 'call(7)\n' })
      expect((await lines(grepTool, { pattern: 'call\\(\\d+\\)' })).toSorted()).toEqual([
        'a.ts:1:call(42)',
        'sub/a.py:1:call(7)',
      ])
      expect(await lines(grepTool, { pattern: 'CALL(x', literal: true, ignore_case: true })).toEqual(['a.ts:2:Call(x)'])
      expect(await lines(grepTool, { pattern: 'call', glob: '*.py' })).toEqual(['sub/a.py:1:call(7)'])
      expect(await lines(grepTool, { pattern: 'call', glob: 'sub/**' })).toEqual(['sub/a.py:1:call(7)'])
      expect(await lines(grepTool, { pattern: 'call', glob: '*.ts', path: `${folder}/a.ts` })).toEqual([
        'a.ts:1:call(42)',
      ])
    })

    test('shows lines around, stops at the limit, and goes on from there', async () => {
      await files({ numbers: Array.from({ length: 50 }, (_, index) => `line ${index + 1}\n`).join('') })
      expect(await lines(grepTool, { pattern: ' [12]0$', context: 1 })).toEqual([
        'numbers-9-line 9',
        'numbers:10:line 10',
        'numbers-11-line 11',
        '--',
        'numbers-19-line 19',
        'numbers:20:line 20',
        'numbers-21-line 21',
      ])
      const next = (offset: number) =>
        `[More lines match. Use offset=${offset} to continue, or a narrower pattern, path or glob.]`
      expect(await lines(grepTool, { pattern: '5$', limit: 2 })).toEqual([
        'numbers:5:line 5',
        'numbers:15:line 15',
        '',
        next(3),
      ])
      expect(await lines(grepTool, { pattern: '5$', limit: 2, offset: 3, context: 1 })).toEqual([
        'numbers-24-line 24',
        'numbers:25:line 25',
        'numbers-26-line 26',
        '--',
        'numbers-34-line 34',
        'numbers:35:line 35',
        'numbers-36-line 36',
        '',
        next(5),
      ])
      expect(await lines(grepTool, { pattern: '5$', limit: 2, offset: 5 })).toEqual(['numbers:45:line 45'])
      expect(await lines(grepTool, { pattern: '5$', offset: 9 })).toEqual([
        '(nothing found from match 9 on: there are 5)',
      ])
    })

    test('however much matches, what it shows is bounded, and a long line is shown around its match', async () => {
      await files({ long: `${'x'.repeat(5000)}needle${'y'.repeat(5000)}\n`.repeat(500) })
      const { text } = await call(grepTool, { pattern: 'needle', limit: 1000 })
      expect(text.length).toBeLessThanOrEqual(24_000)
      const [, offset] = /Use offset=(\d+)/.exec(text) ?? []
      expect(Number(offset)).toBeGreaterThan(40)
      if (ignores) expect(text).toMatch(/^\S+:1:…x+needley+…\n/)
    })

    test('shows each name on one line, and leaves binary files and the repository out', async () => {
      await files({
        'two\nlines': 'needle\n',
        binary: new Uint8Array([0, ...Buffer.from('needle\n'), 0xff]),
        latin: Buffer.from('needle caf\xe9\n', 'latin1'),
      })
      await guest.vm.exec({ argv: ['git', 'init', '-q', folder] })
      await writeFile(join(guest.workspace, folder, '.git/needle'), 'needle\n')
      expect((await lines(grepTool, { pattern: 'needle' })).toSorted()).toEqual([
        "$'two\\nlines':1:needle",
        'latin:1:needle caf\uFFFD',
      ])
    })

    test('what cannot be searched hides nothing else', async () => {
      await files({ a: 'needle\n' })
      await guest.vm.exec({
        argv: ['sh', '-c', `mkdir /srv/${folder} && cp ${folder}/a /srv/${folder} && ln -s loop /srv/${folder}/loop`],
      })
      await symlink('/nowhere', join(guest.workspace, folder, 'dangling'))
      expect(await lines(grepTool, { pattern: 'needle' })).toEqual(['a:1:needle'])
      expect((await call(grepTool, { pattern: 'needle', path: `/srv/${folder}` })).text).toBe(
        `/srv/${folder}/a:1:needle`,
      )
      expect(new Set(await lines(globTool, { pattern: '*' }))).toEqual(new Set(['a', 'dangling']))
    })

    test('a configuration of the user does not change what it means', async () => {
      await files({ a: 'Needle\n' })
      await guest.vm.exec({ argv: ['sh', '-c', 'echo --ignore-case >/root/.ripgreprc'] })
      expect(await lines(grepTool, { pattern: 'needle' })).toEqual(['(nothing found)'])
    })
  })

  describe('ls', () => {
    test('lists a folder, whatever the names in it are', async () => {
      await files({ '-l': '', 'two\nlines': '', plain: 'text', ファイル: '' })
      await symlink('plain', join(guest.workspace, folder, 'alias'))
      const { text } = await call(lsTool, {})
      expect(text.split('\n')).toHaveLength(8)
      for (const name of [' -l', "'two'$'\\n''lines'", ' alias -> plain', ' ファイル']) expect(text).toContain(name)
      expect((await call(lsTool, { path: `${folder}/-l` })).text).toMatch(/^-rw/)
      expect(await call(lsTool, { path: '--version' })).toMatchObject({ isError: true })
      await rm(join(guest.workspace, folder), { recursive: true })
      await mkdir(join(guest.workspace, folder))
      expect((await call(lsTool, {})).text).toMatch(/^total \d+\n.* \.\n.* \.\.$/)
    })
  })
})
