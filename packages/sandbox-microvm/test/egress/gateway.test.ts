import { once } from 'node:events'
import { createServer as createHttpServer, get, type IncomingMessage } from 'node:http'
import { createServer, type Socket } from 'node:net'
import { createServer as createTlsServer, connect as connectTls, type TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { MicroVmError } from '../../src/errors.ts'
import { createGateway } from '../../src/egress/gateway.ts'
import {
  ask,
  bench,
  closeAll,
  dialGuest,
  drain,
  listen,
  onClose,
  PUBLIC,
  rule,
  testAuthority,
  until,
} from './support.ts'

afterEach(closeAll)

/** Sends back what it gets, and ends when its client does. */
const echo = () => createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket))

/** TLS with a certificate for any of the names, that says which name was asked for. */
const tlsServer = (name: string) => {
  const { certificate, key } = testAuthority.issue(name)
  return createTlsServer({ cert: certificate, key, ALPNProtocols: ['h2', 'http/1.1'] }, (socket: TLSSocket) =>
    socket.end(`asked for ${String(socket.servername)}`),
  )
}

const failedTls = async (port: number, servername: string | undefined): Promise<string> => {
  const socket = connectTls({
    host: '127.0.0.1',
    port,
    rejectUnauthorized: false,
    ...(servername === undefined ? {} : { servername }),
  })
  onClose(() => socket.destroy())
  return new Promise((resolve) => {
    socket.on('secureConnect', () => resolve('connected'))
    socket.on('error', ({ message }) => resolve(message))
  })
}

