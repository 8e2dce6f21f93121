import { createCipheriv } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type MicroVmEvent, type MicroVmHost, prepareImage } from '../../src/index.ts'
import { lockPath, readRecord } from '../../src/images/store.ts'
import { partialFolder } from '../../src/cache-folder.ts'
import { folder } from '../helpers.ts'
import { type RegistryServer, serveRegistry } from './registry-server.ts'
import { cleanUp, hasProgram, run, sha256, tarOf, testImage, testIndex, tinyRoot } from './tools.ts'

afterAll(cleanUp)

let server: RegistryServer
let cacheDir: string
beforeEach(async () => {
  server = await serveRegistry()
  cacheDir = folder()
})
afterEach(() => server.close())

const events: MicroVmEvent[] = []
const host = (more: Partial<MicroVmHost> = {}): MicroVmHost => ({
  cacheDir,
  runtimeDir: '/run/none',
  onEvent: (event) => events.push(event),
  ...more,
})
const quick = { retryMs: 1 }
const pull = (tag = 'app:1', more: Partial<MicroVmHost> = {}, options = {}) =>
  prepareImage({ ref: tag.includes('/') ? tag : `${server.host}/team/${tag}`, packages: [] }, host(more), {
    ...quick,
    ...options,
  })
const images = (): string[] => {
  const path = join(cacheDir, 'images')
  return existsSync(path) ? readdirSync(path).filter((name) => /^[0-9a-f]{16}-/.test(name)) : []
}
const left = (): string[] => readdirSync(join(cacheDir, 'images', 'locks')).filter((name) => name.startsWith('.'))

// Bytes that do not pack, the same in each run.
const big = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(600_000))
const image = testImage([tinyRoot({ name: 'big', data: big })], {
  pack: (layer) => gzipSync(layer),
  config: { Env: ['PATH=/app:/bin', 'TERM=vt100', 'NO_EQUALS'], WorkingDir: '/app', User: 'me' },
})
const layer = image.layers[0]?.length ?? 0

describe('an image of a registry', () => {
  test('is pulled with a token, for this processor, and from then on is there without the registry', async () => {
    server.tag('1', testIndex(['linux/arm64', testImage([tinyRoot()])], ['linux/amd64', image]), image)
    const pulled = await pull()
    expect(pulled.path).toBe(join(cacheDir, 'images', pulled.id, 'root.ext4'))
    expect(await readRecord(cacheDir, pulled.id)).toMatchObject({
      digest: image.digest,
      env: { PATH: '/app:/bin', TERM: 'vt100' },
      workdir: '/app',
      user: 'me',
    })
    expect(server.requests.map(({ path }) => path)).toContain(
      '/token?service=test+registry&scope=repository%3Ateam%2Fapp%3Apull',
    )
    if (hasProgram('debugfs'))
      expect(run('debugfs', ['-R', 'cat /big', pulled.path]) === big.toString('latin1')).toBe(true)
    expect(events).toContainEqual(
      expect.objectContaining({ state: 'progress', label: expect.stringContaining('layer 1 of 1') }),
    )
    await server.close()
    expect(await pull()).toEqual(pulled)
    expect(left()).toEqual([])
    server = await serveRegistry()
  })

  test('is the same by tag, by digest and by another tag, and kept once', async () => {
    server.tag('1', image.manifest, image)
    server.tag('2', image.manifest, image)
    const ids = [await pull('app:1'), await pull('app:2'), await pull(`app@${image.digest}`)].map(({ id }) => id)
    expect(new Set(ids).size).toBe(1)
    expect(server.requests.filter(({ path }) => path.includes('/blobs/'))).toHaveLength(2)
  })

  test('of layers packed in all ways is the sum of them', async () => {
    const three = [
      tinyRoot({ name: 'a', data: '1' }),
      tarOf({ name: 'a', data: '2' }),
      tarOf({ name: '.wh.a' }, { name: 'b', data: '3' }),
    ]
    const packs = [gzipSync, zstdCompressSync, (plain: Buffer) => plain]
    let at = 0
    const mixed = testImage(three, { pack: (plain) => packs[at++]?.(plain) ?? plain })
    server.tag('1', mixed.manifest, mixed)
    const { path } = await pull()
    if (hasProgram('debugfs')) {
      expect(run('debugfs', ['-R', 'cat /b', path])).toBe('3')
      expect(run('debugfs', ['-R', 'ls -p /', path])).not.toContain('/a/')
    }
  })

  test('is looked up again on request, when its tag has moved', async () => {
    server.tag('1', image.manifest, image)
    const first = await pull()
    const other = testImage([tinyRoot({ name: 'new', data: 'x' })])
    server.tag('1', other.manifest, other)
    expect((await pull()).id).toBe(first.id)
    const second = await pull('app:1', {}, { refresh: true })
    expect(second.id).not.toBe(first.id)
    expect((await pull()).id).toBe(second.id)
  })

  test('is pulled once by two at the same time', async () => {
    server.tag('1', image.manifest, image)
    const all = await Promise.all([pull(), pull(), pull()])
    expect(new Set(all.map(({ id }) => id)).size).toBe(1)
    expect(server.requests.filter(({ path }) => path.includes('/blobs/'))).toHaveLength(2)
  })

  test('that is private is pulled with name and password, which only its own registry gets', async () => {
    server.tag('1', image.manifest, image)
    server.credentials = 'me:secret'
    await expect(pull()).rejects.toThrow(/no token/)
    const asked: string[] = []
    await pull('app:1', {
      registryCredentials: (registry) => {
        asked.push(registry)
        return { username: 'me', password: 'secret' }
      },
    })
    expect(new Set(asked)).toEqual(new Set([server.host]))
    expect(
      server.requests.filter(
        ({ path, authorization }) => authorization.startsWith('Basic') && !path.startsWith('/token'),
      ),
    ).toEqual([])
  })

  test('is sent on to where its blobs are, without what authorises at the registry', async () => {
    const store = await serveRegistry()
    store.closed = false
    store.tag('1', image.manifest, image)
    server.tag('1', image.manifest, image)
    const path = `/v2/team/app/blobs/${sha256(image.layers[0] ?? Buffer.alloc(0))}`
    server.troubles.set(/blobs/, [
      { kind: 'redirect', to: `http://${store.host}${path.replace(/sha256.*/, sha256(image.config))}` },
      { kind: 'redirect', to: `http://${store.host}${path}` },
    ])
    await pull()
    expect(store.requests.map(({ authorization }) => authorization)).toEqual(['', ''])
    await store.close()
  })
})

