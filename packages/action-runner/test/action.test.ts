import { describe, expect, test } from 'vitest'
import { checkAction, type Action } from '../src/action.ts'
import { ActionError } from '../src/errors.ts'

const tree = 'a'.repeat(64)
const check = (action: Partial<Action>) => checkAction({ tree, argv: ['true'], ...action }, 'local')

function refusal(action: Partial<Action>): string {
  try {
    check(action)
  } catch (error) {
    if (error instanceof ActionError && error.code === 'bad_action') return error.message
    throw error
  }
  throw new Error('it was accepted')
}

describe('checkAction', () => {
  test('fills in the defaults', () => {
    expect(check({})).toEqual({
      tree,
      argv: ['true'],
      cwd: '',
      env: {},
      timeoutS: 600,
      sandbox: 'local',
      image: null,
      network: false,
      caches: [],
      gitignore: false,
      fresh: false,
    })
  })

  test('brings paths into one form and sorts caches by path', () => {
    const checked = check({
      cwd: './a//b/',
      caches: [
        { name: 'z', path: 'b' },
        { name: 'y', path: './a/', mode: 'shared' },
      ],
    })
    expect(checked.cwd).toBe('a/b')
    expect(checked.caches).toEqual([
      { name: 'y', path: 'a', mode: 'shared' },
      { name: 'z', path: 'b', mode: 'locked' },
    ])
  })

  test.each([
    ['a tree that is no id', { tree: 'main' }, /tree: .*64/],
    ['no argv', { argv: [] }, /argv: /],
    ['an empty program', { argv: [''] }, /argv: /],
    ['a program that looks like an option', { argv: ['-c'] }, /argv: /],
    ['NUL in argv', { argv: ['a', 'b\0c'] }, /argv\/1: .*NUL/],
    ['a lone surrogate', { argv: ['a', '\ud800'] }, /argv\/1: .*surrogate/],
    ['cwd that climbs', { cwd: 'a/../../b' }, /cwd: /],
    ['an absolute cwd', { cwd: '/etc' }, /cwd: /],
    ['a backslash in cwd', { cwd: 'a\\b' }, /cwd: .*backslash/],
    ['a strange variable name', { env: { 'A=B': '1' } }, /env/],
    ['NUL in a variable', { env: { A: '\0' } }, /env\/A: /],
    ['a timeout of zero', { timeoutS: 0 }, /timeoutS: /],
    ['a timeout without end', { timeoutS: Infinity }, /timeoutS: /],
    ['a timeout beyond a day', { timeoutS: 90_000 }, /timeoutS: /],
    ['a cache at the root', { caches: [{ name: 'a', path: '.' }] }, /caches\/0\/path: /],
    ['a cache outside', { caches: [{ name: 'a', path: '../x' }] }, /caches\/0\/path: /],
    ['a cache in .git', { caches: [{ name: 'a', path: 'x/.GIT' }] }, /caches\/0\/path: /],
    ['a cache name that is a path', { caches: [{ name: '../x', path: 'a' }] }, /caches\/0\/name: /],
    [
      'caches below each other',
      {
        caches: [
          { name: 'a', path: 'x' },
          { name: 'b', path: 'x/y' },
        ],
      },
      /overlap/,
    ],
    [
      'a cache twice',
      {
        caches: [
          { name: 'a', path: 'x' },
          { name: 'a', path: 'y' },
        ],
      },
      /twice/,
    ],
  ] satisfies readonly (readonly [string, Partial<Action>, RegExp])[])('refuses %s', (_name, action, message) => {
    expect(refusal(action)).toMatch(message)
  })

  test('names all that is wrong at once', () => {
    expect(refusal({ argv: [], timeoutS: -1 })).toMatch(/argv.*timeoutS/)
  })

  test('names no value of a variable', () => {
    expect(refusal({ env: { TOKEN: 'sentinel-4711\0' } })).not.toContain('sentinel-4711')
  })
})
