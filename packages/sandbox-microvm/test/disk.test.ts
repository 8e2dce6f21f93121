import { spawnSync } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { homeOf, keyOf } from '../src/microsandbox/home.ts'
import { backingOf, createQcow2, growQcow2 } from '../src/qcow2.ts'
import { folder, removeFolders } from './helpers.ts'
import { hasProgram } from './images/tools.ts'

afterAll(removeFolders)

const judge = hasProgram('qemu-img')
if (!judge) console.warn('qcow2 disks are not judged by qemu-img: it is not installed')

describe('a disk', () => {
  test.skipIf(!judge).each([1024, 16_384, 1 << 24])(
    'of %i MiB is one to qemu-img too, and reads as its image with zeroes behind',
    async (mebibytes) => {
      const [image, disk] = ['image.raw', 'disk.qcow2'].map((name) => join(folder(), name)) as [string, string]
      const content = Buffer.alloc(300_000, 'content ')
      writeFileSync(image, content)
      await createQcow2(disk, image, mebibytes * 2 ** 20)
      const run = (...args: readonly string[]): string => {
        const { status, stdout, stderr } = spawnSync('qemu-img', args, { encoding: 'utf8' })
        expect([status, stderr]).toEqual([0, ''])
        return stdout
      }
      expect(run('check', disk)).toContain('No errors were found')
      expect(JSON.parse(run('info', '--output=json', disk))).toMatchObject({
        format: 'qcow2',
        'virtual-size': mebibytes * 2 ** 20,
        'full-backing-filename': image,
        'backing-filename-format': 'raw',
      })
      run('dd', '-f', 'qcow2', '-O', 'raw', 'bs=1M', 'count=1', `if=${disk}`, `of=${disk}.raw`)
      expect(readFileSync(`${disk}.raw`)).toEqual(Buffer.concat([content, Buffer.alloc(2 ** 20 - content.length)]))
      expect(await backingOf(disk)).toBe(image)
      expect(statSync(disk).mode & 0o777).toBe(0o600)

      const [has, more] = [mebibytes * 2 ** 20, mebibytes * 2 ** 20 + 5 * 2 ** 30]
      // The largest one's first table is full; it keeps its size.
      const larger = mebibytes === 1 << 24 ? has : more
      expect(await growQcow2(disk, more)).toBe(larger)
      expect(await growQcow2(disk, has)).toBe(larger)
      expect(run('check', disk)).toContain('No errors were found')
      expect(JSON.parse(run('info', '--output=json', disk))).toMatchObject({ 'virtual-size': larger })
      run('dd', '-f', 'qcow2', '-O', 'raw', 'bs=1M', 'count=1', `if=${disk}`, `of=${disk}.raw`)
      expect(readFileSync(`${disk}.raw`).subarray(0, content.length)).toEqual(content)
    },
  )

  test('is never made over another file', async () => {
    const path = join(folder(), 'disk')
    writeFileSync(path, 'mine')
    await expect(createQcow2(path, '/image', 2 ** 30)).rejects.toThrow('EEXIST')
    expect(readFileSync(path, 'utf8')).toBe('mine')
  })

  test('that is none, or is cut off, has no image', async () => {
    const path = join(folder(), 'disk')
    await createQcow2(path, '/image', 2 ** 30)
    const bytes = readFileSync(path)
    for (const wrong of [
      Buffer.alloc(0),
      bytes.subarray(0, 100),
      Buffer.alloc(70_000, 1),
      Object.assign(Buffer.from(bytes), { 11: 0xff, 12: 0xff }),
      Object.assign(Buffer.from(bytes), { 16: 0xff }),
    ]) {
      writeFileSync(path, wrong)
      expect(await backingOf(path)).toBeUndefined()
      await growQcow2(path, 2 ** 31)
      if (wrong.length < 200) expect(readFileSync(path)).toEqual(wrong)
    }
  })
})

describe('the folder of the SDK', () => {
  test("is the VM's own where its path is short enough for a socket", () => {
    expect(homeOf('/home/me/agent/.reve/vm', { cacheDir: '/home/me/.cache/reve' })).toBe('/home/me/agent/.reve/vm/msb')
  })

  test('is else in the cache, one for each VM', () => {
    const [one, two] = ['a', 'b'].map((name) => `/home/me/${'deep/'.repeat(12)}${name}/.reve/vm`) as [string, string]
    expect(homeOf(one, { cacheDir: '/home/me/.cache/reve' })).toBe(`/home/me/.cache/reve/m/${keyOf(one)}`)
    expect(keyOf(one)).not.toBe(keyOf(two))
  })

  test('is refused when both are too long, counted in bytes', () => {
    expect(() => homeOf(`/${'a'.repeat(60)}`, { cacheDir: `/${'ü'.repeat(20)}` })).toThrow('use a shorter cacheDir')
  })
})
