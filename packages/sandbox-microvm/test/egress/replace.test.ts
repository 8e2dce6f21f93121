import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createReplacer } from '../../src/egress/replace.ts'

const through = async (table: ReadonlyMap<string, string>, chunks: readonly string[]): Promise<string> => {
  const source = new PassThrough()
  const stream = source.pipe(createReplacer(table)?.stream() ?? new PassThrough())
  for (const chunk of chunks) source.write(Buffer.from(chunk, 'latin1'))
  source.end()
  return Buffer.concat((await stream.toArray()) as Buffer[]).toString('latin1')
}

describe('a replacer', () => {
  const table = new Map([
    ['token', 'T'],
    ['token-long', 'L'],
    ['en', ''],
    ['$.*', '$&'],
  ])

  test('takes the longest of those that start together, and does not look at what it put in', () => {
    const replacer = createReplacer(table)
    expect(replacer?.text('token token-long token-lon en$.*')).toBe('T L T-lon $&')
    const found: string[] = []
    replacer?.text('tokentoken-long', (one) => found.push(one))
    expect(found).toEqual(['token', 'token-long'])
    expect(createReplacer(new Map())).toBeUndefined()
    expect(createReplacer(new Map([['', 'x']]))).toBeUndefined()
  })

  test('finds what is cut into pieces', async () => {
    expect(await through(table, ['tok', 'en', '-l', 'on', 'g', ' tok', 'e', 'x'])).toBe('L tokex')
    expect(await through(table, ['token-lon'])).toBe('T-lon')
  })

  test('holds back no byte that cannot be a start', async () => {
    const stream = createReplacer(new Map([['token', 'T']]))?.stream() ?? new PassThrough()
    stream.write(Buffer.from('event: 1\n\n'))
    expect((stream.read() as Buffer).toString()).toBe('event: 1\n\n')
    stream.write(Buffer.from('to'))
    expect(stream.read()).toBeNull()
    stream.end()
  })

  test('does the same in a stream as in a text, however it is cut', async () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 5 })
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(word, word), { minLength: 1, maxLength: 4 }),
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'd'), maxLength: 7 }), { maxLength: 10 }),
        async (pairs, chunks) => {
          const replacements = new Map(pairs)
          expect(await through(replacements, chunks)).toBe(createReplacer(replacements)?.text(chunks.join('')))
        },
      ),
      { numRuns: 2000 },
    )
  })
})
