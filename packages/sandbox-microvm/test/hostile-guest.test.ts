import { Duplex } from 'node:stream'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MicroVmError } from '../src/errors.ts'
import { checkCommand } from '../src/execution.ts'
import { readGuestFile, writeGuestFile } from '../src/guest-files.ts'
import { encodeFrame } from '../src/frames.ts'
import { connectGuest } from '../src/guest-connection.ts'
import type { GuestNetwork } from '../src/network.ts'

/** More rounds on demand: this many times the usual number. */
const SCALE = Number(process.env['REVE_FUZZ_SCALE'] ?? 1)
const FIRST = 0x8000_0001

/** What a network does with a connection, as the guest can make it happen. */
const habits: Readonly<Record<string, (guest: Duplex) => void>> = {
  ignores: () => undefined,
  echoes: (guest) => guest.pipe(guest),
  refuses: (guest) => guest.destroy(),
  'says and ends': (guest) => guest.end('bye'),
  'says and leaves': (guest) => guest.end(Buffer.alloc(300_000), () => guest.destroy()),
  reads: (guest) => guest.resume(),
}

/** A connection to a guest whose every byte is the test's, with everything open on it that there is. */
function serve(habit: (guest: Duplex) => void, options: { readonly reads: boolean } = { reads: true }) {
  const lost: MicroVmError[] = []
  const written: Buffer[] = []
  const stream = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, done) => {
      written.push(Buffer.from(chunk))
      if (options.reads) done()
    },
  })
  const guest = connectGuest(
    stream,
    (error) => lost.push(error),
    () => 0,
  )
  const network: GuestNetwork = {
    ports: [80],
    dns: async (query) => (query[0] === 0 ? undefined : query),
    connect: (_, socket) => habit(socket),
    denied: () => undefined,
    close: () => Promise.resolve(),
  }
  const command = (stdin: Uint8Array, onOutput?: () => Promise<void>) =>
    guest.exec(
      checkCommand({ argv: ['x'], stdin, ...(onOutput === undefined ? {} : { onOutput }) }, { cwd: '/', env: {} }),
    )
  const work = [
    guest.root(),
    guest.openNetwork(network),
    command(Buffer.alloc(300_000)),
    command(new Uint8Array(), () => new Promise(() => undefined)),
    readGuestFile(guest, { path: '/f', onChunk: () => undefined }),
    writeGuestFile(guest, { path: '/f', source: Buffer.from('x'), atomic: true }, 'u'),
    guest.ping(),
  ].map((promise) =>
    promise.then(
      () => 'worked',
      (error: unknown) => (error instanceof MicroVmError ? error.code : `not ours: ${String(error)}`),
    ),
  )
  return { guest, stream, lost, written, work }
}

const turn = (): Promise<void> => new Promise((done) => setImmediate(done))

/** Every failure that a guest can cause. */
const EXPECTED = [
  'worked',
  'guest_lost',
  'boot_failed',
  'stopped',
  'not_found',
  'not_permitted',
  'file_failed',
  'not_a_file',
  'no_space',
]

const frame = fc
  .record({
    type: fc.oneof({ weight: 8, arbitrary: fc.integer({ min: 64, max: 78 }) }, fc.nat(255)),
    channel: fc.oneof(
      fc.integer({ min: 0, max: 9 }),
      fc.integer({ min: FIRST - 1, max: FIRST + 4 }),
      fc.nat(0xffff_ffff),
    ),
    payload: fc.oneof(
      fc.uint8Array({ maxLength: 12 }),
      fc.uint8Array({ minLength: 6, maxLength: 6 }),
      fc
        .uint8Array({ minLength: 4, maxLength: 4 })
        .map((bytes) => Uint8Array.of(bytes[0] ?? 0, (bytes[1] ?? 0) % 4, 0, 0)),
      fc.nat(32 * 1024).map((length) => new Uint8Array(length)),
    ),
  })
  .map(({ type, channel, payload }) => encodeFrame(type, channel, payload))

