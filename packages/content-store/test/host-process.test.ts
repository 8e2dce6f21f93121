import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { HOST_PROGRAMS } from '../src/index.ts'
import { runHostProgram } from '../src/host-process.ts'
import { gitMissing, temporaryFolder } from './support.ts'

const sources = new URL('../src/', import.meta.url)

test('one file starts programs, and only those on its list', () => {
  const starters = readdirSync(sources).filter((file) =>
    /child_process|worker_threads/.test(readFileSync(new URL(file, sources), 'utf8')),
  )
  expect(starters).toEqual(['host-process.ts'])
  const calls = readdirSync(sources).flatMap((file) =>
    [...readFileSync(new URL(file, sources), 'utf8').matchAll(/runHostProgram\('(\w+)'/g)].map((call) => call[1] ?? ''),
  )
  expect(new Set(calls)).toEqual(new Set(Object.keys(HOST_PROGRAMS)))
  for (const reason of Object.values(HOST_PROGRAMS)) expect(reason.length).toBeGreaterThan(20)
})

test.skipIf(gitMissing)('nothing of the caller’s environment or repository reaches a program', async () => {
  process.env['CONTENT_STORE_SENTINEL'] = 'leaked'
  const folder = temporaryFolder()
  const result = await runHostProgram('git', ['-c', 'alias.e=!env', 'e'], { cwd: folder })
  delete process.env['CONTENT_STORE_SENTINEL']
  expect(result.kind).toBe('exited')
  if (result.kind !== 'exited') return
  const environment = result.stdout.toString()
  expect(environment).toContain('GIT_CONFIG_GLOBAL=/dev/null')
  expect(environment).not.toContain('leaked')
})

test('a program that is not installed is said, not thrown', async () => {
  expect(await runHostProgram('git', [], { cwd: temporaryFolder(), path: '/nonexistent/git' })).toEqual({
    kind: 'missing',
  })
})
