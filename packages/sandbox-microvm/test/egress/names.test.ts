import { BlockList } from 'node:net'
import { describe, expect, test } from 'vitest'
import { createSyntheticNames } from '../../src/egress/names.ts'

const range = new BlockList()
range.addSubnet('198.18.0.0', 15, 'ipv4')

describe('synthetic addresses', () => {
  test('are one a name, in their range, and the same in another table', () => {
    const names = createSyntheticNames()
    const all = Array.from({ length: 16_384 }, (_, index) => names.addressOf(`${index}.a.test`))
    expect(new Set(all).size).toBe(16_384)
    for (const [index, address] of all.entries()) {
      if (!range.check(address ?? '', 'ipv4') || names.nameOf(address ?? '') !== `${index}.a.test`)
        expect.fail(`${address} of ${index}`)
    }
    expect(names.addressOf('7.a.test')).toBe(all[7])
    expect(createSyntheticNames().addressOf('0.a.test')).toBe(all[0])
  })

  test('end, and known names stay', () => {
    const names = createSyntheticNames(2)
    const first = names.addressOf('a.test')
    names.addressOf('b.test')
    expect(names.addressOf('c.test')).toBeUndefined()
    expect(names.addressOf('a.test')).toBe(first)
    expect(names.nameOf('198.18.0.0')).toBeUndefined()
    expect(names.nameOf('nonsense')).toBeUndefined()
  })
})
