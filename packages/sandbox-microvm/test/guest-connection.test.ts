import { Duplex } from 'node:stream'
import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import { MicroVmError } from '../src/errors.ts'
import { checkCommand } from '../src/execution.ts'
import { encodeFrame, WINDOW_BYTES } from '../src/frames.ts'
import { connectGuest, type GuestConnection } from '../src/guest-connection.ts'
import type { ExecRequest, ExecResult } from '../src/spec.ts'

/** The guest's end in the test's own hands. */
function hostile() {
  const sent: { readonly type: number; readonly channel: number; readonly payload: Buffer }[] = []
  const lost: MicroVmError[] = []
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
  const say = (type: number, channel: number, payload?: Uint8Array): void =>
    void stream.push(encodeFrame(type, channel, payload))
  return { guest, sent, lost, stream, say }
}

const open: GuestConnection[] = []
afterEach(() => {
  for (const guest of open.splice(0)) guest.fail(new MicroVmError('stopped', 'the test is over'))
})
const made = (): ReturnType<typeof hostile> => {
  const it = hostile()
  open.push(it.guest)
  return it
}
const run = (guest: GuestConnection, request: Partial<ExecRequest> = {}): Promise<ExecResult> => {
  const running = guest.exec(checkCommand({ argv: ['x'], ...request }, { cwd: '/', env: {} }))
  running.catch(() => undefined)
  return running
}
const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 5))
const exit = (code: number, signal = 0, killed = 0): Uint8Array => Uint8Array.of(code, 0, 0, 0, signal, 0, 0, 0, killed)

describe('a guest that keeps to the protocol', () => {
  test('gets input as it grants it, and is granted output as it is taken', async () => {
    const { guest, sent, say } = made()
    const running = run(guest, { stdin: new Uint8Array(WINDOW_BYTES + 10) })
    const input = (): number =>
      sent.filter(({ type }) => type === 2).reduce((sum, { payload }) => sum + payload.length, 0)
    expect(input()).toBe(WINDOW_BYTES)
    say(71, 1, Uint8Array.of(100, 0, 0, 0))
    await settle()
    expect([input(), sent.filter(({ type }) => type === 3).length]).toEqual([WINDOW_BYTES + 10, 1])
    for (let frame = 0; frame < 20; frame++) {
      say(66, 1, new Uint8Array(32 * 1024))
      await settle()
    }
    const granted = sent.filter(({ type }) => type === 5).reduce((sum, { payload }) => sum + payload.readUInt32LE(0), 0)
    expect(granted).toBe(20 * 32 * 1024)
    say(68, 1, exit(4))
    expect(await running).toMatchObject({ exitCode: 4, stdoutBytes: 20 * 32 * 1024 })
  })

  test('whose program had ended before the kill reached it reports its own code', async () => {
    const { guest, say } = made()
    const cancel = new AbortController()
    const running = run(guest, { signal: cancel.signal })
    cancel.abort()
    say(68, 1, exit(0))
    expect(await running).toMatchObject({ exitCode: 0, cancelled: false })
  })
})

describe('a guest that does not', () => {
  const breaks: readonly (readonly [string, (it: ReturnType<typeof hostile>) => void])[] = [
    [
      'sends more output than was granted',
      ({ say }) => Array.from({ length: 9 }, () => say(66, 1, new Uint8Array(32 * 1024))).length,
    ],
    ['grants more input than it was sent', ({ say }) => say(71, 1, Uint8Array.of(255, 255, 255, 255))],
    ['speaks of a command that there is not', ({ say }) => say(66, 99, Uint8Array.of(1))],
    ['ends a command twice', ({ say }) => [say(68, 1, exit(0)), say(68, 1, exit(0))].length],
    ['answers what was not asked', ({ say }) => say(72, 1)],
    ['is of another version', ({ say }) => say(64, 0, Uint8Array.of(9, 0, 0, 0))],
    [
      'is ready twice',
      ({ say }) => [say(64, 0, Uint8Array.of(2, 0, 0, 0)), say(64, 0, Uint8Array.of(2, 0, 0, 0))].length,
    ],
    ['sends a type that there is not', ({ say }) => say(200, 1)],
    ['hangs up', ({ stream }) => stream.destroy()],
  ]
  test.each(breaks)('%s: every command ends with guest_lost, once', async (_, breach) => {
    const it = made()
    const running = [run(it.guest), run(it.guest)]
    if (_ === 'sends more output than was granted') {
      // A reader that takes nothing is not there: grants come as soon as a quarter is taken, so the breach is one burst.
      const burst = Buffer.concat(Array.from({ length: 40 }, () => encodeFrame(66, 77, new Uint8Array(32 * 1024))))
      it.stream.push(burst)
    } else breach(it)
    await settle()
    expect(it.lost.map(({ code }) => code)).toEqual(['guest_lost'])
    const codes = await Promise.all(
      running.map((work) =>
        work.then(
          ({ exitCode }) => exitCode,
          (error: unknown) => (error instanceof MicroVmError ? error.code : error),
        ),
      ),
    )
    expect(codes.at(-1)).toBe('guest_lost')
    await expect(run(it.guest)).rejects.toMatchObject({ code: 'guest_lost' })
  })

  test('sends anything at all: results or guest_lost, and nothing is thrown at anybody else', async () => {
    const frame = fc.record({
      type: fc.constantFrom(1, 64, 65, 66, 67, 68, 69, 70, 71, 72, 90),
      channel: fc.constantFrom(0, 1, 2, 3),
      payload: fc.uint8Array({ maxLength: 40 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(frame, { maxLength: 12 }), async (frames) => {
        const it = hostile()
        const running = [run(it.guest, { stdin: 'x' }), run(it.guest)]
        const pinged = it.guest.ping()
        pinged.catch(() => undefined)
        for (const { type, channel, payload } of frames) it.say(type, channel, payload)
        await new Promise((done) => setImmediate(done))
        it.guest.fail(new MicroVmError('stopped', 'over'))
        for (const work of [...running, pinged]) {
          const end = await work.then(
            () => 'worked',
            (error: unknown) => (error instanceof MicroVmError ? error.code : 'another'),
          )
          expect(['worked', 'guest_lost', 'stopped', 'boot_failed']).toContain(end)
        }
      }),
      { numRuns: 300 },
    )
  })
})
