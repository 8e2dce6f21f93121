import { execFileSync, spawnSync } from 'node:child_process'
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync, chmodSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GitError, type GitErrorCode, type GitProgress, type ImportResult } from '../src/index.ts'
import { commitAll, git, repository, world, write, type World } from './repositories.ts'

let here: World
beforeEach(async () => {
  here = await world()
})
afterEach(() => here.remove())

const actor = 'tester'
const importAs = (name: string, src: string, ref?: string): Promise<ImportResult> =>
  here.bridge.import({ src, name, actor, ...(ref === undefined ? {} : { ref }) })
const exportTo = (name: string, tree: string, branch: string, extra: object = {}) =>
  here.bridge.export({ name, tree, branch, message: `export to ${branch}`, actor, ...extra })
/** What is in the folder of the clones, without the lock, which stays. */
const clones = (): readonly string[] => readdirSync(here.repos).filter((name) => name !== '.lock')
const clone = (name: string): string => join(here.repos, `${name}.git`)

async function refusal(promise: Promise<unknown>): Promise<GitError> {
  try {
    await promise
  } catch (error) {
    if (error instanceof GitError) return error
    throw error
  }
  throw new Error('it was accepted')
}
const codeOf = async (promise: Promise<unknown>): Promise<GitErrorCode> => (await refusal(promise)).code

