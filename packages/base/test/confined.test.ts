import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, link, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { ConfinedError, openConfined } from '../src/index.ts'

let base: string
let root: string
beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'confined-'))
  root = join(base, 'root')
  await mkdir(join(root, 'folder'), { recursive: true })
  await writeFile(join(root, 'folder', 'file'), 'inside')
  await mkdir(join(base, 'outside'))
  await writeFile(join(base, 'outside', 'secret'), 'outside')
})

const codeOf = async (work: Promise<unknown>): Promise<string> => {
  const error: unknown = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  return error instanceof ConfinedError ? error.code : String(error)
}

test('reads, lists, writes and removes below its root', async () => {
  const at = await openConfined(root)
  expect(await at.readText('folder/file', { maxBytes: 100 })).toBe('inside')
  expect(await at.stat('folder/./file')).toMatchObject({ kind: 'file', size: 6 })
  await at.mkdirp('a/b/c')
  await at.mkdirp('a/b/c')
  await at.writeAtomic('a/b/c/new', 'text', { mode: 0o644 })
  expect(await at.list('a/b/c')).toEqual([{ name: 'new', kind: 'file' }])
  expect(await at.list('')).toEqual(expect.arrayContaining([{ name: 'folder', kind: 'folder' }]))
  await at.remove('a/b/c/new')
  await at.remove('a/b/c/new')
  expect(await at.exists('a/b/c/new')).toBe(false)
})

describe('refuses', () => {
  test.each(['../outside/secret', '/etc/passwd', 'folder/../../outside/secret', 'folder/\0'])(
    'the path %j',
    async (path) => {
      const at = await openConfined(root)
      expect(await codeOf(at.readText(path, { maxBytes: 100 }))).toBe('escapes_root')
      expect(await codeOf(at.writeAtomic(path, 'x'))).toBe('escapes_root')
    },
  )

  test('a link as the last component and on the way', async () => {
    await symlink(join(base, 'outside', 'secret'), join(root, 'link'))
    await symlink(join(base, 'outside'), join(root, 'way'))
    const at = await openConfined(root)
    expect(await codeOf(at.readText('link', { maxBytes: 100 }))).toBe('is_link')
    expect(await codeOf(at.stat('link'))).toBe('is_link')
    expect(['is_link', 'not_a_folder']).toContain(await codeOf(at.readText('way/secret', { maxBytes: 100 })))
    expect(['is_link', 'not_a_folder']).toContain(await codeOf(at.writeAtomic('way/new', 'x')))
    expect(['is_link', 'not_a_folder']).toContain(await codeOf(at.mkdirp('way/new')))
    expect(['is_link', 'not_a_folder']).toContain(await codeOf(at.list('way')))
    expect(['is_link', 'not_a_folder']).toContain(await codeOf(at.list('way/.')))
    expect(await readdir(join(base, 'outside'))).toEqual(['secret'])
  })

  test('what is no file, what is too large, what is not there', async () => {
    const at = await openConfined(root)
    expect(await codeOf(at.readText('folder', { maxBytes: 100 }))).toBe('not_a_file')
    expect(await codeOf(at.readText('folder/file', { maxBytes: 5 }))).toBe('too_large')
    expect(await codeOf(at.readText('none', { maxBytes: 5 }))).toBe('not_found')
    expect(await codeOf(at.readText('folder/file/deeper', { maxBytes: 5 }))).toBe('not_a_folder')
  })

  test('a FIFO, without hanging on it', async () => {
    const made = spawn('mkfifo', [join(root, 'pipe')])
    await once(made, 'close')
    const at = await openConfined(root)
    expect(await codeOf(at.readText('pipe', { maxBytes: 100 }))).toBe('not_a_file')
  })
})

test('a name of the greatest length is written like any other', async () => {
  const at = await openConfined(root)
  const name = 'n'.repeat(255)
  await at.writeAtomic(`folder/${name}`, 'x')
  expect((await readdir(join(root, 'folder'))).toSorted()).toEqual(['file', name])
})

test('writing over a link replaces the link and leaves its target alone', async () => {
  await symlink(join(base, 'outside', 'secret'), join(root, 'link'))
  const at = await openConfined(root)
  await at.writeAtomic('link', 'mine')
  expect(await readFile(join(root, 'link'), 'utf8')).toBe('mine')
  expect(await readFile(join(base, 'outside', 'secret'), 'utf8')).toBe('outside')
  await link(join(base, 'outside', 'secret'), join(root, 'hard'))
  await at.writeAtomic('hard', 'mine')
  expect(await readFile(join(base, 'outside', 'secret'), 'utf8')).toBe('outside')
})

test('a folder that another process swaps for a link, again and again, never leads outside', async () => {
  const swap = `const { renameSync, symlinkSync, mkdirSync, writeFileSync, rmSync } = require('node:fs')
process.chdir(${JSON.stringify(root)}); console.log('going')
for (;;) {
  try {
    renameSync('folder', 'aside'); symlinkSync(${JSON.stringify(join(base, 'outside'))}, 'folder')
    rmSync('folder'); renameSync('aside', 'folder')
  } catch (error) { if (error.code !== 'EEXIST' && error.code !== 'ENOENT' && error.code !== 'ENOTEMPTY') throw error }
}`
  const child = spawn(process.execPath, ['-e', swap], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  const at = await openConfined(root)
  const seen = new Set<string>()
  for (let round = 0; round < 1500; round++) {
    seen.add(
      await at
        .readText('folder/secret', { maxBytes: 100 })
        .catch((error: unknown) => (error instanceof ConfinedError ? error.code : 'untyped')),
    )
    seen.add(
      await at
        .readText('folder/file', { maxBytes: 100 })
        .catch((error: unknown) => (error instanceof ConfinedError ? error.code : 'untyped')),
    )
    await at
      .writeAtomic('folder/written', 'x')
      .catch((error: unknown) => seen.add(error instanceof ConfinedError ? error.code : String(error)))
  }
  child.kill('SIGKILL')
  await once(child, 'close')
  expect(
    [...seen].filter((result) => !['inside', 'not_found', 'not_a_folder', 'is_link', 'io'].includes(result)),
  ).toEqual([])
  expect(seen).toContain('inside')
  expect(await readdir(join(base, 'outside'))).toEqual(['secret'])
})

test('a root that may not be written says so', async () => {
  if (process.getuid?.() === 0) {
    // Root may write anywhere; a file in a folder's place is refused for everybody.
    const at = await openConfined(root)
    expect(await codeOf(at.mkdirp('folder/file/sub'))).toBe('not_a_folder')
    return
  }
  await chmod(root, 0o500)
  const at = await openConfined(root)
  expect(await codeOf(at.writeAtomic('new', 'x'))).toBe('io')
  await chmod(root, 0o700)
  await rm(base, { recursive: true })
})
