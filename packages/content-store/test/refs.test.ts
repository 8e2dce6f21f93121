import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { checkRefName, StoreError } from '../src/index.ts'
import { act, git, gitMissing, refusal, temporaryFolder, temporaryStore, treeOf } from './support.ts'

test('create, get, move, history, discard; rev rises over all of it and never restarts', async () => {
  let time = Date.parse('2030-01-01T00:00:00Z')
  const store = await temporaryStore({ now: () => (time += 1000) })
  const [a, b] = [treeOf(store, { f: '1' }), treeOf(store, { f: '2' })]
  expect(store.refs.create('main', a, { actor: 'ann', note: 'start' })).toEqual({ name: 'main', tree: a, rev: 1 })
  expect(store.refs.move('main', { actor: 'bob', expectedTree: a, newTree: b })).toEqual({
    name: 'main',
    tree: b,
    rev: 2,
  })
  expect(store.refs.get('main')).toEqual({ name: 'main', tree: b, rev: 2 })
  expect(store.branches.discard('main', { actor: 'cid' })).toMatchObject({ rev: 2 })
  expect(store.refs.find('main')).toBeUndefined()
  expect(store.refs.create('main', a, { actor: 'ann' })).toMatchObject({ rev: 4 })
  expect(store.refs.history('main')).toEqual([
    { rev: 4, actor: 'ann', at: '2030-01-01T00:00:04.000Z', from: null, to: a, note: null },
    { rev: 3, actor: 'cid', at: '2030-01-01T00:00:03.000Z', from: b, to: null, note: 'discarded' },
    { rev: 2, actor: 'bob', at: '2030-01-01T00:00:02.000Z', from: a, to: b, note: null },
    { rev: 1, actor: 'ann', at: '2030-01-01T00:00:01.000Z', from: null, to: a, note: 'start' },
  ])
  expect(store.refs.history('main', 2).map((move) => move.rev)).toEqual([4, 3])
  expect(store.refs.list()).toEqual([{ name: 'main', tree: a, rev: 4 }])
})

test('a move from another tree, or another rev of the same tree, names what was found', async () => {
  const store = await temporaryStore()
  const [a, b] = [treeOf(store, { f: '1' }), treeOf(store, { f: '2' })]
  store.refs.create('main', a, act)
  const error = refusal('ref_moved', () => store.refs.move('main', { ...act, expectedTree: b, newTree: b }))
  expect(error.details.found).toEqual({ name: 'main', tree: a, rev: 1 })
  expect(error.message).toContain(a)
  store.refs.move('main', { ...act, expectedTree: a, newTree: b })
  store.refs.move('main', { ...act, expectedTree: b, newTree: a })
  // There and back: the tree is the expected one again, the rev is not.
  refusal('ref_moved', () => store.refs.move('main', { ...act, expectedTree: a, expectedRev: 1, newTree: b }))
  expect(store.refs.get('main')).toMatchObject({ tree: a, rev: 3 })
  refusal('ref_moved', () => store.refs.remove('main', { ...act, expectedTree: b }))
})

test('refusals', async () => {
  const store = await temporaryStore()
  const tree = treeOf(store, { f: '1' })
  store.refs.create('main', tree, act)
  refusal('exists', () => store.refs.create('main', tree, act))
  refusal('not_found', () => store.refs.create('other', '0'.repeat(64), act))
  refusal('not_found', () => store.refs.create('other', store.putBlob(Buffer.from('blob')), act))
  refusal('bad_argument', () => store.refs.move('main', { ...act, expectedTree: tree, newTree: 'abc' }))
  refusal('not_found', () => store.refs.get('other'))
  refusal('not_found', () => store.refs.history('other'))
  refusal('not_found', () => store.refs.resolve('other'))
  expect(store.refs.resolve('main')).toBe(tree)
  expect(store.refs.resolve(tree)).toBe(tree)
  refusal('not_found', () => store.refs.resolve('f'.repeat(64)))
})

test('fifty movers from one tree: one wins, the others learn where it is', async () => {
  const store = await temporaryStore()
  let tree = treeOf(store, { f: 'start' })
  store.refs.create('main', tree, act)
  for (let round = 0; round < 4; round++) {
    const found = store.refs.get('main')
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, async (_, mover) => {
        await new Promise((resume) => setTimeout(resume, Math.floor(mover / 10)))
        const newTree = store.fs.write(found.tree, 'f', `round ${round}, mover ${mover}`).tree
        try {
          return store.refs.move('main', { ...act, expectedTree: found.tree, expectedRev: found.rev, newTree })
        } catch (error) {
          if (error instanceof StoreError && error.code === 'ref_moved') return error
          throw error
        }
      }),
    )
    const winners = outcomes.filter((outcome) => !(outcome instanceof StoreError))
    expect(winners).toHaveLength(1)
    tree = store.refs.get('main').tree
    for (const outcome of outcomes) if (outcome instanceof StoreError) expect(outcome.details.found?.tree).toBe(tree)
  }
  expect(store.refs.get('main').rev).toBe(5)
})

