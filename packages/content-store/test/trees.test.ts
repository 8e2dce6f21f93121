import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { encodePath, type Edit, type Store, type TreeId } from '../src/index.ts'
import { filesOf, refusal, temporaryStore, treeOf } from './support.ts'

describe('edits against a plain map', () => {
  const names = ['a', 'b', 'c', 'é']
  const path = fc.array(fc.constantFrom(...names), { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'))
  const step = fc.oneof(
    fc.record({ path, content: fc.string({ maxLength: 5 }) }),
    fc.record({ path, content: fc.constant(null) }),
  )

  test('one by one and all at once', async () => {
    const store = await temporaryStore()
    fc.assert(
      fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
        const map = new Map<string, string>()
        const done: Edit[] = []
        let tree = store.emptyTree
        const parents = (of: string): string[] =>
          of
            .split('/')
            .slice(0, -1)
            .map((_, index, all) => all.slice(0, index + 1).join('/'))
        for (const { path, content } of steps) {
          const below = [...map.keys()].filter((key) => key.startsWith(`${path}/`))
          if (content === null) {
            const edit: Edit = { path, remove: true }
            if (!map.has(path) && below.length === 0) {
              refusal('not_found', () => store.editTree(tree, [edit]))
              continue
            }
            for (const key of [path, ...below]) map.delete(key)
            done.push(edit)
            tree = store.editTree(tree, [edit])
          } else {
            const edit: Edit = { path, set: { kind: 'file', id: store.putBlob(Buffer.from(content)) } }
            if (parents(path).some((parent) => map.has(parent))) {
              refusal('not_a_directory', () => store.editTree(tree, [edit]))
              continue
            }
            for (const key of below) map.delete(key)
            map.set(path, content)
            done.push(edit)
            tree = store.editTree(tree, [edit])
          }
        }
        expect(filesOf(store, tree)).toEqual(Object.fromEntries(map))
        expect(store.editTree(store.emptyTree, done)).toBe(tree)
        // The id is that of the content, whatever way led there.
        expect(treeOf(store, Object.fromEntries(map))).toBe(tree)
      }),
      { numRuns: 60 },
    )
  })
})

describe('diffTrees', () => {
  test('is what differs, and nothing else', async () => {
    const store = await temporaryStore()
    const files = fc.dictionary(
      fc.constantFrom('a', 'b', 'd/a', 'd/b', 'e/f/g', 'e/h'),
      fc.constantFrom('1', '2', '#!3', '->4'),
    )
    fc.assert(
      fc.property(files, files, (left, right) => {
        const expected = [...new Set([...Object.keys(left), ...Object.keys(right)])]
          .filter((path) => left[path] !== right[path])
          .sort()
        const changes = [...store.diffTrees(treeOf(store, left), treeOf(store, right))]
        expect(changes.map((change) => change.path)).toEqual(expected)
      }),
      { numRuns: 60 },
    )
  })

  test('tells empty directories and kinds', async () => {
    const store = await temporaryStore()
    const a = treeOf(store, { 'd/f': '1', x: '->t' })
    const b = store.editTree(treeOf(store, { x: 't' }), [
      { path: 'd', set: { kind: 'directory', id: store.emptyTree } },
    ])
    expect([...store.diffTrees(a, b)]).toMatchObject([
      { path: 'd', before: null, after: { kind: 'directory', id: store.emptyTree } },
      { path: 'd/f', after: null },
      { path: 'x', before: { kind: 'symlink' }, after: { kind: 'file' } },
    ])
  })
})

