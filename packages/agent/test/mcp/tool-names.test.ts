import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { toolNames } from '../../src/mcp/tool-names.ts'

test('a name that fits stays; one that does not is told apart by a part of its hash', () => {
  const names = toolNames('kc', ['fs', 'a.b', 'a b', 'a_b', 'fs', 'x'.repeat(100)])
  expect([...names].map(([offered, own]) => [offered.slice(0, 24), own.slice(0, 4)])).toEqual([
    ['kc__fs', 'fs'],
    ['kc__a_b', 'a_b'],
    [expect.stringMatching(/^kc__a_b_[0-9a-f]{8}$/), 'a.b'],
    [expect.stringMatching(/^kc__a_b_[0-9a-f]{8}$/), 'a b'],
    ['kc__xxxxxxxxxxxxxxxxxxxx', 'xxxx'],
  ])
})

test('whatever a server calls its tools, each has one name that all APIs take, and the same one beside other tools', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.string({ unit: 'binary' }), fc.stringMatching(/^[ab._-]{1,80}$/))), (given) => {
      const names = toolNames('s', given)
      expect(new Set(names.values())).toEqual(new Set(given))
      for (const [offered, own] of names) {
        expect(offered).toMatch(/^[a-zA-Z0-9_-]{1,64}$/)
        expect([...toolNames('s', [own])]).toEqual([[offered, own]])
      }
    }),
  )
})
