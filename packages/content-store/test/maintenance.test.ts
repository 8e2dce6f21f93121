import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openStore } from '../src/index.ts'
import { act, filesOf, temporaryFolder, temporaryStore, treeOf } from './support.ts'

const large = (seed: string): Uint8Array => Buffer.alloc(200_000, seed)

describe('a backup', () => {
  test('of a store in use opens as one, holds a state of one moment, and takes only what is new the next time', async () => {
    const store = await temporaryStore()
    const files = { a: 'one', big: large('a'), 'd/run': '#!/bin/sh\n' }
    store.refs.create('main', treeOf(store, files), act)
    const dir = join(temporaryFolder(), 'backup')
    const copying = store.backup(dir)
    for (let turn = 0; turn < 20; turn++) store.putBlob(Buffer.from(`meanwhile ${turn}`))
    expect((await copying).files).toBe(1)
    store.refs.move('main', {
      ...act,
      newTree: treeOf(store, { ...files, more: large('b') }),
      expectedTree: store.refs.get('main').tree,
    })
    {
      await using copy = await openStore(dir, { create: false })
      expect(filesOf(copy, copy.refs.get('main').tree)).toEqual(filesOf(store, treeOf(store, files)))
      expect((await copy.fsck()).ok).toBe(true)
    }
    expect((await store.backup(dir)).files).toBe(1)
    await using again = await openStore(dir, { create: false })
    expect(again.refs.get('main').tree).toBe(store.refs.get('main').tree)
    expect((await again.fsck()).ok).toBe(true)
  })

  test('is refused over a folder that holds something else, which stays', async () => {
    const store = await temporaryStore()
    const dir = temporaryFolder()
    writeFileSync(join(dir, 'letter'), 'mine')
    await expect(store.backup(dir)).rejects.toMatchObject({ code: 'exists' })
    expect(readdirSync(dir)).toEqual(['letter'])
    const file = join(temporaryFolder(), 'file')
    writeFileSync(file, '')
    await expect(store.backup(file)).rejects.toMatchObject({ code: 'io' })
  })

  test('that is killed leaves the earlier one whole, and the next one is made over it', async () => {
    const root = join(temporaryFolder(), 'kc')
    const dir = join(temporaryFolder(), 'backup')
    const script = `import { openStore } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)}
const store = await openStore(${JSON.stringify(root)})
for (let n = 0; n < 40; n++) store.putBlob(Buffer.alloc(300_000, String(n)))
console.log('begins'); for (;;) { await store.backup(${JSON.stringify(dir)}); store.putBlob(Buffer.alloc(300_000, String(Math.random()))) }`
    for (let round = 0; round < 6; round++) {
      const child = spawn(process.execPath, ['--conditions=@reve/source', '--input-type=module', '-e', script], {
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      await new Promise((done) => child.stdout.once('data', done))
      await new Promise((done) => setTimeout(done, 30 * round))
      child.kill('SIGKILL')
      await new Promise((done) => child.once('exit', done))
      if (!existsSync(join(dir, 'kc.db'))) continue
      {
        await using copy = await openStore(dir, { create: false })
        expect((await copy.fsck()).problems).toEqual([])
      }
    }
    await using store = await temporaryStore({ root })
    await store.backup(dir)
    await using copy = await openStore(dir, { create: false })
    expect(copy.stats().blobs).toEqual(store.stats().blobs)
  })
})

describe('garbage', () => {
  test('is what no ref, history, snapshot, merge base and given root names', async () => {
    const store = await temporaryStore()
    const empty = await store.garbage()
    const wide = Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`f${at}`, `${at % 7}`]))
    const [main, gone, kept] = [treeOf(store, wide), treeOf(store, { b: large('x') }), treeOf(store, { c: 'kept' })]
    store.refs.create('main', main, act)
    store.refs.create('old', kept, act)
    store.branches.discard('old', act)
    expect(empty.objects).toBe(0)
    const found = await store.garbage()
    // The discarded ref's history still names its tree.
    expect(found.largest.map(({ bytes }) => bytes)[0]).toBe(200_000)
    expect(found.objects).toBe(2)
    expect((await store.garbage({ roots: [{ what: 'a result', tree: gone }] })).objects).toBe(0)
    expect(store.stats()).toMatchObject({ refs: 1, moves: 3, blobs: { count: 9 } })
    mkdirSync(join(store.root, 'blobs', 'ab'), { recursive: true })
    writeFileSync(join(store.root, 'blobs', 'ab', 'c'.repeat(62)), 'left')
    expect((await store.garbage()).orphans).toBe(1)
  })
})
