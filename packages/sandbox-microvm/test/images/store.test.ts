import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { listImages, prepareImage, removeImage } from '../../src/index.ts'
import { imagePath, noteImageUse } from '../../src/images/store.ts'
import { folder, until, wait } from '../helpers.ts'
import { cleanUp, hasProgram, run, tinyRoot } from './tools.ts'

afterAll(cleanUp)

let cacheDir: string
let work: string
beforeEach(() => {
  cacheDir = folder()
  work = folder()
})

const archive = (name: string, mark: string, filling = 0): string => {
  const path = join(work, name)
  writeFileSync(path, tinyRoot({ name: 'mark', data: mark }, { name: 'filling', data: Buffer.alloc(filling, mark) }))
  return `tar:${path}`
}
const make = (ref: string) => prepareImage({ ref, packages: [] }, { cacheDir, runtimeDir: '/run/none' })

const builder = (ref: string) =>
  spawn(
    process.execPath,
    ['--conditions=@reve/source', fileURLToPath(new URL('image-builder.ts', import.meta.url)), ref, cacheDir],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )

describe('the cache', () => {
  test('lists what it has, the last used first', async () => {
    const one = await make(archive('one.tar', 'one'))
    const two = await make(archive('two.tar', 'two'))
    await make(archive('copy.tar', 'two'))
    const disk = join(work, 'disk.qcow2')
    writeFileSync(disk, '')
    await noteImageUse(cacheDir, one.id, disk)
    utimesSync(join(cacheDir, 'images', one.id, 'used'), new Date(2_000_000_000_000), new Date(2_000_000_000_000))
    const all = await listImages(cacheDir)
    expect(all.map(({ id, refs, users, packages }) => ({ id, refs, users, packages }))).toEqual([
      { id: one.id, refs: [`tar:${work}/one.tar`], users: [disk], packages: [] },
      { id: two.id, refs: [`tar:${work}/two.tar`, `tar:${work}/copy.tar`], users: [], packages: [] },
    ])
    expect(all[0]?.lastUsedMs).toBe(2_000_000_000_000)
    for (const image of all) {
      expect(image.digest).toMatch(/^sha256:[0-9a-f]{64}$/)
      expect(image.bytes).toBe(statSync(imagePath(cacheDir, image.id)).blocks * 512)
    }
    expect(await listImages(folder())).toEqual([])
  })

  test('lists an image that an earlier version built, which says nothing of itself', async () => {
    const id = '0123456789abcdef-0123456789abcdef'
    mkdirSync(join(cacheDir, 'images', id), { recursive: true })
    writeFileSync(imagePath(cacheDir, id), 'x')
    expect(await listImages(cacheDir)).toMatchObject([{ id, refs: [], digest: '', packages: [], users: [] }])
  })

  test('removes by reference or id, not what a disk is made over, and all by force', async () => {
    const one = await make(archive('one.tar', 'one'))
    const two = await make(archive('two.tar', 'two'))
    const disk = join(work, 'disk.qcow2')
    writeFileSync(disk, '')
    await noteImageUse(cacheDir, one.id, disk)
    await noteImageUse(cacheDir, two.id, join(work, 'a disk that was removed'))
    await expect(removeImage(cacheDir, 'none')).rejects.toMatchObject({ code: 'not_found' })
    await expect(removeImage(cacheDir, `tar:${work}/one.tar`)).rejects.toMatchObject({
      code: 'busy',
      message: expect.stringContaining(disk),
    })
    expect((await removeImage(cacheDir, two.id.slice(0, 8))).map(({ id }) => id)).toEqual([two.id])
    expect((await removeImage(cacheDir, `tar:${work}/one.tar`, { force: true })).map(({ id }) => id)).toEqual([one.id])
    expect(await listImages(cacheDir)).toEqual([])
    expect(readdirSync(join(cacheDir, 'images', 'refs'))).toEqual([])
    await noteImageUse(cacheDir, one.id, disk)
    // And it can be made again.
    expect((await make(`tar:${work}/one.tar`)).id).toBe(one.id)
  })

  test('removes nothing by a start that several ids have', async () => {
    for (const end of ['0', '1']) {
      const id = `0123456789abcdef-${end.repeat(16)}`
      mkdirSync(join(cacheDir, 'images', id), { recursive: true })
      writeFileSync(imagePath(cacheDir, id), 'x')
    }
    await expect(removeImage(cacheDir, '0123')).rejects.toThrow(/begins the ids of 2 images/)
    expect(await removeImage(cacheDir, '0123456789abcdef-0')).toHaveLength(1)
  })

  test('takes no path for an id', async () => {
    await make(archive('one.tar', 'one'))
    for (const name of ['../..', '', '.', '/', 'locks', 'refs'])
      await expect(removeImage(cacheDir, name)).rejects.toMatchObject({ code: 'not_found' })
    expect(await listImages(cacheDir)).toHaveLength(1)
  })

  test('forgets a reference that another version wrote or somebody damaged', async () => {
    const { id } = await make(archive('one.tar', 'one'))
    const [name = ''] = readdirSync(join(cacheDir, 'images', 'refs'))
    const path = join(cacheDir, 'images', 'refs', name)
    const good = readFileSync(path, 'utf8')
    for (const bad of ['', '{', '{"version":2}', good.replace(id, '../../../etc')]) {
      writeFileSync(path, bad)
      expect((await make(`tar:${work}/one.tar`)).id).toBe(id)
    }
  })
})

