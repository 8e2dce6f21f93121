import { describe, expect, test } from 'vitest'
import {
  act,
  filesOf,
  git,
  gitMissing,
  gitText,
  refusal,
  refusalOf,
  temporaryFolder,
  temporaryStore,
  treeOf,
} from './support.ts'

describe('read', () => {
  test('numbers lines, and says how to go on', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { f: Array.from({ length: 10 }, (_, index) => `line ${index + 1}`).join('\n') })
    expect(await store.fs.read(tree, 'f', { offset: 9 })).toMatchObject({
      kind: 'text',
      text: '     9\tline 9\n    10\tline 10',
      next: null,
      endsWithNewline: false,
    })
    expect(await store.fs.read(tree, 'f', { offset: 2, limit: 2 })).toMatchObject({
      text: '     2\tline 2\n     3\tline 3',
      firstLine: 2,
      lastLine: 3,
      totalLines: 10,
      next: 4,
    })
    expect(await store.fs.read(tree, 'f', { offset: 99 })).toMatchObject({
      text: '',
      firstLine: 0,
      totalLines: 10,
      next: null,
    })
    expect(await store.fs.read(tree, 'f', { maxCharacters: 40 })).toMatchObject({ lastLine: 2, next: 3 })
  })

  test('cuts long lines with a note, between characters', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { f: `${'🙂'.repeat(5000)}\nshort\n` })
    const result = await store.fs.read(tree, 'f', { maxLineCharacters: 11 })
    expect(result).toMatchObject({ kind: 'text', cutLines: [1], next: null })
    if (result.kind !== 'text') return
    expect(result.text).toBe(`     1\t${'🙂'.repeat(5)}… [line cut: it has 20000 bytes]\n     2\tshort`)
  })

  test('notices binary files, links, directories, empty files and bytes that are not UTF-8', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, {
      png: Buffer.from('\x89PNG\r\n\x1a\n\0\0', 'latin1'),
      l: '->there',
      'd/f': '',
      latin: Buffer.from('caf\xe9\n', 'latin1'),
      run: '#!x\r\n',
    })
    expect(await store.fs.read(tree, 'png')).toMatchObject({ kind: 'binary', bytes: 10, type: 'image/png' })
    expect(await store.fs.read(tree, 'l')).toMatchObject({ kind: 'symlink', target: 'there' })
    expect(await store.fs.read(tree, 'd/f')).toMatchObject({
      kind: 'text',
      text: '',
      totalLines: 0,
      endsWithNewline: true,
    })
    expect(await store.fs.read(tree, 'latin')).toMatchObject({ text: '     1\tcaf\ufffd', lossy: true })
    expect(await store.fs.read(tree, 'run')).toMatchObject({ text: '     1\t#!x', executable: true })
    await refusalOf('is_a_directory', store.fs.read(tree, 'd'))
    await refusalOf('not_found', store.fs.read(tree, 'nowhere'))
    await refusalOf('not_found', store.fs.read(tree, 'png/below'))
    await refusalOf('bad_path', store.fs.read(tree, '../x'))
    await refusalOf('not_found', store.fs.read('no-such-ref', 'f'))
  })

  test('output shows a stored blob', async () => {
    const store = await temporaryStore()
    expect(await store.fs.output(store.putBlob(Buffer.from('a\nb\n')), { offset: 2 })).toMatchObject({
      kind: 'text',
      text: '     2\tb',
    })
    await refusalOf('not_found', store.fs.output('0'.repeat(64)))
    await refusalOf('bad_argument', store.fs.output('main'))
  })
})

test('list', async () => {
  const store = await temporaryStore()
  const tree = treeOf(store, { 'd/x': '12', 'd/e/y': '', 'd/l': '->../up', run: '#!' })
  store.refs.create('main', tree, act)
  expect((await store.fs.list('main')).entries).toMatchObject([
    { name: 'd', path: 'd', kind: 'directory', size: null },
    { name: 'run', kind: 'executable', size: 2 },
  ])
  expect((await store.fs.list('main', 'd')).entries).toMatchObject([
    { name: 'e', path: 'd/e', kind: 'directory' },
    { name: 'l', path: 'd/l', kind: 'symlink', target: '../up' },
    { name: 'x', path: 'd/x', size: 2 },
  ])
  await refusalOf('not_a_directory', store.fs.list('main', 'run'))
  await refusalOf('not_found', store.fs.list('main', 'nowhere'))
})

