import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { describe, expect, test } from 'vitest'
import { jsHasher } from '../src/hasher.ts'
import type { Store } from '../src/index.ts'
import { act, refusal, refusalOf, temporaryFolder, temporaryStore, treeOf } from './support.ts'

const pathOf = (store: Store, id: string): string => join(store.root, 'blobs', id.slice(0, 2), id.slice(2))

function flip(file: string, at: number): void {
  const bytes = readFileSync(file)
  bytes[at] = (bytes[at] ?? 0) ^ 1
  writeFileSync(file, bytes)
}

describe('blobs', () => {
  test('of all sizes come back, small ones from the database, large ones from a file', async () => {
    const store = await temporaryStore()
    for (const size of [0, 1, 65_535, 65_536, 65_537, 3_000_000]) {
      const bytes = Buffer.alloc(size, `${size} `)
      const id = store.putBlob(bytes)
      expect(id).toBe(jsHasher.hash(bytes).toString('hex'))
      expect(store.readBlob(id).equals(bytes)).toBe(true)
      expect(Buffer.concat([...store.readBlobPieces(id)]).equals(bytes)).toBe(true)
      expect(store.blobSize(id)).toBe(size)
      expect(existsSync(pathOf(store, id))).toBe(size > 65_536)
      expect(
        await store.putBlobStream(
          (function* () {
            for (let at = 0; at < size; at += 50_000) yield bytes.subarray(at, at + 50_000)
          })(),
        ),
      ).toBe(id)
    }
    expect(readdirSync(join(store.root, 'tmp'))).toEqual([])
  })

  test('come from files; what is no file is refused', async () => {
    const store = await temporaryStore()
    const file = join(temporaryFolder(), 'f')
    writeFileSync(file, Buffer.alloc(200_000, 'x'))
    expect(store.blobSize(await store.putBlobFile(file))).toBe(200_000)
    await refusalOf('not_found', store.putBlobFile(`${file}x`))
    await refusalOf('not_a_file', store.putBlobFile(temporaryFolder()))
  })

  test('a stream that fails leaves nothing behind', async () => {
    const store = await temporaryStore()
    const failing = (function* () {
      yield Buffer.alloc(200_000)
      throw new Error('the source broke')
    })()
    await expect(store.putBlobStream(failing)).rejects.toThrow('the source broke')
    expect(readdirSync(join(store.root, 'tmp'))).toEqual([])
  })

  test('what is not there, or not an id', async () => {
    const store = await temporaryStore()
    refusal('not_found', () => store.readBlob('0'.repeat(64)))
    refusal('not_found', () => store.readBlob(store.emptyTree))
    refusal('bad_argument', () => store.readBlob('main'))
    expect(store.hasBlob('0'.repeat(64))).toBe(false)
    expect(store.hasBlob(store.emptyTree)).toBe(false)
  })
})

describe('damage', () => {
  test('a flipped bit in a blob file is found on read, named, and mended by the same bytes', async () => {
    const store = await temporaryStore()
    const bytes = Buffer.alloc(2_500_000, 'content ')
    const id = store.putBlob(bytes)
    const tree = store.editTree(store.emptyTree, [{ path: 'a/big', set: { kind: 'file', id } }])
    store.refs.create('main', tree, act)
    flip(pathOf(store, id), 2_000_000)
    const error = refusal('corrupt', () => store.readBlob(id))
    expect(error.message).toContain(id)
    expect(error.details).toMatchObject({ hash: id, path: pathOf(store, id) })
    refusal('corrupt', () => [...store.readBlobPieces(id)])
    await refusalOf('corrupt', store.layout(tree, join(temporaryFolder(), 'slot')))
    expect(await store.fsck()).toMatchObject({
      ok: false,
      problems: [{ kind: 'corrupt', hash: id, usedBy: 'ref main: a/big' }],
    })
    expect(store.putBlob(bytes)).toBe(id)
    expect(store.readBlob(id).equals(bytes)).toBe(true)
    expect((await store.fsck()).ok).toBe(true)
  })

  test('a blob file that is cut, or gone', async () => {
    const store = await temporaryStore()
    const [cut, gone] = [store.putBlob(Buffer.alloc(100_000, 'a')), store.putBlob(Buffer.alloc(100_000, 'b'))]
    writeFileSync(pathOf(store, cut), readFileSync(pathOf(store, cut)).subarray(0, 99_999))
    rmSync(pathOf(store, gone))
    for (const id of [cut, gone]) expect(refusal('corrupt', () => store.readBlob(id)).details.hash).toBe(id)
    const { problems } = await store.fsck()
    expect(new Set(problems.map((problem) => problem.hash))).toEqual(new Set([cut, gone]))
    expect(problems.every((problem) => problem.usedBy === null)).toBe(true)
    store.putBlob(Buffer.alloc(100_000, 'b'))
    expect(store.readBlob(gone)).toHaveLength(100_000)
  })

  test('of rows: a blob, and a tree that is missing a child', async () => {
    const root = join(temporaryFolder(), 'kc')
    const store = await temporaryStore({ root })
    const tree = treeOf(store, { 'd/one': 'first', 'd/two': 'second' })
    store.refs.create('main', tree, act)
    store.snapshots.create('snap', act)
    const [one, two] = ['d/one', 'd/two'].map((path) => store.lookup(tree, path)?.id ?? '')
    store.close()
    const db = new Sqlite(join(root, 'kc.db'))
    db.prepare("UPDATE object SET data = CAST('First' AS BLOB) WHERE hash = ?").run(Buffer.from(one ?? '', 'hex'))
    db.prepare('DELETE FROM object WHERE hash = ?').run(Buffer.from(two ?? '', 'hex'))
    db.close()
    const again = await temporaryStore({ root })
    refusal('corrupt', () => again.readBlob(one ?? ''))
    refusal('not_found', () => again.readBlob(two ?? ''))
    const { problems } = await again.fsck()
    expect(problems.map(({ kind, hash, usedBy }) => [kind, hash, usedBy])).toEqual(
      expect.arrayContaining([
        ['corrupt', one, 'ref main: d/one'],
        ['missing', two, 'ref main: d/two'],
      ]),
    )
    expect(problems).toHaveLength(2)
    // Putting the same bytes in again mends both.
    again.putBlob(Buffer.from('first'))
    again.putBlob(Buffer.from('second'))
    expect((await again.fsck()).ok).toBe(true)
  })

  test('roots of other owners count', async () => {
    const store = await temporaryStore()
    const missing = 'e'.repeat(64)
    expect(
      await store.fsck({
        roots: [
          { what: 'action 7', tree: missing },
          { what: 'action 8', blob: store.putBlob(Buffer.from('x')) },
        ],
      }),
    ).toMatchObject({
      ok: false,
      problems: [{ kind: 'missing', hash: missing, usedBy: 'action 7: /' }],
    })
  })

  test('files that nothing names are counted, and harmless', async () => {
    const store = await temporaryStore()
    const id = jsHasher.hash(Buffer.from('orphan')).toString('hex')
    mkdirSync(join(store.root, 'blobs', id.slice(0, 2)), { recursive: true })
    writeFileSync(pathOf(store, id), 'orphan')
    expect(await store.fsck()).toMatchObject({ ok: true, orphans: 1 })
  })
})
