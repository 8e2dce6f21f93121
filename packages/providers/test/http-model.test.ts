import { type AddressInfo, createServer, type Socket } from 'node:net'
import { describe, expect, test } from 'vitest'
import { createHttpModel } from '../src/index.ts'
import type { Api, ModelFailure, ModelOutcome } from '../src/index.ts'
import { fixtures } from './fixtures.ts'
import { serve } from './fixture-server.ts'
import type { FixtureReply } from './fixture-server.ts'
import { ask, config, key, run, sse } from './play.ts'

const apis: readonly Api[] = ['openai-responses', 'openai-completions', 'anthropic-messages']
const json = { 'content-type': 'application/json' }

async function answerTo(
  reply: FixtureReply,
  api: Api = 'openai-completions',
  timeouts: { headersTimeoutMs?: number; idleTimeoutMs?: number } = {},
): Promise<ModelOutcome> {
  await using server = await serve(() => reply)
  const model = createHttpModel(config({ api, baseUrl: `${server.url}/v1` }), {
    now: () => Date.UTC(2030, 0, 1),
    ...timeouts,
  })
  const { outcome } = await run(model)
  expect(server.requests).toHaveLength(1)
  expect(JSON.stringify(outcome)).not.toContain(key)
  return outcome
}

async function failureTo(reply: FixtureReply, api?: Api): Promise<ModelFailure> {
  const outcome = await answerTo(reply, api)
  if (outcome.type !== 'failed') throw new Error(`not a failure: ${JSON.stringify(outcome)}`)
  return outcome.failure
}

const errorReply = (status: number, error: unknown, headers: Readonly<Record<string, string>> = {}): FixtureReply => ({
  status,
  headers: { ...json, ...headers },
  pieces: [JSON.stringify(error)],
})

describe('the request', () => {
  test.each([
    ['openai-responses', '/v1/responses'],
    ['openai-completions', '/v1/chat/completions'],
  ] as const)('%s: path, bearer, stream', async (api, path) => {
    await using server = await serve(() => ({
      pieces: [fixtures.find((fixture) => fixture.api === api)?.stream ?? ''],
    }))
    await run(createHttpModel(config({ api, baseUrl: `${server.url}/v1/` })))
    expect(server.requests[0]).toMatchObject({
      path,
      headers: { authorization: `Bearer ${key}`, accept: 'text/event-stream' },
      body: { stream: true, model: 'test-model' },
    })
    expect(server.requests[0]?.headers).not.toHaveProperty('x-api-key')
  })

  test.each(['', '/', '/v1', '/v1/'])(
    'anthropic-messages with base %j: path, key, version, no bearer',
    async (base) => {
      await using server = await serve(() => ({ pieces: [fixtures[0]?.stream ?? ''] }))
      await run(createHttpModel(config({ api: 'anthropic-messages', baseUrl: `${server.url}${base}` })))
      expect(server.requests[0]).toMatchObject({
        path: '/v1/messages',
        headers: { 'x-api-key': key, 'anthropic-version': '2023-06-01' },
      })
      expect(server.requests[0]?.headers).not.toHaveProperty('authorization')
    },
  )

  test('without a key no header is sent; a query of the base stays', async () => {
    await using server = await serve(() => ({ pieces: [sse('[DONE]')] }))
    const { apiKey: _key, apiKeyName: _name, ...open } = config({ baseUrl: `${server.url}/v1?version=2` })
    await run(createHttpModel(open))
    expect(server.requests[0]?.path).toBe('/v1/chat/completions?version=2')
    expect(server.requests[0]?.headers).not.toHaveProperty('authorization')
  })

  test.each(apis)('%s: no lone surrogate leaves', async (api) => {
    await using server = await serve(() => ({ pieces: [sse('[DONE]')] }))
    const text = 'cut \ud83d here'
    await run(createHttpModel(config({ api, baseUrl: server.url })), {
      ...ask,
      messages: [
        { role: 'user', content: [{ type: 'text', text }] },
        {
          role: 'assistant',
          model: 'a/b',
          content: [{ type: 'toolCall', id: 'c', name: 'f', arguments: { [text]: [text] } }],
          stopReason: 'toolUse',
        },
        { role: 'toolResult', toolCallId: 'c', toolName: 'f', content: [{ type: 'text', text }], isError: false },
      ],
    })
    const sent = JSON.stringify(server.requests[0]?.body)
    expect(sent).toContain('cut \ufffd here')
    expect(sent).not.toMatch(/\\ud83d/)
  })
})

