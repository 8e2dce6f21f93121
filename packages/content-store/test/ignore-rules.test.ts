import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { IgnoreRules } from '../src/ignore-rules.ts'
import { filesOf, gitMissing, gitText, temporaryFolder, temporaryStore } from './support.ts'

describe('rules of several directories', () => {
  test('the deepest opinion counts', () => {
    const rules = IgnoreRules.none.with('', '*.log\n/top\n').with('a', '!keep.log\n')
    expect(rules.ignores('x.log', false)).toBe(true)
    expect(rules.ignores('a/keep.log', false)).toBe(false)
    expect(rules.ignores('a/other.log', false)).toBe(true)
    expect(rules.ignores('top', true)).toBe(true)
    expect(rules.ignores('a/top', true)).toBe(false)
  })

  test('a directory that a deeper rule brought back shows its contents', () => {
    const rules = IgnoreRules.none.with('', 'foo/\n*.o\n').with('a', '!foo/\n')
    expect(rules.ignores('a/foo', true)).toBe(false)
    const inside = rules.inside('a/foo')
    expect(inside.ignores('a/foo/x', false)).toBe(false)
    expect(inside.ignores('a/foo/x.o', false)).toBe(true)
  })

  test('case counts, and bytes are bytes', () => {
    const rules = IgnoreRules.none.with('', '*.TMP\ncaf\xe9\n')
    expect(rules.ignores('x.tmp', false)).toBe(false)
    expect(rules.ignores('caf\xe9', false)).toBe(true)
    expect(rules.ignores('caf\xc3\xa9', false)).toBe(false)
  })
})

test.skipIf(gitMissing)('a capture leaves out what git leaves out', { timeout: 240_000 }, async () => {
  const store = await temporaryStore()
  const part = fc.constantFrom('a', 'b', 'c', '*', 'a*', '?', '**', '[ab]', 'a.b', '*.b')
  const pattern = fc
    .record({
      not: fc.boolean(),
      start: fc.boolean(),
      parts: fc.array(part, { minLength: 1, maxLength: 3 }),
      dir: fc.boolean(),
    })
    .map(({ not, start, parts, dir }) => `${not ? '!' : ''}${start ? '/' : ''}${parts.join('/')}${dir ? '/' : ''}`)
  const ignoreFile = fc.array(pattern, { maxLength: 4 }).map((lines) => `${lines.join('\n')}\n`)
  const names = ['a', 'b', 'c', 'a.b']
  await fc.assert(
    fc.asyncProperty(
      fc.array(ignoreFile, { minLength: 3, maxLength: 3 }),
      fc.uniqueArray(fc.array(fc.constantFrom(...names), { minLength: 1, maxLength: 4 }), {
        minLength: 5,
        maxLength: 14,
        selector: (path) => path.join('/'),
      }),
      async (rules, found) => {
        const dir = temporaryFolder()
        const paths = found.map((path) => path.join('/'))
        const files = paths.filter((path) => !paths.some((other) => other.startsWith(`${path}/`)))
        for (const path of files) {
          mkdirSync(join(dir, path, '..'), { recursive: true })
          writeFileSync(join(dir, path), '')
        }
        for (const [index, folder] of ['', 'a', 'a/b'].entries()) {
          if (folder !== '' && !files.some((path) => path.startsWith(`${folder}/`))) continue
          writeFileSync(join(dir, folder, '.gitignore'), rules[index] ?? '')
        }
        gitText(dir, ['init', '-q'])
        const expected = gitText(dir, ['ls-files', '-o', '-z', '--exclude-standard'])
          .split('\0')
          .filter((path) => path !== '')
          .sort()
        const { tree } = await store.capture(dir, { gitignore: true })
        expect(Object.keys(filesOf(store, tree)).sort()).toEqual(expected)
      },
    ),
    { numRuns: Number(process.env['CONTENT_STORE_IGNORES'] ?? 60) },
  )
})
