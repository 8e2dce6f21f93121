import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { tryAcquireLock } from '@reve/base'
import { buildOnce, removeLeftovers } from '../src/cache-folder.ts'
import { folder, removeFolders, wait } from './helpers.ts'

afterAll(removeFolders)

const builder = (parent: string, builds: string[], work: (temporary: string) => Promise<void>) => () =>
  buildOnce({
    lock: join(parent, 'lock'),
    find: async () => (existsSync(join(parent, 'thing')) ? readdirSync(join(parent, 'thing')) : undefined),
    build: async (temporary) => {
      builds.push('build')
      await work(temporary)
      return join(parent, 'thing')
    },
  })

test('two builders build once, and both have it', async () => {
  const parent = folder()
  const builds: string[] = []
  const build = builder(parent, builds, async (temporary) => {
    writeFileSync(join(temporary, 'half'), '')
    await wait(200)
    writeFileSync(join(temporary, 'whole'), '')
  })
  const all = await Promise.all([build(), build(), build()])
  expect([builds, all]).toEqual([['build'], [1, 2, 3].map(() => ['half', 'whole'])])
})

test('a failed build leaves nothing, and so does one that was killed, once another begins', async () => {
  const parent = folder()
  const failing = builder(parent, [], async (temporary) => {
    writeFileSync(join(temporary, 'half'), '')
    throw new Error('midway')
  })
  await expect(failing()).rejects.toThrow('midway')
  expect(readdirSync(parent)).toEqual(['lock'])
  mkdirSync(join(parent, '.building-lock'))
  writeFileSync(join(parent, '.building-lock', 'left'), '')
  expect(await builder(parent, [], async (temporary) => writeFileSync(join(temporary, 'whole'), ''))()).toEqual([
    'whole',
  ])
})

test('what killed builds of other things left goes too, but not what a running one is at', async () => {
  const parent = folder()
  using held = tryAcquireLock(join(parent, 'busy'))
  for (const name of ['.building-dead', '.building-busy', '.partial-dead', '.removing-dead'])
    mkdirSync(join(parent, name))
  await builder(parent, [], async (temporary) => writeFileSync(join(temporary, 'whole'), ''))()
  const left = (): string[] => readdirSync(parent).filter((name) => name.startsWith('.'))
  // A download that was begun today may still be gone on with.
  expect(left().toSorted()).toEqual(['.building-busy', '.partial-dead'])
  await removeLeftovers(parent, 0)
  expect(left()).toEqual(['.building-busy'])
  expect(held.path).toContain('busy')
})

test('a full disk is said, and leaves nothing', async () => {
  const parent = folder()
  const full = builder(parent, [], async (temporary) => {
    writeFileSync(join(temporary, 'half'), '')
    // What every write to a full disk ends with.
    writeFileSync('/dev/full', 'x')
  })
  await expect(full()).rejects.toMatchObject({
    code: 'image_failed',
    message: expect.stringContaining('no space left'),
  })
  expect(readdirSync(parent)).toEqual(['lock'])
})

test('two that make the same thing under different locks both have it', async () => {
  const parent = folder()
  const make = (lock: string) =>
    buildOnce({
      lock: join(parent, 'locks', lock),
      find: async () => (existsSync(join(parent, 'thing')) ? readdirSync(join(parent, 'thing')) : undefined),
      build: async (temporary) => {
        writeFileSync(join(temporary, 'whole'), '')
        await wait(100)
        return join(parent, 'thing')
      },
    })
  expect(await Promise.all([make('a'), make('b')])).toEqual([['whole'], ['whole']])
  expect(readdirSync(join(parent, 'locks')).toSorted()).toEqual(['a', 'b'])
})
