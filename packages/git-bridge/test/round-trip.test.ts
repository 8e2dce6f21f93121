import { symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { decodePath, type Store, type TreeEntry } from '@reve/content-store'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { ImportResult } from '../src/index.ts'
import { commitTree, deepCommit, rawBlob, rawTree } from './raw-git.ts'
import { commitAll, difficult, git, repository, treeOf, world, write, type World } from './repositories.ts'

let here: World
beforeEach(async () => {
  here = await world()
})
afterEach(() => here.remove())

const actor = 'tester'
const clone = (name: string): string => join(here.repos, `${name}.git`)

/** Import, then export the same tree as the first commit of an unrelated clone: git must make the same tree of it. */
async function roundTrip(src: string): Promise<{ readonly gitTree: string; readonly imported: ImportResult }> {
  const imported = await here.bridge.import({ src, name: 'source', actor })
  return { gitTree: await exportAnew(here, imported.tree), imported }
}

/** The git tree that a bridge without any memory makes of a tree, in a clone without any object. */
async function exportAnew(from: World, tree: string): Promise<string> {
  const other = await world()
  try {
    copyTree(from.store, other.store, tree)
    git(other.root, 'init', '--quiet', '--bare', 'blank.git')
    await other.bridge.import({ src: other.path('blank.git'), name: 'blank', actor })
    const exported = await other.bridge.export({ name: 'blank', tree, branch: 'copy', message: 'copy', actor })
    const dir = join(other.repos, 'blank.git')
    expect(git(dir, 'rev-parse', 'copy^{tree}')).toBe(exported.gitTree)
    expect(git(dir, 'fsck', '--strict')).toBe('')
    return exported.gitTree
  } finally {
    await other.remove()
  }
}

function copyTree(from: Store, to: Store, tree: string): void {
  const entries = from.readTree(tree)
  for (const { kind, id } of entries) {
    if (kind === 'directory') copyTree(from, to, id)
    else if (kind !== 'gitlink') to.putBlob(from.readBlob(id))
  }
  expect(to.putTree(entries)).toBe(tree)
}

const kinds = ({ notes }: ImportResult): readonly string[] => notes.map((note) => note.kind).toSorted()

describe('a round trip gives the same git tree', () => {
  test('for links, modes, CRLF, bytes that are not UTF-8, submodules, LFS pointers, large files', async () => {
    const src = difficult(here.path('src'))
    const { gitTree, imported } = await roundTrip(src)
    expect(gitTree).toBe(treeOf(src))
    const notes = new Map(imported.notes.map((note) => [note.kind, note]))
    expect(notes.get('gitlink')?.where).toEqual(['lib/sub'])
    expect(notes.get('lfs_pointer')?.where).toEqual(['model.bin'])
    expect(notes.get('name_not_utf8')?.where).toEqual(['caf\\xe9.txt'])
    expect(imported.commit).toBe(git(src, 'rev-parse', 'HEAD'))
    expect(imported.gitRef).toBe('refs/heads/main')
  })

  test('for 10,000 files', async () => {
    const src = repository(here.path('src'), {})
    const blobs = Array.from({ length: 50 }, (_, i) => rawBlob(src, `content ${i}\n`))
    const folders = Array.from({ length: 100 }, (_, d) =>
      rawTree(
        src,
        Array.from({ length: 100 }, (_, f) => `file-${d}-${f}`)
          .toSorted()
          .map((name, f) => ['100644', name, blobs[(d * 7 + f) % blobs.length] ?? ''] as const),
      ),
    )
    const names = folders.map((_, d) => `folder-${d}`).toSorted()
    commitTree(
      src,
      rawTree(
        src,
        names.map((name, d) => ['40000', name, folders[d] ?? ''] as const),
      ),
    )
    const { gitTree, imported } = await roundTrip(src)
    expect(gitTree).toBe(treeOf(src))
    expect(imported.notes).toEqual([])
    expect([...here.store.walk(imported.tree)].filter(({ kind }) => kind === 'file')).toHaveLength(10_000)
  })

  test('for a bare repository', async () => {
    difficult(here.path('src'))
    git(here.root, 'clone', '--quiet', '--bare', 'src', 'bare.git')
    expect((await roundTrip(here.path('bare.git'))).gitTree).toBe(treeOf(here.path('src')))
  })

  test('for a commit whose tree is empty', async () => {
    const src = repository(here.path('src'), {})
    const { gitTree, imported } = await roundTrip(src)
    expect(gitTree).toBe(treeOf(src))
    expect(imported.tree).toBe(here.store.emptyTree)
  })

  test('for names that only differ in case or in Unicode form, and folders sorted as git sorts them', async () => {
    const src = repository(here.path('src'), {
      'README.md': '1',
      'readme.md': '2',
      'é.txt': 'composed',
      'e\u0301.txt': 'decomposed',
      'a/x': '',
      'a.b': '',
      a0: '',
      'a-': '',
      'A/x': '',
    })
    const { gitTree, imported } = await roundTrip(src)
    expect(gitTree).toBe(treeOf(src))
    expect(here.store.readTree(imported.tree)).toHaveLength(9)
  })

  test('for links of any target', async () => {
    const src = repository(here.path('src'))
    for (const [index, target] of ['..', '/etc/passwd', 'a'.repeat(1_000), 'ünï code', '.git/config'].entries())
      symlinkSync(target, join(src, `link-${index}`))
    commitAll(src, 'links')
    expect((await roundTrip(src)).gitTree).toBe(treeOf(src))
  })

  test('for folders as deep as the store takes them', async () => {
    const src = repository(here.path('src'))
    deepCommit(src, 512)
    expect((await roundTrip(src)).gitTree).toBe(treeOf(src))
  })
})

describe('what git would not write today is read, and said', () => {
  test('outdated modes, zeros in front, another order, empty folders', async () => {
    const src = repository(here.path('src'))
    const blob = rawBlob(src, 'x')
    const empty = rawTree(src, [])
    const inner = rawTree(src, [['100664', 'writable', blob]])
    const padded = rawTree(src, [['040000', 'inner', inner]])
    const disordered = rawTree(src, [
      ['100644', 'b', blob],
      ['100775', 'a', blob],
    ])
    const tree = rawTree(src, [
      ['40000', 'disordered', disordered],
      ['40000', 'hollow', rawTree(src, [['40000', 'void', empty]])],
      ['40000', 'padded', padded],
    ])
    const commit = commitTree(src, tree)
    const imported = await here.bridge.import({ src, name: 'old', actor })
    expect(imported.commit).toBe(commit)
    expect(imported.notes.map(({ kind, where }) => [kind, where])).toEqual([
      ['mode_normalised', ['disordered/a', 'padded/inner/writable']],
      ['tree_normalised', ['disordered', 'padded']],
      ['empty_directory_dropped', ['hollow/void']],
    ])
    const paths = [...here.store.walk(imported.tree)].map(({ path, kind }) => [path, kind])
    expect(paths).toEqual([
      ['disordered', 'directory'],
      ['disordered/a', 'executable'],
      ['disordered/b', 'file'],
      ['padded', 'directory'],
      ['padded/inner', 'directory'],
      ['padded/inner/writable', 'file'],
    ])
    // The same again from what is remembered.
    expect((await here.bridge.import({ src, name: 'old', actor })).notes).toEqual(imported.notes)
  })

  test('notes are the same whether the tree was imported before or not', async () => {
    const src = difficult(here.path('src'))
    const first = await here.bridge.import({ src, name: 'one', actor })
    write(src, { 'another.txt': '1' })
    git(src, 'add', 'another.txt')
    git(src, 'commit', '--quiet', '-m', 'more')
    const second = await here.bridge.import({ src, name: 'one', actor })
    expect(second.notes).toEqual(first.notes)
    expect(kinds(first)).toEqual(['gitlink', 'lfs_pointer', 'name_not_utf8'])
    // Exporting an LFS pointer does not make it look like any file either.
    await here.bridge.export({ name: 'one', tree: second.tree, branch: 'copy', message: 'copy', actor })
    expect(kinds(await here.bridge.import({ src, name: 'two', actor }))).toEqual(kinds(first))
  })
})

describe('trees as they come', () => {
  const name = fc.oneof(
    fc.constantFrom('a', 'b', 'a.b', 'a-b', 'a0', 'A', 'é', 'x y', '"', '\\', '~'),
    fc
      .uint8Array({ minLength: 1, maxLength: 4 })
      .map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0 || byte === 0x2f ? 0x61 : byte))).toString('latin1')),
  )
  const leaf = fc.tuple(
    fc.constantFrom('file', 'executable', 'symlink', 'gitlink'),
    fc.constantFrom('', 'x', 'hello\r\n', 'y'.repeat(70_000)),
  )
  type Made = Map<string, readonly [string, string] | Made>
  const { folder } = fc.letrec<{ folder: Made }>((tie) => ({
    folder: fc
      .array(fc.tuple(name, fc.oneof({ depthSize: 'small', withCrossShrink: true }, leaf, tie('folder'))), {
        maxLength: 6,
      })
      .map((entries) => new Map(entries)),
  }))

  function put(store: Store, made: Made): string {
    const entries = [...made].flatMap(([bytes, what]): readonly TreeEntry[] => {
      const entryName = Buffer.from(bytes, 'latin1')
      if (what instanceof Map) return [{ name: entryName, kind: 'directory', id: put(store, what) }]
      const [kind, content] = what
      switch (kind) {
        case 'file':
        case 'executable':
        case 'symlink':
          return [{ name: entryName, kind, id: store.putBlob(Buffer.from(content)) }]
        default:
          return [{ name: entryName, kind: 'gitlink', id: '1234567890'.repeat(4) }]
      }
    })
    return store.putTree(entries.filter(({ name: bytes }) => !/^[. ~]/.test(Buffer.from(bytes).toString('latin1'))))
  }

  /** Without the folders that hold nothing, which git does not have. */
  function pruned(store: Store, tree: string): string {
    const entries = store.readTree(tree).flatMap((entry): readonly TreeEntry[] => {
      if (entry.kind !== 'directory') return [entry]
      const id = pruned(store, entry.id)
      return id === store.emptyTree ? [] : [{ ...entry, id }]
    })
    return store.putTree(entries)
  }

  test('any tree exports to what git itself makes of it, and comes back', { timeout: 300_000 }, async () => {
    git(here.root, 'init', '--quiet', '--bare', 'blank.git')
    await here.bridge.import({ src: here.path('blank.git'), name: 'blank', actor })
    const runs = Number(process.env['GIT_BRIDGE_TREES'] ?? 15)
    let count = 0
    await fc.assert(
      fc.asyncProperty(folder, async (made) => {
        const tree = put(here.store, made)
        const branch = `b${(count += 1)}`
        const { gitTree } = await here.bridge.export({ name: 'blank', tree, branch, message: branch, actor })
        // git's own index makes the tree from the list of all paths.
        const index = join(here.root, `index-${count}`)
        const lines = [...here.store.walk(tree)].flatMap(({ path, kind, id }) => {
          if (kind === 'directory') return []
          const mode = { file: '100644', executable: '100755', symlink: '120000', gitlink: '160000' }[kind]
          const oid = kind === 'gitlink' ? id : rawBlob(clone('blank'), here.store.readBlob(id))
          return [Buffer.concat([Buffer.from(`${mode} ${oid}\t`), decodePath(path), Buffer.of(0)])]
        })
        writeFileSync(`${index}.in`, Buffer.concat(lines))
        expect(gitTree).toBe(treeByIndex(clone('blank'), index))
        const back = await world()
        try {
          const imported = await back.bridge.import({ src: clone('blank'), name: 'back', ref: branch, actor })
          expect(imported.tree).toBe(pruned(here.store, tree))
        } finally {
          await back.remove()
        }
      }),
      { numRuns: runs },
    )
  })
})

function treeByIndex(dir: string, index: string): string {
  return git(
    dir,
    '-c',
    `alias.by-index=!GIT_INDEX_FILE='${index}' git update-index -z --index-info <'${index}.in' && GIT_INDEX_FILE='${index}' git write-tree`,
    'by-index',
  )
}
