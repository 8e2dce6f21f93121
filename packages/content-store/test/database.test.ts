import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { describe, expect, test } from 'vitest'
import { filesystemOf } from '../src/database.ts'
import { formatVersion, lockPath, openStore } from '../src/index.ts'
import { act, refusal, refusalOf, temporaryFolder, temporaryStore, treeOf } from './support.ts'

describe('opening', () => {
  test('makes a private folder, in WAL mode with full sync and pages of 8 KiB', async () => {
    const store = await temporaryStore()
    store.putBlob(Buffer.alloc(100_000, 1))
    const modes = (path: string): string => (statSync(path).mode & 0o777).toString(8)
    for (const path of ['', 'blobs', 'tmp', `blobs/${readdirSync(join(store.root, 'blobs'))[0]}`])
      expect(modes(join(store.root, path)), path).toBe('700')
    for (const path of ['kc.db', 'kc.db-wal', 'kc.db-shm', 'kc.lock'])
      expect(modes(join(store.root, path)), path).toBe('600')
    const shard = join(store.root, 'blobs', readdirSync(join(store.root, 'blobs'))[0] ?? '')
    expect(modes(join(shard, readdirSync(shard)[0] ?? ''))).toBe('600')
    const pragma = (name: string): unknown =>
      store.transaction((db) => Object.values(db.prepare<Record<string, unknown>>(`PRAGMA ${name}`).get() ?? {})[0])
    expect(pragma('journal_mode')).toBe('wal')
    expect(pragma('synchronous')).toBe(2)
    expect(pragma('page_size')).toBe(8192)
    expect(pragma('user_version')).toBe(formatVersion)
  })

  test('finds everything again', async () => {
    const root = join(temporaryFolder(), 'kc')
    const store = await temporaryStore({ root })
    const tree = treeOf(store, { f: '1' })
    store.refs.create('main', tree, act)
    store.close()
    store.close()
    const again = await temporaryStore({ root, create: false })
    expect(again.refs.get('main')).toEqual({ name: 'main', tree, rev: 1 })
  })

  test('has one owner; another is told its pid', async () => {
    const store = await temporaryStore()
    const error = await refusalOf('locked', openStore(store.root))
    expect(error.details.pid).toBe(process.pid)
    expect(existsSync(lockPath(store.root))).toBe(true)
    store.close()
    const again = await temporaryStore({ root: store.root })
    again.close()
    // Whoever holds the lock may say so.
    const mine = await temporaryStore({ root: store.root, lock: 'caller' })
    expect(mine.refs.list()).toEqual([])
  })

  test('does not make a store where none was asked for', async () => {
    const root = join(temporaryFolder(), 'kc')
    await refusalOf('not_a_store', openStore(root, { create: false }))
    expect(existsSync(root)).toBe(false)
    mkdirSync(root)
    await refusalOf('not_a_store', openStore(root, { create: false }))
    expect(readdirSync(root)).toEqual([])
  })

  test.each<[string, (file: string) => void]>([
    ['newer_format', (file) => edit(file, `PRAGMA user_version = ${formatVersion + 1}`)],
    ['not_a_store', (file) => edit(file, 'PRAGMA application_id = 7')],
    ['corrupt', (file) => writeFileSync(file, 'x'.repeat(10_000))],
  ])('%s: refused, and the bytes stay as they were', async (code, damage) => {
    const store = await temporaryStore()
    store.close()
    const file = join(store.root, 'kc.db')
    damage(file)
    const before = readFileSync(file)
    await expect(openStore(store.root)).rejects.toMatchObject({ name: 'StoreError', code })
    expect(readFileSync(file).equals(before)).toBe(true)
    expect(readdirSync(store.root).filter((name) => /-wal|-shm|-journal/.test(name))).toEqual([])
  })

  test('an empty file that a killed process left is taken over', async () => {
    const root = join(temporaryFolder(), 'kc')
    mkdirSync(root)
    writeFileSync(join(root, 'kc.db'), '')
    const store = await temporaryStore({ root })
    expect(store.hasTree(store.emptyTree)).toBe(true)
  })
})

function edit(file: string, sql: string): void {
  const db = new Sqlite(file)
  db.exec(sql)
  db.pragma('journal_mode = DELETE')
  db.close()
}

