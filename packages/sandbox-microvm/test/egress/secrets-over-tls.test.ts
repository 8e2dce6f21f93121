import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  Agent,
  createServer as createPlainServer,
  get as getPlain,
  type IncomingMessage,
  type RequestListener,
} from 'node:http'
import { createServer, request, type RequestOptions } from 'node:https'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { createAuthority } from '../../src/egress/authority.ts'
import type { GatewayParts } from '../../src/egress/gateway.ts'
import type { SecretRule } from '../../src/egress/secrets.ts'
import { bench, closeAll, dialGuest, drain, listen, onClose, testAuthority, until, type Bench } from './support.ts'

afterEach(closeAll)

const REAL = 'real-value-0123456789'
const secret = (rule: Partial<SecretRule> = {}): SecretRule => ({
  name: 'HOST_TOKEN',
  placeholder: 'reve-token',
  value: () => REAL,
  hosts: ['api.test'],
  ...rule,
})

type Api = Bench & {
  /** Where the guest finds api.test at 443. */
  readonly port: number
  /** What the server got. */
  readonly seen: IncomingMessage[]
}

async function api(
  handler: RequestListener,
  rule: Partial<SecretRule> = {},
  parts: Partial<GatewayParts> = {},
  identity = testAuthority.issue('api.test'),
): Promise<Api> {
  const seen: IncomingMessage[] = []
  const server = createServer({ cert: identity.certificate, key: identity.key }, (incoming, response) => {
    seen.push(incoming)
    handler(incoming, response)
  })
  const made = bench(['api.test', 'other.test'], await listen(server), { secrets: [secret(rule)], ...parts })
  return { ...made, port: await made.guest('api.test', 443), seen }
}

type Answer = {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  readonly trailers: IncomingMessage['trailers']
  readonly body: string
}

/** A request of a guest's program that trusts the gateway's authority. */
async function send(to: Api, options: RequestOptions, body?: string | readonly string[]): Promise<Answer> {
  const { headers, ...rest } = options
  const outgoing = request({
    host: '127.0.0.1',
    port: to.port,
    servername: 'api.test',
    ca: to.gateway.certificate,
    headers: { host: 'api.test', ...headers },
    ...rest,
  })
  if (Array.isArray(body)) for (const part of body) outgoing.write(part)
  outgoing.end(typeof body === 'string' ? body : undefined)
  const [response]: [IncomingMessage] = (await once(outgoing, 'response')) as [IncomingMessage]
  const chunks: Buffer[] = []
  response.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(response, 'end')
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    trailers: response.trailers,
    body: Buffer.concat(chunks).toString(),
  }
}

