import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, symlinkSync, unlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { changedFiles, gitCommands, hostRunFiles, runnerOf } from '../src/host-run-files.ts'
import { folder, removeFolders } from './helpers.ts'

afterAll(removeFolders)

function put(root: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
}

const git = (cwd: string, ...args: readonly string[]): void =>
  void execFileSync('git', args, { cwd, stdio: 'ignore', env: { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null' } })

test('a repository that is made, cloned and worked in is nothing to warn of', async () => {
  const root = folder()
  git(root, 'init', '-q', 'one')
  put(root, { 'one/file': 'x', 'one/src/package.json': '{}' })
  git(join(root, 'one'), 'add', '.')
  git(join(root, 'one'), '-c', 'user.name=n', '-c', 'user.email=e@x', 'commit', '-qm', 'one')
  git(root, 'clone', '-q', 'one', 'two')
  git(join(root, 'two'), 'config', 'core.fsmonitor', 'true')
  expect([...(await hostRunFiles(root))]).toEqual([])
})

test('hooks, configured commands and settings are seen, wherever git would find them', async () => {
  const root = folder()
  git(root, 'init', '-q', '.')
  git(root, 'init', '-q', 'sub')
  git(root, 'init', '-q', '--bare', 'a/b/looks-harmless')
  const before = await hostRunFiles(root)
  put(root, {
    '.git/hooks/pre-commit': 'x',
    'sub/.git/hooks/post-checkout': 'x',
    'a/b/looks-harmless/hooks/pre-push': 'x',
    '.envrc': 'x',
    'a/.vscode/tasks.json': '{}',
    'a/.claude/settings.json': '{}',
    'node_modules/x/.envrc': 'not looked at',
  })
  symlinkSync('/bin/sh', join(root, 'sub/.git/hooks/pre-commit'))
  git(join(root, 'sub'), 'config', 'core.sshCommand', 'touch /tmp/owned')
  git(join(root, 'a/b/looks-harmless'), 'config', 'filter.x.clean', 'touch /tmp/owned')
  const changed = changedFiles(before, await hostRunFiles(root))
  expect(changed).toEqual([
    '.envrc',
    '.git/hooks/pre-commit',
    'a/.claude/settings.json',
    'a/.vscode/tasks.json',
    'a/b/looks-harmless/config',
    'a/b/looks-harmless/hooks/pre-push',
    'sub/.git/config',
    'sub/.git/hooks/post-checkout',
    'sub/.git/hooks/pre-commit',
  ])
  expect(changed.map(runnerOf).slice(0, 4)).toEqual(['direnv', 'git', 'other agents', 'editors'])
})

test('a change of the same length that turns its time back is seen too; what was there before is not told', async () => {
  const root = folder()
  git(root, 'init', '-q', '.')
  const hook = join(root, '.git/hooks/pre-commit')
  writeFileSync(hook, 'one')
  utimesSync(hook, 1000, 1000)
  const before = await hostRunFiles(root)
  expect(changedFiles(before, await hostRunFiles(root))).toEqual([])
  // The clock of a file system ticks a few times in a hundredth of a second.
  await new Promise((done) => setTimeout(done, 30))
  writeFileSync(hook, 'two')
  chmodSync(hook, 0o755)
  utimesSync(hook, 1000, 1000)
  expect(changedFiles(before, await hostRunFiles(root))).toEqual(['.git/hooks/pre-commit'])
  unlinkSync(hook)
  expect(changedFiles(before, await hostRunFiles(root))).toEqual([])
})

test('links are not followed, and what is not there has nothing', async () => {
  const root = folder()
  const elsewhere = folder()
  git(elsewhere, 'init', '-q', '.')
  put(elsewhere, { '.git/hooks/pre-commit': 'x' })
  symlinkSync(elsewhere, join(root, 'link'))
  symlinkSync(join(elsewhere, '.git'), join(root, '.git'))
  expect([...(await hostRunFiles(root))]).toEqual([])
  expect([...(await hostRunFiles(join(root, 'gone')))]).toEqual([])
})

test('of a configuration the commands are told, in every way of writing them', () => {
  expect(
    gitCommands(
      [
        '[core]',
        '\tbare = false',
        '\tSSHCommand = ssh -i x',
        '[Alias] co = !sh',
        '[filter "x.y"]',
        '\tclean = \\',
        '  cmd',
        '[filter "lfs"] required = true',
        '[include]',
        'path = other',
        '[remote "origin"]',
        'url = https://example.org',
        '[includeIf "gitdir:x"]',
        'path=y',
      ].join('\n'),
    ),
  ).toEqual([
    'core.sshcommand=ssh -i x',
    'alias.co=!sh',
    'filter.x.y.clean=cmd',
    'include.path=other',
    'includeif.gitdir:x.path=y',
  ])
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => Array.isArray(gitCommands(text))))
})
