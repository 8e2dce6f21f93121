import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { buildOnce } from '../src/cache-folder.ts'
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
  mkdirSync(join(parent, '.building'))
  writeFileSync(join(parent, '.building', 'left'), '')
  expect(await builder(parent, [], async (temporary) => writeFileSync(join(temporary, 'whole'), ''))()).toEqual([
    'whole',
  ])
})
