import {
  chmodSync,
  chownSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { prepareImage } from '../../src/index.ts'
import { readRecord } from '../../src/images/store.ts'
import { folder } from '../helpers.ts'
import {
  cleanUp,
  hasProgram,
  type Member,
  remove,
  run,
  sha256,
  tarOf,
  testImage,
  testIndex,
  type TestImage,
  tinyRoot,
} from './tools.ts'

afterAll(cleanUp)

let cacheDir: string
let work: string
beforeEach(() => {
  cacheDir = folder()
  work = folder()
})

const make = (ref: string, limits = {}) =>
  prepareImage({ ref, packages: [] }, { cacheDir, runtimeDir: '/run/none' }, { limits })
const write = (name: string, bytes: Uint8Array): string => {
  writeFileSync(join(work, name), bytes)
  return join(work, name)
}
const images = (): string[] => readdirSync(join(cacheDir, 'images')).filter((name) => /^[0-9a-f]{16}-/.test(name))
const debugfs = hasProgram('debugfs')
const cat = (image: { readonly path: string }, path: string): string =>
  run('debugfs', ['-R', `cat ${path}`, image.path])

/** The members of an OCI layout. */
const layout = (index: Uint8Array, ...all: readonly TestImage[]): Member[] => [
  { name: 'oci-layout', data: '{"imageLayoutVersion":"1.0.0"}' },
  { name: 'index.json', data: index },
  ...all.flatMap(({ manifest, digest, blobs }) =>
    [[digest, manifest] as const, ...blobs].map(([name, data]) => ({ name: `blobs/sha256/${name.slice(7)}`, data })),
  ),
]
const named = (...all: readonly (readonly [name: string, image: TestImage])[]): Buffer =>
  Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      manifests: all.map(([name, { digest, manifest }]) => ({
        mediaType: 'application/vnd.oci.image.manifest.v1+json',
        digest,
        size: manifest.length,
        annotations: { 'org.opencontainers.image.ref.name': name },
      })),
    }),
  )
const image = (mark: string): TestImage =>
  testImage([tinyRoot({ name: 'mark', data: mark })], {
    pack: (layer) => gzipSync(layer),
    config: { Env: [`MARK=${mark}`] },
  })
const one = image('one')
const two = image('two')