describe('trouble on the way', () => {
  const blobs = /blobs/
  test('goes on where the answer was cut, and does not start again', async () => {
    server.tag('1', image.manifest, image)
    server.troubles.set(new RegExp(`blobs/${sha256(image.layers[0] ?? Buffer.alloc(0))}`), [
      { kind: 'cut', after: 100_000 },
      { kind: 'hang', after: 50_000 },
      { kind: 'short', after: 1000 },
      { kind: 'status', status: 503 },
      { kind: 'status', status: 429, headers: { 'retry-after': '0' } },
    ])
    await pull('app:1', {}, { stallMs: 300 })
    const ranges = server.requests.filter(({ path }) => path.includes(sha256(image.layers[0] ?? Buffer.alloc(0))))
    // A busy machine may stall once more.
    expect(ranges.map(({ range }) => range !== '').slice(0, 6)).toEqual([false, true, true, true, true, true])
  })

  test('starts again where a registry has no ranges', async () => {
    server.tag('1', image.manifest, image)
    server.ranges = false
    server.troubles.set(blobs, [
      { kind: 'cut', after: 10 },
      { kind: 'cut', after: 100_000 },
    ])
    await pull()
    expect(images()).toHaveLength(1)
  })

  test('goes on after a kill with what was downloaded, and not with what was damaged', async () => {
    server.tag('1', image.manifest, image)
    const bytes = image.layers[0] ?? Buffer.alloc(0)
    const { id } = await pull()
    const lock = lockPath(cacheDir, id)
    for (const [start, range] of [
      [bytes.subarray(0, 70_000), 'bytes=70000-'],
      [Buffer.alloc(70_000, 'x'), 'bytes=70000-'],
      [Buffer.concat([bytes, Buffer.from('too much')]), ''],
    ] as const) {
      cacheDir = folder()
      const partial = partialFolder(lock.replace(/^.*(?=\/images\/)/, cacheDir))
      mkdirSync(partial, { recursive: true })
      writeFileSync(join(partial, `${sha256(bytes).slice(7)}.part`), start)
      const before = server.requests.length
      await pull()
      const asked = server.requests.slice(before).filter(({ path }) => path.includes(sha256(bytes)))
      expect(asked[0]?.range).toBe(range)
      expect(images()).toEqual([id])
      expect(left()).toEqual([])
    }
  })

  test.each([
    ['one damaged answer', [{ kind: 'damage' }], undefined],
    ['an answer that is always damaged', [{ kind: 'damage' }, { kind: 'damage' }], /damaged/],
    ['more bytes than were named', [{ kind: 'more' }], /larger than/],
  ] as const)('of %s never becomes an image', async (_, troubles, message) => {
    server.tag('1', image.manifest, image)
    server.troubles.set(new RegExp(`blobs/${sha256(image.layers[0] ?? Buffer.alloc(0))}`), [...troubles])
    if (message === undefined) await pull()
    else await expect(pull()).rejects.toThrow(message)
    expect(images()).toHaveLength(message === undefined ? 1 : 0)
  })

  test.each([
    ['a name that is not there', /manifests/, [{ kind: 'status', status: 404 }], /has no .*check its name/],
    [
      'a closed door',
      /manifests/,
      [{ kind: 'status', status: 403, body: '{"errors":[{"message":"go away"}]}' }],
      /403: go away.*private/,
    ],
    [
      'a registry that is always busy',
      /manifests/,
      Array.from({ length: 5 }, () => ({ kind: 'status', status: 429, headers: { 'retry-after': '0' } })),
      /5 times with 429/,
    ],
    [
      'a registry that always fails',
      /manifests/,
      Array.from({ length: 5 }, () => ({ kind: 'status', status: 500 })),
      /5 times with 500/,
    ],
    ['a redirect to another protocol', /blobs/, [{ kind: 'redirect', to: 'http://example.test/x' }], /not HTTPS/],
    ['a redirect to a file', /blobs/, [{ kind: 'redirect', to: 'file:///etc/passwd' }], /not HTTPS/],
    [
      'redirects without end',
      /manifests/,
      Array.from({ length: 9 }, () => ({ kind: 'redirect', to: '/v2/team/app/manifests/1' })),
      /redirects around/,
    ],
    [
      'a strange challenge',
      /manifests/,
      [{ kind: 'status', status: 401, headers: { 'www-authenticate': 'Negotiate' } }],
      /asks for credentials/,
    ],
    [
      'a realm that is not HTTPS',
      /manifests/,
      [{ kind: 'status', status: 401, headers: { 'www-authenticate': 'Bearer realm="http://example.test/t"' } }],
      /not HTTPS/,
    ],
    ['an answer that is no manifest', /manifests/, [{ kind: 'status', status: 200, body: '<html>' }], /not JSON/],
    ['the first format', /manifests/, [{ kind: 'status', status: 200, body: '{"schemaVersion":1}' }], /first format/],
    [
      'a digest that leads elsewhere',
      /manifests/,
      [{ kind: 'status', status: 200, body: '{"config":{"digest":"sha256:../../x","size":1},"layers":[]}' }],
      /must be a sha256/,
    ],
    [
      'a manifest without end',
      /manifests/,
      [{ kind: 'status', status: 200, body: 'x'.repeat(9_000_000) }],
      /manifest of more than/,
    ],
  ] as const)('is said for %s', async (_, path, troubles, message) => {
    server.tag('1', image.manifest, image)
    server.troubles.set(path, [...troubles] as never)
    await expect(pull()).rejects.toThrow(message)
    expect(images()).toEqual([])
  })

  test('is said where nothing answers, and for Debian another way is taken', async () => {
    const { host: gone } = server
    await server.close()
    await expect(pull(`${gone}/team/app:1`)).rejects.toThrow(/cannot be reached.*oci-archive/)
    const notices: string[] = []
    const fetch = (): Promise<Response> =>
      Promise.reject(new TypeError('fetch failed', { cause: new Error('no network') }))
    await expect(
      prepareImage(
        { ref: 'debian:trixie-slim', packages: [] },
        host({
          fetch,
          searchPath: ['/no/such'],
          onEvent: (event) => event.type === 'notice' && notices.push(event.text),
        }),
        quick,
      ),
    ).rejects.toMatchObject({ code: 'missing_program' })
    expect(notices).toEqual([expect.stringMatching(/cannot be reached.*no network.*debootstrap:trixie/)])
    server = await serveRegistry()
  })

  test('ends with the signal, and leaves no image', async () => {
    server.tag('1', image.manifest, image)
    server.troubles.set(blobs, [{ kind: 'hang', after: 10 }])
    const stop = new AbortController()
    const pulling = pull('app:1', {}, { signal: stop.signal, stallMs: 60_000 })
    pulling.catch(() => undefined)
    while (!server.requests.some(({ path }) => path.includes('/blobs/')))
      await new Promise((done) => setTimeout(done, 10))
    stop.abort()
    await expect(pulling).rejects.toMatchObject({ code: 'aborted' })
    expect(images()).toEqual([])
  })
})

