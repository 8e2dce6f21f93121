import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tryAcquireLock } from '@reve/base'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ReposDir } from '../src/repos-dir.ts'
import { git, repository, world } from './repositories.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'git-bridge-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

test('a folder in which another works is refused, and taken when that one is done', async () => {
  const other = tryAcquireLock(join(folder, '.lock'), { pid: 4711 })
  const repos = new ReposDir(folder, 0)
  await expect(repos.read(async () => 'ran')).rejects.toMatchObject({
    code: 'locked',
    message: expect.stringContaining('4711'),
  })
  other.release()
  expect(await repos.read(async () => 'ran')).toBe('ran')
})

test('what a dead process left is gone before the first verb: scratch folders, locks, half-written files', async () => {
  mkdirSync(join(folder, '.tmp-dead'))
  git(folder, 'init', '--quiet', '--bare', 'it.git')
  const dir = join(folder, 'it.git')
  const left = [
    'HEAD.lock',
    'refs/heads/main.lock',
    'objects/pack/tmp_pack_x',
    'objects/tmp_objdir-incoming-x',
    'gc.pid',
  ]
  for (const name of left) writeFileSync(join(dir, name), '')
  mkdirSync(join(dir, 'objects', 'ab'))
  writeFileSync(join(dir, 'objects', 'ab', 'tmp_obj_x'), '')
  const seen = await new ReposDir(folder).change('it', undefined, async () =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => /tmp|\.lock$|pid$/.test(name)),
  )
  expect(seen).toEqual(['.lock'])
})

test('verbs that change one clone come one after the other, also after one that failed; others do not wait', async () => {
  const repos = new ReposDir(folder)
  const order: string[] = []
  const step = (name: string, text: string, error?: Error) =>
    repos.change(name, undefined, async () => {
      order.push(`${text} begins`)
      await new Promise((resolve) => setTimeout(resolve, 20))
      order.push(`${text} ends`)
      if (error !== undefined) throw error
    })
  const first = step('a', 'first', new Error('it failed'))
  const second = step('a', 'second')
  const other = step('b', 'other')
  await expect(first).rejects.toThrow('it failed')
  await Promise.all([second, other])
  expect(order.filter((line) => !line.startsWith('other'))).toEqual([
    'first begins',
    'first ends',
    'second begins',
    'second ends',
  ])
  expect(order.indexOf('other begins')).toBeLessThan(order.indexOf('first ends'))
})

test('one that is called off while it waits does not let the next one in too early', async () => {
  const repos = new ReposDir(folder)
  const stop = new AbortController()
  let running = 0
  const work = async (): Promise<number> => {
    running += 1
    const together = running
    await new Promise((resolve) => setTimeout(resolve, 20))
    running -= 1
    return together
  }
  const first = repos.change('a', undefined, work)
  const calledOff = repos.change('a', stop.signal, work)
  stop.abort()
  await expect(calledOff).rejects.toMatchObject({ code: 'cancelled' })
  expect(await Promise.all([first, repos.change('a', undefined, work)])).toEqual([1, 1])
})

test('two bridges on one folder take turns', async () => {
  const one = await world({ reposDir: folder })
  const two = await world({ reposDir: folder })
  const src = repository(join(one.root, 'src'))
  const imports = [one, two, one, two].map(({ bridge }) => bridge.import({ src, name: 'it', actor: 'tester' }))
  const commits = (await Promise.all(imports)).map(({ commit }) => commit)
  expect(new Set(commits)).toEqual(new Set([git(src, 'rev-parse', 'HEAD')]))
  await one.remove()
  await two.remove()
})
