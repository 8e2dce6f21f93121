import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { defineProject } from 'vitest/config'

/**
 * The test projects of the workspace: one for each package and app, `examples` for the examples, and `house` for the tests of the
 * monorepo itself. Vitest does not read this file by itself any more (`test.projects` replaced it): vitest.config.ts imports it.
 */
const root = fileURLToPath(new URL('.', import.meta.url))
const folders = ['packages', 'apps'].flatMap((group) =>
  readdirSync(`${root}/${group}`).map((name) => `${group}/${name}`),
)

const project = (name: string, folder: string) =>
  defineProject({
    root: `${root}/${folder}`,
    // Run the TypeScript sources: no build before tests.
    resolve: { conditions: ['@reve/source', 'node', 'module'] },
    ssr: { resolve: { conditions: ['@reve/source', 'node', 'module'] } },
    test: { name, include: ['test/**/*.test.ts'], environment: 'node', testTimeout: 120_000, hookTimeout: 600_000 },
  })

export default [
  ...folders.map((folder) => project(folder.slice(folder.indexOf('/') + 1), folder)),
  project('examples', 'examples'),
  project('house', 'scripts'),
]