describe('import', () => {
  test('of an empty repository is the empty tree, and said', async () => {
    git(here.root, 'init', '--quiet', 'empty')
    const imported = await importAs('empty', here.path('empty'))
    expect(imported).toMatchObject({ tree: here.store.emptyTree, commit: null, gitRef: null })
    expect(imported.notes.map((note) => note.kind)).toEqual(['empty_repository'])
    const exported = await exportTo('empty', imported.tree, 'main')
    expect(exported.parent).toBe(null)
  })

  test('reads a branch with a slash, a tag, a full reference, a commit', async () => {
    const src = repository(here.path('src'))
    git(src, 'checkout', '--quiet', '-b', 'feature/login')
    write(src, { 'login.ts': 'x' })
    const login = commitAll(src, 'login')
    git(src, 'tag', '-a', 'v1', '-m', 'one')
    git(src, 'update-ref', 'refs/pull/7/head', login)
    git(src, 'checkout', '--quiet', 'main')
    for (const ref of ['feature/login', 'refs/heads/feature/login', 'v1', 'refs/tags/v1', login, 'refs/pull/7/head']) {
      expect([ref, (await importAs('src', src, ref)).commit]).toEqual([ref, login])
    }
    expect((await importAs('src', src)).commit).toBe(git(src, 'rev-parse', 'main'))
    const error = await refusal(importAs('src', src, 'feature/logn'))
    expect(error.code).toBe('bad_ref')
    expect(error.message).toContain('feature/login')
  })

  test('follows the remote: a new commit, a forced branch, a branch that is gone, a branch that became a folder', async () => {
    const src = repository(here.path('src'))
    git(src, 'branch', 'topic')
    const first = await importAs('src', src)
    write(src, { 'two.txt': '2' })
    const second = commitAll(src, 'second')
    expect((await importAs('src', src)).commit).toBe(second)
    git(src, 'reset', '--quiet', '--hard', 'HEAD~1')
    expect((await importAs('src', src)).tree).toBe(first.tree)
    git(src, 'branch', '-D', 'topic')
    git(src, 'branch', 'topic/inner')
    expect((await importAs('src', src, 'topic/inner')).commit).toBe(first.commit)
    expect(git(clone('src'), 'for-each-ref', '--format=%(refname)', 'refs/heads')).toBe(
      'refs/heads/main\nrefs/heads/topic/inner',
    )
  })

  test('keeps commits that only the clone has, and says where', async () => {
    const src = repository(here.path('src'))
    const first = await importAs('src', src)
    const mine = await exportTo('src', here.store.emptyTree, 'main')
    write(src, { 'theirs.txt': 't' })
    const theirs = commitAll(src, 'theirs')
    const again = await importAs('src', src)
    expect(again.commit).toBe(theirs)
    expect(again.notes.map((note) => note.kind)).toEqual(['branch_moved_aside'])
    expect(git(clone('src'), 'rev-parse', `refs/kept/main/${mine.commit}`)).toBe(mine.commit)
    expect((await exportTo('src', first.tree, 'main')).parent).toBe(theirs)
  })

  test('sets the ref of that name, with a history, and what is written alongside stands with it', async () => {
    const src = repository(here.path('src'))
    const seen: ImportResult[] = []
    const first = await here.bridge.import({ src, name: 'src', actor, alongside: (result) => seen.push(result) })
    expect(seen).toEqual([first])
    write(src, { 'two.txt': '2' })
    commitAll(src, 'second')
    const broken = here.bridge.import({
      src,
      name: 'src',
      actor,
      alongside: () => {
        throw new Error('no event')
      },
    })
    await expect(broken).rejects.toThrow('no event')
    expect(here.store.refs.resolve('src')).toBe(first.tree)
    const second = await importAs('src', src)
    expect(here.store.refs.resolve('src')).toBe(second.tree)
    expect(here.store.refs.history('src').map((move) => [move.actor, move.to])).toEqual([
      [actor, second.tree],
      [actor, first.tree],
    ])
  })

  test('of a detached HEAD, and of one that names no branch', async () => {
    const src = repository(here.path('src'))
    const first = git(src, 'rev-parse', 'HEAD')
    write(src, { b: 'b' })
    commitAll(src, 'second')
    git(src, 'checkout', '--quiet', '--detach', first)
    expect(await importAs('src', src)).toMatchObject({ commit: first, gitRef: first })
    git(src, 'symbolic-ref', 'HEAD', 'refs/heads/nothing')
    expect(await codeOf(importAs('other', src))).toBe('bad_ref')
    expect((await importAs('other', src, 'main')).commit).not.toBe(first)
  })

  test('is refused for shallow sources, missing ones, other sources under the same name, hosts that do not answer', async () => {
    const src = repository(here.path('src'))
    commitAll(src, 'second')
    git(here.root, 'clone', '--quiet', '--depth=1', `file://${src}`, 'shallow')
    expect(await codeOf(importAs('shallow', here.path('shallow')))).toBe('shallow')
    expect(await codeOf(importAs('missing', here.path('nothing')))).toBe('not_found')
    mkdirSync(here.path('folder'))
    expect(await codeOf(importAs('folder', here.path('folder')))).toBe('not_found')
    await importAs('src', src)
    git(here.root, 'clone', '--quiet', 'src', 'copy')
    expect(await codeOf(importAs('src', here.path('copy')))).toBe('bad_argument')
    expect(await codeOf(importAs('src', src, 'refs/heads/main:refs/heads/planted'))).toBe('bad_ref')
    expect(await codeOf(importAs('src', src, '--upload-pack=id'))).toBe('bad_ref')
    expect(await codeOf(importAs('closed', 'http://127.0.0.1:9/x.git'))).toBe('unreachable')
    expect(clones()).toEqual(['src.git'])
  })

  test('that wants a credential is refused without asking anybody', async () => {
    const server = createServer(
      (_request, response) => void response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end('no'),
    )
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    try {
      const address = server.address()
      const port = typeof address === 'object' ? address?.port : undefined
      expect(await codeOf(importAs('closed', `http://127.0.0.1:${port}/x.git`))).toBe('auth_failed')
    } finally {
      server.close()
    }
  })

  test('of a path with spaces, quotes and other letters, and back', async () => {
    const src = repository(here.path(`it's "my" \\ wörk $HOME`))
    git(here.root, 'clone', '--quiet', '--bare', src, `bare "it's".git`)
    expect((await importAs('path', src)).commit).toBe(git(src, 'rev-parse', 'HEAD'))
    expect((await importAs('url', `file://${encodeURI(src).replaceAll("'", '%27')}`)).commit).not.toBe(null)
    await exportTo('path', here.store.emptyTree, 'new')
    const remote = here.path(`bare "it's".git`)
    expect((await here.bridge.push({ name: 'path', branch: 'new', remote, actor })).outcome).toBe('created')
  })

  test('of a bundle', async () => {
    const src = repository(here.path('src'))
    git(src, 'bundle', 'create', '--quiet', here.path('it.bundle'), 'HEAD', 'main')
    expect((await importAs('it', here.path('it.bundle'), 'main')).commit).toBe(git(src, 'rev-parse', 'HEAD'))
  })

  test('says how far it is, and lets other work of the process go on', async () => {
    const files = Object.fromEntries(Array.from({ length: 3_000 }, (_, i) => [`d${i % 60}/f${i}`, `content ${i}`]))
    const src = repository(here.path('src'), files)
    const seen: GitProgress[] = []
    let turns = 0
    const counting = setInterval(() => (turns += 1), 0)
    const { tree } = await here.bridge.import({ src, name: 'src', actor, onProgress: (step) => seen.push(step) })
    clearInterval(counting)
    expect([...new Set(seen.map(({ stage }) => stage))]).toEqual(expect.arrayContaining(['receiving', 'reading']))
    expect(seen.filter(({ stage }) => stage === 'reading').at(-1)).toEqual({
      stage: 'reading',
      done: 3_000,
      total: 3_000,
    })
    // Each of them had its turn between two batches at least.
    expect(turns).toBeGreaterThan(seen.filter(({ stage }) => stage === 'reading').length)
    // What is known is not read again.
    const again: GitProgress[] = []
    expect((await here.bridge.import({ src, name: 'src', actor, onProgress: (step) => again.push(step) })).tree).toBe(
      tree,
    )
    expect(again.filter(({ stage }) => stage === 'reading')).toEqual([])
  })

  test('can be called off, and leaves nothing', async () => {
    const src = repository(here.path('src'))
    expect(await codeOf(here.bridge.import({ src, name: 'src', actor, signal: AbortSignal.abort() }))).toBe('cancelled')
    const later = new AbortController()
    const running = here.bridge.import({ src, name: 'src', actor, signal: later.signal })
    later.abort()
    expect(await codeOf(running)).toBe('cancelled')
    expect(clones()).toEqual([])
    expect((await importAs('src', src)).commit).toBe(git(src, 'rev-parse', 'HEAD'))
  })

  test('works after a git that was killed with its locks', async () => {
    const src = repository(here.path('src'))
    await importAs('src', src)
    for (const name of ['packed-refs.lock', 'HEAD.lock', 'config.lock', 'refs/heads/main.lock'])
      writeFileSync(join(clone('src'), name), '')
    mkdirSync(join(here.repos, '.tmp-dead'))
    const other = await world({ reposDir: here.repos, store: here.store })
    write(src, { two: '2' })
    const second = commitAll(src, 'second')
    expect((await other.bridge.import({ src, name: 'src', actor })).commit).toBe(second)
    expect(clones()).toEqual(['src.git'])
    await other.remove()
  })

  test.skipIf(process.getuid?.() !== 0)('reads a source of another user (needs root to make one)', async () => {
    const src = repository(here.path('src'))
    execFileSync('chown', ['-R', '65534:65534', src])
    expect((await importAs('src', src)).commit).not.toBe(null)
    const error = await refusal(here.bridge.push({ name: 'src', branch: 'main', actor }))
    expect(error.code).toBe('bad_argument')
    chownSync(src, 0, 0)
  })
})

