import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { redactSecrets, sanitiseLine, sanitiseTerminal, unfinishedSecret } from '../src/index.ts'

describe('sanitiseTerminal', () => {
  test.each([
    ['a colour', '\u001b[31mred\u001b[0m', 'red'],
    ['a cursor move', 'a\u001b[2Jb\u001b[10;10Hc', 'abc'],
    ['a title', '\u001b]0;evil\u0007text', 'text'],
    ['a title with a string terminator', '\u001b]0;evil\u001b\\text', 'text'],
    ['a clipboard write without an end', 'x\u001b]52;c;ZXZpbA==', 'x'],
    ['a device control string', '\u001bP1$r0m\u001b\\ok', 'ok'],
    ['eight-bit forms', '\u009b31mred\u009d0;t\u009cend', 'redend'],
    ['a lone escape at the end', 'x\u001b', 'x'],
    ['a carriage return that hides what came before', 'safe\rrm -rf /', 'safe\nrm -rf /'],
    ['Windows line ends', 'a\r\nb', 'a\nb'],
    ['a backspace', 'ab\bc', 'ab\uFFFDc'],
    ['a direction override', 'a\u202egpj.exe', 'a⟨U+202E⟩gpj.exe'],
    ['a lone surrogate', 'a\ud800b', 'a\uFFFDb'],
    ['what is harmless', 'tab\tline\n日本語 🙂 é', 'tab\tline\n日本語 🙂 é'],
  ])('%s', (_, text, clean) => {
    expect(sanitiseTerminal(text)).toBe(clean)
  })

  test('leaves nothing that a terminal obeys, whatever comes', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        '\u001b',
        '\u001b[',
        '\u001b]',
        '\u009b',
        '\u0007',
        '\u001b\\',
        '\r',
        '\u0000',
        '\u202e',
        '0;1',
        'm',
        '\ud83d',
      ),
      fc.string({ unit: 'binary' }),
    )
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const clean = sanitiseTerminal(pieces.join(''))
        expect(clean).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/)
        expect(clean.isWellFormed()).toBe(true)
        expect(sanitiseTerminal(clean)).toBe(clean)
      }),
      { numRuns: 2000 },
    )
  })
})

test('a line is one line and no longer than asked', () => {
  expect(sanitiseLine('a\nb\tc')).toBe('a b c')
  expect(sanitiseLine('abcdef', 4)).toBe('abc…')
  expect(sanitiseLine('🙂🙂🙂', 2)).toBe('🙂…')
})

test('secrets are taken out, the longest first', () => {
  expect(redactSecrets('key=sk-secret-1234 and sk-secret', ['sk-secret', 'sk-secret-1234'])).toBe(
    'key=[redacted] and [redacted]',
  )
  expect(redactSecrets('a short one stays', ['a', ''])).toBe('a short one stays')
})

test('the end of a text may be the beginning of a secret, white space or not', () => {
  const secrets = ['two words', 'two-words-more', 'tiny']
  expect(unfinishedSecret('these are two w', secrets)).toBe(5)
  expect(unfinishedSecret('ttt', secrets)).toBe(1)
  expect(unfinishedSecret('two words', secrets)).toBe(0)
  expect(unfinishedSecret('two-words', ['two-words', ...secrets])).toBe(9)
  expect(unfinishedSecret('tin', ['tiny'])).toBe(0)
  expect(unfinishedSecret('', secrets)).toBe(0)
})