describe('an image that is not for here', () => {
  test.each([
    [
      'is for another processor',
      () => testIndex(['linux/arm64', image], ['windows/amd64', image]),
      /only for linux\/arm64, windows\/amd64/,
    ],
    [
      'says so in its configuration',
      () => testImage([tinyRoot()], { architecture: 'arm64' }),
      /linux\/arm64; guests are/,
    ],
    ['has no shell', () => testImage([tarOf({ name: 'app', data: 'x', mode: 0o755 })]), /no \/bin\/sh.*choose/],
    ['has a shell that cannot run', () => testImage([tarOf({ name: 'bin/sh', data: 'x' })]), /no \/bin\/sh/],
    [
      'has a shell that leads nowhere',
      () => testImage([tarOf({ name: 'bin/sh', type: '2', link: '/nix/sh' })]),
      /no \/bin\/sh/,
    ],
    ['is not what it says', () => testImage([tinyRoot()], { diffIds: [sha256(Buffer.from('x'))] }), /unpacks to/],
    ['names other layers', () => testImage([tinyRoot()], { diffIds: [] }), undefined],
    [
      'is damaged inside',
      () => testImage([gzipSync(tinyRoot()).fill(0, 30, 60)], { diffIds: [] }),
      /cannot be unpacked|not valid/,
    ],
    [
      'is packed in another way',
      () => testImage([Buffer.from('fd377a585a0000', 'hex')], { diffIds: [] }),
      /packed with xz/,
    ],
    ['means harm', () => testImage([tarOf({ name: '../../etc/passwd', data: 'x' })]), /leads out/],
  ])('%s', async (_, make, message) => {
    const made = make()
    if (Buffer.isBuffer(made)) server.tag('1', made, image)
    else server.tag('1', made.manifest, made)
    if (message === undefined) await pull()
    else await expect(pull()).rejects.toThrow(message)
    expect(images()).toHaveLength(message === undefined ? 1 : 0)
    if (existsSync(join(cacheDir, 'images', 'locks')))
      expect(left().filter((name) => name.startsWith('.building'))).toEqual([])
  })

  test('is larger than is allowed, packed or unpacked, also when it packs very well', async () => {
    server.tag('1', image.manifest, image)
    await expect(pull('app:1', {}, { limits: { packedBytes: layer - 1 } })).rejects.toThrow(/more than the limit/)
    expect(server.requests.filter(({ path }) => path.includes('/blobs/'))).toEqual([])
    const bomb = testImage([tinyRoot({ name: 'zeroes', data: Buffer.alloc(60_000_000) })], {
      pack: (plain) => gzipSync(plain),
    })
    server.tag('2', bomb.manifest, bomb)
    await expect(pull('app:2', {}, { limits: { unpackedBytes: 20_000_000 } })).rejects.toThrow(/larger than/)
    await expect(pull('app:2', {}, { limits: { files: 2 } })).rejects.toThrow(/more than 2 files/)
    expect(images()).toEqual([])
  })

  test('gets no packages unless it has apt', async () => {
    server.tag('1', image.manifest, image)
    const ref = `${server.host}/team/app:1`
    await expect(prepareImage({ ref, packages: ['git'] }, host(), quick)).rejects.toThrow(/provision = false/)
    const debian = testImage([
      tinyRoot({ name: 'usr/bin/apt-get', data: '', mode: 0o755 }, { name: 'etc/os-release', data: 'ID=debian\n' }),
    ])
    server.tag('2', debian.manifest, debian)
    const made = await prepareImage({ ref: `${server.host}/team/app:2`, packages: ['git'] }, host(), quick)
    expect((await readRecord(cacheDir, made.id))?.distribution).toEqual({ id: 'debian', like: [], apt: true })
  })
})