describe('export', () => {
  test('is one commit on the branch, seen by git log, with author and committer as they are', async () => {
    const src = repository(here.path('src'))
    const { tree, commit } = await importAs('src', src)
    const edited = here.store.editTree(tree, [
      { path: 'new.txt', set: { kind: 'file', id: here.store.putBlob(Buffer.from('new\n')) } },
    ])
    const exported = await here.bridge.export({
      name: 'src',
      tree: edited,
      branch: 'work',
      message: 'Add new\n\n# not a comment',
      author: 'Grace Hopper <grace@example.com>',
      actor,
    })
    expect(exported).toMatchObject({ branch: 'work', parent: commit, unchanged: false, notes: [] })
    expect(git(clone('src'), 'log', '-1', '--format=%an <%ae>|%cn <%ce>|%P|%B', 'work')).toBe(
      `Grace Hopper <grace@example.com>|kc <kc@example.com>|${commit}|Add new\n\n# not a comment\n`,
    )
    expect(git(clone('src'), 'show', 'work:new.txt')).toBe('new')
    expect(git(clone('src'), 'for-each-ref', 'refs/reve')).toBe('')
    expect((await here.bridge.log({ name: 'src' })).map(({ subject, branches }) => [subject, branches])).toEqual([
      ['Add new', ['work']],
      ['first', ['main']],
    ])
  })

  test('continues a branch, and starts one where it is told', async () => {
    const src = repository(here.path('src'))
    const start = git(src, 'rev-parse', 'HEAD')
    write(src, { b: 'b' })
    const head = commitAll(src, 'second')
    const { tree } = await importAs('src', src)
    const first = await exportTo('src', here.store.emptyTree, 'work')
    expect(first.parent).toBe(head)
    const second = await exportTo('src', tree, 'work')
    expect(second.parent).toBe(first.commit)
    expect((await exportTo('src', tree, 'early/one', { startPoint: start })).parent).toBe(start)
    const third = await exportTo('src', here.store.emptyTree, 'work', { startPoint: start })
    expect(third.parent).toBe(second.commit)
    expect(third.notes.map((note) => note.kind)).toEqual(['start_point_ignored'])
  })

  test('starts a new branch at what was imported last', async () => {
    const src = repository(here.path('src'))
    git(src, 'checkout', '--quiet', '-b', 'develop')
    write(src, { d: 'd' })
    const develop = commitAll(src, 'develop')
    git(src, 'tag', 'v1', 'main')
    git(src, 'checkout', '--quiet', 'main')
    const main = git(src, 'rev-parse', 'main')
    await importAs('src', src, 'develop')
    expect((await exportTo('src', here.store.emptyTree, 'on-develop')).parent).toBe(develop)
    await importAs('src', src)
    expect((await exportTo('src', here.store.emptyTree, 'on-main')).parent).toBe(main)
    await importAs('src', src, develop)
    expect((await exportTo('src', here.store.emptyTree, 'on-commit')).parent).toBe(develop)
    await importAs('src', src, 'v1')
    expect((await exportTo('src', here.store.emptyTree, 'on-tag')).parent).toBe(main)
  })

  test('writes nothing for a tree that is there, and little for a change', async () => {
    const files = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`d${i % 30}/f${i}`, `content ${i}`]))
    const src = repository(here.path('src'), files)
    const { tree } = await importAs('src', src)
    const objects = (): number =>
      Number(
        /count: (\d+)[\s\S]*in-pack: (\d+)/
          .exec(git(clone('src'), 'count-objects', '-v'))
          ?.slice(1)
          .map(Number)
          .reduce((a, b) => a + b),
      )
    const before = objects()
    await exportTo('src', tree, 'same')
    expect(objects()).toBe(before)
    const id = here.store.putBlob(Buffer.from('changed'))
    await exportTo('src', here.store.editTree(tree, [{ path: 'd3/f3', set: { kind: 'file', id } }]), 'work')
    // A file, its folder, the root, the commit.
    expect(objects()).toBe(before + 4)
  })

  test('many times over keeps the clone in few packs, with everything in it', async () => {
    await importAs('src', repository(here.path('src')))
    const commits: string[] = []
    for (let n = 0; n < 60; n += 1) {
      const id = here.store.putBlob(Buffer.from(`${n}`))
      const tree = here.store.editTree(here.store.emptyTree, [{ path: 'n', set: { kind: 'file', id } }])
      commits.push((await exportTo('src', tree, 'work')).commit)
    }
    const packs = readdirSync(join(clone('src'), 'objects', 'pack')).filter((name) => name.endsWith('.pack'))
    expect(packs.length).toBeLessThan(55)
    expect(git(clone('src'), 'rev-list', '--count', 'work')).toBe('61')
    expect(git(clone('src'), 'fsck', '--strict')).toBe('')
  })

  test('says when the tree is the one that is there already', async () => {
    const src = repository(here.path('src'))
    const { tree, commit } = await importAs('src', src)
    expect(await exportTo('src', tree, 'main')).toMatchObject({ unchanged: true, commit, parent: commit })
    expect(await exportTo('src', tree, 'same')).toMatchObject({ unchanged: true, commit })
    expect(git(clone('src'), 'rev-parse', 'same')).toBe(commit)
  })

  test('takes a ref of the store, drops empty directories and says so', async () => {
    const src = repository(here.path('src'), { 'keep.txt': 'k' })
    await importAs('src', src)
    const tree = here.store.editTree(here.store.refs.resolve('src'), [
      { path: 'empty/inner', set: { kind: 'directory', id: here.store.emptyTree } },
    ])
    here.store.refs.create('draft', tree, { actor })
    const exported = await exportTo('src', 'draft', 'work')
    expect(exported.notes).toMatchObject([{ kind: 'empty_directory_dropped', where: ['empty/inner'] }])
    expect(exported.unchanged).toBe(true)
  })

  test('is refused for what cannot be: names, authors, messages, clones, start points', async () => {
    const src = repository(here.path('src'))
    const { tree } = await importAs('src', src)
    const output = here.path('written')
    expect(await codeOf(exportTo('src', tree, `--output=${output}`))).toBe('bad_name')
    expect(await codeOf(exportTo('../src', tree, 'work'))).toBe('bad_name')
    expect(await codeOf(exportTo('none', tree, 'work'))).toBe('not_found')
    expect(await codeOf(exportTo('src', tree, 'work', { author: 'Ada' }))).toBe('bad_argument')
    expect(await codeOf(exportTo('src', tree, 'work', { author: 'A\ncommitter x <x@y> 1 +0000 <a@b>' }))).toBe(
      'bad_argument',
    )
    expect(await codeOf(exportTo('src', tree, 'work', { message: ' \n' }))).toBe('bad_argument')
    expect(await codeOf(exportTo('src', tree, 'work', { startPoint: `--output=${output}` }))).toBe('bad_ref')
    expect(await codeOf(exportTo('src', tree, 'work', { startPoint: 'nothing' }))).toBe('bad_ref')
    expect(await codeOf(here.bridge.log({ name: 'src', ref: `--output=${output}` }))).toBe('bad_ref')
    expect(await codeOf(exportTo('src', here.store.emptyTree, 'main/inner'))).toBe('bad_name')
    expect(existsSync(output)).toBe(false)
  })

  test('of many at once on one branch makes a chain', async () => {
    const src = repository(here.path('src'))
    await importAs('src', src)
    const trees = [1, 2, 3, 4].map((n) =>
      here.store.editTree(here.store.emptyTree, [
        { path: 'n', set: { kind: 'file', id: here.store.putBlob(Buffer.from(String(n))) } },
      ]),
    )
    await Promise.all(trees.map((tree) => exportTo('src', tree, 'work')))
    expect(git(clone('src'), 'rev-list', '--count', 'work')).toBe('5')
  })
})

