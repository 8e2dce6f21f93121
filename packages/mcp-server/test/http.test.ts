import { request as httpRequest } from 'node:http'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { serveHttp } from '../src/index.ts'
import { connect, serve, type Served } from './support.ts'

let served: Served
const errors: string[] = []
beforeAll(async () => {
  served = await serve({ onError: (message) => errors.push(message) })
})
afterAll(async () => {
  await served[Symbol.asyncDispose]()
})

const list = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
const headers = (token?: string): Record<string, string> => ({
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
})
const post = (
  path = '/mcp',
  extra: Readonly<Record<string, string>> = {},
  body: string = list,
  token: string | undefined = served.token,
) => fetch(new URL(path, served.url), { method: 'POST', headers: { ...headers(token), ...extra }, body })

/** As `fetch`, with a Host header of one's own. */
const withHost = (host: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const request = httpRequest(
      served.url,
      { method: 'POST', headers: { ...headers(served.token), host } },
      (response) => {
        response.resume()
        resolve(response.statusCode ?? 0)
      },
    )
    request.on('error', reject)
    request.end(list)
  })

afterEach(() => {
  if (errors.length > 0) throw new Error(`the server reported: ${errors.join('; ')}`)
})

test('healthz is the one anonymous route and says nothing else', async () => {
  const response = await fetch(new URL('/healthz', served.url))
  expect([response.status, await response.text()]).toEqual([200, '{"ok":true}'])
})

describe('without the right token nothing is told', () => {
  test.each([
    ['none', undefined],
    ['a wrong one', `kc_${'A'.repeat(43)}`],
    ['an empty one', ''],
    ['a very long one', 'x'.repeat(5000)],
  ])('%s', async (_, token) => {
    const response = await fetch(served.url, { method: 'POST', headers: headers(token), body: list })
    expect(response.status).toBe(401)
    expect(response.headers.get('www-authenticate')).toBe('Bearer realm="kc", error="invalid_token"')
    expect(await response.text()).toContain('Authorization: Bearer')
  })

  test('a token in the address counts for nothing', async () => {
    expect((await post(`/mcp?token=${served.token}&access_token=${served.token}`, {}, list, '')).status).toBe(401)
  })

  test('Basic counts for nothing', async () => {
    expect((await post('/mcp', { authorization: `Basic ${btoa(`x:${served.token}`)}` })).status).toBe(401)
  })

  test('a removed seat is out at once, a re-keyed one with its old token', async () => {
    const { token } = served.computer.seats.create('short-lived')
    expect((await post('/mcp', {}, list, token)).status).toBe(200)
    const { token: next } = served.computer.seats.rekey('short-lived')
    expect((await post('/mcp', {}, list, token)).status).toBe(401)
    served.computer.seats.remove('short-lived')
    expect((await post('/mcp', {}, list, next)).status).toBe(401)
  })
})

describe('shape', () => {
  test('GET, PUT and DELETE are 405 before any token is looked at', async () => {
    for (const method of ['GET', 'PUT', 'DELETE']) {
      const response = await fetch(served.url, { method })
      expect([method, response.status, response.headers.get('allow')]).toEqual([method, 405, 'POST'])
    }
  })

  test('a stale session id is ignored, /mcp/ is /mcp, one media type is enough', async () => {
    expect((await post('/mcp', { 'mcp-session-id': 'stale' })).status).toBe(200)
    expect((await post('/mcp/')).status).toBe(200)
    expect((await post('/mcp', { accept: 'application/json' })).status).toBe(200)
  })

  test('nothing invites to log in otherwise', async () => {
    for (const path of [
      '/.well-known/oauth-authorization-server',
      '/.well-known/oauth-protected-resource',
      '/register',
      '/',
    ]) {
      const response = await fetch(new URL(path, served.url))
      expect([path, response.status, response.headers.get('content-type')]).toEqual([path, 404, 'application/json'])
    }
  })

  test('another Host or Origin is refused before the token', async () => {
    expect(await withHost('evil.example')).toBe(403)
    expect(await withHost('localhost:1234')).toBe(200)
    expect((await post('/mcp', { origin: 'https://evil.example' })).status).toBe(403)
  })

  test('a body of 5 MB is 413, a broken one a protocol error, and the server goes on', async () => {
    expect(
      (
        await post(
          '/mcp',
          {},
          JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: { x: 'x'.repeat(5 << 20) } }),
        )
      ).status,
    ).toBe(413)
    expect((await post('/mcp', {}, '{"jsonrpc": broken')).status).toBe(400)
    expect((await post('/mcp', {}, '['.repeat(100_000))).status).toBe(400)
    expect((await post()).status).toBe(200)
  })

  test('both eras of the protocol are answered', async () => {
    await using caller = await connect(served.url, served.token)
    expect((await caller.client.listTools()).tools.map(({ name }) => name)).toEqual([
      'seat',
      'fs',
      'ref',
      'branch',
      'exec',
      'git',
      'snapshot',
      'computer',
    ])
    const version = '2026-07-28'
    const response = await post(
      '/mcp',
      { 'mcp-protocol-version': version, 'mcp-method': 'tools/call', 'mcp-name': 'fs' },
      JSON.stringify({
        jsonrpc: '2.0',
        id: 7,
        method: 'tools/call',
        params: {
          name: 'fs',
          arguments: { action: 'empty' },
          _meta: {
            'io.modelcontextprotocol/protocolVersion': version,
            'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
            'io.modelcontextprotocol/clientCapabilities': {},
          },
        },
      }),
    )
    expect([response.status, await response.text()]).toEqual([200, expect.stringMatching(/tree [0-9a-f]{64}/)])
  })
})

test('a port that is in use is said, with what to do', async () => {
  const port = served.server.port
  await expect(serveHttp(served.computer, { host: '127.0.0.1', port, version: '0' })).rejects.toMatchObject({
    code: 'address_in_use',
    message: expect.stringMatching(new RegExp(`127\\.0\\.0\\.1:${port} is in use.*--port`)),
  })
})

describe('shutdown', () => {
  test('lets a call in flight end, and refuses new ones meanwhile', async () => {
    const own = await serve()
    await using caller = await connect(own.url, own.token)
    const { text } = await caller.call('fs', 'empty')
    const tree = text.slice(5)
    const running = caller.call('exec', 'run', { tree, argv: ['sh', '-c', 'sleep 1; echo done'] })
    while (own.computer.events.newest(10).length < 1) await new Promise((done) => setTimeout(done, 20))
    await new Promise((done) => setTimeout(done, 300))
    const closing = own.server.close({ drainMs: 30_000 })
    expect((await running).text).toContain('done')
    await closing
    await own.computer.close()
  })

  test('cancels what takes longer, leaving no process behind', async () => {
    const own = await serve()
    await using caller = await connect(own.url, own.token)
    const tree = (await caller.call('fs', 'empty')).text.slice(5)
    const running = caller.call('exec', 'run', { tree, argv: ['sh', '-c', 'sleep 600'] }).catch(() => 'cut off')
    await new Promise((done) => setTimeout(done, 500))
    await own.server.close({ drainMs: 100 })
    await own.computer.close()
    expect(await running).toBe('cut off')
  })
})
