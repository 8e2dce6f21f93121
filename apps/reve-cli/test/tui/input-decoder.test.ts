import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Input, InputDecoder } from '../../src/tui/input-decoder.ts'

const bytes = (text: string): Uint8Array => Buffer.from(text)

/** What bytes mean that come in these pieces, texts that follow each other joined. */
function decoded(...pieces: readonly Uint8Array[]): readonly Input[] {
  const decoder = new InputDecoder()
  const inputs = [...pieces.flatMap((piece) => decoder.push(piece)), ...decoder.flush()]
  const joined: Input[] = []
  for (const input of inputs) {
    const last = joined.at(-1)
    if (input.type === 'text' && last?.type === 'text')
      joined[joined.length - 1] = { type: 'text', text: last.text + input.text }
    else joined.push(input)
  }
  return joined
}

const key = (name: string, more: { ctrl?: true; alt?: true; shift?: true } = {}): Input => ({
  type: 'key',
  key: { name, ctrl: false, alt: false, shift: false, ...more },
})

const known: readonly (readonly [string, readonly Input[]])[] = [
  ['a', [{ type: 'text', text: 'a' }]],
  ['日本👩‍👧', [{ type: 'text', text: '日本👩‍👧' }]],
  ['\r', [key('enter')]],
  ['\u0003', [key('c', { ctrl: true })]],
  ['\u007f', [key('backspace')]],
  ['\u001b', [key('escape')]],
  ['\u001b[A', [key('up')]],
  ['\u001bOA', [key('up')]],
  ['\u001b[1;5C', [key('right', { ctrl: true })]],
  ['\u001b[13;2u', [key('enter', { shift: true })]],
  ['\u001b[27;2;13~', [key('enter', { shift: true })]],
  ['\u001b\r', [key('enter', { alt: true })]],
  ['\u001b[3~', [key('delete')]],
  ['\u001b[200~two\nlines \u001b[A\u001b[201~', [{ type: 'paste', text: 'two\nlines \u001b[A' }]],
  ['\u001b]11;rgb:0000/0000/0000\u001b\\', [{ type: 'reply', kind: 'osc', text: '11;rgb:0000/0000/0000' }]],
  ['\u001b[?62;22c', [{ type: 'reply', kind: 'csi', text: '?62;22c' }]],
]

describe('what a terminal sends', () => {
  test.each(known)('%j', (text, inputs) => {
    expect(decoded(bytes(text))).toEqual(inputs)
  })

  test('cut at every byte, it means the same', () => {
    const whole = bytes(
      known
        .filter(([text]) => text !== '\u001b')
        .map(([text]) => text)
        .join(''),
    )
    const wanted = decoded(whole)
    for (let at = 1; at < whole.length; at++) expect(decoded(whole.subarray(0, at), whole.subarray(at))).toEqual(wanted)
    expect(decoded(...Array.from(whole, (byte) => Uint8Array.of(byte)))).toEqual(wanted)
  })

  test('any bytes in any pieces mean the same as at once, and lose no text that follows', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), fc.array(fc.nat(60), { maxLength: 6 }), (garbage, cuts) => {
        const places = [...new Set(cuts.filter((cut) => cut < garbage.length))].toSorted((a, b) => a - b)
        const pieces = [0, ...places].map((from, index) => garbage.subarray(from, places[index] ?? garbage.length))
        expect(decoded(...pieces)).toEqual(decoded(garbage))
      }),
      { numRuns: 2000 },
    )
  })

  test('a paste of a megabyte comes whole, however it is cut', () => {
    const text = 'line of text\n'.repeat(80_000)
    const whole = bytes(`\u001b[200~${text}\u001b[201~x`)
    const pieces = Array.from({ length: Math.ceil(whole.length / 4096) }, (_, at) =>
      whole.subarray(at * 4096, (at + 1) * 4096),
    )
    expect(decoded(...pieces)).toEqual([
      { type: 'paste', text },
      { type: 'text', text: 'x' },
    ])
  })
})
