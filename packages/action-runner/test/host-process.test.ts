import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

test('only one file of the package can start a process', () => {
  const found = spawnSync('grep', ['-rlE', 'child_process', fileURLToPath(new URL('../src', import.meta.url))], {
    encoding: 'utf8',
  })
  const importers = found.stdout
    .trim()
    .split('\n')
    .filter((file) => /import \{[^\n]*child_process/.test(readFileSync(file, 'utf8')))
  expect(importers.map((file) => file.slice(file.lastIndexOf('/') + 1))).toEqual(['host-process.ts'])
})
