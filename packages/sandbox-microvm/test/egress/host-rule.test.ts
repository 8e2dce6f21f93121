import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { hostRuleText, parseHostRule } from '../../src/egress/host-rule.ts'

const read = (text: string) => {
  const parsed = parseHostRule(text)
  return parsed.ok ? parsed.rule : parsed.problem.code
}

describe('an entry of allow', () => {
  test.each([
    ['github.com', { kind: 'name', name: 'github.com' }],
    ['GitHub.com.', { kind: 'name', name: 'github.com' }],
    ['localhost', { kind: 'name', name: 'localhost' }],
    ['example.com:8443', { kind: 'name', name: 'example.com', port: 8443 }],
    ['*.example.com', { kind: 'below', name: 'example.com' }],
    ['*.example.com:8443', { kind: 'below', name: 'example.com', port: 8443 }],
    ['bücher.example', { kind: 'name', name: 'xn--bcher-kva.example' }],
    ['*.BÜCHER.example:1', { kind: 'below', name: 'xn--bcher-kva.example', port: 1 }],
    ['10.0.0.5:5432', { kind: 'address', address: '10.0.0.5', port: 5432 }],
    ['10.0.0.5', { kind: 'address', address: '10.0.0.5' }],
    ['FD00::5', { kind: 'address', address: 'fd00::5' }],
    ['[fd00::5]:5432', { kind: 'address', address: 'fd00::5', port: 5432 }],
    ['[fd00::5]', { kind: 'address', address: 'fd00::5' }],
    ['10.0.0.0/8', { kind: 'range', address: '10.0.0.0', prefix: 8 }],
    ['10.0.0.0/8:5432', { kind: 'range', address: '10.0.0.0', prefix: 8, port: 5432 }],
    ['fd00::/8', { kind: 'range', address: 'fd00::', prefix: 8 }],
    ['[fd00::/8]:443', { kind: 'range', address: 'fd00::', prefix: 8, port: 443 }],
    ['xn--bcher-kva.example', { kind: 'name', name: 'xn--bcher-kva.example' }],
  ])('%s is read', (text, rule) => {
    expect(read(text)).toEqual(rule)
  })

  test.each([
    ['', 'empty'],
    ['https://github.com', 'scheme'],
    ['github.com/x', 'path'],
    ['github.com:0', 'port'],
    ['github.com:65536', 'port'],
    ['github.com:', 'port'],
    ['github.com:https', 'port'],
    ['github.com:080', 'port'],
    ['*', 'wildcard'],
    ['a.*.com', 'wildcard'],
    ['**.example.com', 'wildcard'],
    ['*.com', 'wildcard'],
    ['*.', 'name'],
    ['a b', 'name'],
    ['a..b', 'name'],
    ['-a.com', 'name'],
    ['a_b.com', 'name'],
    ['.', 'name'],
    ['a\u0000b', 'name'],
    ['user@host', 'name'],
    ['2130706433', 'address'],
    ['0x7f.1', 'address'],
    ['127.1', 'address'],
    ['1.2.3.4.5', 'address'],
    ['１２７.0.0.1', 'address'],
    ['[github.com]:443', 'address'],
    ['[]', 'address'],
    ['fe80::1%eth0', 'name'],
    ['[fe80::1%eth0]:80', 'address'],
    ['0.0.0.0/0', 'address'],
    ['10.0.0.0/33', 'address'],
    ['10.0.0.0/', 'address'],
    ['fd00::/129', 'address'],
    [`${'a'.repeat(64)}.com`, 'name'],
    [`${'a.'.repeat(127)}com`, 'name'],
  ])('%j is refused', (text, code) => {
    expect(read(text)).toBe(code)
  })

  test('of any text is a rule that reads back as itself, or a problem', () => {
    const parts = fc.constantFrom(
      'a',
      'b-1',
      '*.',
      '.',
      ':',
      '443',
      '10.0.0.1',
      '/8',
      '[',
      ']',
      'fd00::',
      'ü',
      ' ',
      '%',
      '0x1',
    )
    const texts = fc.oneof(
      fc.string(),
      fc.array(parts, { maxLength: 8 }).map((list) => list.join('')),
      fc.domain(),
      fc.ipV4(),
      fc.ipV6(),
    )
    fc.assert(
      fc.property(texts, (text) => {
        const parsed = parseHostRule(text)
        if (parsed.ok) expect(parseHostRule(hostRuleText(parsed.rule))).toEqual(parsed)
        else expect(parsed.problem.message).not.toBe('')
      }),
      { numRuns: 5000 },
    )
  })
})