describe('names', () => {
  test.each([
    '',
    '-x',
    '@',
    'a b',
    'a..b',
    'a.lock',
    'x/a.lock/y',
    '.a',
    'a/.b',
    'a/',
    '/a',
    'a//b',
    'a.',
    'a@{b',
    'a~',
    'a^',
    'a:',
    'a?',
    'a*',
    'a[',
    'a\\b',
    'a\u007f',
    'a\nb',
    '0'.repeat(64),
    'a'.repeat(256),
    'a\ud800',
  ])('%j is refused', (name) => {
    refusal('bad_name', () => checkRefName(name))
  })

  test.each(['main', 'feature/login', 'v1.0', 'a@b', 'ünï', 'F'.repeat(64), '0'.repeat(63), 'x-'])(
    '%j is taken',
    (name) => {
      expect(() => checkRefName(name)).not.toThrow()
    },
  )

  test.skipIf(gitMissing)('what is taken, git takes', () => {
    const cwd = temporaryFolder()
    const name = fc.string({
      unit: fc.constantFrom('a', '.', '/', '@', '{', '-', '~', ' ', 'é', '.lock', '*'),
      minLength: 1,
      maxLength: 6,
    })
    fc.assert(
      fc.property(name, (text) => {
        let taken = true
        try {
          checkRefName(text)
        } catch (error) {
          taken = false
          if (!(error instanceof StoreError)) throw error
        }
        const byGit = git(cwd, ['check-ref-format', '--allow-onelevel', text]).status === 0
        // Git itself refuses @ and a leading dash elsewhere (as a branch, as an option).
        expect(taken).toBe(byGit && text !== '@' && !text.startsWith('-'))
      }),
      { numRuns: 150 },
    )
  })
})

describe('snapshots', () => {
  test('roll back moves what differs, makes what was discarded, leaves what is new', async () => {
    const store = await temporaryStore()
    const [a, b, c] = [treeOf(store, { f: '1' }), treeOf(store, { f: '2' }), treeOf(store, { f: '3' })]
    for (const [name, tree] of Object.entries({ same: a, moved: a, gone: b })) store.refs.create(name, tree, act)
    const snapshot = store.snapshots.create('before', { actor: 'ann', note: 'why' })
    expect(snapshot).toMatchObject({
      name: 'before',
      actor: 'ann',
      note: 'why',
      refs: [{ name: 'gone' }, { name: 'moved' }, { name: 'same', tree: a, rev: 1 }],
    })
    store.refs.move('moved', { ...act, expectedTree: a, newTree: c })
    store.branches.discard('gone', act)
    store.refs.create('new', c, act)
    const rollback = store.snapshots.rollback('before', { actor: 'bob' })
    expect(rollback).toEqual({
      name: 'before',
      moved: [
        { ref: 'gone', from: null, to: b, rev: 3 },
        { ref: 'moved', from: c, to: a, rev: 3 },
      ],
      unchanged: ['same'],
    })
    expect(store.refs.list()).toEqual([
      { name: 'gone', tree: b, rev: 3 },
      { name: 'moved', tree: a, rev: 3 },
      { name: 'new', tree: c, rev: 1 },
      { name: 'same', tree: a, rev: 1 },
    ])
    expect(store.refs.history('moved')[0]).toMatchObject({ actor: 'bob', from: c, to: a, note: 'rollback to before' })
    expect(store.refs.history('same')).toHaveLength(1)
    // A second time there is nothing to do.
    expect(store.snapshots.rollback('before', act).moved).toEqual([])
  })

  test('a name is taken once, and a failing rollback moves nothing', async () => {
    const store = await temporaryStore()
    const [a, b] = [treeOf(store, { f: '1' }), treeOf(store, { f: '2' })]
    store.refs.create('one', a, act)
    store.refs.create('two', a, act)
    store.snapshots.create('s', act)
    refusal('exists', () => store.snapshots.create('s', act))
    refusal('bad_name', () => store.snapshots.create('a b', act))
    refusal('not_found', () => store.snapshots.rollback('t', act))
    store.refs.move('one', { ...act, expectedTree: a, newTree: b })
    expect(() =>
      store.transaction(() => {
        store.snapshots.rollback('s', act)
        throw new Error('the event could not be written')
      }),
    ).toThrow('the event could not be written')
    expect(store.refs.get('one')).toMatchObject({ tree: b, rev: 2 })
    expect(store.snapshots.list().map((snapshot) => [snapshot.name, snapshot.refs.length])).toEqual([['s', 2]])
  })
})