describe('glob', () => {
  const paths = ['a.ts', 'b.js', '.hidden.ts', 'src/c.ts', 'src/.dot/d.ts', 'src/deep/e.tsx', '#x', '!y', 'src/[z].ts']
  test.each<[string, readonly string[]]>([
    ['*.ts', ['.hidden.ts', 'a.ts']],
    ['./*.ts', ['.hidden.ts', 'a.ts']],
    ['src/*.ts', ['src/[z].ts', 'src/c.ts']],
    ['**/*.{ts,tsx}', ['.hidden.ts', 'a.ts', 'src/.dot/d.ts', 'src/[z].ts', 'src/c.ts', 'src/deep/e.tsx']],
    ['#x', ['#x']],
    ['!y', ['!y']],
    ['src/**/', ['src/.dot', 'src/deep']],
    ['src/\\[z\\].ts', ['src/[z].ts']],
    ['nothing*', []],
  ])('%s', async (pattern, expected) => {
    const store = await temporaryStore()
    const result = await store.fs.glob(treeOf(store, Object.fromEntries(paths.map((path) => [path, '']))), pattern)
    expect(result.matches.map((match) => match.path).filter((path) => path !== 'src')).toEqual(expected)
  })

  test('counts what the limit leaves out, and refuses what is no pattern', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { a: '', b: '', c: '' })
    expect(await store.fs.glob(tree, '*', { limit: 2 })).toMatchObject({
      matches: [{ path: 'a' }, { path: 'b' }],
      total: 3,
    })
    for (const pattern of ['', '/a', 'x'.repeat(5000)]) await refusalOf('bad_pattern', store.fs.glob(tree, pattern))
    // Patterns that explode elsewhere.
    expect((await store.fs.glob(tree, `${'*(a|a)'.repeat(20)}b`)).total).toBeLessThan(4)
    expect((await store.fs.glob(tree, '{a,b}'.repeat(30))).total).toBe(0)
  })
})

describe('grep', () => {
  const files = {
    'a.txt': 'one\ntwo TWO\nthree\r\n',
    'd/b.txt': 'two\n',
    bin: 'two\0two\ntwo\n',
    l: '->two',
    'd/empty': '',
  }

  test('finds lines, names binary files once, follows no link', async () => {
    const store = await temporaryStore()
    const result = await store.fs.grep(treeOf(store, files), 'two')
    expect(result).toEqual({
      matches: [
        { path: 'a.txt', line: 2, text: 'two TWO' },
        { path: 'd/b.txt', line: 1, text: 'two' },
      ],
      binary: ['bin'],
      files: 4,
      tooLarge: [],
      truncated: false,
      stoppedAt: null,
    })
  })

  test('path, limit, case, anchors at line ends', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, files)
    const lines = async (pattern: string, options = {}): Promise<unknown> =>
      (await store.fs.grep(tree, pattern, options)).matches.map((match) => `${match.path}:${match.line}`)
    expect(await lines('two', { path: 'd' })).toEqual(['d/b.txt:1'])
    expect(await lines('two', { path: 'd/b.txt' })).toEqual(['d/b.txt:1'])
    expect(await lines('^three$')).toEqual(['a.txt:3'])
    expect(await lines('TWO$')).toEqual(['a.txt:2'])
    expect(await lines('^TWO', { ignoreCase: true })).toEqual(['a.txt:2', 'd/b.txt:1'])
    expect(await lines('t(wo|hree)')).toEqual(['a.txt:2', 'a.txt:3', 'd/b.txt:1'])
    expect(await lines('\\bt..\\s')).toEqual(['a.txt:2'])
    expect(await store.fs.grep(tree, 't', { limit: 1 })).toMatchObject({
      matches: [{ line: 2 }],
      truncated: true,
      stoppedAt: 'a.txt',
    })
    await refusalOf('not_found', store.fs.grep(tree, 'x', { path: 'nowhere' }))
  })

  test('bad patterns are refused, patterns that explode elsewhere are not slow', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { f: `${'a'.repeat(20_000)}\n` })
    for (const pattern of ['', '(', 'a\nb', '(?=x)', '\\1', 'x'.repeat(5000)])
      await refusalOf('bad_pattern', store.fs.grep(tree, pattern))
    expect((await store.fs.grep(tree, '(a+)+$b')).matches).toEqual([])
    for (const pattern of ['(a{1000}){1000}', '((a{100}){100}){100}'])
      await refusalOf('bad_pattern', store.fs.grep(tree, pattern))
  })

  test('lets other work run, and stops when it is told to', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { f: 'some line of text\n'.repeat(200_000) })
    const controller = new AbortController()
    setImmediate(() => controller.abort(new Error('enough')))
    await expect(store.fs.grep(tree, '(x|y)z', { signal: controller.signal })).rejects.toThrow('enough')
  })

  test('a long line is shown around its match', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { f: `${'x'.repeat(1000)}needle${'y'.repeat(1000)}` })
    const [match] = (await store.fs.grep(tree, 'needle')).matches
    expect(match?.text).toMatch(/^…x+needley+…$/)
    expect(match?.text.length).toBeLessThan(310)
  })

  test.skipIf(gitMissing)('finds what git grep finds', async () => {
    const store = await temporaryStore()
    const cwd = temporaryFolder()
    const text = Array.from(
      { length: 400 },
      (_, index) => `${['foo', 'bar', 'Foo.bar', 'x+y', 'a\\b', 'end'][index % 6]}(${index}) ${'z'.repeat(index % 7)}`,
    ).join('\n')
    const tree = treeOf(store, { f: text })
    await store.layout(tree, `${cwd}/w`)
    for (const pattern of [
      'foo',
      'Foo\\.bar',
      'x\\+y',
      'o+\\(1',
      '^bar',
      'z$',
      'z{6}',
      '(foo|end)\\(3',
      '[0-9]9\\)',
      'a\\\\b',
      'f.o*\\(',
      'zz*',
      'o?o\\(',
    ]) {
      const ours = (await store.fs.grep(tree, pattern, { limit: 1000 })).matches.map((match) => match.line)
      const theirs = git(`${cwd}/w`, ['grep', '--no-index', '-nE', '--', pattern])
        .stdout.toString()
        .split('\n')
        .filter((line) => line !== '')
      expect(ours, pattern).toEqual(theirs.map((line) => Number(line.split(':')[1])))
    }
  })
})

