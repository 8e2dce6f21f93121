import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync, chmodSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore, type Store } from '@reve/content-store'
import { createGitBridge, type GitBridge, type GitBridgeOptions } from '../src/index.ts'

/** An environment in which git reads nothing of the machine that runs the tests. */
const env = {
  PATH: process.env['PATH'] ?? '/usr/bin:/bin',
  HOME: '/nonexistent',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'Ada',
  GIT_AUTHOR_EMAIL: 'ada@example.com',
  GIT_COMMITTER_NAME: 'Ada',
  GIT_COMMITTER_EMAIL: 'ada@example.com',
}

/** The git of the tests, not of the bridge. */
export function git(dir: string, ...args: string[]): string {
  return execFileSync('git', args, {
    cwd: dir,
    env,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: ['ignore', 'pipe', 'pipe'],
  }).replace(/\n$/, '')
}

/** A repository with one commit of these files; a Buffer name has any bytes. */
export function repository(dir: string, files: Readonly<Record<string, string>> = { 'README.md': 'hello\n' }): string {
  mkdirSync(dir, { recursive: true })
  git(dir, 'init', '--quiet', '--initial-branch=main')
  write(dir, files)
  commitAll(dir, 'first')
  return dir
}

export function write(dir: string, files: Readonly<Record<string, string>>): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(dir, path, '..'), { recursive: true })
    writeFileSync(join(dir, path), content)
  }
}

export function commitAll(dir: string, message: string): string {
  git(dir, 'add', '--all')
  git(dir, 'commit', '--quiet', '--allow-empty', '--message', message)
  return git(dir, 'rev-parse', 'HEAD')
}

export const treeOf = (dir: string, revision = 'HEAD'): string => git(dir, 'rev-parse', `${revision}^{tree}`)

/** Everything that a tree can hold and tools get wrong. Names of any bytes are written through their Buffer path. */
export function difficult(dir: string): string {
  repository(dir, {
    'crlf.txt': 'a\r\nb\r\n',
    'a/b/c/deep.txt': 'deep',
    'a.txt': '1',
    'a-b': '2',
    zero: '',
    'back\\slash': 'x',
    'quote"d\n': 'y',
    ünï: 'z',
    '😀.md': 'e',
  })
  writeFileSync(join(dir, 'run.sh'), '#!/bin/sh\n')
  chmodSync(join(dir, 'run.sh'), 0o755)
  symlinkSync('a/b', join(dir, 'link'))
  symlinkSync('/etc/passwd', join(dir, 'absolute'))
  symlinkSync('nowhere', join(dir, 'a', 'dangling'))
  writeFileSync(Buffer.concat([Buffer.from(`${dir}/caf`), Buffer.of(0xe9), Buffer.from('.txt')]), 'latin-1')
  writeFileSync(join(dir, 'binary'), Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7) % 256)))
  writeFileSync(join(dir, 'big'), Buffer.alloc(5 * 1024 * 1024, 'big file\n'))
  writeFileSync(
    join(dir, 'model.bin'),
    `version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 12345\n`,
  )
  git(dir, 'add', '--all')
  git(dir, 'update-index', '--add', '--cacheinfo', `160000,${'1234567890'.repeat(4)},lib/sub`)
  git(dir, 'commit', '--quiet', '--message', 'difficult')
  return dir
}

export type World = {
  readonly root: string
  readonly store: Store
  readonly bridge: GitBridge
  readonly repos: string
  path(name: string): string
  remove(): Promise<void>
}

/** A store, a bridge and a folder for repositories. */
export async function world(options: Partial<GitBridgeOptions> = {}): Promise<World> {
  const root = mkdtempSync(join(tmpdir(), 'git-bridge-'))
  const store = await openStore(join(root, 'store'))
  const repos = join(root, 'repos')
  const bridge = createGitBridge({
    store,
    reposDir: repos,
    identity: { name: 'kc', email: 'kc@example.com' },
    ...options,
  })
  return {
    root,
    store,
    bridge,
    repos,
    path: (name) => join(root, name),
    async remove(): Promise<void> {
      await store[Symbol.asyncDispose]()
      rmSync(root, { recursive: true, force: true })
    },
  }
}
