import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GitError, type ImportResult } from '../src/index.ts'
import { startGitServer } from './git-server.ts'
import { commitTree, deepCommit, rawBlob, rawTree, type RawEntry } from './raw-git.ts'
import { commitAll, git, repository, treeOf, world, write, type World } from './repositories.ts'

let here: World
beforeEach(async () => {
  here = await world()
})
afterEach(() => here.remove())

const actor = 'tester'
const clone = (name: string): string => join(here.repos, `${name}.git`)
const importAs = (name: string, src: string): Promise<ImportResult> => here.bridge.import({ src, name, actor })

async function refusal(promise: Promise<unknown>): Promise<GitError> {
  const error: unknown = await promise.catch((caught: unknown) => caught)
  if (error instanceof GitError) return error
  throw new Error('it was accepted, or failed otherwise', { cause: error })
}

/** A program that leaves a trace when it runs. */
function trap(): { readonly program: string; readonly sprung: () => boolean } {
  const trace = here.path('trace')
  const program = here.path('run')
  writeFileSync(program, `#!/bin/sh\necho "$0 $*" >>${trace}\ncat >/dev/null\nexit 1\n`)
  chmodSync(program, 0o755)
  return { program, sprung: () => existsSync(trace) }
}

describe('a commit is refused, and sets no ref, when it holds', () => {
  const one =
    (name: string, mode = '100644') =>
    (blob: string): readonly RawEntry[] => [[mode, name, blob]]
  test.each<readonly [what: string, entries: (blob: string, tree: string) => readonly RawEntry[]]>([
    ['.git', one('.git')],
    ['.git in disguise', one('.GIT')],
    ['.git as NTFS has it', one('git~1')],
    ['.git as HFS has it', one('.g\xe2\x80\x8cit')],
    ['.git with a stream', one('.git::$INDEX_ALLOCATION')],
    ['..', one('..')],
    ['.', one('.')],
    ['a name with a slash', one('../../etc/passwd')],
    ['no name at all', one('')],
    ['a device', one('x', '20000')],
    ['a mode of nothing', one('x', '0')],
    ['a folder named ..', (_blob, tree) => [['40000', '..', tree]]],
    [
      'a name twice',
      (blob) => [
        ['100644', 'x', blob],
        ['100644', 'x', blob],
      ],
    ],
    [
      'a file and a folder of one name',
      (blob, tree) => [
        ['100644', 'x', blob],
        ['40000', 'x', tree],
      ],
    ],
  ])('%s', async (_what, entries) => {
    const src = repository(here.path('src'))
    commitTree(src, rawTree(src, entries(git(src, 'rev-parse', 'HEAD:README.md'), treeOf(src))))
    expect((await refusal(importAs('src', src))).code).toBe('unsupported_tree')
    expect(here.store.refs.list()).toEqual([])
    expect(readdirSync(here.repos)).toEqual(['.lock'])
  })

  test('folders deeper than the store takes them, also where each is found near the top', async () => {
    const src = repository(here.path('src'))
    deepCommit(src, 513)
    expect((await refusal(importAs('deep', src))).message).toContain('512 deep')
    // The same chain, with every link of it named by the root too.
    const chain = git(src, 'ls-tree', '-r', '-t', 'HEAD')
      .split('\n')
      .filter((line) => line.includes(' tree '))
    const links = chain.map(
      (line, index) => ['40000', `e${String(index).padStart(3, '0')}`, line.slice(12, 52)] as const,
    )
    expect(links).toHaveLength(512)
    commitTree(src, rawTree(src, [...links]))
    expect((await refusal(importAs('deep', src))).message).toContain('512 deep')
  })

  test('a tree that is none', async () => {
    const src = repository(here.path('src'))
    const tree = execFileSync('git', ['-C', src, 'hash-object', '-t', 'tree', '-w', '--literally', '--stdin'], {
      input: 'this is no tree',
      encoding: 'utf8',
    }).trim()
    git(src, 'update-ref', 'refs/heads/main', git(src, 'commit-tree', treeOf(src), '-m', 'x'))
    commitTree(src, rawTree(src, [['40000', 'bad', tree]]))
    const error = await refusal(importAs('src', src))
    expect(error.code).toBe('unsupported_tree')
    expect(here.store.refs.list()).toEqual([])
  })
})

