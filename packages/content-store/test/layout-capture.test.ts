import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { type Edit, type Store, StoreError, type TreeId } from '../src/index.ts'
import { filesOf, gitMissing, gitText, refusalOf, temporaryFolder, temporaryStore, treeOf } from './support.ts'

process.stderr.write(
  `content-store: one test of files is skipped, it needs ${process.getuid?.() === 0 ? 'not to be' : 'to be'} root\n`,
)

if (process.platform !== 'linux')
  process.stderr.write('content-store: swapped folders are not tested, only Linux names files by an open folder\n')

const folder = (): string => join(temporaryFolder(), 'slot')

/** A tree with one of everything. */
function richTree(store: Store): TreeId {
  const tree = treeOf(store, {
    'src/main.ts': 'export {}\r\n',
    'bin/run': '#!/bin/sh\n',
    link: '->src/main.ts',
    dangling: '->../outside/of it',
    big: Buffer.alloc(3 << 20, 'abc'),
    'caf\\xe9/\\xff': 'odd names',
    'empty file': '',
  })
  const edits: Edit[] = [
    { path: 'build/out', set: { kind: 'directory', id: store.emptyTree } },
    { path: 'vendor/lib', set: { kind: 'gitlink', id: 'c'.repeat(40) } },
  ]
  return store.editTree(tree, edits)
}

describe('round trip', () => {
  test('layout and capture give the same tree', async () => {
    const store = await temporaryStore()
    const tree = richTree(store)
    const dir = folder()
    const out = await store.layout(tree, dir)
    expect(out).toMatchObject({ files: 5, symlinks: 2, gitlinks: ['vendor/lib'] })
    expect(readFileSync(join(dir, 'src/main.ts'), 'latin1')).toBe('export {}\r\n')
    expect(statSync(join(dir, 'bin/run')).mode & 0o111).not.toBe(0)
    expect(readlinkSync(join(dir, 'link'))).toBe('src/main.ts')
    expect(readdirSync(join(dir, 'vendor/lib'))).toEqual([])
    const full = await store.capture(dir, { base: tree })
    expect(full).toMatchObject({
      tree,
      files: 5,
      read: 5,
      skipped: [],
      links: [{ path: 'dangling', target: '../outside/of it' }],
    })
    // Without the base there is nothing that says what the empty folder is.
    const plain = await store.capture(dir)
    expect(store.lookup(plain.tree, 'vendor/lib')).toEqual({ kind: 'directory', id: store.emptyTree })
  })

  test('the index spares reading, and misses no change', async () => {
    const store = await temporaryStore()
    const tree = treeOf(
      store,
      Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`f${index}`, `content ${index}`])),
    )
    const dir = folder()
    const { index } = await store.layout(tree, dir)
    // The same size, the same modification time: only the change time tells.
    const file = join(dir, 'f7')
    const { mtime } = statSync(file)
    writeFileSync(file, 'CONTENT 7')
    utimesSync(file, mtime, mtime)
    chmodSync(join(dir, 'f8'), 0o755)
    writeFileSync(join(dir, 'replacement'), 'content X')
    renameSync(join(dir, 'replacement'), join(dir, 'f9'))
    const first = await store.capture(dir, { base: tree, index })
    expect([...store.diffTrees(tree, first.tree)].map(({ path, after }) => [path, after?.kind])).toEqual([
      ['f7', 'file'],
      ['f8', 'executable'],
      ['f9', 'file'],
    ])
    expect(filesOf(store, first.tree)).toMatchObject({ f7: 'CONTENT 7', f9: 'content X' })
    // A later capture may trust what is old enough.
    const settled = await temporaryStore({ now: () => Date.now() + 60_000 })
    const once = await settled.capture(dir)
    expect(once).toMatchObject({ files: 50, read: 50, tree: first.tree })
    expect(await settled.capture(dir, { index: once.index })).toMatchObject({ files: 50, read: 0, tree: first.tree })
  })

  test('a removed file, a file that became a directory, and a link in the place of a folder', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { a: '1', b: '2', 'c/d': '3' })
    const dir = folder()
    const { index } = await store.layout(tree, dir)
    rmSync(join(dir, 'a'))
    rmSync(join(dir, 'b'))
    mkdirSync(join(dir, 'b'))
    writeFileSync(join(dir, 'b/inner'), 'x')
    rmSync(join(dir, 'c'), { recursive: true })
    symlinkSync('/etc', join(dir, 'c'))
    const { tree: after, links } = await store.capture(dir, { base: tree, index })
    expect(filesOf(store, after)).toEqual({ 'b/inner': 'x', c: '->/etc' })
    expect(links).toEqual([{ path: 'c', target: '/etc' }])
  })

  test('a sparse file larger than memory buffers may be is streamed', async () => {
    const store = await temporaryStore()
    const dir = folder()
    mkdirSync(dir)
    writeFileSync(join(dir, 'sparse'), 'x')
    truncateSync(join(dir, 'sparse'), 300 << 20)
    const { tree } = await store.capture(dir)
    expect(store.blobSize(store.lookup(tree, 'sparse')?.id ?? '')).toBe(300 << 20)
    await refusalOf('too_large', store.capture(dir, { maxFileBytes: 1 << 20 }))
  })
})

