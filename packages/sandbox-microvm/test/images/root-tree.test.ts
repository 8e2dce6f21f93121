import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { MicroVmError } from '../../src/index.ts'
import { cleanUp, listTree, type Member, tarOf, treeOf } from './tools.ts'

afterAll(cleanUp)

const list = async (...layers: (readonly Member[])[]) => listTree(await treeOf(layers.map((layer) => tarOf(...layer))))
const file = (name: string, data = name): Member => ({ name, data })
const dir = (name: string): Member => ({ name, type: '5' })
const soft = (name: string, link: string): Member => ({ name, type: '2', link })
const hard = (name: string, link: string): Member => ({ name, type: '1', link })

describe('layers', () => {
  test('lie above each other; what is not mentioned stays', async () => {
    expect(await list([file('a/b', 'low'), file('a/c')], [file('a/b', 'high'), file('d')])).toEqual({
      a: 'folder',
      'a/b': 'high',
      'a/c': 'a/c',
      d: 'd',
    })
  })

  test("change a folder's mode and keep what is in it", async () => {
    const { tree } = await treeOf([tarOf(dir('a'), file('a/b')), tarOf({ name: 'a', type: '5', mode: 0o700, uid: 5 })])
    expect(tree.find('a')).toMatchObject({ mode: 0o700, uid: 5 })
    expect(tree.find('a/b')).toMatchObject({ kind: 'file' })
  })

  test('hide what a whiteout names, and nothing of their own', async () => {
    expect(await list([file('a/x'), file('a/y'), file('b')], [file('.wh.b', ''), file('a/.wh.x', '')])).toEqual({
      a: 'folder',
      'a/y': 'a/y',
    })
    expect(await list([file('x', 'low')], [file('x', 'high'), file('.wh.x', '')])).toEqual({ x: 'high' })
    expect(await list([file('x/y')], [file('.wh.x', ''), file('x', 'now a file')])).toEqual({ x: 'now a file' })
    expect(await list([file('x')], [file('.wh.z', ''), file('no/.wh.z', '')])).toEqual({ x: 'x' })
  })

  test.each([['before'], ['after']])('hide a whole folder, with what comes %s the mark', async (when) => {
    const mark = file('a/.wh..wh..opq', '')
    const own = [file('a/new'), file('a/sub/new')]
    expect(
      await list(
        [file('a/old'), file('a/sub/old'), file('a/gone/old'), file('b')],
        when === 'before' ? [...own, mark] : [mark, ...own],
      ),
    ).toEqual({ a: 'folder', 'a/new': 'a/new', 'a/sub': 'folder', 'a/sub/new': 'a/sub/new', b: 'b' })
  })

  test('hide one name of a file that has two', async () => {
    expect(await list([file('a', 'x')], [hard('b', 'a'), file('.wh.a', '')])).toEqual({ b: 'x' })
  })

  test('leave the marks of an old union file system out', async () => {
    expect(await list([file('a')], [file('.wh..wh.aufs', ''), dir('.wh..wh.plnk')])).toEqual({ a: 'a' })
  })

  test('replace one kind by another', async () => {
    expect(await list([file('a/b'), file('c'), soft('d', 'a')], [file('a'), dir('c'), dir('d')])).toEqual({
      a: 'a',
      c: 'folder',
      d: 'folder',
    })
  })

  test('put files through links, which lead around in the image only', async () => {
    expect(await list([dir('usr/lib'), soft('lib', 'usr/lib')], [file('lib/x')])).toEqual({
      usr: 'folder',
      'usr/lib': 'folder',
      lib: '-> usr/lib',
      'usr/lib/x': 'lib/x',
    })
    expect(await list([soft('out', '../../../../etc'), file('out/passwd', 'mine')])).toEqual({
      out: '-> ../../../../etc',
      etc: 'folder',
      'etc/passwd': 'mine',
    })
    expect(await list([soft('abs', '/tmp/evil'), file('abs/x', 'mine')])).toEqual({
      abs: '-> /tmp/evil',
      tmp: 'folder',
      'tmp/evil': 'folder',
      'tmp/evil/x': 'mine',
    })
  })

  test('name a file twice, and the last one counts', async () => {
    expect(await list([file('a', '1'), file('a', '2'), dir('b'), dir('b'), soft('c', 'a'), file('c', '3')])).toEqual({
      a: '2',
      b: 'folder',
      c: '3',
    })
  })

  test('start at their own root, however it is spelt', async () => {
    expect(await list([dir('./'), file('./a'), file('/b'), file('//c/./d')])).toEqual({
      a: './a',
      b: '/b',
      c: 'folder',
      'c/d': '//c/./d',
    })
  })
})