describe('a connection to a listed name', () => {
  test('passes bytes and half closes both ways, and is counted', async () => {
    const { guest, events, dialled } = bench(['db.test:5432'], await listen(echo()))
    const socket = await dialGuest(await guest('db.test', 5432))
    socket.end('hello over there')
    expect((await drain(socket)).toString()).toBe('hello over there')
    await until(() => events.length === 2)
    expect(dialled).toEqual([`${PUBLIC}:5432`])
    expect(events).toEqual([
      { type: 'connected', host: 'db.test', port: 5432, address: PUBLIC },
      { type: 'closed', host: 'db.test', port: 5432, sent: 16, received: 16 },
    ])
  })

  test('that ends first on the other side may still be written to', async () => {
    const got: string[] = []
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.end('goodbye\n')
      socket.on('data', (chunk) => got.push(chunk.toString()))
    })
    const { guest } = bench(['db.test:5432'], await listen(server))
    const socket = await dialGuest(await guest('db.test', 5432))
    socket.write('first line\n')
    expect((await drain(socket)).toString()).toBe('goodbye\n')
    socket.end('last words')
    await until(() => got.join('') === 'first line\nlast words')
  })

  test('lets the server speak first, and still looks at what the client says', async () => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.write('220 ready\n')
      socket.pipe(socket)
    })
    const { guest, of } = bench(['mail.test:25'], await listen(server), { limits: { serverFirstMs: 20 } })
    const port = await guest('mail.test', 25)
    const socket = await dialGuest(port)
    await once(socket, 'data')
    socket.end('EHLO here\r\n')
    expect((await drain(socket)).toString()).toBe('EHLO here\r\n')

    const fronting = await dialGuest(port)
    await once(fronting, 'data')
    fronting.write('GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n')
    expect((await drain(fronting)).toString()).toBe('')
    expect(of('denied')).toMatchObject([{ reason: 'malformed', protocol: 'http', host: 'mail.test', port: 25 }])
  })

  test.each(['the server', 'the client'])('holds its sender back when %s does not read', async (who) => {
    const sockets: Socket[] = []
    const server = createServer({ pauseOnConnect: true }, (socket) => sockets.push(socket))
    const { guest } = bench(['db.test:5432'], await listen(server))
    const client = await dialGuest(await guest('db.test', 5432))
    client.pause()
    client.write('\0hello')
    await until(() => sockets.length === 1)
    const [sender = client] = who === 'the server' ? [client] : sockets
    const block = Buffer.alloc(1 << 20)
    let taken = 0
    const more = (): void => {
      while (taken < 256) {
        taken += 1
        if (!sender.write(block)) return void sender.once('drain', more)
      }
    }
    more()
    // It stands still when nothing more is taken.
    for (let before = -1; before !== taken;) {
      before = taken
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
    expect(taken).toBeLessThan(48)
  })

  test('is served as ever when the client was only slow', async () => {
    const server = createHttpServer((request, response) => response.end(`${request.headers.host}`))
    const { guest, dialled, of } = bench(['web.test:8080'], await listen(server), { limits: { serverFirstMs: 20 } })
    const port = await guest('web.test', 8080)
    for (const [host, expected] of [
      ['web.test:8080', '200'],
      ['evil.test', '421'],
    ] as const) {
      const socket = await dialGuest(port)
      const before = dialled.length
      await until(() => dialled.length > before)
      socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)
      expect((await drain(socket)).toString()).toMatch(new RegExp(`^HTTP/1.1 ${expected}`))
    }
    expect(of('denied')).toMatchObject([{ reason: 'host_header' }])
  })

  test('over TLS passes untouched: the client sees the certificate of the server', async () => {
    const { certificate } = testAuthority.issue('plain.test')
    const { guest, gateway } = bench(['plain.test'], await listen(tlsServer('plain.test')))
    expect(gateway.certificate).toBeUndefined()
    const socket = connectTls({
      host: '127.0.0.1',
      port: await guest('plain.test', 443),
      servername: 'plain.test',
      ca: testAuthority.certificate,
      ALPNProtocols: ['h2', 'http/1.1'],
    })
    await once(socket, 'secureConnect')
    expect(socket.alpnProtocol).toBe('h2')
    const peer = socket.getPeerX509Certificate()
    expect(peer?.issuer).toBe('CN=test authority')
    expect(peer?.subjectAltName).toBe('DNS:plain.test')
    expect(certificate).toContain('BEGIN CERTIFICATE')
    expect((await drain(socket)).toString()).toBe('asked for plain.test')
  })

  test('passes TLS of hosts without secrets untouched although others have some', async () => {
    const { guest, gateway } = bench(['plain.test', 'api.test'], await listen(tlsServer('plain.test')), {
      secrets: [{ name: 'A', placeholder: 'reve-a', value: () => 'x', hosts: ['api.test'] }],
    })
    expect(gateway.certificate).toContain('BEGIN CERTIFICATE')
    const socket = connectTls({
      host: '127.0.0.1',
      port: await guest('plain.test', 443),
      servername: 'plain.test',
      ca: testAuthority.certificate,
    })
    expect((await drain(socket)).toString()).toBe('asked for plain.test')
  })

  test('over plain HTTP reaches the server, and no other one', async () => {
    const server = createHttpServer((request, response) => response.end(`${request.headers.host} ${request.url}`))
    const { guest, of } = bench(['web.test'], await listen(server))
    const port = await guest('web.test', 80)
    const [response] = (await once(
      get({ host: '127.0.0.1', port, path: '/a?b', headers: { host: 'web.test' } }),
      'response',
    )) as [IncomingMessage]
    expect((await response.toArray()).join('')).toBe('web.test /a?b')

    // The second request of a connection is looked at like the first.
    const socket = await dialGuest(port)
    socket.write(
      'GET /1 HTTP/1.1\r\nHost: web.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /third HTTP/1.1\r\nHost: web.test\r\n\r\n',
    )
    const text = (await drain(socket)).toString()
    expect(text).toContain('web.test /1')
    expect(text).toContain('HTTP/1.1 421')
    expect(text).not.toContain('/third')
    expect(of('denied')).toMatchObject([{ reason: 'host_header', asked: 'evil.test', host: 'web.test' }])
  })

  test('is looked at for HTTP on any port', async () => {
    const server = createHttpServer((request, response) => response.end(`${request.headers.host}`))
    const { guest } = bench(['web.test:8080'], await listen(server))
    const port = await guest('web.test', 8080)
    for (const [text, status] of [
      ['\r\nGET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n', '421'],
      ['GET / HTTP/1.1\r\nHost: web.test:8080\r\nConnection: close\r\n\r\n', '200'],
      ['GET / HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n', '421'],
    ] as const) {
      const socket = await dialGuest(port)
      socket.write(text)
      expect((await drain(socket)).toString()).toMatch(new RegExp(`^HTTP/1.1 ${status}`))
    }
  })
})

