import { connect, createServer } from 'node:net'
import { once } from 'node:events'
import { text as readAll } from 'node:stream/consumers'
import { describe, expect, onTestFinished, test } from 'vitest'
import { httpChannel } from '../../src/channels/http.ts'
import { after, listening } from './channel-support.ts'

const token = 'a-token-of-some-length'

async function desk(limits: { readonly waiting?: number; readonly characters?: number } = {}) {
  const port = Promise.withResolvers<number>()
  const channel = httpChannel({ port: 0, token, maxBytes: 1000, after, onListening: port.resolve })
  const { store, close, signal } = listening(channel, limits)
  const base = `http://127.0.0.1:${await port.promise}`
  const call = async (path: string, init: RequestInit = {}) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'text/plain', ...init.headers }
    const response = await fetch(base + path, { ...init, headers })
    const body: Record<string, unknown> = JSON.parse(await response.text())
    return { ...body, id: String(body['id']), status: response.status, headers: response.headers }
  }
  const post = (body: NonNullable<RequestInit['body']>, headers: Readonly<Record<string, string>> = {}) =>
    call('/messages', { method: 'POST', body, headers })
  /** Answers the oldest message, as the runner does. */
  const answer = async (text: string): Promise<void> => {
    const next = store.next()
    if (next === undefined) throw new Error('nothing waits')
    store.answer(next.id, { ok: true, text })
    await channel.reply(next, { ok: true, text }, signal)
  }
  return { base, call, post, answer, store, close, port: Number(base.split(':').at(-1)) }
}

describe('the HTTP channel', () => {
  test('takes messages in, and tells what came of them', async () => {
    const { post, call, answer, store } = await desk()
    const first = await post('Hello.')
    expect(first).toMatchObject({ status: 202, id: expect.any(String), state: 'waiting' })
    expect(first.headers.get('content-type')).toContain('application/json')
    expect(store.next()).toMatchObject({ text: 'Hello.', channel: 'http', from: undefined })
    expect(await call(`/messages/${first.id}`)).toMatchObject({ status: 200, state: 'waiting' })
    const waits = call(`/messages/${first.id}?wait=30`)
    await answer('Hi.')
    expect(await waits).toMatchObject({ status: 200, state: 'answered', ok: true, answer: 'Hi.' })
    const json = JSON.stringify({ text: '/quit', from: 'ci' })
    expect(await post(json, { 'content-type': 'application/json; charset=utf-8' })).toMatchObject({ status: 202 })
    expect(store.next()).toMatchObject({ text: '/quit', from: 'ci' })
    expect(await call(`/messages/${store.next()?.id}?wait=0.01`)).toMatchObject({ state: 'waiting' })
  })

  test('takes one message under one key', async () => {
    const { post, answer } = await desk()
    const first = await post('Hello.', { 'idempotency-key': 'k' })
    expect(await post('Hello.', { 'idempotency-key': 'k' })).toMatchObject({
      status: 200,
      id: first.id,
      state: 'waiting',
    })
    expect(await post('Other.', { 'idempotency-key': 'k' })).toMatchObject({
      status: 422,
      error: { code: 'key_reused' },
    })
    await answer('Hi.')
    expect(await post('Hello.', { 'idempotency-key': 'k' })).toMatchObject({
      status: 200,
      id: first.id,
      answer: 'Hi.',
    })
  })

  test('is for who has the token, by its own name, and no page', async () => {
    const { call, post, base, store } = await desk()
    for (const authorization of [
      '',
      'Bearer',
      'Bearer ',
      'Bearer wrong',
      `Bearer ${token}x`,
      `Bearer ${token.slice(1)}`,
      `Basic ${token}`,
      token,
    ]) {
      const refused = await post('x', { authorization })
      expect([authorization, refused.status]).toEqual([authorization, 401])
      expect(refused.headers.get('www-authenticate')).toBe('Bearer')
    }
    expect((await call('/anything', { headers: { authorization: 'x' } })).status).toBe(401)
    expect(await post('x', { origin: base })).toMatchObject({ status: 403 })
    const rebound = await raw(
      base,
      `GET /messages/x HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n\r\n`,
    )
    expect(rebound).toMatch(/^HTTP\/1\.1 403/)
    expect(store.next()).toBeUndefined()
  })

  test('refuses what is no message, and says what one is', async () => {
    const { post, call, base, store } = await desk({ characters: 100 })
    const json = { 'content-type': 'application/json' }
    const answers = [
      await post('   '),
      await post('x'.repeat(101)),
      await post('x'.repeat(1001)),
      await post(new Uint8Array([0xff, 0xfe])),
      await post('{"text":7}', json),
      await post('{"text":"x","run":"y"}', json),
      await post('{', json),
      await post('x', { 'content-type': 'image/png' }),
      await post('x', { 'content-encoding': 'gzip' }),
      await post('x', { 'idempotency-key': 'k'.repeat(300) }),
      await call('/'),
      await call('/messagesx'),
      await call('/messages/none'),
      await call('/messages/none?wait=61'),
      await call('/messages/none?wait=x'),
      await call('/messages'),
      await call('/messages/none', { method: 'DELETE' }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([
      ...[400, 413, 413, 400, 400, 400, 400, 415, 415, 400],
      ...[404, 404, 404, 400, 400, 405, 405],
    ])
    expect(answers.every((answer) => 'error' in answer)).toBe(true)
    // A body that is longer than it was said to be, or has no length.
    const chunk = `${(2000).toString(16)}\r\n${'x'.repeat(2000)}\r\n0\r\n\r\n`
    const head = `POST /messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Type: text/plain\r\n`
    expect(await raw(base, `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}`)).toMatch(/^HTTP\/1\.1 413/)
    expect(store.next()).toBeUndefined()
  })

  test('says when too many wait, and takes none in', async () => {
    const { post, answer } = await desk({ waiting: 2 })
    expect((await post('1')).status + (await post('2')).status).toBe(404)
    const full = await post('3')
    expect([full.status, full.headers.get('retry-after')]).toEqual([429, '30'])
    await answer('x')
    expect((await post('3')).status).toBe(202)
  })

  test('listens on loopback alone, ends with its signal, and says when the port is taken', async () => {
    const { close, call, post, port } = await desk()
    const { id } = await post('x')
    const waiting = call(`/messages/${id}?wait=60`).catch((error: unknown) => error)
    await close()
    expect(await waiting).toMatchObject({ message: 'fetch failed' })
    const taken = createServer().listen(port, '127.0.0.1')
    onTestFinished(() => void taken.close())
    await once(taken, 'listening')
    const { over } = listening(httpChannel({ port, token, after }))
    await expect(over).rejects.toMatchObject({
      code: 'bad_channel',
      message: expect.stringContaining(`127.0.0.1:${port}`),
    })
    expect(() => httpChannel({ port: 0, token: 'short', after })).toThrow('less than 16')
  })
})

/** Sends bytes as they are. */
async function raw(base: string, bytes: string): Promise<string> {
  const socket = connect(Number(base.split(':').at(-1)), '127.0.0.1')
  socket.write(bytes)
  return readAll(socket)
}