describe('a hostile layer', () => {
  test.each<[string, Member[], RegExp]>([
    ['leads out with ..', [file('../x')], /leads out/],
    ['leads out later', [file('a/../../x')], /leads out/],
    ['links to what is outside', [hard('a', '../../etc/passwd')], /leads out/],
    ['links to what is not there', [hard('a', '/etc/passwd')], /not a file of the image/],
    ['links to a folder', [dir('a'), hard('b', 'a')], /not a file of the image/],
    ['has links in a circle', [soft('a', 'b'), soft('b', 'a'), file('a/x')], /leads around/],
    ['puts a file into a file', [file('a'), file('a/b')], /is a file/],
    ['makes its root a link', [soft('./', 'x')], /root is not a folder/],
    [
      'has a link to a name that no file system takes',
      [soft('a', 'x'.repeat(99)), { name: 'b', type: '2', pax: { linkpath: 'x'.repeat(300) } }, file('b/c')],
      /255/,
    ],
    ['has a link to nothing', [soft('a', '')], /link to nothing/],
    [
      'has a name that no file system takes',
      [file('x'.repeat(99)), { name: 'y', pax: { path: 'x'.repeat(256) } }],
      /255/,
    ],
    ['has folders without end', [{ name: 'y', pax: { path: 'a/'.repeat(1500) }, type: '5' }], /folders in each other/],
  ])('%s, and is refused', async (_, members, message) => {
    await expect(list(members)).rejects.toThrow(message)
    await expect(list(members)).rejects.toMatchObject({ code: 'image_failed' })
  })

  test('may not have more files than is allowed, nor folders that it does not name', async () => {
    const many = tarOf(...Array.from({ length: 20 }, (_, index) => file(`f${index}`)))
    await expect(treeOf([many], { files: 10 })).rejects.toThrow(/more than 10 files/)
    await expect(treeOf([tarOf(file('a/'.repeat(20) + 'x'))], { files: 10 })).rejects.toThrow(/more than 10 files/)
  })

  test('may not be larger than is allowed, in one file or in many', async () => {
    const big = tarOf(file('a', 'x'.repeat(60_000)), file('b', 'x'.repeat(60_000)))
    await expect(treeOf([big], { unpackedBytes: 100_000 })).rejects.toThrow(/larger than/)
    await expect(treeOf([tarOf(file('a', '\0'.repeat(200_000)))], { unpackedBytes: 100_000 })).rejects.toThrow(
      /larger than|more than is allowed/,
    )
  })

  test('of any names and kinds is a tree or a refusal', async () => {
    const name = fc
      .array(fc.constantFrom('a', 'b', '..', '.', '', '.wh.a', '.wh..wh..opq', 'x y'), { minLength: 1, maxLength: 5 })
      .map((parts) => parts.join('/'))
    const member: fc.Arbitrary<Member> = fc.record({
      name,
      type: fc.constantFrom('0', '1', '2', '5', '6'),
      link: name,
    })
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(member, { maxLength: 8 }), { maxLength: 3 }), async (layers) => {
        try {
          const { tree, spool } = await treeOf(layers.map((layer) => tarOf(...layer)))
          const parts = Object.keys(await listTree({ tree, spool })).flatMap((line) => line.split('/'))
          // A folder that a link leads to may be called like a mark: nobody named it as one.
          const links = layers.flat().some(({ type }) => type === '2')
          expect(parts.filter((part) => part === '..' || (part.startsWith('.wh.') && !links))).toEqual([])
        } catch (error) {
          expect(error).toBeInstanceOf(MicroVmError)
        }
      }),
      { numRuns: 300 },
    )
    await cleanUp()
  })
})