/** A file system of 24 MB of the test's own, where mounting is allowed. */
function smallDisk(): string | undefined {
  const path = folder()
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', path], { encoding: 'utf8' })
  if (mounted.status === 0) return path
  console.warn(`the test of a full disk is skipped: ${mounted.error?.message ?? mounted.stderr.trim()}`)
  return undefined
}
const small = smallDisk()

describe.skipIf(small === undefined)('a full disk', () => {
  afterAll(() => void spawnSync('umount', [small ?? '']))

  test('is said, nothing is left, and what fits is made after that', async () => {
    const at = (ref: string) => prepareImage({ ref, packages: [] }, { cacheDir: small ?? '', runtimeDir: '/run/none' })
    await expect(at(archive('big.tar', 'big', 40_000_000))).rejects.toMatchObject({
      code: 'image_failed',
      message: expect.stringMatching(/no space left in .*remove images/),
    })
    expect(await listImages(small ?? '')).toEqual([])
    const locks = join(small ?? '', 'images', 'locks')
    expect(readdirSync(locks).filter((name) => name.startsWith('.'))).toEqual([])
    const { id } = await at(archive('small.tar', 'small', 1_000_000))
    expect((await listImages(small ?? '')).map((image) => image.id)).toEqual([id])
  })
})

describe('several processes', () => {
  test('make one image once, and all have it', async () => {
    const ref = archive('one.tar', 'one', 20_000_000)
    const children = [builder(ref), builder(ref), builder(ref)]
    const said = await Promise.all(
      children.map(async (child) => {
        let out = ''
        child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()))
        const [code] = (await once(child, 'close')) as [number]
        expect(code).toBe(0)
        return out
      }),
    )
    expect(new Set(said).size).toBe(1)
    expect(await listImages(cacheDir)).toHaveLength(1)
  })

  // From before it has written anything to when it is done: each kill hits it at another step.
  test.each([0, 40, 80, 120, 200, 300, 400])(
    'one of which is killed after %i ms leave nothing half made',
    async (ms) => {
      const ref = archive('one.tar', 'one', 60_000_000)
      const locks = join(cacheDir, 'images', 'locks')
      const building = (): string[] =>
        existsSync(locks) ? readdirSync(locks).filter((name) => name.startsWith('.building-')) : []
      const child = builder(ref)
      const done = once(child, 'close')
      await until(() => building().length > 0 || child.exitCode !== null, 'it to begin')
      await wait(ms)
      child.kill('SIGKILL')
      await done
      for (const { id } of await listImages(cacheDir))
        if (hasProgram('e2fsck')) run('e2fsck', ['-fn', imagePath(cacheDir, id)])
      const { id, path } = await make(ref)
      if (hasProgram('e2fsck')) run('e2fsck', ['-fn', path])
      expect((await listImages(cacheDir)).map((image) => image.id)).toEqual([id])
      expect(building()).toEqual([])
    },
  )
})
