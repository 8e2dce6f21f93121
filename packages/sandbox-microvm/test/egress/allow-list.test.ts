import { describe, expect, test } from 'vitest'
import { createAllowList } from '../../src/egress/allow-list.ts'
import { rule } from './support.ts'

const list = (...texts: readonly string[]) => createAllowList(texts.map(rule))

describe('a list of rules', () => {
  test('gives the ports of a name, from all that match', () => {
    const allow = list('a.test', 'a.test:8443', '*.test.example.com', '*.example.com:22', 'x.test.example.com:1')
    expect(list('a.test').portsOf('a.test')).toEqual([443, 80])
    expect(allow.portsOf('a.test')).toEqual([443, 80, 8443])
    expect(allow.portsOf('x.test.example.com')).toEqual([1, 443, 80, 22])
  })

  test('has a wildcard stand for what is below, at any depth, and for nothing else', () => {
    const allow = list('*.b.test')
    expect(allow.portsOf('a.b.test')).toEqual([443, 80])
    expect(allow.portsOf('c.a.b.test')).toEqual([443, 80])
    for (const name of ['b.test', 'ab.test', 'a.b.test.evil', 'test', '', '.b.tes', 'a.c.test'])
      expect(allow.portsOf(name)).toEqual([])
  })

  test('has a name stand for itself alone', () => {
    const allow = list('b.test')
    for (const name of ['a.b.test', 'xb.test', 'b.test.evil', 'test']) expect(allow.portsOf(name)).toEqual([])
  })

  test('lets names lead to what is public or listed', () => {
    const allow = list('10.1.0.0/16', '10.0.0.5:5432', '192.168.0.1', '[fd00::/8]:443')
    expect(allow.mayLeadTo('8.8.8.8', 1)).toBe(true)
    expect(allow.mayLeadTo('10.1.2.3', 1)).toBe(true)
    expect(allow.mayLeadTo('10.2.2.3', 1)).toBe(false)
    expect(allow.mayLeadTo('10.0.0.5', 5432)).toBe(true)
    expect(allow.mayLeadTo('10.0.0.5', 5433)).toBe(false)
    expect(allow.mayLeadTo('192.168.0.1', 9)).toBe(true)
    expect(allow.mayLeadTo('fd12::1', 443)).toBe(true)
    expect(allow.mayLeadTo('fd12::1', 80)).toBe(false)
    expect(allow.mayLeadTo('fe80::1%eth0', 443)).toBe(false)
    expect(allow.mayLeadTo('', 443)).toBe(false)
  })

  test('lets an address itself be reached, but no range', () => {
    const allow = list('10.1.0.0/16', '10.0.0.5:5432', '[fd00::5]:1')
    expect(allow.reaches('10.0.0.5', 5432)).toBe(true)
    expect(allow.reaches('10.0.0.5', 443)).toBe(false)
    expect(allow.reaches('10.1.0.5', 443)).toBe(false)
    expect(allow.reaches('fd00:0::5', 1)).toBe(true)
    expect(allow.reaches('nonsense', 1)).toBe(false)
  })
})
