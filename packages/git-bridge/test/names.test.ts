import { spawnSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { GitError } from '../src/errors.ts'
import { checkBranch, checkRepoName, checkRevision, isRefName, parseSource } from '../src/names.ts'

const codeOf = (call: () => unknown): string | undefined => {
  try {
    call()
    return undefined
  } catch (error) {
    if (error instanceof GitError) return error.code
    throw error
  }
}

describe('isRefName', () => {
  test('agrees with git check-ref-format', () => {
    const piece = fc.constantFrom(
      'a',
      'b',
      'refs',
      '/',
      '//',
      '.',
      '..',
      '.lock',
      '@',
      '@{',
      '{',
      '-',
      '~',
      '^',
      ':',
      '?',
      '*',
      '[',
      '\\',
      ' ',
      '\t',
      '\u007f',
      'é',
      '語',
      'HEAD',
    )
    const name = fc.array(piece, { minLength: 1, maxLength: 6 }).map((pieces) => `refs/heads/${pieces.join('')}`)
    fc.assert(
      fc.property(name, (ref) => {
        const git = spawnSync('git', ['check-ref-format', ref])
        expect([ref, isRefName(ref)]).toEqual([ref, git.status === 0])
      }),
      { numRuns: 300 },
    )
  })
})

describe('names that look like something else', () => {
  test.each([
    '--output=/tmp/x',
    '-b',
    'HEAD',
    'refs/heads/x',
    'a..b',
    'a b',
    '',
    'a/',
    '/a',
    'a.lock',
    'x@{1}',
    'a\u0000b',
  ])('%j is not a branch', (name) => {
    expect(codeOf(() => checkBranch(name))).toBe('bad_name')
  })
  test.each(['main', 'feature/login', 'ünï', '@a', 'v1.2'])('%j is a branch', (name) =>
    expect(checkBranch(name)).toBe(name),
  )
  test.each(['--output=/tmp/x', '-1', 'a..b', 'main~1', 'main^{tree}', ':/x', 'a b', ''])(
    '%j is not a revision',
    (name) => {
      expect(codeOf(() => checkRevision(name))).toBe('bad_ref')
    },
  )
  test.each([
    '..',
    '../x',
    'a/b',
    '.hidden',
    '-x',
    '--upload-pack=x',
    'x.git',
    'x.lock',
    'x.',
    'a..b',
    '',
    'a'.repeat(101),
    'f'.repeat(64),
    'a\nb',
  ])('%j is not a repository name', (name) => {
    expect(codeOf(() => checkRepoName(name))).toBe('bad_name')
  })
})

describe('parseSource', () => {
  test.each([
    ['/srv/x.git', { kind: 'path', path: '/srv/x.git' }],
    ['file:///srv/a%20b.git', { kind: 'path', path: '/srv/a b.git' }],
    [
      'https://example.com/x.git',
      { kind: 'address', scheme: 'https', host: 'example.com', address: 'https://example.com/x.git' },
    ],
    [
      'ssh://git@example.com/x.git',
      { kind: 'address', scheme: 'ssh', host: 'example.com', address: 'ssh://git@example.com/x.git' },
    ],
    [
      'git@example.com:team/x.git',
      { kind: 'address', scheme: 'ssh', host: 'example.com', address: 'git@example.com:team/x.git' },
    ],
  ])('takes %s', (src, source) => expect(parseSource(src)).toEqual(source))

  test.each([
    'https://user:sentinel-4711@example.com/x.git',
    'https://sentinel-4711@example.com/x.git',
    'ssh://git:sentinel-4711@example.com/x.git',
    'http://:sentinel-4711@example.com/x.git',
  ])('refuses user information, and does not repeat it: %s', (src) => {
    expect(() => parseSource(src)).toThrow(GitError)
    expect(() => parseSource(src)).not.toThrow(/sentinel-4711/)
  })

  test.each([
    'ext::sh -c id',
    'ext::x',
    'fd::7',
    '-oProxyCommand=id',
    '--upload-pack=id',
    'relative/path',
    './x',
    '../x',
    'ftp://x/y',
    'javascript://x',
    'https://',
    'http://example.com/x.git?token=sentinel-4711',
    'http://example.com/x.git#sentinel-4711',
    'https://example.com/a%0ab',
    'https://example.com/%zz',
    'file://example.com/x',
    'file:///a%00b',
    'file:///%ff',
    'ssh://%2DoProxyCommand=id/x',
    'ssh://-oProxyCommand=id@host/x',
    '-oProxyCommand=id@host:x',
    'host:-x',
    'git://-x/y',
    'HTTPS::https://example.com/x',
    'ssh://-oProxyCommand=id/x',
    'u@-oProxyCommand=id:x',
    '/a\nb',
    '',
  ])('refuses %j', (src) => expect(codeOf(() => parseSource(src))).toBe('bad_argument'))
})
