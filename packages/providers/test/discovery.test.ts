import { expect, test } from 'vitest'
import { loadModels, type DiscoveryCache } from '../src/index.ts'
import { serve } from './fixture-server.ts'

const kept = (text?: string): DiscoveryCache & { text(): string | undefined } => {
  let held = text
  return { read: async () => held, write: async (next) => void (held = next), text: () => held }
}

const two = (one: string, other: string) => `providers:
  one: {baseUrl: ${one}, api: openai-completions, apiKey: $KEY, models: [{id: m}]}
  other: {baseUrl: ${other}, api: anthropic-messages, apiKey: $KEY, models: [{id: m}]}
  keyless: {baseUrl: http://127.0.0.1:1, api: openai-responses, apiKey: $UNSET, models: [{id: m}]}
  demo: {api: scripted, models: [{id: m, turns: [{text: x}]}]}
`
const load = (source: string, now = () => 1_000_000) =>
  loadModels(source, {
    file: 'models.yml',
    env: (name) => ({ KEY: 'sk-SENTINEL-123' })[name],
    transport: { now },
  })
const json = (value: unknown) => ({ headers: { 'content-type': 'application/json' }, pieces: [JSON.stringify(value)] })

test('every provider with a key is asked, each API in its way; rows that make no sense are left out', async () => {
  await using one = await serve(() =>
    json({
      data: [
        { id: 'b', context_length: 8000, supported_parameters: ['tools', 'reasoning'] },
        { id: 'a', max_model_len: 5, supported_parameters: [] },
        { id: 'vendor/x', meta: { n_ctx_train: 7 } },
        { id: '~alias' },
        { id: 'a\nb' },
        { id: 5 },
        null,
      ],
    }),
  )
  await using other = await serve(() => json({ data: [{ id: 'claude', max_input_tokens: 200_000 }] }))
  const cache = kept()
  const found = await (await load(two(`${one.url}/v1`, other.url))).discover({ cache })
  expect(found).toEqual({
    models: [
      { reference: 'one/a', contextWindow: 5, reasoning: false },
      { reference: 'one/b', contextWindow: 8000, reasoning: true },
      { reference: 'one/vendor/x', contextWindow: 7 },
      { reference: 'other/claude', contextWindow: 200_000 },
    ],
    failures: {},
  })
  expect([one.requests[0]?.path, other.requests[0]?.path]).toEqual(['/v1/models', '/v1/models?limit=1000'])
  expect(one.requests[0]?.headers.authorization).toBe('Bearer sk-SENTINEL-123')
  expect(other.requests[0]?.headers['x-api-key']).toBe('sk-SENTINEL-123')
  expect(cache.text()).not.toContain('SENTINEL')
})

test('an answer is kept for a day; then what fails keeps what was known, and says why', async () => {
  let status = 200
  await using one = await serve(() =>
    status === 200 ? json({ data: [{ id: 'a' }] }) : { status, pieces: ['key sk-SENTINEL-123 is bad\nmore'] },
  )
  await using other = await serve(() => json({ data: [{ id: 'b' }] }))
  let now = 5_000_000
  const cache = kept()
  const catalogue = await load(two(one.url, other.url), () => now)
  await catalogue.discover({ cache })
  await catalogue.discover({ cache })
  expect(one.requests.length).toBe(1)
  status = 401
  now += 86_400_001
  const later = await catalogue.discover({ cache })
  expect(later.models.map(({ reference }) => reference)).toEqual(['one/a', 'other/b'])
  expect(later.failures).toEqual({ one: 'HTTP 401: key [redacted] is bad' })
  now -= 10 * 86_400_000
  await catalogue.discover({ cache })
  expect(one.requests.length).toBe(3)
})

test.each(['{', '{"version":2}', '[]', ''])('a damaged cache is none: %s', async (text) => {
  await using one = await serve(() => json({ data: [] }))
  const found = await (await load(two(one.url, one.url))).discover({ cache: kept(text) })
  expect(found).toEqual({ models: [], failures: {} })
})

test('silence, a page, no list and a dead port are each said; an abort is thrown', async () => {
  await using mute = await serve(() => ({ mute: true }))
  await using page = await serve(() => ({ pieces: ['<html>login</html>'] }))
  const slow = await (await load(two(mute.url, page.url))).discover({ timeoutMs: 100 })
  expect(slow.failures).toEqual({
    one: `${mute.url}/models did not answer within 0.1 s`,
    other: expect.stringMatching(/gave no list of models/),
  })
  const gone = await (await load(two('http://127.0.0.1:1', page.url))).discover()
  expect(gone.failures['one']).toContain('cannot reach http://127.0.0.1:1/models')
  const stop = AbortSignal.timeout(50)
  await expect((await load(two(mute.url, mute.url))).discover({ signal: stop })).rejects.toThrow('timeout')
})
