import { Duplex } from 'node:stream'
import { connect } from 'node:tls'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { readClientHello } from '../../src/egress/client-hello.ts'

/** What Node's own client says first. */
function realHello(servername: string | undefined, maxVersion: 'TLSv1.2' | 'TLSv1.3' = 'TLSv1.3'): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, done) => {
        resolve(chunk)
        done()
      },
    })
    const client = connect({
      socket,
      maxVersion,
      ALPNProtocols: ['h2', 'http/1.1'],
      ...(servername === undefined ? {} : { servername }),
    })
    client.on('error', () => client.destroy())
  })
}

const vector = (size: 1 | 2 | 3, ...parts: readonly (Buffer | number[])[]): Buffer => {
  const body = Buffer.concat(parts.map((part) => Buffer.from(part)))
  const length = Buffer.alloc(size)
  length.writeUIntBE(body.length, 0, size)
  return Buffer.concat([length, body])
}
const extension = (type: number, body: Buffer): Buffer =>
  Buffer.concat([Buffer.from([type >> 8, type & 255]), vector(2, body)])
const serverName = (...names: readonly string[]): Buffer =>
  extension(
    0,
    vector(2, ...names.map((name) => Buffer.concat([Buffer.from([0]), vector(2, Buffer.from(name, 'latin1'))]))),
  )
const message = (...extensions: readonly Buffer[]): Buffer =>
  Buffer.concat([
    Buffer.from([1]),
    vector(
      3,
      Buffer.alloc(34, 3),
      vector(1, Buffer.alloc(32)),
      vector(2, [0x13, 1]),
      vector(1, [0]),
      vector(2, ...extensions),
    ),
  ])
const records = (bytes: Buffer, size: number): Buffer =>
  Buffer.concat(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
      Buffer.concat([Buffer.from([0x16, 3, 1]), vector(2, bytes.subarray(index * size, (index + 1) * size))]),
    ),
  )

describe('a ClientHello', () => {
  test('of a real client gives its server name, in both versions', async () => {
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const)
      expect(readClientHello(await realHello('Web.Test', version))).toEqual({ state: 'whole', serverName: 'web.test' })
    expect(readClientHello(await realHello(undefined))).toEqual({ state: 'whole', serverName: undefined })
  })

  test('is waited for byte by byte, and asks for no more than there is', async () => {
    const hello = await realHello('web.test')
    for (let length = 1; length < hello.length; length += 1) {
      const found = readClientHello(hello.subarray(0, length))
      expect(found.state).toBe('more')
      if (found.state === 'more') {
        expect(found.need).toBeGreaterThan(length)
        expect(found.need).toBeLessThanOrEqual(hello.length)
      }
    }
  })

  test('is put together from several records, but not from any number', () => {
    const bytes = message(serverName('web.test'))
    for (const size of [bytes.length, 50, 20, 8])
      expect(readClientHello(records(bytes, size))).toEqual({ state: 'whole', serverName: 'web.test' })
    expect(readClientHello(records(bytes, 1))).toEqual({ state: 'malformed' })
  })

  test('with an encrypted one inside is known by its outer name', () => {
    expect(
      readClientHello(records(message(extension(0xfe0d, Buffer.alloc(200)), serverName('outer.test.')), 500)),
    ).toEqual({
      state: 'whole',
      serverName: 'outer.test',
    })
  })

  test.each([
    ['two names in one list', message(serverName('a.test', 'b.test'))],
    ['two lists', message(serverName('a.test'), serverName('b.test'))],
    ['an empty list', message(serverName())],
    ['an empty name', message(serverName(''))],
    ['a name that is none', message(serverName('a\0.test'))],
    [
      'a name of another kind',
      message(extension(0, vector(2, Buffer.concat([Buffer.from([1]), vector(2, Buffer.from('a.test'))])))),
    ],
    [
      'bytes after the list',
      message(extension(0, Buffer.concat([vector(2, Buffer.from([0, 0, 1, 97])), Buffer.from([1])]))),
    ],
    ['a list that is too long for its extension', message(extension(0, Buffer.from([0, 50, 0, 0, 1, 97])))],
    ['another message', Buffer.concat([Buffer.from([2]), message(serverName('a.test')).subarray(1)])],
    ['a length that no hello has', Buffer.from([1, 0xff, 0, 0, 0, 0])],
    ['nothing in it', Buffer.from([1, 0, 0, 0])],
  ])('with %s is malformed', (_, bytes) => {
    expect(readClientHello(records(bytes, 16_000))).toEqual({ state: 'malformed' })
  })

  test('of any bytes is whole, more or malformed, and never an exception', async () => {
    const hello = await realHello('web.test')
    const mutated = fc
      .tuple(
        fc.array(fc.tuple(fc.nat(hello.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 }),
        fc.integer({ min: 1, max: hello.length }),
      )
      .map(([changes, cut]) => {
        const copy = Buffer.from(hello)
        for (const [at, value] of changes) copy[at] = value
        return copy.subarray(0, cut)
      })
    const headed = fc
      .uint8Array({ maxLength: 400 })
      .map((bytes) => Buffer.concat([Buffer.from([0x16, 3, 1, 0, 200, 1, 0, 0, 196]), bytes]))
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 400 }), mutated, headed), (bytes) => {
        const found = readClientHello(bytes)
        if (found.state === 'more') {
          expect(found.need).toBeGreaterThan(bytes.length)
          expect(found.need).toBeLessThan(16 * (5 + 16_384) + 1)
        }
      }),
      { numRuns: 10_000 },
    )
  })
})
