import { expect, test } from 'vitest'
import { createHttpModel } from '../src/index.ts'
import { type Recording, recordingFetch, replayingFetch } from '../src/replay.ts'
import { fixtures } from './fixtures.ts'
import { serve } from './fixture-server.ts'
import { config, key, run } from './play.ts'

test.each(fixtures)(
  '$name: what was recorded plays again, in its pieces and cut otherwise, without the key',
  async ({ api, stream, message }) => {
    const bytes = Buffer.from(stream)
    const pieces = [bytes.subarray(0, 301), bytes.subarray(301, 302), bytes.subarray(302)]
    await using server = await serve(() => ({
      pieces,
      gapMs: 5,
      headers: { 'set-cookie': 'SENTINEL', 'x-request-id': 'r1' },
    }))
    const recordings: Recording[] = []
    const settings = config({ api, baseUrl: `${server.url}/v1?key=SENTINEL` })
    const first = await run(
      createHttpModel(settings, { fetch: recordingFetch((recording) => recordings.push(recording)) }),
    )
    expect(first.outcome).toEqual({ type: 'answer', message })
    const text = JSON.stringify(recordings)
    expect([text.includes('SENTINEL'), text.includes(key)]).toEqual([false, false])
    expect(recordings[0]).toMatchObject({ status: 200, headers: { 'x-request-id': 'r1' }, request: { stream: true } })
    const played = JSON.parse(text) as readonly Recording[]
    const one = (cut?: (bytes: Uint8Array) => readonly Uint8Array[]) =>
      run(createHttpModel(settings, { fetch: replayingFetch(played, cut) }))
    expect(await one()).toEqual(first)
    expect(await one((given) => Array.from(given, (_, at) => given.subarray(at, at + 1)))).toEqual(first)
  },
)

test('a broken connection is recorded and breaks again', async () => {
  await using server = await serve(() => ({
    pieces: ['data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'],
    after: 'destroy',
  }))
  const recordings: Recording[] = []
  const settings = config({ baseUrl: server.url })
  const first = await run(
    createHttpModel(settings, { fetch: recordingFetch((recording) => recordings.push(recording)) }),
  )
  expect(recordings).toMatchObject([{ end: 'dropped' }])
  const again = await run(createHttpModel(settings, { fetch: replayingFetch(recordings) }))
  expect(again.outcome).toMatchObject({ type: 'failed', failure: { code: 'ended_early' } })
  expect(again.events).toEqual(first.events)
  const beyond = await run(createHttpModel(settings, { fetch: replayingFetch([]) }))
  expect(beyond.outcome).toMatchObject({ failure: { message: expect.stringContaining('every recording was played') } })
})