describe('push', () => {
  test('to a bare repository of this host: created, up to date, updated', async () => {
    repository(here.path('work'))
    git(here.root, 'clone', '--quiet', '--bare', 'work', 'remote.git')
    const { tree } = await importAs('src', here.path('remote.git'))
    const exported = await exportTo('src', here.store.emptyTree, 'feature/x')
    const push = () => here.bridge.push({ name: 'src', branch: 'feature/x', actor })
    expect(await push()).toEqual({ branch: 'feature/x', commit: exported.commit, remote: 'origin', outcome: 'created' })
    expect(git(here.path('remote.git'), 'rev-parse', 'feature/x')).toBe(exported.commit)
    expect((await push()).outcome).toBe('up_to_date')
    await exportTo('src', tree, 'feature/x')
    expect((await push()).outcome).toBe('updated')
    expect((await importAs('src', here.path('remote.git'), 'feature/x')).tree).toBe(tree)
  })

  test('that would lose commits of the other side is refused and explained', async () => {
    const work = repository(here.path('work'))
    git(here.root, 'clone', '--quiet', '--bare', 'work', 'remote.git')
    await importAs('src', here.path('remote.git'))
    await exportTo('src', here.store.emptyTree, 'main')
    write(work, { theirs: 't' })
    const theirs = commitAll(work, 'theirs')
    git(work, 'push', '--quiet', here.path('remote.git'), 'main')
    const error = await refusal(here.bridge.push({ name: 'src', branch: 'main', actor }))
    expect(error.code).toBe('push_rejected')
    expect(error.hint).toMatch(/import the repository again/)
    expect(git(here.path('remote.git'), 'rev-parse', 'main')).toBe(theirs)
  })

  test('explains a hook that declines, and a branch that is checked out', async () => {
    const work = repository(here.path('work'))
    await importAs('work', work)
    await exportTo('work', here.store.emptyTree, 'main')
    const checkedOut = await refusal(here.bridge.push({ name: 'work', branch: 'main', actor }))
    expect([checkedOut.code, checkedOut.hint]).toEqual(['push_rejected', expect.stringMatching(/checked out/)])
    git(here.root, 'clone', '--quiet', '--bare', 'work', 'remote.git')
    mkdirSync(here.path('remote.git/hooks'), { recursive: true })
    writeFileSync(
      here.path('remote.git/hooks/pre-receive'),
      '#!/bin/sh\nprintf "not on \\033[31mFridays\\n" >&2\nexit 1\n',
    )
    chmodSync(here.path('remote.git/hooks/pre-receive'), 0o755)
    const declined = await refusal(
      here.bridge.push({ name: 'work', branch: 'main', remote: here.path('remote.git'), actor }),
    )
    expect(declined.code).toBe('push_rejected')
    expect(declined.message).toMatch(/not on .*Fridays/)
    expect(declined.message).not.toContain('\u001b')
  })

  test('is refused for branches and targets that are not there or not allowed', async () => {
    const src = repository(here.path('src'))
    await importAs('src', src)
    const push = (branch: string, remote?: string) =>
      codeOf(here.bridge.push({ name: 'src', branch, actor, ...(remote === undefined ? {} : { remote }) }))
    expect(await push('nothing')).toBe('no_such_branch')
    expect(await push('--mirror')).toBe('bad_name')
    expect(await push('main', '--receive-pack=id')).toBe('bad_argument')
    expect(await push('main', 'ext::sh -c id')).toBe('bad_argument')
    expect(await push('main', 'https://user:secret@example.com/x')).toBe('bad_argument')
    expect(await push('main', here.path('nowhere'))).toBe('not_found')
    expect(await push('main', 'http://127.0.0.1:9/x.git')).toBe('unreachable')
  })
})