describe('layout never leaves its folder', () => {
  test('a planted link is not written through, nor over', async () => {
    const store = await temporaryStore()
    const outside = temporaryFolder()
    writeFileSync(join(outside, 'victim'), 'untouched')
    const tree = treeOf(store, { 'd/victim': 'evil', file: 'evil' })
    for (const plant of [
      (dir: string) => symlinkSync(outside, join(dir, 'd')),
      (dir: string) => symlinkSync(join(outside, 'victim'), join(dir, 'file')),
      (dir: string) => writeFileSync(join(dir, 'file'), 'mine'),
    ]) {
      const dir = folder()
      mkdirSync(dir)
      plant(dir)
      await refusalOf('exists', store.layout(tree, dir))
      await refusalOf('exists', store.layout(tree, dir, { allowExisting: true }))
      if (lstatSync(join(dir, 'file'), { throwIfNoEntry: false })?.isFile() === true)
        expect(readFileSync(join(dir, 'file'), 'utf8')).not.toBe('')
    }
    const link = folder()
    symlinkSync(outside, link)
    await refusalOf('not_a_directory', store.layout(tree, link))
    expect(readdirSync(outside)).toEqual(['victim'])
    expect(readFileSync(join(outside, 'victim'), 'utf8')).toBe('untouched')
  })

  test('a link of the tree itself is never walked through', async () => {
    const store = await temporaryStore()
    const outside = temporaryFolder()
    // Two names that differ for us: the tree holds a link, and a directory that a folding disk would take for it.
    const tree = treeOf(store, { x: `->${outside}`, 'x2/file': '1' })
    const dir = folder()
    await store.layout(tree, dir)
    expect(readdirSync(outside)).toEqual([])
    const next = await store.capture(dir, { base: tree })
    expect(next.tree).toBe(tree)
  })

  test.skipIf(process.platform !== 'linux')(
    'folders that are swapped for links while it writes lead nowhere',
    async () => {
      const store = await temporaryStore()
      const outside = temporaryFolder()
      mkdirSync(join(outside, 'e'))
      const files = Object.fromEntries(Array.from({ length: 3000 }, (_, index) => [`d/e/f${index}`, 'x']))
      const tree = treeOf(store, files)
      const dir = folder()
      const stop = new AbortController()
      const swap = async (): Promise<void> => {
        while (!stop.signal.aborted) {
          await nextTurn()
          const d = join(dir, 'd')
          if (!existsSync(join(d, 'e')) || lstatSync(d).isSymbolicLink()) continue
          renameSync(d, join(dir, 'moved'))
          symlinkSync(outside, d)
        }
      }
      const swapping = swap()
      try {
        await store.layout(tree, dir)
      } catch (error) {
        expect(error).toBeInstanceOf(StoreError)
      } finally {
        stop.abort()
        await swapping
      }
      expect(lstatSync(join(dir, 'd')).isSymbolicLink()).toBe(true)
      expect(readdirSync(join(outside, 'e'))).toEqual([])
    },
  )
})

/** Whether this disk takes two names that differ in case for one. */
const folds = ((): boolean => {
  const dir = temporaryFolder()
  writeFileSync(join(dir, 'name'), '')
  return existsSync(join(dir, 'NAME'))
})()
if (!folds)
  process.stderr.write('content-store: clashes of names are not tested, this disk tells upper from lower case\n')

test.skipIf(!folds)('two names that the disk takes for one are refused, and both are named', async () => {
  const store = await temporaryStore()
  const error = await refusalOf(
    'exists',
    store.layout(treeOf(store, { 'd/Makefile': '1', 'd/makefile': '2' }), folder()),
  )
  expect(error.message).toContain('d/Makefile')
  expect(error.message).toContain('d/makefile')
})

