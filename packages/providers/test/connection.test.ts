import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer as createHttp, type Server } from 'node:http'
import { createServer as createHttps } from 'node:https'
import { connect, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { createHttpModel, loadModels, type Proxies, proxiesOf } from '../src/index.ts'
import { proxyFor } from '../src/proxy.ts'
import { fixtures } from './fixtures.ts'
import { config, run } from './play.ts'

const [fixture] = fixtures
if (fixture === undefined) throw new Error('there are no fixtures')

const folder = mkdtempSync(join(tmpdir(), 'providers-'))
afterAll(() => rmSync(folder, { recursive: true }))

const openssl = (...args: readonly string[]): boolean => spawnSync('openssl', args, { cwd: folder }).status === 0
const hasCertificate = openssl(
  ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
  ...[
    '-keyout',
    'key.pem',
    '-out',
    'ca.pem',
    '-subj',
    '/CN=api.test',
    '-addext',
    'subjectAltName=DNS:api.test,IP:127.0.0.1',
  ],
)
if (!hasCertificate) console.warn('no openssl here: servers with a certificate of their own are not tested')
const pem = (name: string): string => readFileSync(join(folder, name), 'utf8')

const listening = (server: Server): Promise<number> =>
  new Promise((done) => server.listen(0, '127.0.0.1', () => done((server.address() as AddressInfo).port)))

/** A server of the fixture, with TLS or without; the headers that it saw. */
async function api(tls: boolean) {
  const seen: Record<string, string | string[] | undefined>[] = []
  const answer: Parameters<typeof createHttp>[1] = (request, response) => {
    seen.push(request.headers)
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(fixture?.stream)
    })
  }
  const server = tls ? createHttps({ key: pem('key.pem'), cert: pem('ca.pem') }, answer) : createHttp(answer)
  return { port: await listening(server), seen, [Symbol.asyncDispose]: () => closed(server) }
}

const closed = (server: Server): Promise<void> =>
  new Promise((done) => {
    server.close(() => done())
    server.closeAllConnections()
  })

/** A proxy that leads every host to this machine and wants to know who asks. */
async function proxy(credentials?: string) {
  const asked: string[] = []
  const server = createHttp((_, response) => response.writeHead(405).end())
  server.on('connect', (request, socket) => {
    const given = request.headers['proxy-authorization']
    if (credentials !== undefined && given !== `Basic ${Buffer.from(credentials).toString('base64')}`) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
      return
    }
    asked.push(request.url ?? '')
    const upstream = connect(Number(request.url?.split(':').at(-1)), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection Established\r\n\r\n')
      socket.pipe(upstream).pipe(socket)
    })
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const)
      one.on('error', () => other.destroy())
  })
  return { url: `http://127.0.0.1:${await listening(server)}`, asked, [Symbol.asyncDispose]: () => closed(server) }
}