describe('an archive in the layout of the OCI', () => {
  test.each([
    ['as it is', (bytes: Buffer) => bytes],
    ['packed with gzip', (bytes: Buffer) => gzipSync(bytes)],
    ['packed with zstd', (bytes: Buffer) => zstdCompressSync(bytes)],
  ])('is read %s, once', async (_, pack) => {
    const path = write('x.tar', pack(tarOf(...layout(named(['1', one]), one))))
    const made = await make(`oci-archive:${path}`)
    expect((await readRecord(cacheDir, made.id))?.env).toEqual({ MARK: 'one' })
    if (debugfs) expect(cat(made, '/mark')).toBe('one')
    expect(await make(`oci-archive:${path}`)).toEqual(made)
    expect(readdirSync(join(cacheDir, 'images', made.id)).toSorted()).toEqual(['image.json', 'root.ext4'])
  })

  test('gives the image that is named, or that runs here', async () => {
    const path = write('x.tar', tarOf(...layout(named(['1', one], ['2', two]), one, two)))
    expect((await readRecord(cacheDir, (await make(`oci-archive:${path}:2`)).id))?.env).toEqual({ MARK: 'two' })
    await expect(make(`oci-archive:${path}`)).rejects.toThrow(/several images.*1, 2/)
    await expect(make(`oci-archive:${path}:3`)).rejects.toThrow(/no image "3"; it has 1, 2/)
    const platforms = write('y.tar', tarOf(...layout(testIndex(['linux/arm64', one], ['linux/amd64', two]), one, two)))
    expect((await readRecord(cacheDir, (await make(`oci-archive:${platforms}`)).id))?.digest).toBe(two.digest)
    expect(images()).toHaveLength(1)
  })

  test('is read again when it has changed, and shares what is the same', async () => {
    const path = write('x.tar', tarOf(...layout(named(['1', one]), one)))
    const first = await make(`oci-archive:${path}`)
    write('x.tar', tarOf(...layout(named(['1', two]), two)))
    const second = await make(`oci-archive:${path}`)
    expect(second.id).not.toBe(first.id)
    const copy = write('copy.tar', tarOf(...layout(named(['other', one]), one)))
    expect((await make(`oci-archive:${copy}`)).id).toBe(first.id)
    expect(images()).toHaveLength(2)
  })

  test('may be a folder', async () => {
    for (const { name, data } of layout(named(['1', one]), one)) {
      mkdirSync(join(work, name, '..'), { recursive: true })
      writeFileSync(join(work, name), data ?? '')
    }
    expect((await readRecord(cacheDir, (await make(`oci:${work}`)).id))?.digest).toBe(one.digest)
  })

  const damaged = (digest: string): Member[] =>
    layout(named(['1', one]), one).map((member) =>
      member.name.endsWith(digest.slice(7)) ? { ...member, data: Buffer.alloc(member.data?.length ?? 0, ' ') } : member,
    )
  test.each<[string, () => Buffer, RegExp]>([
    ['is empty', () => Buffer.alloc(0), /no index\.json/],
    ['is something else', () => Buffer.from('#!/bin/sh\n'.repeat(100)), /checksum/],
    ['is one of Docker', () => tarOf({ name: 'manifest.json', data: '[]' }), /docker-archive/],
    ['has a damaged manifest', () => tarOf(...damaged(one.digest)), /damaged/],
    ['has a damaged configuration', () => tarOf(...damaged(sha256(one.config))), /damaged/],
    [
      'has a damaged layer',
      () => tarOf(...damaged(sha256(one.layers[0] ?? Buffer.alloc(0)))),
      /damaged|checksum|unpacks/,
    ],
    [
      'lacks a layer',
      () =>
        tarOf(
          ...layout(named(['1', one]), one).filter(
            ({ name }) => !name.includes(sha256(one.layers[0] ?? Buffer.alloc(0)).slice(7)),
          ),
        ),
      /lacks its layer/,
    ],
    [
      'names files elsewhere',
      () => tarOf({ name: 'index.json', data: '{"manifests":[{"digest":"sha256:../../../etc/passwd","size":1}]}' }),
      /sha256/,
    ],
    ['has an index without end', () => tarOf({ name: 'index.json', data: Buffer.alloc(9_000_000, ' ') }), /too many/],
  ])('that %s is refused, and nothing is left', async (_, bytes, message) => {
    const path = write('x.tar', bytes())
    await expect(make(`oci-archive:${path}`)).rejects.toThrow(message)
    await expect(make(`oci-archive:${path}`)).rejects.toMatchObject({ code: 'image_failed' })
    expect(images()).toEqual([])
    expect(readdirSync(join(cacheDir, 'images', 'locks')).filter((name) => name.startsWith('.'))).toEqual([])
  })

  test('that is not there, or no file, is said', async () => {
    await expect(make(`oci-archive:${work}/none.tar`)).rejects.toThrow(/ENOENT.*is it there/)
    await expect(make(`oci-archive:${work}`)).rejects.toThrow(/not a file/)
  })

  test('that packs a bomb is refused', async () => {
    const path = write('x.tar.gz', gzipSync(tarOf({ name: 'zeroes', data: Buffer.alloc(50_000_000) })))
    await expect(make(`oci-archive:${path}`, { unpackedBytes: 10_000_000 })).rejects.toThrow(/more than is allowed/)
  })
})

describe('an archive of "docker save"', () => {
  const layer = tinyRoot({ name: 'mark', data: 'docker' })
  const over = tarOf({ name: 'over', data: 'x' })
  const config = (layers: readonly Buffer[]): Buffer => testImage(layers).config
  const manifest = (layers: readonly string[], tags = ['app:latest']): string =>
    JSON.stringify([{ Config: 'config.json', RepoTags: tags, Layers: layers }])

  test('is read, also when a layer is a link to another', async () => {
    const path = write(
      'x.tar',
      tarOf(
        { name: 'a/layer.tar', data: layer },
        { name: 'b/layer.tar', data: over },
        { name: 'c/layer.tar', type: '2', link: '../b/layer.tar' },
        { name: 'config.json', data: config([layer, over, over]) },
        { name: 'manifest.json', data: manifest(['a/layer.tar', 'b/layer.tar', 'c/layer.tar']) },
      ),
    )
    const made = await make(`docker-archive:${path}:app`)
    if (debugfs) expect([cat(made, '/mark'), cat(made, '/over')]).toEqual(['docker', 'x'])
    await expect(make(`docker-archive:${path}:other`)).rejects.toThrow(/no image "other"; it has app:latest/)
  })

  test.each<[string, Member[], RegExp]>([
    ['leads out by a link', [{ name: 'a/layer.tar', type: '2', link: '../../../../etc/passwd' }], /lacks its layer/],
    ['leads out by a name', [], /lacks its layer/],
    ['has other layers than it says', [{ name: 'a/layer.tar', data: over }], /unpacks to/],
  ])('that %s is refused', async (_, members, message) => {
    const path = write(
      'x.tar',
      tarOf(
        ...members,
        { name: 'config.json', data: config([layer]) },
        { name: 'manifest.json', data: manifest([members.length === 0 ? '../../../etc/passwd' : 'a/layer.tar']) },
      ),
    )
    await expect(make(`docker-archive:${path}`)).rejects.toThrow(message)
  })
})

