import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { serveHttp } from '../src/index.ts'
import { connect, gone, lingering, processIn, serve, temporary, until, type Served } from './support.ts'

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

  test('a target that is no address is no fault of the server', async () => {
    for (const path of ['//', '//[', 'http://', '*']) {
      const request = httpRequest(served.url, { path })
      request.end()
      const [response] = (await once(request, 'response')) as [IncomingMessage]
      response.resume()
      expect([path, response.statusCode]).toEqual([path, 404])
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

/** A call of either era, on a connection of its own that the caller may drop. */
function rawCall(url: string, token: string, era: 'legacy' | 'modern', args: Readonly<Record<string, unknown>>) {
  const version = '2026-07-28'
  const envelope = {
    'io.modelcontextprotocol/protocolVersion': version,
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  const modern = era === 'modern'
  const request = httpRequest(url, {
    method: 'POST',
    agent: false,
    headers: {
      ...headers(token),
      ...(modern ? { 'mcp-protocol-version': version, 'mcp-method': 'tools/call', 'mcp-name': 'exec' } : {}),
    },
  })
  request.on('error', () => undefined)
  request.end(
    JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'exec', arguments: args, ...(modern ? { _meta: envelope } : {}) },
    }),
  )
  return request
}

describe('a client whose connection is gone', () => {
  test('has cancelled its call in the newer era, and after a grace time in the older', async () => {
    await using own = await serve({ graceMs: 50 })
    for (const era of ['modern', 'legacy'] as const) {
      const file = join(await temporary(), 'pid')
      const argv = lingering(file)
      const request = rawCall(own.url, own.token, era, { action: 'run', tree: own.computer.store.emptyTree, argv })
      const pid = await processIn(file)
      request.destroy()
      expect([era, await gone(pid)]).toEqual([era, true])
    }
  })

  test('has its call finished within the grace time of the older era', async () => {
    await using own = await serve({ graceMs: 600_000 })
    const folder = await temporary()
    // The process ends when it is told to, after its caller has gone.
    const argv = ['sh', '-c', `echo $$ >${folder}/pid; until [ -e ${folder}/end ]; do sleep 0.05; done`]
    const request = rawCall(own.url, own.token, 'legacy', { action: 'run', tree: own.computer.store.emptyTree, argv })
    await processIn(join(folder, 'pid'))
    const left = new Promise((resolve) => request.once('close', resolve))
    request.destroy()
    await left
    await writeFile(join(folder, 'end'), '')
    expect(await until(() => own.computer.events.newest(1)[0])).toMatchObject({ tool: 'exec.run', ok: true })
  })
})

describe('shutdown', () => {
  test('lets a call in flight end, and meanwhile answers new ones and /healthz with 503', async () => {
    const own = await serve()
    await using caller = await connect(own.url, own.token)
    const folder = await temporary()
    const argv = ['sh', '-c', `echo $$ >${folder}/pid; until [ -e ${folder}/end ]; do sleep 0.05; done; echo done`]
    const running = caller.call('exec', 'run', { tree: own.computer.store.emptyTree, argv })
    await processIn(join(folder, 'pid'))
    const closing = own.server.close({ drainMs: 600_000 })
    const late = await fetch(own.url, { method: 'POST', headers: headers(own.token), body: list })
    expect([late.status, late.headers.get('retry-after')]).toEqual([503, '5'])
    const health = await fetch(new URL('/healthz', own.url))
    expect([health.status, await health.text()]).toEqual([503, '{"ok":false}'])
    await writeFile(join(folder, 'end'), '')
    expect((await running).text).toContain('done')
    await closing
    await own.computer.close()
  })

  test('gives a slow reader its whole answer', async () => {
    const own = await serve()
    let tree = own.computer.store.emptyTree
    tree = own.computer.store.fs.write(tree, 'long', 'x'.repeat(99).concat('\n').repeat(500)).tree
    const calls = Array.from({ length: 100 }, (_, id) => ({
      jsonrpc: '2.0',
      id,
      method: 'tools/call',
      params: { name: 'fs', arguments: { action: 'read', tree, path: 'long' } },
    }))
    const request = httpRequest(own.url, { method: 'POST', headers: headers(own.token) })
    request.end(JSON.stringify(calls))
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    // All is written on the server's side, and more than a socket holds waits there.
    await until(() => (own.computer.events.newest(200).length === calls.length ? true : undefined))
    const closing = own.server.close({ drainMs: 600_000 })
    let text = ''
    for await (const chunk of response) text += String(chunk)
    expect(text.match(/"isError":false/g)).toHaveLength(calls.length)
    await closing
    await own.computer.close()
  })

  test('cancels what takes longer, leaving its event and no process behind', async () => {
    const own = await serve()
    await using caller = await connect(own.url, own.token)
    const file = join(await temporary(), 'pid')
    const running = caller
      .call('exec', 'run', { tree: own.computer.store.emptyTree, argv: lingering(file) })
      .catch(() => 'cut off')
    const pid = await processIn(file)
    await own.server.close({ drainMs: 0 })
    await own.computer.close()
    expect(await running).toBe('cut off')
    expect(await gone(pid)).toBe(true)
    await using again = await serve({ root: own.computer.root })
    expect(again.computer.events.newest(1)).toMatchObject([{ tool: 'exec.run', seat: 'tester' }])
  })
})
