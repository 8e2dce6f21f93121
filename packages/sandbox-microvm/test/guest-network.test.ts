import { Duplex } from 'node:stream'
import { afterEach, describe, expect, test } from 'vitest'
import { MicroVmError } from '../src/errors.ts'
import { encodeFrame, WINDOW_BYTES } from '../src/frames.ts'
import { connectGuest, type GuestConnection } from '../src/guest-connection.ts'
import type { GuestNetwork } from '../src/network.ts'

const open: GuestConnection[] = []
afterEach(() => {
  for (const guest of open.splice(0)) guest.fail(new MicroVmError('stopped', 'the test is over'))
})

type Frame = { readonly type: number; readonly channel: number; readonly payload: Buffer }

/** A guest in the test's own hands, with a network that hands every connection to the test. */
function made(parts: Partial<GuestNetwork> = {}) {
  const sent: Frame[] = []
  const lost: MicroVmError[] = []
  const sockets: Duplex[] = []
  const denied: string[] = []
  const stream = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, done) => {
      sent.push({ type: chunk.readUInt8(4), channel: chunk.readUInt32LE(5), payload: chunk.subarray(9) })
      done()
    },
  })
  const guest = connectGuest(
    stream,
    (error) => lost.push(error),
    () => 0,
  )
  open.push(guest)
  const network: GuestNetwork = {
    ports: [80, 443],
    dns: async (query) => Buffer.concat([Buffer.from('re '), query]),
    connect: (target, socket) => void sockets.push(Object.assign(socket, { target })),
    denied: ({ protocol, address, port }) => void denied.push(`${protocol} ${address}:${port}`),
    close: () => Promise.resolve(),
    ...parts,
  }
  const opened = guest.openNetwork(network)
  opened.catch(() => undefined)
  const say = async (type: number, channel: number, payload?: Uint8Array): Promise<void> => {
    stream.push(encodeFrame(type, channel, payload))
    await settle()
  }
  const to = (channel: number): readonly Frame[] => sent.filter((frame) => frame.channel === channel)
  return { guest, stream, sent, lost, sockets, denied, opened, say, to }
}
const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 2))

const FIRST = 0x8000_0001
const address = (port: number): Uint8Array => Uint8Array.of(198, 18, 0, 1, port % 256, Math.floor(port / 256))
const number = (value: number): Uint8Array => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value)
  return bytes
}

/** The one connection of a test. */
async function connected(it = made(), port = 443): Promise<ReturnType<typeof made> & { readonly socket: Duplex }> {
  await it.say(73, FIRST, address(port))
  const [socket] = it.sockets
  if (socket === undefined) throw new Error('nothing was opened')
  return { ...it, socket }
}

