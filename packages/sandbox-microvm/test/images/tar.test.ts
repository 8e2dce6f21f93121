import {
  mkdirSync,
  readFileSync,
  symlinkSync,
  linkSync,
  writeFileSync,
  truncateSync,
  openSync,
  writeSync,
  closeSync,
} from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { MicroVmError } from '../../src/index.ts'
import { readTar, type TarEntry } from '../../src/images/tar.ts'
import { folder } from '../helpers.ts'
import { cleanUp, hasProgram, listTree, run, tarOf, treeOf } from './tools.ts'

afterAll(cleanUp)

async function read(archive: Uint8Array, piece = 1000): Promise<{ entry: TarEntry; data: string }[]> {
  const all: { entry: TarEntry; data: string }[] = []
  async function* pieces() {
    for (let at = 0; at < archive.length; at += piece) yield archive.subarray(at, at + piece)
  }
  await readTar(pieces(), {
    entry: (entry) => void all.push({ entry, data: '' }),
    data: (chunk) => {
      const last = all.at(-1)
      if (last !== undefined) last.data += chunk.toString('latin1')
    },
    end: () => undefined,
  })
  return all
}

describe('an archive', () => {
  const archive = tarOf(
    { name: 'folder/', type: '5', mode: 0o1777, uid: 7, gid: 8, mtime: 5 },
    { name: 'folder/file', data: 'text', mode: 0o4755 },
    { name: 'link', type: '1', link: 'folder/file' },
    { name: 'symlink', type: '2', link: '../out' },
    { name: 'null', type: '3', major: 1, minor: 3 },
    { name: 'pipe', type: '6' },
    {
      name: 'x',
      data: 'abc',
      pax: { path: 'ü/long', mtime: '1.5', uid: '70000', 'SCHILY.xattr.user.a': Buffer.from([0xff, 0, 10]) },
    },
  )

  test.each([1, 7, 512, 100_000])('is read in pieces of %i bytes', async (piece) => {
    const all = await read(archive, piece)
    expect(all.map(({ entry }) => [entry.kind, entry.path, entry.target])).toEqual([
      ['folder', 'folder/', ''],
      ['file', 'folder/file', ''],
      ['link', 'link', 'folder/file'],
      ['symlink', 'symlink', '../out'],
      ['char', 'null', ''],
      ['fifo', 'pipe', ''],
      ['file', Buffer.from('ü/long').toString('latin1'), ''],
    ])
    expect(all[0]?.entry).toMatchObject({ mode: 0o1777, uid: 7, gid: 8, mtime: 5 })
    expect(all[1]).toMatchObject({ data: 'text', entry: { mode: 0o4755, size: 4 } })
    expect(all[4]?.entry).toMatchObject({ devMajor: 1, devMinor: 3 })
    expect(all[6]).toMatchObject({ data: 'abc', entry: { mtime: 1.5, uid: 70_000 } })
    expect(all[6]?.entry.xattrs.get('user.a')).toEqual(Buffer.from([0xff, 0, 10]))
  })

  test.each([
    ['a checksum that is wrong', tarOf({ name: 'x', checksum: '0000000\0' }), /checksum/],
    ['a size that is no number', tarOf({ name: 'x', size: 'nonsense\0' }), /size/],
    ['a size that no file has', tarOf({ name: 'x', size: '\xff'.repeat(12) }), /size/],
    ['the end in the middle of a file', tarOf({ name: 'x', data: 'y'.repeat(5000) }).subarray(0, 1536), /cut short/],
    ['the end in the middle of a header', tarOf({ name: 'x' }).subarray(0, 100), /cut short/],
    ['an unknown type', tarOf({ name: 'x', type: 'Z' }), /unknown type/],
    ['records that do not fit', tarOf({ name: 'pax', type: 'x', data: '99 path=x\n' }, { name: 'x' }), /do not fit/],
    ['records without a member', tarOf({ name: 'pax', type: 'x', data: '9 path=x\n' }), /does not come/],
    ['a huge extended header', tarOf({ name: 'pax', type: 'x', size: 2 ** 30 }), /extended header of/],
    ['a name with a zero byte', tarOf({ name: 'x', pax: { path: 'a\0b' } }), /zero byte/],
    ['a name of 5,000 bytes', tarOf({ name: 'x', pax: { path: 'a/'.repeat(2500) } }), /too long/],
    ['a size in an extended header that is none', tarOf({ name: 'x', pax: { size: '1e9' } }), /size/],
    [
      'a sparse map beyond its file',
      tarOf({ name: 'x', data: 'abc', pax: { 'GNU.sparse.size': '2', 'GNU.sparse.map': '0,3' } }),
      /sparse map/,
    ],
    [
      'a sparse map that goes back',
      tarOf({ name: 'x', data: 'abc', pax: { 'GNU.sparse.size': '9', 'GNU.sparse.map': '5,1,0,2' } }),
      /sparse map/,
    ],
    ['something else', Buffer.from('this is not an archive at all'.repeat(100)), /checksum/],
  ])('with %s is refused', async (_, bytes, message) => {
    await expect(read(bytes)).rejects.toThrow(message)
    await expect(read(bytes)).rejects.toMatchObject({ code: 'image_failed' })
  })

  test('of any bytes never fails in another way, and never gives more than there is', async () => {
    const some = fc.oneof(
      fc.uint8Array({ maxLength: 3000 }),
      // Valid ones with some bytes changed, and their checksums made right again.
      fc.array(fc.tuple(fc.nat(archive.length - 1), fc.nat(255)), { maxLength: 12 }).map((changes) => {
        const bytes = Buffer.from(archive)
        for (const [at, value] of changes) bytes[at] = value
        for (let at = 0; at + 512 <= bytes.length; at += 512) {
          const block = bytes.subarray(at, at + 512)
          if (block.toString('latin1', 257, 262) !== 'ustar') continue
          block.fill(0x20, 148, 156)
          block.write(
            `${block
              .reduce((sum, byte) => sum + byte, 0)
              .toString(8)
              .padStart(6, '0')}\0 `,
            148,
            'latin1',
          )
        }
        return bytes
      }),
    )
    await fc.assert(
      fc.asyncProperty(some, async (bytes) => {
        try {
          const all = await read(bytes)
          expect(all.reduce((sum, { data }) => sum + data.length, 0)).toBeLessThanOrEqual(bytes.length)
        } catch (error) {
          expect(error).toBeInstanceOf(MicroVmError)
        }
      }),
      { numRuns: 400 },
    )
  })
})

