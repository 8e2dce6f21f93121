import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { judgeJson, textOf } from '../src/json-text.ts'

const judge = (text: string | Buffer) => {
  const bytes = Buffer.from(text)
  // In memory of its own, as the reader has it, and in the middle of other memory.
  const own = new Uint8Array(bytes)
  const shared = Buffer.concat([Buffer.from('"{['), bytes, Buffer.from('"')])
  const verdict = judgeJson(textOf(own), 0, own.length)
  expect(judgeJson(textOf(shared), 3, 3 + bytes.length)).toBe(verdict)
  expect(judgeJson(textOf(new Uint8Array(shared)), 3, 3 + bytes.length)).toBe(verdict)
  return verdict
}

const parses = (text: string) => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

describe('judgeJson', () => {
  const whole = [
    '0',
    '-0',
    '1.5e-7',
    '1E+9',
    'true',
    ' null\t',
    '""',
    '"\\u00e4\\n\\/"',
    '[]',
    '{ }',
    '[ [ ] , {} ]',
    '{"a":{"b":[1,2]},"":""}',
    '"\u007f\u0080"',
  ]
  const cut = [
    '',
    ' ',
    '-',
    '1.',
    '1e',
    '1e-',
    't',
    'fals',
    'nul',
    '"',
    '"abc',
    '"\\',
    '"\\u1',
    '"\\u00e',
    '{',
    '{"',
    '{"a"',
    '{"a" :',
    '{"a":1',
    '{"a":1 ,',
    '[',
    '[1',
    '[1,',
    '[[]',
    '{"a":[{"b":"',
  ]
  const bad = [
    '01',
    '+1',
    '.5',
    '1.e',
    '--',
    'tru1',
    'nil',
    'True',
    '"\u0000"',
    '"a\nb"',
    '"\\x"',
    '"\\u00g',
    "'a'",
    '{a',
    '{1',
    '{"a" 1',
    '{"a":}',
    '{"a":1,}',
    '[1,]',
    '[,',
    '[1 2',
    ']',
    '}',
    '{]',
    '[}',
    '{} {}',
    '1 2',
    '\ufeff1',
    '""""',
    '/**/1',
    'NaN',
  ]
  test.each(whole)('%j is whole', (text) => expect(judge(text)).toBe('whole'))
  test.each(cut)('%j is cut', (text) => expect(judge(text)).toBe('cut'))
  test.each(bad)('%j is bad', (text) => expect(judge(text)).toBe('bad'))

  test('takes what JSON.parse takes, and every beginning of an object is cut (property)', () => {
    fc.assert(
      fc.property(fc.json({ stringUnit: 'binary', maxDepth: 4 }), fc.integer({ min: 0, max: 4 }), (text, indent) => {
        const spaced = JSON.stringify({ a: JSON.parse(text) }, null, indent)
        expect(judge(spaced)).toBe('whole')
        const bytes = Buffer.from(spaced)
        for (let end = 0; end < bytes.length; end++) expect(judgeJson(textOf(bytes), 0, end)).toBe('cut')
      }),
      { numRuns: 200 },
    )
  })

  test('agrees with JSON.parse about texts that are nearly JSON (property)', () => {
    const piece = fc.constantFrom(
      ...'{}[]:,"\\ \n\t0123456789-+.eEtrufalsn/bx\u0000\u001f\u20ac'.split(''),
      'true',
      '"a"',
      '\\u00',
      '"":',
    )
    const soup = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''))
    const edited = fc.tuple(fc.json(), fc.nat(), fc.nat(3), soup).map(([text, at, drop, put]) => {
      const from = at % (text.length + 1)
      return text.slice(0, from) + put.slice(0, 3) + text.slice(from + drop)
    })
    fc.assert(
      fc.property(fc.oneof(soup, edited), (text) => {
        expect(judge(text) === 'whole').toBe(parses(text))
      }),
      { numRuns: 5000 },
    )
  })

  test('a million brackets', () => {
    const deep = 1_000_000
    expect(judge(`${'['.repeat(deep)}${']'.repeat(deep)}`)).toBe('whole')
    expect(judge('[{"a":'.repeat(deep))).toBe('cut')
  })
})
