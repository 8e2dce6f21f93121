import { mkdtemp, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { writeFileAtomic } from '../src/index.ts'

const folder = () => mkdtemp(join(tmpdir(), 'atomic-'))

test('replaces a file whole, with its mode, and leaves nothing beside it', async () => {
  const at = await folder()
  const file = join(at, 'settings.json')
  await writeFile(file, 'old')
  await writeFileAtomic(file, 'new', { mode: 0o640 })
  expect(await readFile(file, 'utf8')).toBe('new')
  expect((await stat(file)).mode & 0o777).toBe(0o640)
  await writeFileAtomic(file, new Uint8Array([1, 2, 3]))
  expect([...(await readFile(file))]).toEqual([1, 2, 3])
  expect(await readdir(at)).toEqual(['settings.json'])
})

test('a failure leaves the old contents and no temporary file', async () => {
  const at = await folder()
  // A folder cannot be replaced by a file.
  await writeFile(join(at, 'keep'), 'old')
  await expect(writeFileAtomic(at, 'new')).rejects.toThrow(/EISDIR|ENOTEMPTY|EEXIST/)
  expect(await readdir(at)).toEqual(['keep'])
  await expect(writeFileAtomic(join(at, 'missing', 'file'), 'new')).rejects.toThrow(/ENOENT/)
})

test('many writers at once: every reader sees one whole text', async () => {
  const file = join(await folder(), 'contended')
  const texts = Array.from({ length: 20 }, (_, index) => String(index).repeat(50_000))
  await Promise.all(texts.map((text) => writeFileAtomic(file, text, { fsync: false })))
  expect(texts).toContain(await readFile(file, 'utf8'))
})