describe('write', () => {
  test('makes parents, keeps a mode unless told, and leaves the old tree', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { run: '#!old' })
    const written = store.fs.write(tree, 'run', '#!new')
    expect(written).toMatchObject({ created: false, bytes: 5, path: 'run' })
    expect(store.lookup(written.tree, 'run')?.kind).toBe('executable')
    expect(store.lookup(store.fs.write(tree, 'run', '', { executable: false }).tree, 'run')?.kind).toBe('file')
    expect(
      store.lookup(store.fs.write(tree, 'a/b/c', new Uint8Array([0, 255]), { executable: true }).tree, 'a/b/c')?.kind,
    ).toBe('executable')
    expect(filesOf(store, tree)).toEqual({ run: '#!old' })
  })

  test('refuses directories, links, paths below files', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { 'd/f': '1', l: '->d/f' })
    refusal('is_a_directory', () => store.fs.write(tree, 'd', 'x'))
    refusal('is_a_directory', () => store.fs.write(tree, '', 'x'))
    refusal('not_a_file', () => store.fs.write(tree, 'l', 'x'))
    refusal('not_a_directory', () => store.fs.write(tree, 'd/f/g', 'x'))
    refusal('not_a_directory', () => store.fs.write(tree, 'l/g', 'x'))
    refusal('bad_argument', () => store.fs.write(tree, 'x', '\ud800'))
    for (const path of ['.git/config', 'a/.GIT/x', '..', '/etc/passwd'])
      refusal('bad_path', () => store.fs.write(tree, path, 'x'))
  })
})

test('edit keeps mode and counts its places', async () => {
  const store = await temporaryStore()
  const tree = treeOf(store, { run: '#!a\nb\na\n' })
  const edited = store.fs.edit(tree, 'run', 'a', 'c', { replaceAll: true })
  expect(edited).toMatchObject({ lines: [1, 3], bytes: 8 })
  expect(store.lookup(edited.tree, 'run')?.kind).toBe('executable')
  refusal('ambiguous', () => store.fs.edit(tree, 'run', 'a', 'c'))
  refusal('not_found', () => store.fs.edit(tree, 'nope', 'a', 'c'))
})

