import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { layers, mayImport } from '../layers.ts'
import { importsOf, root, sourcesOf } from './sources.ts'

const folders = Object.keys(layers) as readonly (keyof typeof layers)[]

describe.each(folders)('%s', (folder) => {
  test('imports only what lies below it', () => {
    const upward = sourcesOf(`${folder}/src`).flatMap(({ path, text }) =>
      importsOf(text)
        .filter((specifier) => !mayImport(folder, specifier))
        .map((specifier) => `${path}: ${specifier}`),
    )
    expect(upward).toEqual([])
  })

  test('reaches no other package by a path', () => {
    const outside = sourcesOf(`${folder}/src`).flatMap(({ path, text }) =>
      importsOf(text)
        .filter((specifier) => specifier.startsWith('.'))
        .filter((specifier) => !join(path, '..', specifier).startsWith(`${folder}/src/`))
        .map((specifier) => `${path}: ${specifier}`),
    )
    expect(outside).toEqual([])
  })

  test('declares the packages that it imports, and no other of ours', () => {
    const manifest: { readonly dependencies?: Readonly<Record<string, string>> } = JSON.parse(
      readFileSync(join(root, folder, 'package.json'), 'utf8'),
    )
    const declared = Object.keys(manifest.dependencies ?? {}).filter((name) => name.startsWith('@reve/'))
    const imported = sourcesOf(`${folder}/src`)
      .flatMap(({ text }) => importsOf(text))
      .filter((specifier) => specifier.startsWith('@reve/'))
      .map((specifier) => specifier.split('/').slice(0, 2).join('/'))
    expect([...new Set(imported)].toSorted()).toEqual(declared.toSorted())
  })

  test('has a face, a README and a test', () => {
    const entry = folder.startsWith('packages/') ? 'index.ts' : 'main.ts'
    expect(sourcesOf(`${folder}/src`).map(({ path }) => path)).toContain(`${folder}/src/${entry}`)
    expect(readFileSync(join(root, folder, 'README.md'), 'utf8')).toMatch(/^# /)
    expect(sourcesOf(`${folder}/test`).filter(({ path }) => path.endsWith('.test.ts'))).not.toEqual([])
  })
})

test('the table knows no import that runs up', () => {
  expect(mayImport('packages/base', '@reve/harness')).toBe(false)
  expect(mayImport('packages/harness', '@reve/providers')).toBe(false)
  expect(mayImport('packages/harness', '@reve/providers/model')).toBe(true)
  expect(mayImport('packages/harness', 'node:fs')).toBe(true)
})