describe('a proxy', () => {
  test.each<[url: string, except: string, goesThrough: boolean]>([
    ['https://api.test/v1', '', true],
    ['http://api.test/v1', '', false],
    ['https://api.test', '*', false],
    ['https://api.test', 'api.test', false],
    ['https://a.api.test', '.api.test', false],
    ['https://a.api.test', '*.api.test', false],
    ['https://a.api.test', 'other, API.test', false],
    ['https://myapi.test', 'api.test', true],
    ['https://api.test:8443', 'api.test:443', true],
    ['https://api.test', 'api.test:443', false],
    ['https://localhost:8080', '', false],
    ['https://127.0.0.1', '', false],
    ['https://[::1]:1', '', false],
    ['https://10.0.0.1', '10.0.0.1', false],
  ])('%s with the exceptions "%s": %s', (url, except, goesThrough) => {
    expect(proxyFor(new URL(url), { https: 'proxy:3128', except })).toBe(goesThrough ? 'http://proxy:3128' : undefined)
  })

  test('is read from the usual variables, the small ones first', () => {
    const env: Readonly<Record<string, string>> = {
      HTTPS_PROXY: 'http://big',
      https_proxy: 'http://small',
      NO_PROXY: 'x',
    }
    expect(proxiesOf((name) => env[name])).toEqual({ https: 'http://small', except: 'x' })
    expect(proxiesOf((name) => ({ ALL_PROXY: 'http://all' })[name])).toEqual({
      http: 'http://all',
      https: 'http://all',
    })
    expect(proxiesOf((name) => ({ HTTP_PROXY: 'http://x', REQUEST_METHOD: 'GET' })[name])).toEqual({})
  })

  test('carries a request, with its credentials', async () => {
    await using server = await api(false)
    await using through = await proxy('me:pass')
    const model = (proxies: Proxies) =>
      createHttpModel(config({ api: fixture.api, baseUrl: `http://api.test:${server.port}` }), { proxies })
    const url = through.url.replace('//', '//me:pass@')
    expect((await run(model({ http: url }))).outcome).toEqual({ type: 'answer', message: fixture.message })
    expect(through.asked).toEqual([`api.test:${server.port}`])
    const { outcome } = await run(model({ http: through.url.replace('//', '//me:SENTINEL@') }))
    expect(outcome).toMatchObject({
      type: 'failed',
      failure: { code: 'network', message: expect.stringContaining('407') },
    })
    expect(JSON.stringify(outcome)).not.toContain('SENTINEL')
  })

  test('that is gone is a failure that names the server, and an abort ends the wait', async () => {
    const model = createHttpModel(config({ baseUrl: 'http://api.test' }), { proxies: { http: 'http://127.0.0.1:1' } })
    expect((await run(model)).outcome).toMatchObject({
      failure: { code: 'network', message: expect.stringContaining('cannot reach http://api.test/chat/completions') },
    })
    const stop = new AbortController()
    const silent = createHttp()
    const port = await listening(silent)
    silent.on('connect', (_, socket) => stop.signal.addEventListener('abort', () => socket.destroy()))
    const waits = createHttpModel(config({ baseUrl: 'http://api.test' }), {
      proxies: { http: `http://127.0.0.1:${port}` },
    })
    setTimeout(() => stop.abort(), 20)
    expect((await run(waits, undefined, stop.signal)).outcome.type).toBe('aborted')
    await closed(silent)
  })
})

describe.skipIf(!hasCertificate)('a server with a certificate of its own', () => {
  test('is refused, and trusted once models.yml names the file; through a proxy too', async () => {
    await using server = await api(true)
    await using through = await proxy()
    const load = (ca: string, host = '127.0.0.1', proxies: Proxies = {}) =>
      loadModels(
        `providers:\n  own:\n    baseUrl: https://${host}:${server.port}\n    api: ${fixture.api}\n${ca}    models: [{id: m, reasoning: true}]\n`,
        {
          file: 'models.yml',
          env: () => undefined,
          transport: { proxies },
          readFile: async (path) => pem(path),
        },
      )
    const without = await run((await load('')).resolve('own/m'))
    expect(without.outcome).toMatchObject({
      failure: { code: 'network', message: expect.stringMatching(/self-signed/) },
    })
    const { outcome } = await run((await load('    ca: ca.pem\n')).resolve('own/m'))
    expect(outcome.type).toBe('answer')
    const proxied = await load('    ca: ca.pem\n', 'api.test', { https: through.url })
    expect((await run(proxied.resolve('own/m'))).outcome.type).toBe('answer')
    expect(through.asked).toEqual([`api.test:${server.port}`])
    const wrong = await load('    ca: key.pem\n')
    expect(wrong.problems[0]?.message).toMatch(/models\.yml:5:\d+: providers\/own\/ca: key\.pem holds no certificate/)
    expect((await load('    ca: none.pem\n')).problems[0]?.message).toContain('cannot read none.pem')
  })
})
