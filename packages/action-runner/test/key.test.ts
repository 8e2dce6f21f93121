import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { actionKey, encodeKeyInputs, type KeyInputs } from '../src/key.ts'

type Vector = { readonly name: string; readonly inputs: KeyInputs; readonly encoding: string; readonly key: string }

const page = readFileSync(new URL('../../../docs/action-key.md', import.meta.url), 'utf8')
const vectors: readonly Vector[] = JSON.parse(/^```json\n([\s\S]*?)^```$/m.exec(page)?.[1] ?? '[]')
const written = (inputs: KeyInputs): KeyInputs => ({
  ...inputs,
  tree: inputs.tree === 'T' ? '0'.repeat(64) : inputs.tree,
})

const base: KeyInputs = {
  tree: '1'.repeat(64),
  argv: ['make', 'test'],
  cwd: 'src',
  env: { PATH: '/bin', B: '2', A: '1' },
  image: null,
  sandbox: 'local',
  network: false,
  gitignore: false,
  cachePaths: ['target', '.cache'],
  host: 'h',
}

describe('the vectors of docs/action-key.md', () => {
  test('there are some', () => expect(vectors.length).toBeGreaterThanOrEqual(4))
  test.each(vectors.map((vector) => [vector.name, vector] as const))('%s', (_name, vector) => {
    expect(Buffer.from(encodeKeyInputs(written(vector.inputs))).toString('hex')).toBe(vector.encoding)
    expect(actionKey(written(vector.inputs))).toBe(vector.key)
  })
})

describe('the action key', () => {
  test('does not depend on the order of variables or caches', () => {
    const turned: KeyInputs = { ...base, env: { A: '1', B: '2', PATH: '/bin' }, cachePaths: ['.cache', 'target'] }
    expect(actionKey(turned)).toBe(actionKey(base))
  })

  test('changes with every input', () => {
    const others: readonly Partial<KeyInputs>[] = [
      { tree: '2'.repeat(64) },
      { argv: ['make', 'test', ''] },
      { argv: ['maket', 'est'] },
      { argv: ['make test'] },
      { cwd: '' },
      { env: { PATH: '/bin', B: '2', A: '2' } },
      { env: { PATH: '/bin', B: '2' } },
      { env: { PATH: '/bin', B: '2A', '1': '' } },
      { image: 'sha256:00' },
      { image: '' },
      { sandbox: 'local uid=1 gid=1' },
      { network: true },
      { gitignore: true },
      { cachePaths: ['target'] },
      { cachePaths: ['target', '.cache', 'x'] },
      { host: 'i' },
    ]
    const keys = [base, ...others.map((other) => ({ ...base, ...other }))].map(actionKey)
    expect(new Set(keys).size).toBe(keys.length)
  })

  test('moves nothing between neighbouring fields', () => {
    expect(actionKey({ ...base, argv: ['a', 'b'], cwd: '' })).not.toBe(actionKey({ ...base, argv: ['a'], cwd: 'b' }))
    expect(actionKey({ ...base, argv: ['a', 'PATH', '/x'], env: {} })).not.toBe(
      actionKey({ ...base, argv: ['a'], env: { PATH: '/x' } }),
    )
  })
})