test('a hostile archive writes nowhere: what is outside of the image is as it was', async () => {
  const canary = folder()
  writeFileSync(join(canary, 'file'), 'untouched')
  const up = '../'.repeat(20)
  const members: Member[][] = [
    [{ name: join(canary, 'file'), data: 'absolute' }],
    [{ name: `${up}${canary}/file`, data: 'up' }],
    [
      { name: 'out', type: '2', link: canary },
      { name: 'out/file', data: 'through a link' },
    ],
    [
      { name: 'out', type: '2', link: `${up}${canary}` },
      { name: 'out/new', data: 'through a relative link' },
    ],
    [
      { name: 'file', type: '2', link: `${canary}/file` },
      { name: 'file', data: 'over a link' },
    ],
    [
      { name: 'file', type: '1', link: `${canary}/file` },
      { name: 'file', data: 'over a hard link' },
    ],
    [{ name: `.wh.${canary.slice(1)}` }, { name: `${canary.slice(1)}/.wh.file` }, { name: `${canary}/.wh..wh..opq` }],
    [{ name: 'out', type: '2', link: canary }, { name: 'out/.wh.file' }, { name: 'out/.wh..wh..opq' }],
    [
      { name: 'root.ext4', type: '2', link: `${canary}/file` },
      { name: 'spool', type: '2', link: `${canary}/file` },
    ],
  ]
  for (const [index, hostile] of members.entries()) {
    const path = write(`${index}.tar`, tarOf({ name: 'bin/sh', data: '#!', mode: 0o755 }, ...hostile))
    await make(`tar:${path}`).catch((error: unknown) => expect(error).toMatchObject({ code: 'image_failed' }))
    expect(readdirSync(canary)).toEqual(['file'])
    expect(readFileSync(join(canary, 'file'), 'utf8')).toBe('untouched')
  }
})

describe('a root file system', () => {
  test('is an archive of its own, packed or not', async () => {
    const bytes = tinyRoot({ name: 'mark', data: 'root' })
    const first = await make(`tar:${write('a.tar', bytes)}`)
    const second = await make(`tar:${write('b.tar.gz', gzipSync(bytes))}`)
    if (debugfs) expect([cat(first, '/mark'), cat(second, '/mark')]).toEqual(['root', 'root'])
  })

  test('is a folder, whose links lead nowhere outside of it', async () => {
    mkdirSync(join(work, 'bin'))
    writeFileSync(join(work, 'bin/sh'), '#!')
    chmodSync(join(work, 'bin/sh'), 0o755)
    linkSync(join(work, 'bin/sh'), join(work, 'bin/ash'))
    symlinkSync('/etc/hostname', join(work, 'leak'))
    symlinkSync('/etc', join(work, 'out'))
    if (process.getuid?.() === 0) chownSync(join(work, 'bin/sh'), 5, 6)
    const first = await make(`dir:${work}`)
    if (debugfs) {
      expect(run('debugfs', ['-R', 'stat /leak', first.path])).toMatch(/Type: symlink[^]*"\/etc\/hostname"/)
      expect(run('debugfs', ['-R', 'stat /bin/ash', first.path])).toMatch(/Links: 2/)
      if (process.getuid?.() === 0)
        expect(run('debugfs', ['-R', 'stat /bin/sh', first.path])).toMatch(/User:\s+5\s+Group:\s+6/)
    }
    expect((await make(`dir:${work}`)).id).toBe(first.id)
    writeFileSync(join(work, 'more'), 'x')
    const second = await make(`dir:${work}`)
    expect(second.id).not.toBe(first.id)
    utimesSync(join(work, 'more'), 1, 1)
    expect((await make(`dir:${work}`)).id).not.toBe(second.id)
  })

  test('without a shell, or not there, is refused', async () => {
    await expect(make(`dir:${work}`)).rejects.toThrow(/no \/bin\/sh/)
    symlinkSync('/bin', join(work, 'bin'))
    await expect(make(`dir:${work}`)).rejects.toThrow(/no \/bin\/sh/)
    await remove(work)
    await expect(make(`dir:${work}`)).rejects.toThrow(/cannot be read \(ENOENT\)/)
    await expect(make('dir:/etc/hostname')).rejects.toThrow(/cannot be read \(ENOTDIR\)/)
  })
})