describe('a hostile guest', () => {
  test.each(Object.entries(habits))('of whose connections the network %s gets results or is lost', async (_, habit) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(frame, { maxLength: 30 }),
        fc.array(fc.record({ at: fc.nat(2000), value: fc.nat(255) }), { maxLength: 3 }),
        fc.integer({ min: 1, max: 70_000 }),
        async (frames, flips, cut) => {
          const it = serve(habit)
          const bytes = Buffer.concat(frames)
          for (const { at, value } of flips) if (at < bytes.length) bytes[at] = value
          for (let at = 0; at < bytes.length && !it.stream.destroyed; at += cut) {
            it.stream.push(bytes.subarray(at, at + cut))
            await turn()
          }
          it.guest.fail(new MicroVmError('stopped', 'over'))
          for (const end of await Promise.all(it.work)) expect(EXPECTED).toContain(end)
          expect(it.lost).toHaveLength(1)
          // What it was sent are whole frames on channels that are ours, or that it opened itself.
          for (const sent of it.written) {
            expect(sent.readUInt32LE(0)).toBe(sent.length - 9)
            expect(sent.readUInt8(4)).toBeLessThanOrEqual(18)
          }
        },
      ),
      { numRuns: 150 * SCALE },
    )
  })

  /** Bytes that are in use after a collection. */
  const inUse = (): number => {
    setFlagsFromString('--expose-gc')
    const collect: unknown = runInNewContext('gc')
    if (typeof collect === 'function') collect()
    const { heapUsed, external } = process.memoryUsage()
    return heapUsed + external
  }
  const push = async (
    it: ReturnType<typeof serve>,
    frames: number,
    make: (index: number) => Uint8Array,
  ): Promise<void> => {
    const before = inUse()
    for (let index = 0; index < frames && !it.stream.destroyed;) {
      const chunk: Uint8Array[] = []
      for (let count = 0; count < 5000 && index < frames; count++) chunk.push(make(index++))
      it.stream.push(Buffer.concat(chunk))
      it.written.length = 0
      await turn()
    }
    expect(inUse() - before).toBeLessThan(20 * 1024 * 1024)
    it.guest.fail(new MicroVmError('stopped', 'over'))
  }

  test('that sends its window byte by byte costs no more than a window', async () => {
    const it = serve(() => undefined)
    it.stream.push(Buffer.concat([1, 2].map((index) => encodeFrame(73, FIRST + index, new Uint8Array(6)))))
    await push(it, 500_000, (index) => encodeFrame(66, FIRST + 1 + (index % 2), Uint8Array.of(1)))
    expect(it.lost.map(({ code }) => code)).toEqual(['stopped'])
  })

  test('whose output nobody takes costs no more than a window, whatever the size of its pieces', async () => {
    const it = serve(() => undefined)
    // The fourth channel is of the command whose reader never comes back.
    await push(it, 250_000, () => encodeFrame(66, 4, Uint8Array.of(1)))
    expect(it.lost.map(({ code }) => code)).toEqual(['stopped'])
  })

  test('that opens without end is held to its number', async () => {
    const it = serve(() => undefined)
    await push(it, 300_000, (index) => encodeFrame(73, FIRST + index, Uint8Array.of(1, 1, 1, 1, 80, 0)))
  })

  test('that opens without end and reads nothing is stopped', async () => {
    const it = serve((guest) => guest.destroy(), { reads: false })
    await push(it, 300_000, (index) => encodeFrame(73, FIRST + index, Uint8Array.of(1, 1, 1, 1, 80, 0)))
    expect(it.lost.map(({ code }) => code)).toEqual(['guest_lost'])
  })

  test('that leaves what it opened half closed is held to its number', async () => {
    const it = serve((guest) => guest.end(() => guest.destroy()))
    await push(it, 300_000, (index) => encodeFrame(73, FIRST + index, Uint8Array.of(1, 1, 1, 1, 80, 0)))
  })

  test('that asks for names and denies without end costs nothing', async () => {
    const it = serve(() => undefined)
    await push(it, 300_000, (index) =>
      index % 2 === 0
        ? encodeFrame(76, 0, new Uint8Array(60))
        : encodeFrame(77, 0, Uint8Array.of(17, index % 256, 1, 1, 1, 1, 1)),
    )
    expect(it.lost.map(({ code }) => code)).toEqual(['stopped'])
  })
})
