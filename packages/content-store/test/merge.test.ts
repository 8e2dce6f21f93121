import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Store, TreeId } from '../src/index.ts'
import { act, filesOf, git, gitMissing, gitText, temporaryFolder, temporaryStore, treeOf } from './support.ts'

type Files = Readonly<Record<string, string>>

/** Merges three states through refs, as a client would. */
async function mergeOf(store: Store, base: Files, ours: Files, theirs: Files, name = 'main') {
  const start = treeOf(store, base)
  store.refs.create(name, start, act)
  store.branches.create(`${name}-side`, name, act)
  store.refs.move(name, { ...act, expectedTree: start, newTree: treeOf(store, ours) })
  store.refs.move(`${name}-side`, { ...act, expectedTree: start, newTree: treeOf(store, theirs) })
  return store.branches.merge(name, `${name}-side`, act)
}

async function conflictsOf(base: Files, ours: Files, theirs: Files): Promise<readonly string[]> {
  const store = await temporaryStore()
  const result = await mergeOf(store, base, ours, theirs)
  return result.kind === 'conflicts' ? result.conflicts.map((conflict) => `${conflict.kind} ${conflict.path}`) : []
}

async function mergedFiles(base: Files, ours: Files, theirs: Files): Promise<Files> {
  const store = await temporaryStore()
  const result = await mergeOf(store, base, ours, theirs)
  expect(result.kind).toBe('merged')
  return filesOf(store, result.into.tree)
}

describe('clean merges', () => {
  test('each side changes other paths', async () => {
    expect(
      await mergedFiles(
        { a: '1', 'd/b': '2', 'd/c': '3' },
        { a: 'x', 'd/b': '2', 'd/c': '3' },
        { a: '1', 'd/b': '2', 'd/e': '4' },
      ),
    ).toEqual({
      a: 'x',
      'd/b': '2',
      'd/e': '4',
    })
  })

  test.skipIf(gitMissing)('two places of one text, and the mode apart from the content', async () => {
    const store = await temporaryStore()
    const lines = Array.from({ length: 20 }, (_, index) => `line ${index}`)
    const text = (change: (lines: string[]) => void): string => {
      const copy = ['#!/bin/sh', ...lines]
      change(copy)
      return `${copy.join('\n')}\n`
    }
    const start = store.editTree(store.emptyTree, [
      { path: 'run', set: { kind: 'file', id: store.putBlob(Buffer.from(text(() => undefined))) } },
    ])
    store.refs.create('main', start, act)
    store.branches.create('side', 'main', act)
    const set = (kind: 'file' | 'executable', content: string): TreeId =>
      store.editTree(start, [{ path: 'run', set: { kind, id: store.putBlob(Buffer.from(content)) } }])
    store.refs.move('main', {
      ...act,
      expectedTree: start,
      newTree: set(
        'executable',
        text((copy) => (copy[2] = 'ours')),
      ),
    })
    store.refs.move('side', {
      ...act,
      expectedTree: start,
      newTree: set(
        'file',
        text((copy) => (copy[18] = 'theirs')),
      ),
    })
    const result = await store.branches.merge('main', 'side', act)
    expect(result).toMatchObject({ kind: 'merged', changed: true, mergedTexts: ['run'] })
    expect(store.lookup(result.into.tree, 'run')?.kind).toBe('executable')
    expect((await store.fs.read('main', 'run')).kind).toBe('text')
    expect(filesOf(store, result.into.tree)['run']).toBe(
      text((copy) => {
        copy[2] = 'ours'
        copy[18] = 'theirs'
      }),
    )
  })

  test('a directory becomes a file on one side while the other leaves it alone', async () => {
    expect(
      await mergedFiles(
        { 'd/a': '1', 'd/b': '2', x: '0' },
        { d: 'now a file', x: '0' },
        { 'd/a': '1', 'd/b': '2', x: '9' },
      ),
    ).toEqual({
      d: 'now a file',
      x: '9',
    })
  })

  test('a file that the other side only moved into the same name is delete and add', async () => {
    expect(await mergedFiles({ 'A/file': '1' }, { 'B/file': '1' }, { 'A/file': '1', other: '2' })).toEqual({
      'B/file': '1',
      other: '2',
    })
  })

  test('both sides empty a directory: it goes; a directory kept empty stays', async () => {
    const store = await temporaryStore()
    const result = await mergeOf(store, { 'd/a': '1', 'd/b': '2', x: '' }, { 'd/a': '1', x: '' }, { 'd/b': '2', x: '' })
    expect(result.kind).toBe('merged')
    expect([...store.walk(result.into.tree)].map((entry) => entry.path)).toEqual(['x'])
  })

  test('both sides reach the same tree: clean, with a history row', async () => {
    const store = await temporaryStore()
    const result = await mergeOf(store, { a: '1' }, { a: '2' }, { a: '2' })
    expect(result).toMatchObject({ kind: 'merged', changed: false, into: { rev: 3 } })
    expect(store.refs.history('main')[0]).toMatchObject({ rev: 3, note: 'merge of main-side' })
  })
})