describe('branches', () => {
  test('the base is where they parted, then what was merged last, in either direction', async () => {
    const store = await temporaryStore()
    const start = treeOf(store, { a: '1', b: '1' })
    store.refs.create('main', start, act)
    store.branches.create('side', 'main', act)
    expect(store.branches.base('side', 'main')).toEqual({ tree: start, how: 'recorded' })
    const ours = store.fs.write('main', 'a', '2').tree
    const theirs = store.fs.write('side', 'b', '2').tree
    store.refs.move('main', { ...act, expectedTree: start, newTree: ours })
    store.refs.move('side', { ...act, expectedTree: start, newTree: theirs })
    await store.branches.merge('main', 'side', act)
    expect(store.branches.base('main', 'side')).toEqual({ tree: theirs, how: 'recorded' })
    // Taken back on the side: merging main again must not bring b back by itself, nor lose a.
    store.refs.move('side', { ...act, expectedTree: theirs, newTree: store.fs.write('side', 'b', '3').tree })
    const back = await store.branches.merge('side', 'main', act)
    expect(back).toMatchObject({ kind: 'merged' })
    expect(store.readBlob(store.lookup(back.into.tree, 'a')?.id ?? '').toString()).toBe('2')
    expect(store.readBlob(store.lookup(back.into.tree, 'b')?.id ?? '').toString()).toBe('3')
  })

  test('two branches of one ref have its tree as base; strangers have the empty tree; a new branch of an old name starts anew', async () => {
    const store = await temporaryStore()
    const start = treeOf(store, { a: '1' })
    store.refs.create('main', start, act)
    store.branches.create('x', 'main', act)
    store.branches.create('y', 'main', act)
    expect(store.branches.base('x', 'y')).toEqual({ tree: start, how: 'history' })
    store.refs.create('stranger', treeOf(store, { z: '1' }), act)
    expect(store.branches.base('x', 'stranger')).toEqual({ tree: store.emptyTree, how: 'none' })
    const moved = store.fs.write('main', 'a', '2').tree
    store.refs.move('main', { ...act, expectedTree: start, newTree: moved })
    store.branches.discard('x', act)
    store.branches.create('x', 'main', act)
    expect(store.branches.base('x', 'main')).toEqual({ tree: moved, how: 'recorded' })
  })

  test('what `within` writes is durable with the move, or neither is', async () => {
    const store = await temporaryStore()
    store.registerSchema('event', ['CREATE TABLE event (text TEXT)'])
    const events = (): unknown[] => store.transaction((db) => db.prepare('SELECT text FROM event').all())
    const start = treeOf(store, { a: '1' })
    store.refs.create('main', start, act)
    store.branches.create('side', 'main', act)
    store.refs.move('side', { ...act, expectedTree: start, newTree: treeOf(store, { a: '2' }) })
    await expect(
      store.branches.merge('main', 'side', {
        ...act,
        within: () => {
          store.transaction((db) => db.prepare('INSERT INTO event VALUES (?)').run('lost'))
          throw new Error('no')
        },
      }),
    ).rejects.toThrow('no')
    expect(store.refs.get('main')).toMatchObject({ tree: start, rev: 1 })
    await store.branches.merge('main', 'side', {
      ...act,
      within: (result) => void store.transaction((db) => db.prepare('INSERT INTO event VALUES (?)').run(result.kind)),
    })
    expect(events()).toEqual([{ text: 'merged' }])
    expect(store.refs.get('main').rev).toBe(2)
  })

  test('a merge whose ref moves meanwhile is made again on what is there', async () => {
    const store = await temporaryStore()
    const start = treeOf(store, { a: 'x\n'.repeat(9), b: '1' })
    store.refs.create('main', start, act)
    store.branches.create('side', 'main', act)
    const main = store.fs.write(start, 'a', `ours\n${'x\n'.repeat(9)}`).tree
    store.refs.move('main', { ...act, expectedTree: start, newTree: main })
    store.refs.move('side', {
      ...act,
      expectedTree: start,
      newTree: store.fs.write(start, 'a', `${'x\n'.repeat(9)}theirs\n`).tree,
    })
    const merging = store.branches.merge('main', 'side', act)
    store.refs.move('main', { ...act, expectedTree: main, newTree: store.fs.write(main, 'b', '2').tree })
    const result = await merging
    if (gitMissing) return
    expect(result).toMatchObject({ kind: 'merged', into: { rev: 4 } })
    expect(store.readBlob(store.lookup(result.into.tree, 'b')?.id ?? '').toString()).toBe('2')
  })
})
