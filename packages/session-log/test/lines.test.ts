import { writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { MAX_HEADER_BYTES } from '../src/format.ts'
import { eachLine, type RawLine } from '../src/lines.ts'
import { folder } from './helpers.ts'

async function linesOf(bytes: Uint8Array, chunkBytes?: number, stopAfter = Infinity): Promise<readonly RawLine[]> {
  const file = join(folder(), 'file')
  writeFileSync(file, bytes)
  const lines: RawLine[] = []
  const handle = await open(file)
  await eachLine(
    handle,
    bytes.length,
    (line) => (lines.push(line) < stopAfter ? 'continue' : 'stop'),
    ...(chunkBytes === undefined ? [] : [chunkBytes]),
  )
  await handle.close()
  return lines
}

const contentOf = ({ content }: RawLine) =>
  content === undefined ? undefined : Buffer.from(content.buffer.subarray(content.from, content.to))

test('the lines of a file, whatever the chunks: their bytes, ends, LFs, and whether they are UTF-8 (property)', async () => {
  const piece = fc.oneof(
    fc.constantFrom('\n', '\n', '\r\n', 'ä', '€', '😀', 'plain', '\u2028').map((text) => Buffer.from(text)),
    fc.uint8Array({ minLength: 1, maxLength: 3 }).map((bytes) => Buffer.from(bytes)),
  )
  await fc.assert(
    fc.asyncProperty(
      fc.array(piece, { maxLength: 40 }),
      fc.integer({ min: 1, max: 30 }),
      async (pieces, chunkBytes) => {
        const bytes = Buffer.concat(pieces)
        const text = bytes.toString('latin1')
        const expected = text.split('\n')
        if (expected.at(-1) === '') expected.pop()
        const lines = await linesOf(bytes, chunkBytes)
        expect(lines.map(contentOf)).toEqual(expected.map((line) => Buffer.from(line, 'latin1')))
        let end = 0
        for (const [index, line] of lines.entries()) {
          const content = contentOf(line) ?? Buffer.alloc(0)
          const terminated = index < lines.length - 1 || text.endsWith('\n')
          end += content.length + (terminated ? 1 : 0)
          const utf8 = Buffer.from(content.toString('utf8')).equals(content)
          expect({ ...line, content: line.content?.utf8 }).toEqual({
            number: index + 1,
            end,
            terminated,
            content: utf8,
          })
        }
      },
    ),
    { numRuns: 300 },
  )
})

test('stops when told, also in the middle of a chunk', async () => {
  expect(await linesOf(Buffer.from('a\nb\nc\nd'), undefined, 2)).toHaveLength(2)
  expect(await linesOf(Buffer.from('a\nb\nc\nd'), 3, 3)).toHaveLength(3)
})

test('of a first line without end no more is read than a header may have', async () => {
  const lines = await linesOf(Buffer.alloc(3 * MAX_HEADER_BYTES, 'x'), 100_000)
  expect(lines).toHaveLength(1)
  expect(lines[0]?.content).toBeUndefined()
  expect(lines[0]?.end).toBeLessThan(MAX_HEADER_BYTES + 200_000)
})