describe('log', () => {
  test('gives whole commits, and no more than asked', async () => {
    const src = repository(here.path('src'))
    const first = git(src, 'rev-parse', 'HEAD')
    const second = commitAll(src, 'zweiter: ü, "x"\n\nbody')
    await importAs('src', src)
    const [newest, ...rest] = await here.bridge.log({ name: 'src', n: 1 })
    expect(rest).toEqual([])
    expect(newest).toMatchObject({
      commit: second,
      parents: [first],
      subject: 'zweiter: ü, "x"',
      branches: ['main'],
      author: { name: 'Ada', email: 'ada@example.com' },
    })
    expect(await here.bridge.log({ name: 'src', ref: first })).toHaveLength(1)
    expect(await codeOf(here.bridge.log({ name: 'src', n: 0 }))).toBe('bad_argument')
    expect(await codeOf(here.bridge.log({ name: 'none' }))).toBe('not_found')
  })

  test('of an empty repository is empty', async () => {
    git(here.root, 'init', '--quiet', 'empty')
    await importAs('empty', here.path('empty'))
    expect(await here.bridge.log({ name: 'empty' })).toEqual([])
  })
})

describe('the program', () => {
  test('that is missing is named', async () => {
    const other = await world({ git: '/no/such/git' })
    expect(await codeOf(other.bridge.import({ src: repository(here.path('src')), name: 'src', actor }))).toBe(
      'git_missing',
    )
    await other.remove()
  })

  test('sees nothing of the environment of this process', async () => {
    const spy = here.path('spy')
    writeFileSync(
      spy,
      `#!/bin/sh\nenv >>${here.path('seen')}\nprintf '%s\\n' "$@" >>${here.path('seen')}\nexec git "$@"\n`,
    )
    chmodSync(spy, 0o755)
    process.env['REVE_TEST_SENTINEL'] = 'sentinel-4711'
    try {
      const other = await world({ git: spy })
      await other.bridge.import({ src: repository(here.path('src')), name: 'src', actor })
      await other.remove()
    } finally {
      delete process.env['REVE_TEST_SENTINEL']
    }
    const seen = readFileSync(here.path('seen'), 'utf8')
    expect(seen).toContain('GIT_TERMINAL_PROMPT=0')
    expect(seen).toContain('protocol.ext.allow=never')
    expect(seen).not.toContain('sentinel-4711')
  })

  test('is started by one file only', () => {
    const found = spawnSync('grep', ['-rlE', 'child_process', new URL('../src', import.meta.url).pathname], {
      encoding: 'utf8',
    })
    const importers = found.stdout
      .trim()
      .split('\n')
      .filter((file) =>
        /(?:import \{|require\()[^\n]*child_process/.test(
          readFileSync(file, 'utf8').replaceAll(/import type [^\n]*\n/g, ''),
        ),
      )
    expect(importers.map((file) => file.slice(file.lastIndexOf('/') + 1))).toEqual(['host-process.ts'])
  })
})