describe('an error before the stream', () => {
  test.each([
    [
      400,
      { error: { message: 'bad tool schema', type: 'invalid_request_error' } },
      { code: 'bad_request', retryable: false },
    ],
    [
      400,
      { error: { message: "This model's maximum context length is 8192 tokens.", code: 'context_length_exceeded' } },
      { code: 'overflow', retryable: false },
    ],
    [401, { error: { message: `Incorrect API key provided: ${key}` } }, { code: 'auth', retryable: false }],
    [402, { error: { message: 'no credit' } }, { code: 'quota', retryable: false }],
    [403, { type: 'error', error: { type: 'permission_error', message: 'no' } }, { code: 'auth', retryable: false }],
    [
      404,
      { error: { message: 'The model does not exist', code: 'model_not_found' } },
      { code: 'not_found', retryable: false },
    ],
    [
      413,
      { error: { type: 'request_too_large', message: 'Request exceeds the maximum size' } },
      { code: 'overflow', retryable: false },
    ],
    [
      429,
      { error: { message: 'Too many tokens per minute', type: 'rate_limit_error' } },
      { code: 'rate_limited', retryable: true },
    ],
    [
      429,
      { error: { message: 'You exceeded your current quota', code: 'insufficient_quota' } },
      { code: 'quota', retryable: false },
    ],
    [500, { error: { message: 'oops' } }, { code: 'server', retryable: true }],
    [503, { error: { message: 'Loading model', type: 'unavailable_error' } }, { code: 'overloaded', retryable: true }],
    [
      529,
      { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
      { code: 'overloaded', retryable: true },
    ],
    [422, { detail: [{ loc: ['body', 'store'], msg: 'extra_forbidden' }] }, { code: 'bad_request', retryable: false }],
  ] as const)('%i %j', async (status, body, expected) => {
    const failure = await failureTo(errorReply(status, body, { 'x-request-id': 'req_42' }))
    expect(failure).toMatchObject({ ...expected, status, requestId: 'req_42' })
    expect(failure.message).toContain(`fixture/test-model: HTTP ${status}: `)
    expect(failure.message).toContain('req_42')
  })

  test('401 names the variable, 404 the URL, and neither the key', async () => {
    expect((await failureTo(errorReply(401, { error: { message: `bad key ${key}!` } }))).message).toMatch(
      /bad key \[redacted\]!.*\$FIXTURE_KEY/,
    )
    expect((await failureTo(errorReply(404, {}))).message).toMatch(/http:\/\/127\.0\.0\.1:\d+\/v1\/chat\/completions/)
  })

  test('429 with seconds, with a date, with junk', async () => {
    const retry = async (value: string): Promise<ModelFailure> =>
      failureTo(errorReply(429, { error: { message: 'slow down' } }, { 'retry-after': value }))
    expect(await retry('7')).toMatchObject({ code: 'rate_limited', retryAfterMs: 7000 })
    expect(await retry('Tue, 01 Jan 2030 00:00:30 GMT')).toMatchObject({ code: 'rate_limited', retryAfterMs: 30_000 })
    expect(await retry('-5')).not.toHaveProperty('retryAfterMs')
    expect(await retry('Wed, 02 Jan 2030 00:00:00 GMT')).toMatchObject({
      code: 'quota',
      retryable: false,
      retryAfterMs: 86_400_000,
    })
  })

  test("the server's own word that a retry is of no use", async () => {
    expect(
      await failureTo(errorReply(500, { error: { message: 'broken' } }, { 'x-should-retry': 'false' })),
    ).toMatchObject({ code: 'server', retryable: false })
  })

  test('a body without end is read up to 8 KiB, and its connection closed', async () => {
    await using server = await serve(() => ({ status: 500, pieces: ['x'.repeat(9000)], after: 'hang' }))
    const { outcome } = await run(createHttpModel(config({ baseUrl: server.url })))
    expect(outcome).toMatchObject({ type: 'failed', failure: { code: 'server' } })
    expect(JSON.stringify(outcome).length).toBeLessThan(3000)
    await server.closed(0)
  })

  test('a key that the cap cuts in two does not show its half', async () => {
    const body = `${'x'.repeat(170)} ${key.slice(0, 20)}`
    const failure = await failureTo({ status: 500, headers: { 'content-type': 'text/plain' }, pieces: [body] })
    expect(failure.message).not.toContain('SENTINEL')
    const long = await failureTo({
      status: 500,
      headers: { 'content-type': 'text/plain' },
      pieces: [`${'y'.repeat(185)} ${key}`],
    })
    expect(long.message).not.toContain('SENTINEL')
  })

  test('a redirect is not followed: the key would travel with it', async () => {
    await using other = await serve(() => ({ pieces: [sse('[DONE]')] }))
    const failure = await failureTo({ status: 307, headers: { location: `${other.url}/v1` } })
    expect(failure).toMatchObject({ code: 'not_found', retryable: false })
    expect(failure.message).toContain(other.url)
    expect(other.requests).toHaveLength(0)
  })
})

describe('an answer that is no stream', () => {
  test('HTML with 200: protocol, its first 200 characters', async () => {
    const html = `<!doctype html><title>Gateway</title>${'z'.repeat(500)}`
    for (const type of ['text/html; charset=utf-8', 'text/event-stream', 'text/plain']) {
      const failure = await failureTo({ headers: { 'content-type': type }, pieces: [html] })
      expect(failure).toMatchObject({ code: 'protocol', retryable: false })
      expect(failure.message).toContain(html.slice(0, 200))
      expect(failure.message).not.toContain(html.slice(0, 201))
    }
  })

  test('a JSON error with 200 is that error', async () => {
    for (const type of ['application/json', 'text/event-stream']) {
      const failure = await failureTo({
        headers: { 'content-type': type },
        pieces: [JSON.stringify({ error: { message: 'slow', type: 'rate_limit_error' } })],
      })
      expect(failure).toMatchObject({ code: 'rate_limited', retryable: true })
    }
  })

  test('nothing at all: ended early', async () => {
    expect(await failureTo({ pieces: [] })).toMatchObject({ code: 'ended_early', retryable: true })
  })
})

describe('a stream that breaks', () => {
  test.each(fixtures)('$name: cut by the network after text', async ({ api, stream }) => {
    const outcome = await answerTo({ pieces: [stream.slice(0, stream.indexOf('éllo') + 40)], after: 'destroy' }, api)
    expect(outcome).toMatchObject({
      type: 'failed',
      outputShown: true,
      failure: { code: 'ended_early', retryable: true },
    })
  })

  test('silence between bytes is a timeout; the connection is closed', async () => {
    await using server = await serve(() => ({
      pieces: [sse({ choices: [{ delta: { content: 'hi' } }] })],
      after: 'hang',
    }))
    const { outcome, events } = await run(createHttpModel(config({ baseUrl: server.url }), { idleTimeoutMs: 400 }))
    expect(events).toEqual([{ type: 'text', delta: 'hi' }])
    expect(outcome).toMatchObject({ type: 'failed', outputShown: true, failure: { code: 'timeout', retryable: true } })
    await server.closed(0)
  })

  test('a slow reader is not a silent server', async () => {
    const text = (words: string): string => sse({ choices: [{ delta: { content: words } }] })
    await using server = await serve(() => ({
      pieces: [text('a'), text('b'), sse('[DONE]')],
      gapMs: 20,
      after: 'hang',
    }))
    const model = createHttpModel(config({ baseUrl: server.url }), { idleTimeoutMs: 300 })
    const events = model.stream(ask, { signal: new AbortController().signal })
    let step = await events.next()
    while (step.done !== true) {
      await new Promise((resolve) => setTimeout(resolve, 500))
      step = await events.next()
    }
    expect(step.value).toMatchObject({ type: 'answer', message: { content: [{ text: 'ab' }] } })
  })

  test('a long answer is not hurried', async () => {
    // Eight pieces take longer in all than the headers may, and each comes long before silence is too long.
    const words = Array.from({ length: 8 }, (_, index) => sse({ choices: [{ delta: { content: `${index}` } }] }))
    const outcome = await answerTo({ pieces: [...words, sse('[DONE]')], gapMs: 300 }, 'openai-completions', {
      headersTimeoutMs: 2000,
      idleTimeoutMs: 60_000,
    })
    expect(outcome).toMatchObject({ type: 'answer', message: { content: [{ text: '01234567' }] } })
  })

  test('silence after the reason to stop is an answer', async () => {
    const outcome = await answerTo(
      { pieces: [sse({ choices: [{ delta: { content: 'hi' }, finish_reason: 'stop' }] })], after: 'hang' },
      'openai-completions',
      { idleTimeoutMs: 400 },
    )
    expect(outcome).toMatchObject({ type: 'answer', message: { stopReason: 'stop' } })
  })

  test('no headers in time', async () => {
    expect(await answerTo({ mute: true }, 'openai-completions', { headersTimeoutMs: 60 })).toMatchObject({
      type: 'failed',
      outputShown: false,
      failure: { code: 'timeout', retryable: true },
    })
  })

  test('a line that is no JSON: protocol, worth another try', async () => {
    const outcome = await answerTo({
      pieces: [sse({ choices: [{ delta: { content: 'hi' } }] }), 'data: {"choices":[{"del\n\n', sse('[DONE]')],
    })
    expect(outcome).toMatchObject({ type: 'failed', outputShown: true, failure: { code: 'protocol', retryable: true } })
  })

  test('an unreachable port: the full URL', async () => {
    const server = createServer()
    const port = await new Promise<number>((resolve) =>
      server.listen(0, '127.0.0.1', () => resolve((server.address() as { port: number }).port)),
    )
    await new Promise((resolve) => server.close(resolve))
    const { outcome } = await run(createHttpModel(config({ baseUrl: `http://127.0.0.1:${port}/v1?secret=abc` })))
    expect(outcome).toMatchObject({ type: 'failed', outputShown: false, failure: { code: 'network', retryable: true } })
    const text = JSON.stringify(outcome)
    expect(text).toContain(`http://127.0.0.1:${port}/v1/chat/completions`)
    expect(text).toContain('ECONNREFUSED')
    expect(text).not.toContain('secret=abc')
    expect(text).not.toContain(key)
  })

  test('a connection that breaks before an answer is tried again', async () => {
    const breaks: readonly ((socket: Socket) => void)[] = [
      (socket) => socket.destroy(),
      (socket) => socket.resetAndDestroy(),
      (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-ty'),
      (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\ncontent-type: text/event-stream\r\n\r\n'),
      (socket) => socket.end('not HTTP at all\r\n\r\n'),
    ]
    for (const end of breaks) {
      const server = createServer((socket) => {
        socket.on('error', () => undefined)
        socket.once('data', () => end(socket))
      })
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
      const { port } = server.address() as AddressInfo
      const { outcome } = await run(createHttpModel(config({ baseUrl: `http://127.0.0.1:${port}/v1` })))
      expect([String(end), outcome]).toMatchObject([
        String(end),
        { type: 'failed', outputShown: false, failure: { retryable: true } },
      ])
      server.close()
    }
  })

  test('a host that does not exist', async () => {
    const { outcome } = await run(createHttpModel(config({ baseUrl: 'http://nowhere.invalid/v1' })))
    expect(outcome).toMatchObject({ type: 'failed', failure: { code: 'network', retryable: true } })
  })
})

describe('abort', () => {
  test.each(fixtures)('$name: in the middle, keeping what had come', async ({ api, stream }) => {
    const cut = stream.indexOf('ä.txt')
    await using server = await serve(() => ({
      pieces: [stream.slice(0, stream.lastIndexOf('\n\n', cut) + 2)],
      after: 'hang',
    }))
    const controller = new AbortController()
    const events = createHttpModel(config({ api, baseUrl: server.url })).stream(ask, { signal: controller.signal })
    let step = await events.next()
    while (step.done !== true && !(step.value.type === 'toolCall' && step.value.delta !== ''))
      step = await events.next()
    // The generator waits for bytes that never come.
    const last = events.next()
    controller.abort()
    let end = await last
    while (end.done !== true) end = await events.next()
    expect(end.value).toMatchObject({
      type: 'aborted',
      partial: { stopReason: 'aborted', model: 'fixture/test-model' },
    })
    const partial = end.value.type === 'aborted' ? end.value.partial.content : []
    expect(partial).toContainEqual({ type: 'text', text: 'Héllo 🌍' })
    const calls = partial.filter((part) => part.type === 'toolCall')
    expect(calls.length).toBeGreaterThan(0)
    for (const call of calls) if (call.name === 'read') expect(call).toHaveProperty('malformed')
    await server.closed(0)
  })

  test('before the start nothing is sent', async () => {
    await using server = await serve(() => ({}))
    const { outcome } = await run(createHttpModel(config({ baseUrl: server.url })), ask, AbortSignal.abort())
    expect(outcome).toEqual({
      type: 'aborted',
      partial: { role: 'assistant', model: 'fixture/test-model', content: [], stopReason: 'aborted' },
    })
    expect(server.requests).toHaveLength(0)
  })

  test('while waiting for headers, and while an error body is read', async () => {
    for (const reply of [{ mute: true }, { status: 500, pieces: ['oo'], after: 'hang' }] as const) {
      const arrived = Promise.withResolvers<void>()
      await using server = await serve(() => {
        arrived.resolve()
        return reply
      })
      const controller = new AbortController()
      const running = run(createHttpModel(config({ baseUrl: server.url })), ask, controller.signal)
      await arrived.promise
      controller.abort()
      expect((await running).outcome.type).toBe('aborted')
    }
  })

  test('between events of one piece', async () => {
    const controller = new AbortController()
    await using server = await serve(() => ({
      pieces: [
        sse({ choices: [{ delta: { content: 'one' } }] }, { choices: [{ delta: { content: 'two' } }] }, '[DONE]'),
      ],
    }))
    const events = createHttpModel(config({ baseUrl: server.url })).stream(ask, { signal: controller.signal })
    expect((await events.next()).value).toEqual({ type: 'text', delta: 'one' })
    controller.abort()
    const { value } = await events.next()
    expect(value).toMatchObject({ type: 'aborted', partial: { content: [{ type: 'text', text: 'one' }] } })
  })

  test('leaving the generator closes the connection', async () => {
    await using server = await serve(() => ({
      pieces: [sse({ choices: [{ delta: { content: 'one' } }] })],
      after: 'hang',
    }))
    for await (const event of createHttpModel(config({ baseUrl: server.url })).stream(ask, {
      signal: new AbortController().signal,
    })) {
      expect(event).toEqual({ type: 'text', delta: 'one' })
      break
    }
    await server.closed(0)
  })
})