test('remove prunes the parents that it empties', async () => {
  const store = await temporaryStore()
  const tree = treeOf(store, { 'a/b/c': '1', 'a/x': '2', 'd/e/f': '3', 'd/e/g': '4' })
  const removed = store.fs.remove(tree, 'a/b/c')
  expect([...store.walk(removed.tree)].map((entry) => entry.path)).toEqual(['a', 'a/x', 'd', 'd/e', 'd/e/f', 'd/e/g'])
  expect(store.fs.remove(tree, 'd/e')).toMatchObject({ kind: 'directory', removed: 2 })
  expect(filesOf(store, store.fs.remove(tree, 'd/e').tree)).toEqual({ 'a/b/c': '1', 'a/x': '2' })
  expect(store.fs.remove(treeOf(store, { 'only/one': '' }), 'only/one').tree).toBe(store.fs.empty().tree)
  refusal('not_found', () => store.fs.remove(tree, 'a/zzz'))
  refusal('bad_path', () => store.fs.remove(tree, ''))
})

describe('diff', () => {
  test('has text, modes, kinds, binary', async () => {
    const store = await temporaryStore()
    const a = treeOf(store, {
      changed: 'one\ntwo\nthree\n',
      gone: 'x\n',
      bin: 'a\0',
      mode: 'same\n',
      link: '->a',
      kind: 'k\n',
    })
    let b = treeOf(store, { changed: 'one\nTWO\nthree', new: 'n\n', bin: 'b\0', link: '->b', kind: '->k' })
    b = store.editTree(b, [{ path: 'mode', set: { kind: 'executable', id: store.putBlob(Buffer.from('same\n')) } }])
    const { files, text, omitted } = await store.fs.diff(a, b)
    expect(omitted).toEqual([])
    expect(files.map((file) => [file.path, file.change, file.binary, file.added, file.removed])).toEqual([
      ['bin', 'changed', true, null, null],
      ['changed', 'changed', false, 2, 2],
      ['gone', 'removed', false, 0, 1],
      ['kind', 'kind', false, 1, 1],
      ['link', 'changed', false, 1, 1],
      ['mode', 'mode', false, 0, 0],
      ['new', 'added', false, 1, 0],
    ])
    expect(text).toContain(
      'diff --git a/changed b/changed\n--- a/changed\n+++ b/changed\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+TWO\n+three\n\\ No newline at end of file\n',
    )
    expect(text).toContain(
      'diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n',
    )
    expect(text).toContain('diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n')
    expect(text).toContain('Binary files differ (2 and 2 bytes).')
    expect(await store.fs.diff(a, a)).toMatchObject({ files: [], text: '' })
  })

  test.skipIf(gitMissing)('is a patch that git applies', async () => {
    const store = await temporaryStore()
    const lines = (change: (lines: string[]) => void): string => {
      const all = Array.from({ length: 60 }, (_, index) => `line ${index}`)
      change(all)
      return `${all.join('\n')}\n`
    }
    const a = treeOf(store, { 'd/f': lines(() => undefined), gone: 'x\ny\n', empty: '' })
    const b = treeOf(store, {
      'd/f': lines((all) => all.splice(10, 3, 'new', '$&')),
      'n/ew': '1\n2',
      'caf\\xe9': 'q\n',
      empty2: '',
    })
    const { text } = await store.fs.diff(a, store.fs.remove(b, 'caf\\xe9').tree)
    const cwd = temporaryFolder()
    await store.layout(a, `${cwd}/w`)
    gitText(`${cwd}/w`, ['init', '-q'])
    gitText(`${cwd}/w`, ['apply', '-'], text)
    expect((await store.capture(`${cwd}/w`)).tree).toBe(store.fs.remove(b, 'caf\\xe9').tree)
  })

  test('two large texts that have nothing in common are said to differ, at once', async () => {
    const store = await temporaryStore()
    const text = (word: string): string => Array.from({ length: 20_000 }, (_, index) => `${word} ${index}\n`).join('')
    const { files, text: shown } = await store.fs.diff(treeOf(store, { f: text('a') }), treeOf(store, { f: text('b') }))
    expect(files).toMatchObject([{ path: 'f', change: 'changed', added: null }])
    expect(shown).toContain('more than')
  })

  test('what does not fit is named, and every file is listed', async () => {
    const store = await temporaryStore()
    const files = Object.fromEntries(
      Array.from({ length: 30 }, (_, index) => [`f${String(index).padStart(2, '0')}`, 'x\n'.repeat(100)]),
    )
    const result = await store.fs.diff(store.emptyTree, treeOf(store, files), { maxCharacters: 1000 })
    expect(result.files).toHaveLength(30)
    expect(result.omitted).toHaveLength(28)
    expect(result.text.length).toBeLessThanOrEqual(1000)
  })
})