describe.skipIf(!hasProgram('tar'))("what GNU's tar writes", () => {
  const root = folder()
  const long = `${'long-folder-name/'.repeat(12)}${'x'.repeat(200)}`
  mkdirSync(join(root, long, '..'), { recursive: true })
  writeFileSync(join(root, long), 'deep')
  linkSync(join(root, long), join(root, 'hard'))
  symlinkSync('y'.repeat(180), join(root, 'soft'))
  writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xe4, 0x0a, 0x22])]), 'no utf-8')
  writeFileSync(join(root, 'sparse'), 'start')
  truncateSync(join(root, 'sparse'), 50_000_000)
  const file = openSync(join(root, 'sparse'), 'r+')
  for (let at = 1; at <= 40; at++) writeSync(file, `part ${at}`, at * 1_000_000)
  closeSync(file)

  test.each([
    ['gnu', []],
    ['posix', []],
    ['gnu', ['--sparse']],
    ['posix', ['--sparse', '--sparse-version=1.0']],
    ['posix', ['--sparse', '--sparse-version=0.1']],
  ])('as %s %j has every name, link and hole', async (format, options) => {
    const path = join(folder(), 'x.tar')
    run('tar', [`--format=${format}`, ...options, '-C', root, '-cf', path, '.'])
    const image = await treeOf([readFileSync(path)])
    const lines = await listTree(image)
    expect(lines[long]).toBe('deep')
    expect(lines['hard']).toBe('deep')
    expect(image.tree.find('hard')).toBe(image.tree.find(long))
    expect(lines['soft']).toBe(`-> ${'y'.repeat(180)}`)
    expect(lines[Buffer.from([0xe4, 0x0a, 0x22]).toString('latin1')]).toBe('no utf-8')
    const sparse = image.tree.find('sparse')
    if (sparse?.kind !== 'file') throw new Error('there is no file')
    expect(sparse.content.size).toBe(50_000_000)
    expect(sparse.content.runs.reduce((sum, { count }) => sum + count, 0)).toBeLessThan(90)
    const bytes = await image.spool.read(sparse.content, 50_000_000)
    expect(bytes.equals(readFileSync(join(root, 'sparse')))).toBe(true)
  })
})
