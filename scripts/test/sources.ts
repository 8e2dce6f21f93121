import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../..', import.meta.url))

export type Source = {
  /** Path below the workspace's root. */
  readonly path: string
  readonly text: string
}

/** Every TypeScript and JavaScript file below `folder` (relative to the root) that would be published. */
export function sourcesOf(folder: string): readonly Source[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|mjs|js)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !/\/(node_modules|dist)\//.test(path))
    .map((path) => ({ path: relative(root, path), text: readFileSync(path, 'utf8') }))
    .toSorted((a, b) => (a.path < b.path ? -1 : 1))
}

/** The module specifiers that a source imports, re-exports or loads. */
export function importsOf(text: string): readonly string[] {
  return [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*|\brequire\(\s*)['"]([^'"]+)['"]/g)].map(
    (match) => match[1] ?? '',
  )
}
