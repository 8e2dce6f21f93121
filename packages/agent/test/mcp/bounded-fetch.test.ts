import { expect, test } from 'vitest'
import { boundedFetch } from '../../src/mcp/bounded-fetch.ts'
import { listening } from './mcp-server.ts'

const limits = { bytes: 1000, errorBytes: 100 }

/** Answers with the chunks, and never ends when there are none. */
const answering = (status: number, type: string, chunks: Iterable<string>) =>
  listening((_, response) => {
    response.writeHead(status, { 'content-type': type })
    for (const chunk of chunks) response.write(chunk)
    response.end()
  })
const read = async (url: string): Promise<string> => (await boundedFetch(fetch, limits)(url)).text()

test('a document may be as large as the limit, and no larger', async () => {
  expect(await read((await answering(200, 'application/json', ['x'.repeat(1000)])).url)).toHaveLength(1000)
  await expect(read((await answering(200, 'application/json', ['x'.repeat(1001)])).url)).rejects.toThrow(/1000 bytes/)
})

test.each(['\n', '\r\n', '\r'])(
  'a stream may be of any length, an event of it may not (lines end with %j)',
  async (end) => {
    const event = `data: ${'x'.repeat(900)}${end}${end}`
    expect(
      await read(
        (
          await answering(
            200,
            'text/event-stream',
            Array.from({ length: 20 }, () => event),
          )
        ).url,
      ),
    ).toBe(event.repeat(20))
    const lines = Array.from({ length: 200 }, () => `data: x${end}`)
    await expect(read((await answering(200, 'text/event-stream', lines)).url)).rejects.toThrow(/1000 bytes/)
  },
)

test('of a refusal the beginning is kept', async () => {
  expect(await read((await answering(500, 'text/plain', ['y'.repeat(5000)])).url)).toBe('y'.repeat(100))
  const { url } = await listening((_, response) => response.writeHead(204).end())
  expect((await boundedFetch(fetch, limits)(url)).status).toBe(204)
})