describe('what is not captured', () => {
  test('fifos, sockets and .git in any spelling are said and skipped', async () => {
    const store = await temporaryStore()
    const dir = folder()
    mkdirSync(join(dir, '.git'), { recursive: true })
    writeFileSync(join(dir, '.git/config'), 'secret')
    mkdirSync(join(dir, 'sub/.Git'), { recursive: true })
    writeFileSync(join(dir, 'sub/kept'), '1')
    execFileSync('mkfifo', [join(dir, 'pipe')])
    const { tree, skipped } = await store.capture(dir)
    expect(filesOf(store, tree)).toEqual({ 'sub/kept': '1' })
    expect(skipped).toEqual([
      { path: '.git', why: 'dotgit' },
      { path: 'pipe', why: 'fifo' },
      { path: 'sub/.Git', why: 'dotgit' },
    ])
  })

  test('excluded directories are not read, and what the base has there stays', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { 'target/tracked': 'old', 'src/a': '1', 'web/dist/x': '2', 'web/src/dist/y': '3' })
    const dir = folder()
    await store.layout(tree, dir)
    writeFileSync(join(dir, 'target/tracked'), 'changed by the tool')
    writeFileSync(join(dir, 'target/new'), 'cache')
    writeFileSync(join(dir, 'web/src/dist/y'), '4')
    mkdirSync(join(dir, 'src/target'))
    writeFileSync(join(dir, 'src/target/cache'), 'cache')
    rmSync(join(dir, 'web/dist'), { recursive: true })
    const result = await store.capture(dir, { base: tree, exclude: ['target', 'web/dist'] })
    expect(filesOf(store, result.tree)).toEqual({
      'target/tracked': 'old',
      'src/a': '1',
      'web/dist/x': '2',
      'web/src/dist/y': '4',
    })
    expect(result.excluded).toEqual(['src/target', 'target'])
    // A file of that name is no directory.
    rmSync(join(dir, 'target'), { recursive: true })
    writeFileSync(join(dir, 'target'), 'a file')
    expect(filesOf(store, (await store.capture(dir, { exclude: ['target'] })).tree)['target']).toBe('a file')
  })

  test.skipIf(process.getuid?.() === 0)('what cannot be read is an error that names it', async () => {
    const store = await temporaryStore()
    const dir = folder()
    mkdirSync(join(dir, 'closed'), { recursive: true })
    chmodSync(join(dir, 'closed'), 0o000)
    const error = await refusalOf('io', store.capture(dir))
    chmodSync(join(dir, 'closed'), 0o700)
    expect(error.message).toContain('closed')
  })

  test('an aborted capture stops', async () => {
    const store = await temporaryStore()
    const controller = new AbortController()
    controller.abort(new Error('enough'))
    await expect(store.capture(temporaryFolder(), { signal: controller.signal })).rejects.toThrow('enough')
  })
})

describe('.gitignore', () => {
  const files: Readonly<Record<string, string>> = {
    '.gitignore': '*.log\n/build/\n!keep.log\nnode_modules/\nx/*\n!x/yes\n# caf\xe9\n*.tmp\r\n',
    'a.log': '',
    'keep.log': '',
    'build/out': '',
    'sub/build/in': '',
    'x/no': '',
    'x/yes': '',
    'y.tmp': '',
    'Y.TMP': '',
    'sub/.gitignore': '!*.log\nonly\n',
    'sub/b.log': '',
    'sub/only': '',
    'sub/deep/only': '',
    'sub/node_modules/pkg/index.js': '',
    only: '',
  }

  test.skipIf(gitMissing)('leaves out what git would', async () => {
    const store = await temporaryStore()
    const dir = folder()
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(join(dir, path, '..'), { recursive: true })
      writeFileSync(join(dir, path), Buffer.from(content, 'latin1'))
    }
    symlinkSync('sub', join(dir, 'node_modules'))
    gitText(dir, ['init', '-q'])
    const expected = gitText(dir, ['ls-files', '-o', '--exclude-standard']).split('\n').sort()
    const { tree } = await store.capture(dir, { gitignore: true })
    expect(Object.keys(filesOf(store, tree)).sort()).toEqual(expected)
    expect(expected).toContain('node_modules')
    expect(expected).not.toContain('build/out')
  })

  test('what the base tracks is captured though it is ignored', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { '.gitignore': 'out/\n*.log\n', 'out/tracked': '1', 'kept.log': '1' })
    const dir = folder()
    await store.layout(tree, dir)
    writeFileSync(join(dir, 'out/tracked'), '2')
    writeFileSync(join(dir, 'out/untracked'), '2')
    writeFileSync(join(dir, 'kept.log'), '2')
    writeFileSync(join(dir, 'new.log'), '2')
    const result = await store.capture(dir, { base: tree, gitignore: true })
    expect(filesOf(store, result.tree)).toEqual({ '.gitignore': 'out/\n*.log\n', 'out/tracked': '2', 'kept.log': '2' })
    const plain = await store.capture(dir, { ignore: ['out/'] })
    expect(Object.keys(filesOf(store, plain.tree))).toEqual(['.gitignore', 'kept.log', 'new.log'])
  })
})

test.skipIf(process.getuid?.() !== 0)('a folder of another user is laid out for it', async () => {
  const store = await temporaryStore()
  const dir = folder()
  await store.layout(richTree(store), dir, { owner: { uid: 65_534, gid: 65_534 }, mtimeMs: 1_000_000_000_000 })
  for (const path of ['', 'src', 'src/main.ts', 'link', 'build/out', 'vendor/lib'])
    expect(lstatSync(join(dir, path)).uid).toBe(65_534)
  expect(statSync(join(dir, 'src/main.ts')).mtimeMs).toBe(1_000_000_000_000)
})