describe('a connection is refused', () => {
  test('to an address that no name stands for, with the line that would let it through', async () => {
    const { guest, events, dialled } = bench(['web.test'], await listen(echo()))
    const socket = await dialGuest(await guest('8.8.8.8', 443))
    expect((await drain(socket)).length).toBe(0)
    expect(events).toEqual([
      { type: 'denied', reason: 'not_listed', protocol: 'dns', host: '8.8.8.8', line: '"8.8.8.8",' },
      { type: 'denied', reason: 'address', protocol: 'tcp', host: '8.8.8.8', port: 443, line: '"8.8.8.8:443",' },
    ])
    expect(dialled).toEqual([])
  })

  test('to another port of a listed name', async () => {
    const { guest, events, dialled } = bench(['web.test', 'db.test:5432'], await listen(echo()))
    await drain(await dialGuest(await guest('web.test', 5432)))
    expect(events).toEqual([
      { type: 'denied', reason: 'port', protocol: 'tcp', host: 'web.test', port: 5432, line: '"web.test:5432",' },
    ])
    expect(dialled).toEqual([])
  })

  test.each([
    '127.0.0.1',
    '169.254.169.254',
    '10.1.2.3',
    '::1',
    '::ffff:93.184.215.14',
    '64:ff9b::7f00:1',
    'fe80::1%lo',
    'x',
  ])('when the name leads to %s', async (address) => {
    const { guest, of, dialled } = bench(['web.test:99'], await listen(echo()), { resolve: async () => [address] })
    const socket = await dialGuest(await guest('web.test', 99))
    socket.write('hello there\n')
    expect((await drain(socket)).length).toBe(0)
    expect(of('denied')).toEqual([
      { type: 'denied', reason: 'private_address', protocol: 'tcp', host: 'web.test', port: 99 },
    ])
    expect(dialled).toEqual([])
  })

  test('not when that address or its range is listed: with a real resolver and a real socket', async () => {
    const port = await listen(echo())
    for (const range of ['127.0.0.0/8', '127.0.0.1', `127.0.0.1:${port}`]) {
      const { gateway, guest } = bench([`web.test:${port}`, range], port)
      const own = createGateway({ allow: [`web.test:${port}`, range].map(rule), resolve: async () => ['127.0.0.1'] })
      onClose(() => own.close())
      await guest('web.test', port)
      const address = (await ask(own, 'web.test')).answers?.[0]
      const at = createServer({ allowHalfOpen: true }, (socket) =>
        own.connect({ address: address?.type === 'A' ? address.data : '', port }, socket),
      )
      const socket = await dialGuest(await listen(at))
      socket.end('through\n')
      expect((await drain(socket)).toString()).toBe('through\n')
      expect(gateway.ports).toContain(port)
    }
    const other = bench([`web.test:${port}`, '127.0.0.1:1'], port, { resolve: async () => ['127.0.0.1'] })
    const socket = await dialGuest(await other.guest('web.test', port))
    socket.end('no\n')
    expect((await drain(socket)).length).toBe(0)
  })

  test('when TLS names another host, or none', async () => {
    const { guest, of, dialled } = bench(['web.test', 'evil.test'], await listen(tlsServer('evil.test')))
    const port = await guest('web.test', 443)
    expect(await failedTls(port, 'evil.test')).toMatch(/unrecognized name/)
    expect(await failedTls(port, undefined)).toMatch(/unrecognized name/)
    expect(of('denied')).toEqual([
      { type: 'denied', reason: 'server_name', protocol: 'tls', host: 'web.test', port: 443, asked: 'evil.test' },
      { type: 'denied', reason: 'server_name', protocol: 'tls', host: 'web.test', port: 443 },
    ])
    expect(dialled).toEqual([])
  })

  test('when its first bytes are cut short, or none of what the port is for', async () => {
    const { guest, of } = bench(['web.test'], await listen(echo()), { limits: { helloMs: 50 } })
    const tls = await guest('web.test', 443)
    const half = await dialGuest(tls)
    half.write(Buffer.from('16030102000100', 'hex'))
    expect((await drain(half)).length).toBe(0)
    const bad = await dialGuest(tls)
    bad.write(Buffer.from('1603010004ffffffff', 'hex'))
    expect((await drain(bad)).length).toBe(0)
    const ssh = await dialGuest(await guest('web.test', 80))
    ssh.write('SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n')
    expect((await drain(ssh)).length).toBe(0)
    const silent = await dialGuest(tls)
    expect((await drain(silent)).length).toBe(0)
    expect(of('denied').map(({ reason }) => reason)).toEqual(['malformed', 'malformed'])
  })

  test('when there are too many, and is let through again when there are less', async () => {
    const { guest, of } = bench(['db.test:5432'], await listen(echo()), { limits: { connections: 2 } })
    const port = await guest('db.test', 5432)
    const sockets: Socket[] = []
    for (let index = 0; index < 2; index += 1) {
      const socket = await dialGuest(port)
      socket.write('\0hello')
      await once(socket, 'data')
      sockets.push(socket)
    }
    expect((await drain(await dialGuest(port))).length).toBe(0)
    expect(of('denied')).toMatchObject([{ reason: 'limit' }])
    sockets[0]?.destroy()
    await until(() => of('closed').length === 1)
    const again = await dialGuest(port)
    again.write('\0hello')
    expect((await once(again, 'data'))[0]).toEqual(Buffer.from('\0hello'))
  })

  test('when nothing moves for long', async () => {
    const { guest, of } = bench(['db.test:5432'], await listen(echo()), { limits: { idleMs: 100 } })
    const socket = await dialGuest(await guest('db.test', 5432))
    socket.write('\0hello')
    expect((await drain(socket)).toString()).toBe('\0hello')
    await until(() => of('closed').length === 1)
  })

  test('when the host does not answer, is not there, or has no address', async () => {
    const cases = [
      [{ connect: () => new Promise<never>(() => undefined), limits: { dialMs: 50 } }, { reason: 'timeout' }],
      [
        { connect: () => Promise.reject(Object.assign(new Error('no'), { code: 'ECONNREFUSED' })) },
        { reason: 'refused', code: 'ECONNREFUSED' },
      ],
      [
        { resolve: () => Promise.reject(Object.assign(new Error('no'), { code: 'ENOTFOUND' })) },
        { reason: 'unresolved', code: 'ENOTFOUND' },
      ],
      [{ resolve: () => Promise.resolve([]) }, { reason: 'unresolved' }],
      [{ resolve: () => new Promise<never>(() => undefined), limits: { dialMs: 50 } }, { reason: 'timeout' }],
    ] as const
    for (const [parts, expected] of cases) {
      const { guest, of } = bench(['db.test:5432'], 1, parts)
      const socket = await dialGuest(await guest('db.test', 5432))
      socket.write('\0hello')
      expect((await drain(socket)).length).toBe(0)
      expect(of('unreachable')).toMatchObject([{ host: 'db.test', port: 5432, ...expected }])
    }
  })
})

