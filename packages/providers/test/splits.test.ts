import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createHttpModel } from '../src/index.ts'
import { fixtures } from './fixtures.ts'
import { serve } from './fixture-server.ts'
import { config, cutAt, play, run } from './play.ts'

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)

describe.each(fixtures)('$name', ({ api, stream, message }) => {
  test('whole', async () => {
    const { outcome } = await play(api, stream)
    expect(outcome).toEqual({ type: 'answer', message })
  })

  test('with a cut at every byte: the same events and the same answer', async () => {
    const expected = await play(api, stream)
    const bytes = bytesOf(stream)
    for (let at = 1; at < bytes.length; at++) expect(await play(api, cutAt(bytes, [at]))).toEqual(expected)
  })

  test('over HTTP, every byte in a chunk of its own', async () => {
    const bytes = bytesOf(stream)
    await using server = await serve(() => ({ pieces: Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)) }))
    const played = await run(createHttpModel(config({ api, baseUrl: server.url })))
    expect(played).toEqual(await play(api, stream))
  })

  test('with CRLF and with CR lines', async () => {
    const expected = await play(api, stream)
    for (const end of ['\r\n', '\r']) {
      const bytes = bytesOf(stream.replaceAll(/\r?\n/g, end))
      expect(await play(api, [bytes])).toEqual(expected)
      expect(
        await play(
          api,
          Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)),
        ),
      ).toEqual(expected)
    }
  })

  test('the last event lacks its blank line, or its line end', async () => {
    const expected = await play(api, stream)
    expect(await play(api, stream.trimEnd())).toEqual(expected)
    expect(await play(api, `${stream.trimEnd()}\n`)).toEqual(expected)
    // And so for the event that says that the answer is whole, where more may follow it.
    const terminal =
      stream.lastIndexOf('stop_reason') > 0 ? stream.lastIndexOf('\n\n', stream.lastIndexOf('message_stop') - 1) : -1
    if (terminal > 0) expect((await play(api, stream.slice(0, terminal))).outcome).toEqual({ type: 'answer', message })
  })

  test('any cuts at all: the same events', async () => {
    const expected = await play(api, stream)
    const bytes = bytesOf(stream)
    const places = fc.array(fc.nat({ max: bytes.length }), { maxLength: 40 })
    await fc.assert(
      fc.asyncProperty(places, async (cuts) => {
        expect(await play(api, cutAt(bytes, cuts))).toEqual(expected)
      }),
      { numRuns: 60 },
    )
  })

  test('cut off anywhere: never an answer with another content, and a call never runs with half of its arguments', async () => {
    const bytes = bytesOf(stream)
    for (let at = 0; at < bytes.length; at += 3) {
      const { outcome } = await play(api, [bytes.subarray(0, at)])
      if (outcome.type === 'answer') expect(outcome.message.content).toEqual(message.content)
      else expect(outcome).toMatchObject({ type: 'failed', failure: { code: 'ended_early', retryable: true } })
    }
  })

  test('any bytes in any place: an outcome, never a throw', async () => {
    const bytes = bytesOf(stream)
    const noise = fc.record({
      at: fc.nat({ max: bytes.length }),
      junk: fc.uint8Array({ maxLength: 30 }),
      drop: fc.nat({ max: 30 }),
    })
    await fc.assert(
      fc.asyncProperty(noise, async ({ at, junk, drop }) => {
        const { outcome } = await play(api, [bytes.subarray(0, at), junk, bytes.subarray(at + drop)])
        expect(['answer', 'failed']).toContain(outcome.type)
      }),
      { numRuns: 150 },
    )
  })
})