describe('a network', () => {
  test('is set up with its ports, the one of DNS, and its authority', async () => {
    const { sent, say, opened } = made({ certificate: 'PEM' })
    const [plan] = sent
    expect([plan?.type, plan?.payload.toString('hex')]).toEqual([15, 'c0000202c00002011e35005000bb01'])
    await say(72, plan?.channel ?? 0)
    const trust = sent.at(-1)
    expect([trust?.type, trust?.payload.toString()]).toEqual([18, 'PEM'])
    await say(72, trust?.channel ?? 0)
    await opened
  })

  test('that the guest cannot set up says so; one of too many ports is not tried', async () => {
    const { sent, say, opened } = made()
    await say(69, sent[0]?.channel ?? 0, Buffer.from('the pair of interfaces'))
    await expect(opened).rejects.toMatchObject({ code: 'boot_failed' })
    await expect(made({ ports: Array.from({ length: 64 }, (_, index) => index + 1000) }).opened).rejects.toMatchObject({
      code: 'bad_spec',
    })
    await expect(made({ ports: [0] }).opened).rejects.toMatchObject({ code: 'bad_spec' })
  })

  test('hears what the guest refused by itself', async () => {
    const { say, denied } = made()
    await say(77, 0, Uint8Array.of(17, 9, 9, 9, 9, 123, 0))
    expect(denied).toEqual(['udp 9.9.9.9:123'])
  })

  test('answers names, each to whoever asked', async () => {
    const { say, to } = made()
    const back = Uint8Array.from({ length: 10 }, (_, index) => index)
    await say(76, 0, Buffer.concat([back, Buffer.from('name')]))
    expect(to(0).map(({ type, payload }) => [type, payload])).toEqual([
      [16, Buffer.concat([back, Buffer.from('re name')])],
    ])
  })

  test('answers no more names at once than it holds, and survives a resolver that fails', async () => {
    let asked = 0
    const never = made({
      dns: () => {
        asked += 1
        return new Promise(() => undefined)
      },
    })
    for (let query = 0; query < 100; query++) await never.say(76, 0, new Uint8Array(20))
    expect(asked).toBe(64)
    const failing = made({ dns: () => Promise.reject(new Error('broken')) })
    await failing.say(76, 0, new Uint8Array(20))
    await failing.say(76, 0, new Uint8Array(5000))
    expect([failing.to(0), failing.lost]).toEqual([[], []])
  })

  test('answers names over TCP, cut anywhere, one after the other', async () => {
    const it = made()
    await it.say(73, FIRST, address(53))
    for (const piece of ['\0', '\x02a', 'b\0\x01', 'c']) await it.say(66, FIRST, Buffer.from(piece))
    await it.say(74, FIRST)
    const answers = it.to(FIRST).filter(({ type }) => type === 2)
    expect(Buffer.concat(answers.map(({ payload }) => payload)).toString()).toBe('\0\x05re ab\0\x04re c')
    expect(it.to(FIRST).at(-1)?.type).toBe(3)
    expect(it.sockets).toEqual([])
    await it.say(73, FIRST + 1, address(53))
    await it.say(66, FIRST + 1, Uint8Array.of(255, 255))
    expect(it.to(FIRST + 1).map(({ type }) => type)).toEqual([17])
  })
})

describe('a connection', () => {
  test('carries bytes both ways, and each end on its own', async () => {
    const { socket, say, to } = await connected()
    expect(socket).toMatchObject({ target: { address: '198.18.0.1', port: 443 } })
    const read: string[] = []
    socket.on('data', (chunk: Uint8Array) => read.push(Buffer.from(chunk).toString()))
    socket.on('end', () => read.push('end'))
    await say(66, FIRST, Buffer.from('hello'))
    await say(74, FIRST)
    expect(read).toEqual(['hello', 'end'])
    socket.end('and back')
    await settle()
    expect(to(FIRST).map(({ type, payload }) => [type, payload.toString()])).toEqual([
      [2, 'and back'],
      [3, ''],
    ])
    expect(socket.destroyed).toBe(true)
  })

  test('sends as much as is granted, and says when it is taken', async () => {
    const { socket, say, to } = await connected()
    let done = false
    socket.write(new Uint8Array(WINDOW_BYTES + 10), () => (done = true))
    const bytes = (): number => to(FIRST).reduce((sum, { payload }) => sum + payload.length, 0)
    await settle()
    expect([bytes(), done]).toEqual([WINDOW_BYTES, false])
    await say(71, FIRST, number(10))
    expect([bytes(), done]).toEqual([WINDOW_BYTES + 10, true])
  })

  test('grants as much as is read', async () => {
    const { socket, say, to } = await connected()
    for (let frame = 0; frame < 8; frame++) await say(66, FIRST, new Uint8Array(32 * 1024))
    // A stream takes its first piece ahead of a reader.
    const granted = (): number => to(FIRST).reduce((sum, { payload }) => sum + payload.readUInt32LE(0), 0)
    expect(granted()).toBeLessThanOrEqual(64 * 1024)
    socket.resume()
    await settle()
    expect(granted()).toBe(WINDOW_BYTES)
  })

  test('that is destroyed is reset, once; what was on its way is for nobody', async () => {
    const { socket, say, to, lost } = await connected()
    socket.destroy()
    await settle()
    for (const type of [66, 71, 74, 75]) await say(type, FIRST, number(1))
    expect([to(FIRST).map(({ type }) => type), lost]).toEqual([[17], []])
  })

  test('that is destroyed after its own end is reset only when the guest sends more', async () => {
    const { socket, say, to, lost } = await connected()
    socket.end('bye', () => socket.destroy())
    await settle()
    expect(to(FIRST).map(({ type }) => type)).toEqual([2, 3])
    await say(66, FIRST, Buffer.from('more'))
    expect([to(FIRST).map(({ type }) => type), lost]).toEqual([[2, 3, 17], []])
  })

  test('that the guest resets fails, as a socket does', async () => {
    const { socket, say, lost } = await connected()
    const failed = new Promise<Error>((resolve) => socket.on('error', resolve))
    await say(75, FIRST)
    expect([await failed, lost]).toMatchObject([{ code: 'ECONNRESET' }, []])
  })

  test('that nobody listens to for errors ends no process, nor does a network that throws', async () => {
    const { say, lost } = await connected()
    await say(75, FIRST)
    const throwing = made({
      connect: () => {
        throw new Error('broken')
      },
    })
    await throwing.say(73, FIRST, address(80))
    expect([throwing.to(FIRST).map(({ type }) => type), throwing.lost, lost]).toEqual([[17], [], []])
  })

  test('ends with the guest', async () => {
    const { socket, stream } = await connected()
    const failed = new Promise<Error>((resolve) => socket.on('error', resolve))
    stream.destroy()
    expect(await failed).toMatchObject({ code: 'guest_lost' })
  })

  test('that is one too many is reset at once', async () => {
    const it = made()
    for (let index = 0; index < 600; index++) it.stream.push(encodeFrame(73, FIRST + index, address(80)))
    await settle()
    expect([it.sockets.length, it.sent.filter(({ type }) => type === 17).length]).toEqual([512, 88])
    for (const socket of it.sockets) socket.destroy()
    await settle()
    await it.say(73, FIRST + 600, address(80))
    expect(it.sockets.length).toBe(513)
  })
})

