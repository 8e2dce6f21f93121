import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { collect, headBytes, HeadTail, tailBytes } from '../src/output.ts'

function textOf(chunks: readonly Buffer[]): ReturnType<HeadTail['finish']> {
  const kept = new HeadTail()
  for (const chunk of chunks) kept.push(chunk)
  return kept.finish()
}

describe('HeadTail', () => {
  test('keeps a short stream whole, whatever its pieces', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary', maxLength: 200 }), { maxLength: 20 }), (parts) => {
        const text = textOf(parts.map((part) => Buffer.from(part)))
        expect(text).toEqual({ text: parts.join(''), bytes: Buffer.byteLength(parts.join('')), cutBytes: 0 })
      }),
    )
  })

  test('is whole up to the last byte that fits, and cut with the next', () => {
    const whole = 'x'.repeat(headBytes + tailBytes)
    expect(textOf([Buffer.from(whole)])).toEqual({ text: whole, bytes: whole.length, cutBytes: 0 })
    const cut = textOf([Buffer.from(`${whole}y`)])
    expect(cut.cutBytes).toBe(1)
    expect(cut.text.endsWith('xy')).toBe(true)
  })

  test('puts the marker where the cut is, keeps the start and the end, and accounts for every byte', () => {
    const line = Buffer.from(`${'z'.repeat(99)}\n`)
    const { text, bytes, cutBytes } = textOf([
      Buffer.from('first line\n'),
      ...Array.from({ length: 5_000 }, () => line),
      Buffer.from('2 tests failed\n'),
    ])
    expect(bytes).toBe(11 + 500_000 + 15)
    expect(text.startsWith('first line\n')).toBe(true)
    expect(text.endsWith('\n2 tests failed\n')).toBe(true)
    const marker = /\n\[\.\.\. (\d+) bytes cut here \.\.\.\]\n/.exec(text)
    expect(Number(marker?.[1])).toBe(cutBytes)
    expect(marker?.index).toBeGreaterThan(headBytes - 8)
    expect(marker?.index).toBeLessThanOrEqual(headBytes)
  })

  test('never cuts inside a code point', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 8 }),
        fc.constantFrom('é', '語', '😀'),
        fc.integer({ min: 1, max: 7_919 }),
        (offset, letter, piece) => {
          const all = Buffer.from(`${'a'.repeat(offset)}${letter.repeat(40_000)}`)
          const pieces = Array.from({ length: Math.ceil(all.length / piece) }, (_, i) =>
            all.subarray(i * piece, (i + 1) * piece),
          )
          const { text, bytes, cutBytes } = textOf(pieces)
          expect(text).not.toContain('\uFFFD')
          const kept = Buffer.byteLength(text.replace(/\n?\[\.\.\. \d+ bytes cut here \.\.\.\]\n/, ''))
          expect(kept + cutBytes).toBe(bytes)
        },
      ),
      { numRuns: 30 },
    )
  })
})

describe('collect', () => {
  test('writes all of the stream to the file and shows each piece', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'collect-'))
    try {
      let seen = 0
      const pieces = Array.from({ length: 300 }, (_, i) => Buffer.alloc(10_000, i))
      const { bytes } = await collect(Readable.from(pieces), join(folder, 'out'), (chunk) => (seen += chunk.length))
        .done
      expect([bytes, seen]).toEqual([3_000_000, 3_000_000])
      expect((await readFile(join(folder, 'out'))).equals(Buffer.concat(pieces))).toBe(true)
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  test('keeps what came before a stream was cut off', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'collect-'))
    try {
      const source = new Readable({ read: () => undefined })
      const collected = collect(source, join(folder, 'out'), () => source.destroy())
      source.push('so far')
      expect((await collected.done).text).toBe('so far')
      expect(await readFile(join(folder, 'out'), 'utf8')).toBe('so far')
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  test('fails when the file cannot be written', async () => {
    await expect(collect(Readable.from([Buffer.from('x')]), '/dev/null/no/such', () => undefined).done).rejects.toThrow(
      /ENOTDIR/,
    )
  })
})
