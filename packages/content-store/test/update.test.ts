import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Store, TreeId } from '../src/index.ts'
import { temporaryFolder, temporaryStore, treeOf } from './support.ts'

const fresh = (): string => join(temporaryFolder(), 'slot')

async function holding(store: Store, tree: TreeId): Promise<string> {
  const dir = fresh()
  await store.layout(tree, dir)
  return dir
}

describe('a folder that holds one tree', () => {
  test('holds another one after it, whatever the two are', async () => {
    await using store = await temporaryStore()
    const name = fc.constantFrom('a', 'b', 'c', 'd')
    const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join('/'))
    const content = fc.constantFrom('one', 'two', '#!/bin/sh\n', '->a', '->../x', '')
    const tree = fc.dictionary(path, content, { maxKeys: 8 }).map((files) => {
      const kept: Record<string, string> = {}
      for (const [at, text] of Object.entries(files))
        if (!Object.keys(kept).some((other) => other.startsWith(`${at}/`) || at.startsWith(`${other}/`)))
          kept[at] = text
      return kept
    })
    await fc.assert(
      fc.asyncProperty(tree, tree, async (before, after) => {
        const [from, to] = [treeOf(store, before), treeOf(store, after)]
        const dir = await holding(store, from)
        const report = await store.update(dir, { from, to })
        expect(report.inTheWay).toEqual([])
        expect((await store.capture(dir)).tree).toBe(to)
        await store.update(dir, { from: to, to: from })
        expect((await store.capture(dir)).tree).toBe(from)
      }),
      { numRuns: 150 },
    )
  })

  test('keeps what neither tree has, and the folders that it is in', async () => {
    await using store = await temporaryStore()
    const from = treeOf(store, { 'out/old': 'x', 'gone/file': 'x', same: 'x' })
    const to = treeOf(store, { 'in/new': 'y', same: 'x' })
    const dir = await holding(store, from)
    writeFileSync(join(dir, 'out', 'ignored'), 'mine')
    mkdirSync(join(dir, '.git'))
    writeFileSync(join(dir, '.git', 'config'), 'mine')
    expect(await store.update(dir, { from, to })).toEqual({ written: 1, removed: 2, inTheWay: [] })
    expect(readFileSync(join(dir, 'out', 'ignored'), 'utf8')).toBe('mine')
    expect(readFileSync(join(dir, '.git', 'config'), 'utf8')).toBe('mine')
    expect([existsSync(join(dir, 'gone')), existsSync(join(dir, 'out', 'old'))]).toEqual([false, false])
  })

  test('what stands in the way is left and told', async () => {
    await using store = await temporaryStore()
    const from = treeOf(store, { a: 'x', 'd/e': 'x' })
    const to = treeOf(store, { 'b/c': 'y', 'd/e': 'y', f: 'y' })
    const dir = await holding(store, from)
    writeFileSync(join(dir, 'b'), 'mine')
    unlinkSync(join(dir, 'd', 'e'))
    mkdirSync(join(dir, 'd', 'e'))
    writeFileSync(join(dir, 'd', 'e', 'more'), 'mine')
    expect(await store.update(dir, { from, to })).toEqual({ written: 1, removed: 1, inTheWay: ['d/e', 'b/c'] })
    expect([readFileSync(join(dir, 'b'), 'utf8'), readFileSync(join(dir, 'd', 'e', 'more'), 'utf8')]).toEqual([
      'mine',
      'mine',
    ])
    expect(readFileSync(join(dir, 'f'), 'utf8')).toBe('y')
  })

  test('never writes or removes through a link', async () => {
    await using store = await temporaryStore()
    const from = treeOf(store, { 'd/old': 'x', 'e/keep': 'x' })
    const to = treeOf(store, { 'd/new': 'y', 'e/keep': 'x' })
    const dir = await holding(store, from)
    const outside = mkdtempSync(join(tmpdir(), 'outside-'))
    writeFileSync(join(outside, 'old'), 'theirs')
    unlinkSync(join(dir, 'd', 'old'))
    rmdirSync(join(dir, 'd'))
    symlinkSync(outside, join(dir, 'd'))
    const report = await store.update(dir, { from, to })
    expect(report.inTheWay).toEqual(['d/new'])
    expect(readFileSync(join(outside, 'old'), 'utf8')).toBe('theirs')
    expect([existsSync(join(outside, 'new')), readlinkSync(join(dir, 'd'))]).toEqual([false, outside])
  })

  test('what broke off half way is finished by the same call', async () => {
    await using store = await temporaryStore()
    const files = Object.fromEntries(Array.from({ length: 600 }, (_, at) => [`f${at}`, String(at)]))
    const from = treeOf(store, files)
    const to = treeOf(store, Object.fromEntries(Object.entries(files).map(([at, text]) => [at, `${text}!`])))
    const dir = await holding(store, from)
    const stop = new AbortController()
    setImmediate(() => stop.abort())
    await expect(store.update(dir, { from, to, signal: stop.signal })).rejects.toThrow('aborted')
    const { tree } = await store.capture(dir)
    expect((await store.update(dir, { from: tree, to })).inTheWay).toEqual([])
    expect((await store.capture(dir)).tree).toBe(to)
  })
})

test('a file that is too large for a capture is left out and told', async () => {
  await using store = await temporaryStore()
  const dir = temporaryFolder()
  writeFileSync(join(dir, 'large'), Buffer.alloc(2000))
  writeFileSync(join(dir, 'small'), 'x')
  const { tree, skipped } = await store.capture(dir, { leaveOutLarger: 1000 })
  expect(skipped).toEqual([{ path: 'large', why: 'too_large' }])
  expect(tree).toBe(treeOf(store, { small: 'x' }))
})
