import { Readable } from 'node:stream'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { linesOf } from '../src/lines.ts'

async function all(chunks: readonly Uint8Array[], most = 1000, tooLong?: () => void): Promise<readonly string[]> {
  const lines: string[] = []
  for await (const line of linesOf(Readable.from(chunks), most, tooLong)) lines.push(line)
  return lines
}

test('are cut at line feeds, wherever the chunks end', async () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'é', '🙂', '\n', '\r', '\u2028') })
  await fc.assert(
    fc.asyncProperty(text, fc.array(fc.nat(20)), async (given, cuts) => {
      const bytes = Buffer.from(given)
      const chunks: Uint8Array[] = []
      let from = 0
      for (const cut of [...cuts, bytes.length]) {
        chunks.push(bytes.subarray(from, from + cut))
        from += cut
      }
      const lines = given.split('\n')
      expect(await all(chunks)).toEqual(lines.at(-1) === '' ? lines.slice(0, -1) : lines)
    }),
  )
})

test('one that is too long is passed over, and the next one is whole', async () => {
  let over = 0
  const chunks = ['aa\nbbbb', 'bbbb\n', 'cc\n', 'dddddd'].map((text) => Buffer.from(text))
  expect(await all(chunks, 5, () => (over += 1))).toEqual(['aa', 'cc'])
  expect(over).toBe(2)
})