test('a folder that stands in itself many times over costs no more than once', async () => {
  const src = repository(here.path('src'))
  let tree = rawTree(src, [
    ['100644', 'pointer', rawBlob(src, 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n')],
    ['160000', 'sub', '1234567890'.repeat(4)],
  ])
  for (let level = 0; level < 30; level += 1)
    tree = rawTree(
      src,
      Array.from({ length: 10 }, (_, index) => ['40000', `d${index}`, tree] as const),
    )
  commitTree(src, tree)
  const imported = await importAs('bomb', src)
  expect(imported.notes.map(({ kind, count, where }) => [kind, count, where.length])).toEqual([
    ['lfs_pointer', Number.MAX_SAFE_INTEGER, 50],
    ['gitlink', Number.MAX_SAFE_INTEGER, 50],
  ])
  const other = await world()
  await here.bridge.export({ name: 'bomb', tree: imported.tree, branch: 'copy', message: 'copy', actor })
  expect(git(clone('bomb'), 'rev-parse', 'copy^{tree}')).toBe(tree)
  await other.remove()
})

describe('runs nothing that the source names', () => {
  test('in its configuration or as a hook', async () => {
    const src = repository(here.path('src'))
    const { program, sprung } = trap()
    const keys = [
      'core.fsmonitor',
      'core.sshCommand',
      'core.gitProxy',
      'core.askPass',
      'core.editor',
      'core.pager',
      'core.alternateRefsCommand',
      'credential.helper',
      'diff.external',
      'gpg.program',
      'uploadpack.packObjectsHook',
      'remote.origin.uploadpack',
      'remote.origin.vcs',
    ]
    for (const key of keys) git(src, 'config', key, program)
    git(src, 'config', 'alias.upload-pack', `!${program}`)
    for (const hook of ['post-checkout', 'reference-transaction', 'post-update', 'pre-receive', 'proc-receive']) {
      mkdirSync(join(src, '.git', 'hooks'), { recursive: true })
      execFileSync('cp', [program, join(src, '.git', 'hooks', hook)])
    }
    writeFileSync(join(src, '.gitattributes'), '* filter=evil diff=evil merge=evil\n')
    git(src, '-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=/dev/null', 'add', '.gitattributes')
    git(src, '-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=/dev/null', 'commit', '--quiet', '-m', 'attributes')
    rmSync(here.path('trace'), { force: true })
    for (const kind of ['clean', 'smudge', 'process']) git(src, 'config', `filter.evil.${kind}`, program)
    const { tree } = await importAs('src', src)
    await here.bridge.export({ name: 'src', tree, branch: 'main', message: 'x', actor })
    expect(sprung()).toBe(false)
    expect(existsSync(join(clone('src'), 'index'))).toBe(false)
    expect(existsSync(join(clone('src'), 'hooks'))).toBe(false)
  })

  test('to get objects that a partial clone lacks', async () => {
    const src = repository(here.path('src'), { secret: 'gone' })
    const { program, sprung } = trap()
    const blob = git(src, 'rev-parse', 'HEAD:secret')
    rmSync(join(src, '.git', 'objects', blob.slice(0, 2), blob.slice(2)))
    git(src, 'config', 'core.repositoryFormatVersion', '1')
    git(src, 'config', 'extensions.partialClone', 'origin')
    git(src, 'config', 'remote.origin.promisor', 'true')
    git(src, 'config', 'remote.origin.url', here.path('src'))
    git(src, 'config', 'remote.origin.uploadpack', program)
    git(src, 'config', 'protocol.allow', 'always')
    await refusal(importAs('src', src))
    expect(sprung()).toBe(false)
    expect(readdirSync(here.repos)).toEqual(['.lock'])
  })

  test('in the environment of this process', async () => {
    const src = repository(here.path('src'))
    const { program, sprung } = trap()
    const hostile = {
      GIT_DIR: here.path('elsewhere'),
      GIT_WORK_TREE: here.root,
      GIT_SSH_COMMAND: program,
      GIT_PROXY_COMMAND: program,
      GIT_EXTERNAL_DIFF: program,
      GIT_EXEC_PATH: here.root,
      GIT_TEMPLATE_DIR: here.root,
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'core.hooksPath',
      GIT_CONFIG_VALUE_0: here.root,
      GIT_TRACE: here.path('trace-of-git'),
      GIT_ALTERNATE_OBJECT_DIRECTORIES: here.root,
    }
    Object.assign(process.env, hostile)
    try {
      const { tree } = await importAs('src', src)
      await here.bridge.export({ name: 'src', tree: here.store.emptyTree, branch: 'x', message: 'x', actor })
      expect(tree).toBe(here.store.refs.resolve('src'))
    } finally {
      for (const key of Object.keys(hostile)) delete process.env[key]
    }
    expect(sprung()).toBe(false)
    expect(existsSync(here.path('trace-of-git'))).toBe(false)
  })
})

test('a blob that is damaged in the store stops the export that needs it, and nothing else', async () => {
  const src = repository(here.path('src'), { big: 'x'.repeat(300_000) })
  const { tree } = await importAs('src', src)
  git(here.root, 'init', '--quiet', '--bare', 'empty.git')
  await importAs('empty', here.path('empty.git'))
  const blobs = join(here.root, 'store', 'blobs')
  const [file] = readdirSync(blobs, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  if (file === undefined) throw new Error('the store has no file')
  chmodSync(join(file.parentPath, file.name), 0o600)
  writeFileSync(join(file.parentPath, file.name), 'y'.repeat(300_000))
  const exporting = here.bridge.export({ name: 'empty', tree, branch: 'main', message: 'x', actor })
  await expect(exporting).rejects.toMatchObject({ code: 'corrupt' })
  expect(git(clone('empty'), 'for-each-ref')).toBe('')
  expect(readdirSync(here.repos).toSorted()).toEqual(['.lock', 'empty.git', 'src.git'])
  // Where git has the content, the store is not asked for it.
  await here.bridge.export({ name: 'src', tree, branch: 'same', message: 'x', actor })
  expect(git(clone('src'), 'fsck', '--strict')).toBe('')
})

describe('another side that is not what it says', () => {
  test('a repository with SHA-256 ids is refused as one', async () => {
    mkdirSync(here.path('long'))
    git(here.path('long'), 'init', '--quiet', '--object-format=sha256', '--initial-branch=main')
    write(here.path('long'), { a: 'a' })
    commitAll(here.path('long'), 'first')
    const error = await refusal(importAs('long', here.path('long')))
    expect([error.code, error.message]).toEqual(['unsupported_format', expect.stringContaining('SHA-256')])
    expect(readdirSync(here.repos)).toEqual(['.lock'])
    // To push to it is no better.
    await importAs('src', repository(here.path('src')))
    const pushing = here.bridge.push({ name: 'src', branch: 'main', remote: here.path('long'), actor })
    expect((await refusal(pushing)).code).toBe('unsupported_format')
  })

  test.each([
    ['a page', 'text/html', '<html>hello</html>'],
    [
      'nonsense in the right wrapping',
      'application/x-git-upload-pack-advertisement',
      '001e# service=git-upload-pack\n0000zzzz',
    ],
  ])('a server that answers with %s', async (_what, type, body) => {
    const server = createServer(
      (_request, response) => void response.writeHead(200, { 'content-type': type }).end(body),
    )
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    const port = typeof address === 'object' ? address?.port : undefined
    try {
      const error = await refusal(importAs('x', `http://127.0.0.1:${port}/x.git`))
      expect(['clone_failed', 'not_found']).toContain(error.code)
    } finally {
      server.close()
    }
    expect(readdirSync(here.repos)).toEqual(['.lock'])
  })

  test('a server that lost its repository and shows a page instead does not empty the clone', async () => {
    repository(here.path('work'))
    let lost = false
    await using server = await startGitServer(here.path('work'), {
      gate: (_request, response) => {
        if (lost) response.writeHead(200, { 'content-type': 'text/html' }).end('<html>We are moving</html>')
        return lost
      },
    })
    const first = await importAs('web', server.url('.git'))
    lost = true
    expect((await refusal(importAs('web', server.url('.git')))).code).toBe('not_found')
    expect(here.store.refs.resolve('web')).toBe(first.tree)
    expect(git(clone('web'), 'rev-parse', 'main', 'refs/remotes/origin/main')).toBe(`${first.commit}\n${first.commit}`)
  })

  test('an empty repository of a server is one', async () => {
    git(here.root, 'init', '--quiet', '--bare', 'empty.git')
    await using server = await startGitServer(here.root)
    expect((await importAs('empty', server.url('empty.git'))).notes.map(({ kind }) => kind)).toEqual([
      'empty_repository',
    ])
  })

  test('a tree without its content in the clone is not built upon', async () => {
    const { tree } = await importAs('src', repository(here.path('src')))
    const edited = here.store.editTree(tree, [
      { path: 'sub/file', set: { kind: 'file', id: here.store.putBlob(Buffer.from('never sent\n')) } },
    ])
    writeFileSync(here.path('content'), 'never sent\n')
    const oid = git(here.root, 'hash-object', here.path('content'))
    rawTree(clone('src'), [['100644', 'file', oid]])
    const exporting = here.bridge.export({ name: 'src', tree: edited, branch: 'main', message: 'x', actor })
    const error = await refusal(exporting)
    expect([error.code, error.message]).toEqual(['io', expect.stringContaining('lacks objects')])
    expect(git(clone('src'), 'rev-parse', 'main')).toBe(git(here.path('src'), 'rev-parse', 'main'))
  })
})