describe('names', () => {
  const hostile: readonly (string | number[])[] = [
    '',
    '.',
    '..',
    'a/b',
    'a\0b',
    '.git',
    '.GIT',
    '.Git',
    '.git ',
    '.git.',
    '.git. .',
    'git~1',
    'GIT~1',
    'GIT~1.',
    '.git::$INDEX_ALLOCATION',
    '.git:stream',
    '.g\u200cit',
    '\u200d.git',
    '.gi\ufeffT',
    '.git\u202e',
    '.\u200c.',
    '\u200c',
    '.. ',
    '. ',
    '..:x',
    '..\u200d:x',
    'x\\.git',
    '.git\\x',
    '.\u206ag\u206fit',
  ]
  test.each(hostile.map((name) => [name]))('%j is refused everywhere', async (name) => {
    const store = await temporaryStore()
    const bytes = typeof name === 'string' ? Buffer.from(name) : Buffer.from(name)
    const id = store.putBlob(Buffer.from(''))
    refusal('bad_name', () => store.putTree([{ name: bytes, kind: 'file', id }]))
    if (bytes.length > 0 && bytes.toString() !== '.') {
      refusal('bad_path', () =>
        store.editTree(store.emptyTree, [
          { path: `d/${encodePath(bytes).replaceAll('/', '\\x2f')}`, set: { kind: 'file', id } },
        ]),
      )
    }
  })

  test.each(['.gitignore', '.github', 'git', '...', '..a', 'git~2', 'a:b', 'a\\b', 'a\nb', '.gitx', 'ﬁ'])(
    '%j is a name',
    async (name) => {
      const store = await temporaryStore()
      const id = store.putBlob(Buffer.from('x'))
      const tree = store.putTree([{ name: Buffer.from(name), kind: 'file', id }])
      const path = encodePath(Buffer.from(name))
      expect([...store.walk(tree)]).toEqual([{ path, kind: 'file', id }])
      expect(store.lookup(tree, path)).toEqual({ kind: 'file', id })
    },
  )

  test('are bytes: what is not UTF-8 is kept and shown escaped, and two Unicode forms are two names', async () => {
    const store = await temporaryStore()
    const id = store.putBlob(Buffer.from('x'))
    const names = [
      Buffer.from([0x63, 0x61, 0x66, 0xe9]),
      Buffer.from('caf\u00e9'),
      Buffer.from('cafe\u0301'),
      Buffer.from([0xff, 0xfe]),
    ]
    const tree = store.putTree(names.map((name) => ({ name, kind: 'file', id })))
    expect([...store.walk(tree)].map((entry) => entry.path)).toEqual([
      'cafe\u0301',
      'caf\u00e9',
      'caf\\xe9',
      '\\xff\\xfe',
    ])
    expect(
      store.editTree(
        store.emptyTree,
        [...store.walk(tree)].map(({ path, kind }) => ({ path, set: { kind, id } })),
      ),
    ).toBe(tree)
    expect(store.readTree(tree).map((entry) => Buffer.from(entry.name))).toEqual([
      names[2],
      names[1],
      names[0],
      names[3],
    ])
  })

  test('any bytes go through the escaped form and back', async () => {
    const store = await temporaryStore()
    const id = store.putBlob(Buffer.from('x'))
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 12 }), (bytes) => {
        fc.pre(
          !bytes.includes(0) &&
            !bytes.includes(0x2f) &&
            Buffer.from(bytes).toString('latin1').replaceAll('.', '') !== '',
        )
        const path = encodePath(bytes)
        expect(path).toMatch(/^[^\u0000-\u001f\u007f-\u009f]*$/)
        const tree = store.editTree(store.emptyTree, [{ path, set: { kind: 'file', id } }])
        expect(store.readTree(tree)[0]?.name).toEqual(Buffer.from(bytes))
      }),
    )
  })

  test('paths: absolute ones, half pairs and lone backslashes are refused; ./ and a last slash are not', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { 'a/b': '1' })
    for (const path of ['/a', 'a//b', '../a', 'a/../b', 'a\\b', 'a\ud800', '\\x2e\\x2e'])
      refusal('bad_path', () => store.lookup(tree, path))
    expect(store.lookup(tree, './a/')).toMatchObject({ kind: 'directory' })
    expect(store.lookup(tree, '')).toEqual({ kind: 'directory', id: tree })
  })
})

describe('putTree', () => {
  test('refuses a name twice, wrong ids and what is not stored', async () => {
    const store = await temporaryStore()
    const id = store.putBlob(Buffer.from('x'))
    const name = Buffer.from('f')
    refusal('bad_argument', () =>
      store.putTree([
        { name, kind: 'file', id },
        { name, kind: 'symlink', id },
      ]),
    )
    refusal('bad_argument', () => store.putTree([{ name, kind: 'file', id: id.toUpperCase() }]))
    refusal('bad_argument', () => store.putTree([{ name, kind: 'file', id: 'a'.repeat(40) }]))
    refusal('not_found', () => store.putTree([{ name, kind: 'file', id: '0'.repeat(64) }]))
    refusal('not_found', () => store.putTree([{ name, kind: 'directory', id }]))
    refusal('not_found', () => store.putTree([{ name, kind: 'file', id: store.emptyTree }]))
  })

  test('keeps gitlinks of both lengths', async () => {
    const store = await temporaryStore()
    const entries = [
      { name: Buffer.from('long'), kind: 'gitlink', id: 'b'.repeat(64) },
      { name: Buffer.from('short'), kind: 'gitlink', id: 'a'.repeat(40) },
    ] as const
    expect(store.readTree(store.putTree(entries))).toEqual(entries)
  })
})

describe('large directories', () => {
  const build = (store: Store, count: number): TreeId => {
    const id = store.putBlob(Buffer.from('x'))
    return store.putTree(
      Array.from({ length: count }, (_, index) => ({
        name: Buffer.from(`file-${index}.txt`),
        kind: 'file' as const,
        id,
      })),
    )
  }

  test('are one value, however they came to be, and an edit writes little', async () => {
    const store = await temporaryStore()
    const tree = build(store, 20_000)
    expect(store.readTree(tree)).toHaveLength(20_000)
    const count = (): number =>
      store.transaction(
        (db) => db.prepare<{ bytes: number }>('SELECT sum(size) AS bytes FROM object').get()?.bytes ?? 0,
      )
    const id = store.putBlob(Buffer.from('other'))
    const before = count()
    const edited = store.editTree(tree, [{ path: 'file-777.txt', set: { kind: 'file', id } }])
    expect(count() - before).toBeLessThan(30_000)
    const added = store.editTree(edited, [{ path: 'file-777b.txt', set: { kind: 'file', id } }])
    expect(count() - before).toBeLessThan(90_000)
    const back = store.editTree(added, [
      { path: 'file-777b.txt', remove: true },
      { path: 'file-777.txt', set: { kind: 'file', id: store.putBlob(Buffer.from('x')) } },
    ])
    expect(back).toBe(tree)
    expect([...store.diffTrees(tree, added)].map((change) => change.path)).toEqual(['file-777.txt', 'file-777b.txt'])
    expect((await store.fsck()).problems).toEqual([])
  })

  test('around the size at which they are cut, removing comes back to the same id', async () => {
    const store = await temporaryStore()
    for (const count of [255, 256, 257, 300]) {
      const tree = build(store, count)
      const more = store.editTree(tree, [{ path: 'zzz', set: { kind: 'file', id: store.putBlob(Buffer.from('x')) } }])
      expect(store.editTree(more, [{ path: 'zzz', remove: true }])).toBe(tree)
    }
  })
})