describe('conflicts', () => {
  test.each<[string, Files, Files, Files]>([
    ['content a', { a: '1\n' }, { a: '2\n' }, { a: '3\n' }],
    ['add_add a', { x: '' }, { x: '', a: '2\n' }, { x: '', a: '3\n' }],
    ['add_add a', { x: '' }, { x: '', a: '1\n' }, { x: '', a: '1\n2\n' }],
    ['modify_delete a', { a: '1\n', x: '' }, { a: '2\n', x: '' }, { x: '' }],
    ['modify_delete d/a', { 'd/a': '1\n', x: '' }, { x: '' }, { 'd/a': '2\n', x: '' }],
    ['mode a', { x: '' }, { x: '', a: '->y' }, { x: '', a: '#!' }],
    ['binary a', { a: 'a\0b' }, { a: 'a\0c' }, { a: 'a\0d' }],
    ['kind a', { a: '1\n' }, { a: '->t' }, { a: '2\n' }],
    ['symlink a', { a: '->t' }, { a: '->u' }, { a: '->v' }],
    ['file_directory a', { x: '' }, { x: '', a: '1' }, { x: '', 'a/b': '1' }],
    ['file_directory a', { x: '', a: '0' }, { x: '', a: '1' }, { x: '', 'a/b': '1' }],
  ])('%s', async (expected, base, ours, theirs) => {
    const wanted = expected === 'mode a' ? 'kind a' : expected
    expect(await conflictsOf(base, ours, theirs)).toEqual([wanted])
  })

  test('of the mode alone, when both made the file', async () => {
    const store = await temporaryStore()
    const start = store.emptyTree
    store.refs.create('main', start, act)
    store.branches.create('side', 'main', act)
    const id = store.putBlob(Buffer.from('same'))
    store.refs.move('main', {
      ...act,
      expectedTree: start,
      newTree: store.editTree(start, [{ path: 'f', set: { kind: 'file', id } }]),
    })
    store.refs.move('side', {
      ...act,
      expectedTree: start,
      newTree: store.editTree(start, [{ path: 'f', set: { kind: 'executable', id } }]),
    })
    expect(await store.branches.merge('main', 'side', act)).toMatchObject({
      kind: 'conflicts',
      conflicts: [
        { kind: 'mode', path: 'f', base: null, ours: { kind: 'file', id }, theirs: { kind: 'executable', id } },
      ],
    })
  })

  test('move nothing, are all listed with three ids, and offer the marked text', async () => {
    const store = await temporaryStore()
    const result = await mergeOf(
      store,
      { a: '1\n', b: '1\n', c: '1\n' },
      { a: '2\n', b: '2\n', c: '9\n' },
      { a: '3\n', c: '1\n' },
    )
    expect(result.kind).toBe('conflicts')
    if (result.kind !== 'conflicts') return
    expect(result.conflicts.map((conflict) => [conflict.path, conflict.kind])).toEqual([
      ['a', 'content'],
      ['b', 'modify_delete'],
    ])
    expect(result.conflicts[0]).toMatchObject({
      base: { kind: 'file' },
      ours: { kind: 'file' },
      theirs: { kind: 'file' },
    })
    expect(result.conflicts[1]?.theirs).toBeNull()
    expect(store.refs.get('main')).toEqual(result.into)
    expect(result.into.rev).toBe(2)
    const marked = result.conflicts[0]?.marked
    if (!gitMissing)
      expect(store.readBlob(marked ?? '').toString()).toBe('<<<<<<< ours\n2\n=======\n3\n>>>>>>> theirs\n')
  })

  test('bytes that are not UTF-8 are never merged as text', async () => {
    const store = await temporaryStore()
    const tree = (bytes: number[]): TreeId => treeOf(store, { f: Uint8Array.from(bytes) })
    const start = tree([0xe9, 10, 10, 10, 10, 10, 65, 10])
    store.refs.create('main', start, act)
    store.branches.create('side', 'main', act)
    store.refs.move('main', { ...act, expectedTree: start, newTree: tree([0xea, 10, 10, 10, 10, 10, 65, 10]) })
    store.refs.move('side', { ...act, expectedTree: start, newTree: tree([0xe9, 10, 10, 10, 10, 10, 66, 10]) })
    expect(await store.branches.merge('main', 'side', act)).toMatchObject({
      kind: 'conflicts',
      conflicts: [{ kind: 'binary', path: 'f' }],
    })
  })

  test('without git a file that both changed is a conflict that says why', async () => {
    const store = await temporaryStore({ git: '/nonexistent/git' })
    const result = await mergeOf(store, { a: '1\n' }, { a: '2\n' }, { a: '3\n' })
    expect(result).toMatchObject({
      kind: 'conflicts',
      conflicts: [{ kind: 'content', note: expect.stringContaining('git is not installed') }],
    })
  })
})

