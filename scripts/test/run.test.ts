import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { root } from './sources.ts'

/** A workspace of nothing, in which an installation is a line in a file. */
async function workspace(): Promise<{ readonly folder: string; readonly run: () => Promise<string> }> {
  const folder = await mkdtemp(join(tmpdir(), 'run-'))
  for (const path of ['scripts', 'programs', 'node_modules']) await mkdir(join(folder, path))
  await copyFile(join(root, 'scripts/run.mjs'), join(folder, 'scripts/run.mjs'))
  await writeFile(join(folder, 'package.json'), '{ "packageManager": "pnpm@0.0.0" }')
  for (const file of ['pnpm-lock.yaml', 'pnpm-workspace.yaml', '.pnpmfile.cjs']) await writeFile(join(folder, file), '')
  await writeFile(join(folder, 'programs/npx'), `#!/bin/sh\nsleep 0.2\necho "$*" >>${folder}/installed\n`, {
    mode: 0o755,
  })
  const env = { ...process.env, PATH: [join(folder, 'programs'), process.env['PATH'] ?? ''].join(delimiter) }
  const run = async () =>
    (
      await promisify(execFile)(process.execPath, [join(folder, 'scripts/run.mjs'), 'echo', 'done'], {
        env,
        timeout: 30_000,
      })
    ).stdout
  return { folder, run }
}

const installations = async (folder: string): Promise<number> =>
  (await readFile(join(folder, 'installed'), 'utf8')).trimEnd().split('\n').length

test('several commands at once in a fresh checkout install once, and leave no lock', async () => {
  const { folder, run } = await workspace()
  expect(await Promise.all([run(), run(), run()])).toEqual(['done\n', 'done\n', 'done\n'])
  expect(await installations(folder)).toBe(1)
  expect(await readdir(join(folder, 'node_modules'))).toEqual(['.setup-stamp'])
})

test.each([
  ['of a dead process', '2147483646'],
  ['that names nobody, as a full disk leaves it', ''],
])('a lock %s is taken over', async (_, contents) => {
  const { folder, run } = await workspace()
  await writeFile(join(folder, 'node_modules/.setup-lock'), contents)
  expect(await run()).toBe('done\n')
  expect(await installations(folder)).toBe(1)
})