describe('a listed address', () => {
  test('is reached as it is, at its port', async () => {
    const { guest, of, dialled } = bench(['10.0.0.5:5432'], await listen(echo()))
    const socket = await dialGuest(await guest('10.0.0.5', 5432))
    socket.end('GET / HTTP/1.1\r\nHost: anything\r\n\r\n')
    expect((await drain(socket)).toString()).toContain('anything')
    expect(dialled).toEqual(['10.0.0.5:5432'])
    await drain(await dialGuest(await guest('10.0.0.5', 443)))
    await drain(await dialGuest(await guest('10.0.0.6', 5432)))
    expect(
      of('denied')
        .filter(({ protocol }) => protocol === 'tcp')
        .map(({ line }) => line),
    ).toEqual(['"10.0.0.5:443",', '"10.0.0.6:5432",'])
  })

  test('of a range is reached through a listed name only', async () => {
    const { guest, dialled } = bench(['10.0.0.0/8'], await listen(echo()))
    expect((await drain(await dialGuest(await guest('10.0.0.5', 443)))).length).toBe(0)
    expect(dialled).toEqual([])
  })
})

describe('a gateway', () => {
  test('passes on what the guest refused by itself', async () => {
    const { gateway, events } = bench(['web.test'], 1)
    const address = (await ask(gateway, 'web.test')).answers?.[0]
    gateway.denied({ protocol: 'tcp', address: address?.type === 'A' ? address.data : '', port: 8443 })
    gateway.denied({ protocol: 'udp', address: '1.1.1.1', port: 123 })
    gateway.denied({ protocol: 'tcp', address: '1.1.1.1', port: 443 })
    gateway.denied({ protocol: 'tcp', address: '\u001b[31m', port: -5 })
    expect(events).toEqual([
      { type: 'denied', reason: 'port', protocol: 'tcp', host: 'web.test', port: 8443, line: '"web.test:8443",' },
      { type: 'denied', reason: 'protocol', protocol: 'udp', host: '1.1.1.1', port: 123 },
      { type: 'denied', reason: 'address', protocol: 'tcp', host: '1.1.1.1', port: 443, line: '"1.1.1.1:443",' },
      { type: 'denied', reason: 'address', protocol: 'tcp', host: 'an address that is none', port: -5 },
    ])
  })

  test('that is closed ends its connections and takes no more', async () => {
    const { gateway, guest } = bench(['db.test:5432'], await listen(echo()))
    const port = await guest('db.test', 5432)
    const socket = await dialGuest(port)
    socket.write('\0hello')
    await once(socket, 'data')
    await gateway.close()
    await drain(socket)
    expect((await drain(await dialGuest(port))).length).toBe(0)
    await expect(ask(gateway, 'db.test')).rejects.toThrow('no answer')
  })

  test('says which ports the guest has to listen on', () => {
    expect(bench(['a.test', '*.b.test:8443', '10.0.0.5:5432', '10.0.0.0/8:77'], 1).gateway.ports).toEqual([
      80, 443, 5432, 8443,
    ])
  })

  test('refuses a secret that cannot work', () => {
    const secret = { name: 'A', placeholder: 'reve-a', value: () => 'x', hosts: ['api.test'] }
    for (const wrong of [
      { placeholder: 'a b c d e' },
      { placeholder: 'x' },
      { hosts: ['10.0.0.1'] },
      { hosts: ['https://x'] },
    ])
      expect(() => bench([], 1, { secrets: [{ ...secret, ...wrong }] })).toThrow(MicroVmError)
  })
})