describe('a guest is stopped that', () => {
  const breaks: readonly (readonly [string, (say: ReturnType<typeof made>['say']) => Promise<void>])[] = [
    ['opens a connection twice', (say) => say(73, FIRST, address(80))],
    ['opens one with a number of ours', (say) => say(73, 5, address(80))],
    ['speaks on one that it has not opened', (say) => say(66, FIRST + 1, Uint8Array.of(1))],
    ['grants more than it was sent', (say) => say(71, FIRST, number(1))],
    [
      'sends more than was granted',
      async (say) => {
        for (let frame = 0; frame < 12; frame++) await say(66, FIRST, new Uint8Array(32 * 1024))
      },
    ],
    ['ends one twice', async (say) => say(74, FIRST).then(() => say(74, FIRST))],
    ['sends after its end', async (say) => say(74, FIRST).then(() => say(66, FIRST, Uint8Array.of(1)))],
    ['says of a connection what is said of a command', (say) => say(68, FIRST, new Uint8Array(9))],
    ['denies in words that make no sense', (say) => say(77, 0, Uint8Array.of(1, 2))],
  ]
  test.each(breaks)('%s', async (_, breach) => {
    const { say, lost, socket } = await connected()
    await breach(say)
    expect(lost.map(({ code }) => code)).toEqual(['guest_lost'])
    expect(socket.destroyed).toBe(true)
  })

  test.each([73, 74, 76, 77, 66])('speaks of a network that it does not have (%d)', async (type) => {
    const lost: MicroVmError[] = []
    const stream = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() })
    connectGuest(
      stream,
      (error) => lost.push(error),
      () => 0,
    )
    stream.push(
      encodeFrame(type, FIRST, type === 77 ? Uint8Array.of(6, 1, 1, 1, 1, 1, 1) : new Uint8Array(type === 73 ? 6 : 12)),
    )
    await settle()
    expect(lost.map(({ code }) => code)).toEqual(['guest_lost'])
  })
})