describe('transactions', () => {
  test('join: what an inner one does is durable with the outer one, or undone alone', async () => {
    const store = await temporaryStore()
    const [a, b] = [treeOf(store, { f: '1' }), treeOf(store, { f: '2' })]
    store.transaction(() => {
      store.refs.create('kept', a, act)
      expect(() =>
        store.transaction(() => {
          store.refs.create('undone', a, act)
          throw new Error('inner')
        }),
      ).toThrow('inner')
      store.transaction(() => store.refs.move('kept', { ...act, expectedTree: a, newTree: b }))
    })
    expect(store.refs.list()).toEqual([{ name: 'kept', tree: b, rev: 2 }])
    expect(() =>
      store.transaction(() => {
        store.transaction(() => store.refs.create('gone', a, act))
        throw new Error('outer')
      }),
    ).toThrow('outer')
    expect(store.refs.find('gone')).toBeUndefined()
  })

  test('a tree that was undone is not believed to be there', async () => {
    const store = await temporaryStore()
    let tree = ''
    expect(() =>
      store.transaction(() => {
        tree = treeOf(store, { 'd/f': 'only here' })
        expect(store.readTree(tree)).toHaveLength(1)
        throw new Error('undo')
      }),
    ).toThrow('undo')
    expect(store.hasTree(tree)).toBe(false)
    refusal('not_found', () => store.refs.create('main', tree, act))
    expect(treeOf(store, { 'd/f': 'only here' })).toBe(tree)
    store.refs.create('main', tree, act)
    expect((await store.fsck()).problems).toEqual([])
  })

  test('cannot wait', async () => {
    const store = await temporaryStore()
    const tree = treeOf(store, { f: '1' })
    refusal('bad_argument', () =>
      store.transaction(async () => {
        store.refs.create('main', tree, act)
      }),
    )
    expect(store.refs.list()).toEqual([])
  })
})

describe('other owners of kc.db', () => {
  test('bring their tables to the newest version, once, after a copy', async () => {
    const root = join(temporaryFolder(), 'kc')
    const one = ['CREATE TABLE seat (name TEXT)']
    const two = [...one, "ALTER TABLE seat ADD COLUMN text TEXT NOT NULL DEFAULT 'none'"]
    const store = await temporaryStore({ root })
    store.registerSchema('seat', one)
    store.registerSchema('seat', one)
    store.transaction((db) => db.prepare('INSERT INTO seat VALUES (?)').run('ann'))
    store.close()
    const next = await temporaryStore({ root })
    next.registerSchema('seat', two)
    expect(next.transaction((db) => db.prepare('SELECT * FROM seat').all())).toEqual([{ name: 'ann', text: 'none' }])
    const copy = new Sqlite(join(root, 'kc.db.before-seat-2'), { readonly: true })
    expect(copy.prepare('SELECT * FROM seat').all()).toEqual([{ name: 'ann' }])
    copy.close()
    expect(statSync(join(root, 'kc.db.before-seat-2')).mode & 0o777).toBe(0o600)
    next.close()
    const old = await temporaryStore({ root })
    refusal('newer_format', () => old.registerSchema('seat', one))
  })

  test('a migration that fails changes nothing', async () => {
    const store = await temporaryStore()
    expect(() => store.registerSchema('x', ['CREATE TABLE x (a)', 'CREATE TABLE x (a)'])).toThrow('already exists')
    expect(store.transaction((db) => db.prepare("SELECT name FROM sqlite_schema WHERE name = 'x'").all())).toEqual([])
    store.registerSchema('x', ['CREATE TABLE x (a)'])
  })
})

test('a full disk is an error of ours, and nothing is half done', async () => {
  const store = await temporaryStore()
  store.registerSchema('filler', ['CREATE TABLE filler (bytes BLOB)'])
  store.transaction((db) => {
    const pages = Object.values(db.prepare<Record<string, number>>('PRAGMA page_count').get() ?? {})[0] ?? 0
    db.prepare(`PRAGMA max_page_count = ${pages + 20}`).get()
  })
  const error = refusal('io', () =>
    store.transaction((db) => void db.prepare('INSERT INTO filler VALUES (zeroblob(4000000))').run()),
  )
  expect(error.message).toContain('full')
  expect(store.fs.write(store.emptyTree, 'f', 'still works').created).toBe(true)
})

describe('the file system of a root', () => {
  const mounts = [
    '22 1 254:0 / / rw,relatime - ext4 /dev/vda rw',
    '23 22 0:40 / /mnt/share rw - virtiofs share rw',
    '24 22 0:41 / /mnt/with\\040space rw shared:1 - nfs4 host:/x rw',
    '25 22 0:42 / /data rw - 9p data rw',
    '26 22 0:43 / /data rw - xfs /dev/vdb rw',
    '',
  ].join('\n')
  test.each([
    ['/home/x', 'ext4'],
    ['/mnt/share/kc', 'virtiofs'],
    ['/mnt/share', 'virtiofs'],
    ['/mnt/shared', 'ext4'],
    ['/mnt/with space/kc', 'nfs4'],
    ['/data/kc', 'xfs'],
  ])('%s is %s', (path, type) => {
    expect(filesystemOf(mounts, path)).toBe(type)
  })
})

test('a closed store says so, and so do options that make no sense', async () => {
  const store = await temporaryStore()
  store.close()
  refusal('closed', () => store.refs.list())
  refusal('closed', () => store.transaction(() => undefined))
  refusal('closed', () => store.putBlob(Buffer.from('x')))
  await refusalOf('bad_argument', openStore(store.root, { inlineLimit: 1 << 30 }))
  await refusalOf('io', openStore('/dev/null/kc'))
})
