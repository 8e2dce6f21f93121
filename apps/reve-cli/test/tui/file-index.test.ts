import { mkdir, mkdtemp, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openConfined, type Confined } from '@reve/base'
import { expect, test } from 'vitest'
import { FileIndex } from '../../src/tui/file-index.ts'

test('names of files of the workspace, without hidden ones, links and what is made by the thousand', async () => {
  const root = await mkdtemp(join(tmpdir(), 'index-'))
  for (const folder of ['src', '.git', 'node_modules/x']) await mkdir(join(root, folder), { recursive: true })
  for (const file of ['src/Parser.ts', 'src/a[b].ts', '.git/config', 'node_modules/x/index.js', 'readme.md'])
    await writeFile(join(root, file), '')
  await symlink('/etc', join(root, 'etc'))
  const index = new FileIndex(await openConfined(root), () => undefined)
  index.refresh()
  await index.settled()
  expect(index.find('', 10).map(({ path }) => path)).toEqual(['readme.md', 'src/Parser.ts', 'src/a[b].ts'])
  expect(index.find('parser', 10).map(({ path }) => path)).toEqual(['src/Parser.ts'])
  expect(index.find('a[b', 10).map(({ path }) => path)).toEqual(['src/a[b].ts'])
  expect(index.find('sprs', 10).map(({ path }) => path)).toEqual(['src/Parser.ts'])
  expect(index.find('.*', 10)).toEqual([])
})

test('a hundred thousand files are looked up in the background, and a question is answered meanwhile', async () => {
  const list: Confined['list'] = async (path) => {
    await new Promise((resolve) => setImmediate(resolve))
    const entries = (kind: 'folder' | 'file', count: number, name: string) =>
      Array.from({ length: count }, (_, at) => ({ name: `${name}${at}`, kind }))
    return path === '.' ? entries('folder', 1000, 'part-') : entries('file', 100, 'file-')
  }
  const workspace = { ...(await openConfined(await mkdtemp(join(tmpdir(), 'index-')))), list }
  let changes = 0
  const index = new FileIndex(workspace, () => (changes += 1))
  index.refresh()
  expect(index.scanning).toBe(true)
  expect(index.find('file-7', 5)).toEqual([])
  await index.settled()
  expect(index.size).toBe(100_000)
  expect(changes).toBeGreaterThan(0)
  expect(index.find('part-77/file-7', 3).map(({ path }) => path)).toContain('part-77/file-7')
})
