import { createServer } from 'node:http'
import { connect } from 'node:net'
import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import { bench, closeAll, listen } from './support.ts'

afterEach(closeAll)

/** Cases of one run; each is a real connection. */
const RUNS = 400

const request = Buffer.from(
  'POST /path?query HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 2\r\n\r\nok',
)
const lines = fc.constantFrom(
  'GET / HTTP/1.1',
  'GET http://evil.test/ HTTP/1.1',
  'CONNECT evil.test:80 HTTP/1.1',
  'Host: web.test',
  'Host: evil.test',
  'host:web.test',
  ' Host: evil.test',
  'Host : evil.test',
  'Content-Length: 5',
  'Content-Length: +5',
  'Content-Length: 0',
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: xchunked',
  'Transfer-Encoding: identity, chunked',
  'Upgrade: websocket',
  'Connection: Upgrade',
  'Connection: Host',
  'Expect: 100-continue',
  'Trailer: Host',
  '0',
  '5;x=y',
  'hello',
  '',
)

describe('HTTP of a hostile guest', () => {
  test('never reaches the host under another name, and always comes to an end', async () => {
    const hosts = new Set<string | undefined>()
    const urls = new Set<string>()
    const server = createServer({ insecureHTTPParser: true, requireHostHeader: false }, (incoming, response) => {
      hosts.add(incoming.headersDistinct['host']?.join())
      urls.add(incoming.url ?? '')
      incoming.on('error', () => response.destroy())
      incoming.resume()
      response.end('fine')
    })
    server.on('upgrade', (_incoming, socket) => socket.destroy())
    const { guest } = bench(['web.test'], await listen(server), { limits: { helloMs: 200, idleMs: 300 } })
    const port = await guest('web.test', 80)

    const mutated = fc
      .tuple(fc.array(fc.tuple(fc.nat(request.length - 1), fc.nat(255)), { maxLength: 4 }), fc.nat(request.length))
      .map(([changes, cut]) => {
        const copy = Buffer.from(request)
        for (const [at, value] of changes) copy[at] = value
        return copy.subarray(0, cut)
      })
    const built = fc
      .array(fc.tuple(lines, fc.constantFrom('\r\n', '\n', '\r\n\r\n', '\r')), { maxLength: 14 })
      .map((parts) => Buffer.from(parts.flat().join('')))
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.uint8Array({ maxLength: 200 }), mutated, built), async (bytes) => {
        const socket = connect({ host: '127.0.0.1', port })
        socket.on('error', () => socket.destroy())
        socket.resume()
        socket.end(bytes)
        await new Promise((resolve) => {
          socket.on('close', resolve)
        })
      }),
      { numRuns: RUNS },
    )
    expect([...hosts].filter((host) => !/^web\.test\.?(?::80)?$/i.test(host ?? ''))).toEqual([])
    expect([...urls].filter((url) => !url.startsWith('/') && url !== '*')).toEqual([])
    expect(hosts.size).toBeGreaterThan(0)
  })
})