describe.skipIf(gitMissing)('against git', () => {
  // Lines that differ from each other: where they repeat, git merge-tree itself disagrees with git merge-file.
  const word = fc.constantFrom('alpha', 'beta', 'gamma', 'delta', 'eps')
  const content = fc.array(fc.tuple(word, fc.constantFrom(1, 2)), { minLength: 0, maxLength: 6 }).map((edits) => {
    const lines = Array.from({ length: 15 }, (_, index) => `line ${index}`)
    edits.forEach(
      ([text, version], index) =>
        (lines[(index * 5 + text.length) % 15] = `line of ${text} at ${index}, version ${version}`),
    )
    return `${lines.join('\n')}\n`
  })
  const paths = ['a', 'b', 'd/a', 'd/b', 'd/e/a', 'd', 'd/e', 'f']
  const files = fc
    .dictionary(
      fc.constantFrom(...paths),
      fc.oneof(
        { weight: 4, arbitrary: content },
        { weight: 1, arbitrary: word.map((text) => `->${text}`) },
        { weight: 1, arbitrary: content.map((text) => `#!\n${text}`) },
      ),
      { maxKeys: 6 },
    )
    .map((found) => {
      // A path cannot be a file and a directory at once: the deeper ones win.
      const keys = Object.keys(found)
      const kept = Object.entries(found).filter(([path]) => !keys.some((other) => other.startsWith(`${path}/`)))
      // Texts of different paths are unlike, so that git finds no renames (this git looks for them even when told not to).
      return Object.fromEntries(
        kept.map(([path, text]) => [
          path,
          text.replace(/^(->)?(.+)$/gm, `$1${path.repeat(4)} $2`).replace(/^.*#!$/m, '#!'),
        ]),
      )
    })
  const change = fc.tuple(files, fc.array(fc.boolean(), { minLength: 8, maxLength: 8 }))

  /** The base with some of its paths taken from `other`. */
  const changed = (base: Files, [other, taken]: readonly [Files, readonly boolean[]]): Files => {
    const result: Record<string, string> = { ...base }
    paths.forEach((path, index) => {
      if (taken[index] !== true) return
      const value = other[path]
      if (value === undefined) delete result[path]
      else {
        for (const key of Object.keys(result))
          if (key.startsWith(`${path}/`) || path.startsWith(`${key}/`)) delete result[key]
        result[path] = value
      }
    })
    return result
  }

  function gitTree(cwd: string, state: Files): string {
    const index: Buffer[] = []
    for (const [path, text] of Object.entries(state)) {
      const link = text.startsWith('->')
      const id = gitText(cwd, ['hash-object', '-w', '--stdin'], link ? text.slice(2) : text)
      index.push(Buffer.from(`${link ? '120000' : text.startsWith('#!') ? '100755' : '100644'} ${id}\t${path}\0`))
    }
    gitText(cwd, ['read-tree', '--empty'])
    gitText(cwd, ['update-index', '-z', '--index-info'], Buffer.concat(index))
    return gitText(cwd, ['write-tree'])
  }

  test('the same tree, or the same conflicting paths', async () => {
    const repository = temporaryFolder()
    gitText(repository, ['init', '-q'])
    const store = await temporaryStore()
    let round = 0
    let clean = 0
    await fc.assert(
      fc.asyncProperty(files, change, change, async (base, left, right) => {
        round += 1
        const ours = changed(base, left)
        const theirs = changed(base, right)
        const commit = (state: Files, ...parents: string[]): string =>
          gitText(repository, [
            'commit-tree',
            '-m',
            'x',
            ...parents.flatMap((parent) => ['-p', parent]),
            gitTree(repository, state),
          ])
        const start = commit(base)
        const merged = git(repository, [
          '-c',
          'merge.renames=false',
          '-c',
          'merge.directoryRenames=false',
          'merge-tree',
          '--write-tree',
          '-z',
          '--name-only',
          '--no-messages',
          commit(ours, start),
          commit(theirs, start),
        ])
        const [tree = '', ...conflicting] = merged.stdout
          .toString()
          .split('\0')
          .filter((part) => part !== '')
        const result = await mergeOf(store, base, ours, theirs, `r${round}`)
        if (merged.status === 0) {
          clean += 1
          expect(result.kind).toBe('merged')
          expect(gitTree(repository, Object.fromEntries(Object.entries(filesOf(store, result.into.tree))))).toBe(tree)
        } else {
          expect(result.kind).toBe('conflicts')
          if (result.kind !== 'conflicts') return
          // Git moves a file out of the way of a directory, to `path~side`.
          const wanted = new Set(conflicting.map((path) => path.replace(/~.*$/, '')))
          expect(new Set(result.conflicts.map((conflict) => conflict.path))).toEqual(wanted)
        }
      }),
      { numRuns: Number(process.env['CONTENT_STORE_MERGES'] ?? 60) },
    )
    expect(clean).toBeGreaterThan(5)
  })
})