/** The body of a request, whole. */
const bodyOf = async (incoming: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = []
  for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

const ok: RequestListener = (_incoming, response) => response.end('fine')

describe('a secret', () => {
  test('is put into header values of its host, and never comes back', async () => {
    const to = await api((incoming, response) => {
      response.setHeader('X-Echo', incoming.headers.authorization ?? '')
      response.setHeader('Content-Type', 'application/json')
      response.end(JSON.stringify(incoming.headers))
    })
    const answer = await send(to, {
      headers: { authorization: 'Bearer reve-token', 'x-key': 'reve-token', 'x-other': 'reve' },
    })
    expect(to.seen[0]?.headers).toMatchObject({ authorization: `Bearer ${REAL}`, 'x-key': REAL, 'x-other': 'reve' })
    expect(answer.headers['x-echo']).toBe('Bearer reve-token')
    expect(JSON.parse(answer.body)).toMatchObject({ authorization: 'Bearer reve-token', 'x-key': 'reve-token' })
    expect(to.of('secret_used')).toEqual([{ type: 'secret_used', name: 'HOST_TOKEN', host: 'api.test' }])
    expect(JSON.stringify(to.events)).not.toContain(REAL)
  })

  test('is put into Basic credentials, and those do not come back either', async () => {
    const to = await api((incoming, response) => {
      response.setHeader('Content-Type', 'text/plain')
      response.end(incoming.headers.authorization)
    })
    const basic = (password: string) => `Basic ${Buffer.from(`x-access-token:${password}`).toString('base64')}`
    const answer = await send(to, { headers: { authorization: basic('reve-token') } })
    expect(to.seen[0]?.headers.authorization).toBe(basic(REAL))
    expect(answer.body).toBe(basic('reve-token'))
    await send(to, { headers: { authorization: basic('something else') } })
    expect(to.seen[1]?.headers.authorization).toBe(basic('something else'))
  })

  test('is read at each use', async () => {
    let value: string | undefined = 'first-value'
    const to = await api(ok, { value: () => value })
    await send(to, { headers: { authorization: 'reve-token' } })
    value = 'second-value'
    await send(to, { headers: { authorization: 'reve-token' } })
    expect(to.seen.map(({ headers }) => headers.authorization)).toEqual(['first-value', 'second-value'])
  })

  test('that is not set fails the request with its name; a request without it passes', async () => {
    const to = await api(ok, { value: () => undefined })
    const answer = await send(to, { headers: { authorization: 'token reve-token' } })
    expect(answer.status).toBe(502)
    expect(answer.body).toMatch(/HOST_TOKEN is not set/)
    expect(to.of('secret_missing')).toEqual([{ type: 'secret_missing', name: 'HOST_TOKEN', host: 'api.test' }])
    expect(to.dialled).toEqual([])
    expect((await send(to, {})).body).toBe('fine')
  })

  test('with a line break never begins a header of its own', async () => {
    const to = await api(ok, { value: () => 'abcdefgh\r\nX-Evil: 1' })
    const answer = await send(to, { headers: { authorization: 'reve-token' } })
    expect(answer.status).toBe(502)
    expect(answer.body).not.toContain('abcdefgh')
    expect(to.of('secret_unusable')).toHaveLength(1)
  })

  test('is put in on any port, also when the client is slow to speak', async () => {
    const { certificate, key } = testAuthority.issue('api.test')
    const server = createServer({ cert: certificate, key }, (incoming, response) =>
      response.end(incoming.headers.authorization === REAL ? 'real' : 'no'),
    )
    const { guest, gateway, dialled } = bench(['api.test:8443'], await listen(server), {
      secrets: [secret()],
      limits: { serverFirstMs: 10 },
    })
    const raw = await dialGuest(await guest('api.test', 8443))
    await until(() => dialled.length === 1)
    const socket = connectTls({ socket: raw, servername: 'api.test', ca: gateway.certificate })
    socket.write('GET / HTTP/1.1\r\nHost: api.test:8443\r\nAuthorization: reve-token\r\nConnection: close\r\n\r\n')
    expect((await drain(socket)).toString()).toMatch(/real$/)
  })

  test('of another host stays a placeholder, with an event', async () => {
    const to = await api(
      ok,
      {},
      {
        secrets: [
          secret(),
          secret({
            name: 'OTHER',
            placeholder: 'reve-token-other',
            value: () => 'other-real-value',
            hosts: ['other.test'],
          }),
        ],
      },
    )
    await send(to, { headers: { authorization: 'reve-token', 'x-other': 'reve-token-other' } })
    expect(to.seen[0]?.headers).toMatchObject({ authorization: REAL, 'x-other': 'reve-token-other' })
    expect(to.of('secret_withheld')).toEqual([
      { type: 'secret_withheld', name: 'OTHER', host: 'api.test', reason: 'other_host' },
    ])
  })

  test('does not go out over plain HTTP', async () => {
    const server = createPlainServer((incoming, response) => response.end(incoming.headers.authorization))
    const { guest, of } = bench(['api.test'], await listen(server), { secrets: [secret()] })
    const port = await guest('api.test', 80)
    const [response] = (await once(
      getPlain({ host: '127.0.0.1', port, headers: { host: 'api.test', authorization: 'reve-token' } }),
      'response',
    )) as [IncomingMessage]
    expect(await bodyOf(response)).toBe('reve-token')
    expect(of('secret_withheld')).toEqual([
      { type: 'secret_withheld', name: 'HOST_TOKEN', host: 'api.test', reason: 'plain_http' },
    ])
  })

  test('goes into the target and the body only where that was asked for', async () => {
    const echo: RequestListener = (incoming, response) => {
      bodyOf(incoming).then(
        (body) => response.end(`${incoming.url} ${body.replaceAll(REAL, 'REAL')}`),
        () => response.destroy(),
      )
    }
    const closed = await api(echo)
    await send(closed, { method: 'POST', path: '/a?key=reve-token' }, 'token=reve-token')
    expect(closed.seen[0]?.url).toBe('/a?key=reve-token')

    const open = await api(echo, { inBody: true, inQuery: true, value: () => 'a b/c"d-real' })
    const form = { 'content-type': 'application/x-www-form-urlencoded' }
    const cases = [
      await send(
        open,
        { method: 'POST', path: '/a?key=reve-token', headers: { ...form, 'content-length': 16 } },
        'token=reve-token',
      ),
    ]
    expect(open.seen[0]?.url).toBe('/a?key=a%20b%2Fc%22d-real')
    expect(open.seen[0]?.headers['content-length']).toBe(String('token=a%20b%2Fc%22d-real'.length))
    expect(cases[0]?.body).toContain('token=a%20b%2Fc%22d-real')
    await send(open, { method: 'POST', headers: { 'content-type': 'application/json' } }, ['{"t":"reve-', 'token"}'])
    expect(open.seen[1]?.headers['transfer-encoding']).toBe('chunked')
    const raw = await send(open, { method: 'PUT', headers: { 'content-type': 'application/json' } }, [
      '{"t":"reve-',
      'tok',
      'en"}',
    ])
    expect(raw.body).toContain(String.raw`{"t":"a b/c\"d-real"}`)
  })
})

describe('HTTP to a host with secrets', () => {
  test('is verified for real: an unknown authority is refused, with a clear answer', async () => {
    const stranger = createAuthority({ name: 'stranger', now: Date.now, randomBytes })
    const to = await api(ok, {}, {}, stranger.issue('api.test'))
    const answer = await send(to, { headers: { authorization: 'reve-token' } })
    expect(answer.status).toBe(502)
    expect(answer.body).toMatch(/TLS with api\.test:443 failed \([A-Z_]+\)/)
    expect(to.seen).toEqual([])
    expect(to.of('tls_failed')).toMatchObject([{ side: 'server', host: 'api.test' }])
  })

  test('and so is a certificate of another name, and one that has ended', async () => {
    const wrong = await api(ok, {}, {}, testAuthority.issue('evil.test'))
    expect((await send(wrong, {})).body).toContain('ERR_TLS_CERT_ALTNAME_INVALID')
    const past = createAuthority({ name: 'past', now: () => Date.now() - 200 * 86_400_000, randomBytes })
    const old = await api(ok, {}, { ca: [past.certificate] }, past.issue('api.test'))
    expect((await send(old, {})).body).toContain('CERT_HAS_EXPIRED')
    expect(wrong.seen.length + old.seen.length).toBe(0)
  })

  test('is not weakened by the environment', async () => {
    const before = process.env['NODE_TLS_REJECT_UNAUTHORIZED']
    process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0'
    onClose(() => {
      if (before === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED']
      else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before
    })
    const stranger = createAuthority({ name: 'stranger', now: Date.now, randomBytes })
    const to = await api(ok, {}, {}, stranger.issue('api.test'))
    expect((await send(to, {})).status).toBe(502)
  })

  test('offers HTTP/1.1 only, whatever the client would take', async () => {
    const to = await api(ok)
    const socket = connectTls({
      host: '127.0.0.1',
      port: to.port,
      servername: 'api.test',
      ca: to.gateway.certificate,
      ALPNProtocols: ['h2', 'http/1.1'],
    })
    await once(socket, 'secureConnect')
    expect(socket.alpnProtocol).toBe('http/1.1')
    expect(socket.authorized).toBe(true)
    socket.destroy()
    const h2 = connectTls({
      host: '127.0.0.1',
      port: to.port,
      servername: 'api.test',
      ca: to.gateway.certificate,
      ALPNProtocols: ['h2'],
    })
    await expect(once(h2, 'secureConnect')).rejects.toThrow(/no application protocol/)
    await until(() => to.of('tls_failed').some(({ code }) => code?.includes('APPLICATION_PROTOCOL') === true))
  })

  test('says so when the guest does not trust the authority', async () => {
    const to = await api(ok)
    const socket = connectTls({ host: '127.0.0.1', port: to.port, servername: 'api.test' })
    await expect(once(socket, 'secureConnect')).rejects.toThrow(/self.signed|unable to verify/i)
    await until(() => to.of('tls_failed').some(({ side }) => side === 'guest'))
  })

  test('keeps one connection for many requests, in order, pipelined too', async () => {
    const to = await api((incoming, response) => response.end(`answer to ${incoming.url}`))
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    onClose(() => agent.destroy())
    const socket = await tls(to)
    socket.write(
      ['/1', '/2', '/3'].map((path) => `GET ${path} HTTP/1.1\r\nHost: api.test\r\nX: reve-token\r\n\r\n`).join(''),
    )
    let text = ''
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()))
    await until(() => text.includes('answer to /3'))
    expect(text.match(/answer to \/./g)).toEqual(['answer to /1', 'answer to /2', 'answer to /3'])
    expect(to.dialled).toHaveLength(1)
    expect(to.seen.map(({ headers }) => headers['x'])).toEqual([REAL, REAL, REAL])
  })

  test('with a request for another host on the same connection is 421, with an event', async () => {
    const to = await api(ok)
    expect((await send(to, { headers: { host: 'evil.test' } })).status).toBe(421)
    expect((await send(to, { headers: { host: 'api.test:8443' } })).status).toBe(421)
    expect((await send(to, { path: 'https://evil.test/' })).status).toBe(421)
    expect((await send(to, { headers: { host: 'API.test:443' } })).status).toBe(200)
    expect((await send(to, { path: 'https://api.test/x' })).status).toBe(200)
    expect(to.seen.map(({ url }) => url)).toEqual(['/', '/x'])
    expect(to.of('denied').map(({ reason, asked }) => [reason, asked])).toEqual([
      ['host_header', 'evil.test'],
      ['host_header', 'api.test:8443'],
    ])
  })

  test('refuses CONNECT and what cannot be read', async () => {
    const to = await api(ok)
    for (const [text, status] of [
      ['CONNECT evil.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n', '405'],
      ['GET / HTTP/1.1\r\n\r\n', '400'],
      ['GET / HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n', '400'],
      ['POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', '400'],
      ['GET / HTTP/1.1\r\nHost : api.test\r\n\r\n', '400'],
      ['nonsense\r\n\r\n', '400'],
    ]) {
      const socket = await tls(to)
      socket.write(text ?? '')
      expect((await drain(socket)).toString()).toMatch(new RegExp(`^HTTP/1\\.1 ${status}`))
    }
    expect(to.seen).toEqual([])
  })

  test('passes HEAD, 204, 304, trailers, several cookies and the words of a status', async () => {
    const to = await api((incoming, response) => {
      if (incoming.url === '/204') return response.writeHead(204, 'Nothing Here').end()
      if (incoming.url === '/304') return response.writeHead(304, { etag: '"a"' }).end()
      if (incoming.method === 'HEAD') return response.writeHead(200, { 'content-length': 1234 }).end()
      response.writeHead(200, ['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Trailer', 'X-Sum'])
      response.write('part')
      response.addTrailers({ 'X-Sum': 'abc' })
      return response.end()
    })
    expect(await send(to, { path: '/204' })).toMatchObject({ status: 204, body: '' })
    expect(await send(to, { path: '/304' })).toMatchObject({ status: 304, headers: { etag: '"a"' } })
    expect(await send(to, { method: 'HEAD' })).toMatchObject({
      status: 200,
      headers: { 'content-length': '1234' },
      body: '',
    })
    expect(await send(to, {})).toMatchObject({
      body: 'part',
      headers: { 'set-cookie': ['a=1', 'b=2'] },
      trailers: { 'x-sum': 'abc' },
    })
  })

  test('asks the host before a body is sent, when the client does', async () => {
    const to = await api((incoming, response) => {
      bodyOf(incoming).then(
        (body) => response.end(`got ${body}`),
        () => response.destroy(),
      )
    })
    const outgoing = request({
      host: '127.0.0.1',
      port: to.port,
      servername: 'api.test',
      ca: to.gateway.certificate,
      method: 'PUT',
      headers: { host: 'api.test', expect: '100-continue', 'content-length': 4, authorization: 'reve-token' },
    })
    outgoing.flushHeaders()
    await once(outgoing, 'continue')
    outgoing.end('body')
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    expect(await bodyOf(response)).toBe('got body')
    expect(to.seen[0]?.headers).toMatchObject({ expect: '100-continue', authorization: REAL })
  })

  test('streams both ways without holding it', async () => {
    const SIZE = 24 << 20
    const to = await api((incoming, response) => {
      let got = 0
      incoming.on('data', (chunk: Buffer) => (got += chunk.length))
      incoming.on('end', () => {
        response.writeHead(200, { 'content-length': SIZE, 'x-got': got })
        const block = Buffer.alloc(1 << 20, 'x')
        let left = SIZE
        const more = (): void => {
          while (left > 0) {
            left -= block.length
            if (!response.write(block)) return void response.once('drain', more)
          }
          response.end()
        }
        more()
      })
    })
    const outgoing = request({
      host: '127.0.0.1',
      port: to.port,
      servername: 'api.test',
      ca: to.gateway.certificate,
      method: 'POST',
      headers: { host: 'api.test', 'content-length': SIZE },
    })
    const block = Buffer.alloc(1 << 20, 'y')
    for (let sent = 0; sent < SIZE; sent += block.length) if (!outgoing.write(block)) await once(outgoing, 'drain')
    outgoing.end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    expect(response.headers['x-got']).toBe(String(SIZE))
    expect((await bodyOf(response)).length).toBe(SIZE)
  })

  test('of a server that stalls holds back the client', async () => {
    let produced = 0
    const to = await api((_incoming, response) => {
      const more = (): void => {
        while (produced < 256 << 20) {
          produced += 65_536
          if (!response.write(Buffer.alloc(65_536))) return void response.once('drain', more)
        }
        response.end()
      }
      more()
    })
    const outgoing = request({
      host: '127.0.0.1',
      port: to.port,
      servername: 'api.test',
      ca: to.gateway.certificate,
      headers: { host: 'api.test' },
    })
    outgoing.end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    response.pause()
    // It stands still when what was produced does not grow any more.
    let before = -1
    while (produced !== before) {
      before = produced
      await new Promise((resolve) => setTimeout(resolve, 200))
    }
    expect(produced).toBeLessThan(64 << 20)
    response.destroy()
  })

  test('passes a break on in both directions', async () => {
    let aborted = false
    const to = await api((incoming, response) => {
      if (incoming.url === '/cut') {
        response.writeHead(200, { 'content-length': 100 })
        response.write('half')
        setTimeout(() => incoming.socket.destroy(), 50)
        return
      }
      incoming.on('close', () => (aborted = true))
      response.write('first')
    })
    await expect(send(to, { path: '/cut' })).rejects.toThrow(/aborted|hang up|reset/i)
    const outgoing = request({
      host: '127.0.0.1',
      port: to.port,
      servername: 'api.test',
      ca: to.gateway.certificate,
      headers: { host: 'api.test' },
    })
    outgoing.end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    await once(response, 'data')
    response.destroy()
    await until(() => aborted)
  })

  test('passes a WebSocket after its handshake, which has the secret', async () => {
    const server = createServer({
      cert: testAuthority.issue('api.test').certificate,
      key: testAuthority.issue('api.test').key,
    })
    let authorization: string | undefined
    server.on('upgrade', (incoming, socket) => {
      authorization = incoming.headers.authorization
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Echo: ${authorization}\r\n\r\n`,
      )
      socket.pipe(socket)
    })
    const made = bench(['api.test'], await listen(server), { secrets: [secret()] })
    const to = { ...made, port: await made.guest('api.test', 443), seen: [] }
    const socket = await tls(to)
    socket.write(
      'GET /ws HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: reve-token\r\n\r\nearly',
    )
    let text = ''
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()))
    await until(() => text.includes('early'))
    expect(text).toContain('X-Echo: reve-token')
    socket.write('\u0081\u0005reve-token')
    await until(() => text.includes('reve-token', text.indexOf('early')))
    expect(authorization).toBe(REAL)
    const ended = once(socket, 'end')
    socket.end()
    await ended
    await until(() => made.of('closed').length === 1)
  })

  test('of an upgrade that is declined gets the ordinary answer', async () => {
    const to = await api((_incoming, response) => response.writeHead(403).end('no sockets'))
    const socket = await tls(to)
    socket.write('GET /ws HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
    expect((await drain(socket)).toString()).toMatch(/^HTTP\/1\.1 403[^]*no sockets/)
  })

  test('takes an offer of another protocol for an ordinary request', async () => {
    const to = await api((incoming, response) => {
      bodyOf(incoming).then(
        (body) => response.end(`${incoming.headers.upgrade ?? 'none'} ${body}`),
        () => response.destroy(),
      )
    })
    const socket = await tls(to)
    socket.write(
      'POST / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\nContent-Length: 4\r\n\r\nbody',
    )
    // Node before 24.9 cannot: there it is refused.
    expect((await drain(socket)).toString()).toMatch(/^HTTP\/1\.1 (?:200[^]*none body|501)/)
  })

  test('serves HTTP/1.0, and says when the host ends the connection', async () => {
    const to = await api((incoming, response) => {
      if (incoming.url === '/close') response.shouldKeepAlive = false
      response.write('one ')
      response.end('two')
    })
    const old = await tls(to)
    old.write('GET / HTTP/1.0\r\n\r\n')
    expect((await drain(old)).toString()).toMatch(/^HTTP\/1\.1 200[^]*\r\n\r\none two$/)
    expect(to.seen[0]?.headers.host).toBe('api.test')
    const socket = await tls(to)
    socket.write('GET /close HTTP/1.1\r\nHost: api.test\r\n\r\n')
    expect((await drain(socket)).toString()).toMatch(/^HTTP\/1\.1 200[^]*Connection: close/i)
  })

  test('ends an idle connection when the host does', async () => {
    const to = await api((_incoming, response) => {
      response.end('fine')
      response.on('finish', () => setTimeout(() => response.req.socket.destroy(), 20))
    })
    const socket = await tls(to)
    socket.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n')
    expect((await drain(socket)).toString()).toMatch(/fine$/)
  })

  test('keeps the length of a short text, cuts a long one in chunks, and leaves what is no text alone', async () => {
    const long = `${'x'.repeat(300_000)}${REAL}${'y'.repeat(300_000)}`
    const to = await api((incoming, response) => {
      const type = incoming.url === '/binary' ? 'application/octet-stream' : 'text/plain; charset=utf-8'
      const body = incoming.url === '/long' ? long : `it is ${REAL}!`
      response.writeHead(200, { 'content-type': type, 'content-length': body.length })
      response.end(body)
    })
    expect(await send(to, { path: '/short' })).toMatchObject({
      body: 'it is reve-token!',
      headers: { 'content-length': '17' },
    })
    const answer = await send(to, { path: '/long' })
    expect(answer.body).toBe(long.replace(REAL, 'reve-token'))
    expect(answer.headers['content-length']).toBeUndefined()
    expect(await send(to, { path: '/binary' })).toMatchObject({
      body: `it is ${REAL}!`,
      headers: { 'content-length': '28' },
    })
  })

  test('ends a connection with too many requests under way', async () => {
    const to = await api(() => undefined)
    const socket = await tls(to)
    socket.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n'.repeat(2000))
    await drain(socket)
    expect(to.of('denied')).toMatchObject([{ reason: 'limit', protocol: 'http' }])
    expect(to.seen.length).toBeLessThanOrEqual(1)
  })
})

/** TLS as a program of the guest has it. */
async function tls(to: Api): Promise<TLSSocket> {
  const socket = connectTls({ host: '127.0.0.1', port: to.port, servername: 'api.test', ca: to.gateway.certificate })
  socket.on('error', () => socket.destroy())
  await once(socket, 'secureConnect')
  onClose(() => socket.destroy())
  return socket
}
