import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MicroVmError } from '../src/errors.ts'
import {
  createFrameDecoder,
  encodeFrame,
  execPayload,
  mountPayload,
  networkPayload,
  signalPayload,
  sizePayload,
  timePayload,
} from '../src/frames.ts'

const codeOf = (work: () => unknown): string => {
  try {
    work()
    return 'worked'
  } catch (error) {
    return error instanceof MicroVmError ? error.code : `not one of ours: ${String(error)}`
  }
}

describe('frames of the guest', () => {
  test('are read whatever way the bytes are cut', () => {
    const output = fc.record({
      type: fc.constantFrom(66, 67),
      channel: fc.nat(2 ** 31),
      bytes: fc.uint8Array({ maxLength: 2000 }),
    })
    fc.assert(
      fc.property(fc.array(output, { maxLength: 20 }), fc.array(fc.integer({ min: 1, max: 5000 })), (sent, cuts) => {
        const stream = Buffer.concat(sent.map(({ type, channel, bytes }) => encodeFrame(type, channel, bytes)))
        const decode = createFrameDecoder()
        const read = []
        let at = 0
        for (const cut of [...cuts, stream.length]) {
          read.push(...decode(stream.subarray(at, at + cut)))
          at += cut
        }
        expect(
          read.map((frame) =>
            'bytes' in frame && frame.type !== 'credit' ? [frame.type, frame.channel, Buffer.from(frame.bytes)] : frame,
          ),
        ).toEqual(
          sent.map(({ type, channel, bytes }) => [type === 66 ? 'stdout' : 'stderr', channel, Buffer.from(bytes)]),
        )
      }),
    )
  })

  test('that are any bytes at all end in frames or in guest_lost, never in another failure', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 10 }), (chunks) => {
        const decode = createFrameDecoder()
        expect(['worked', 'guest_lost']).toContain(codeOf(() => chunks.forEach((chunk) => decode(chunk))))
      }),
      { numRuns: 2000 },
    )
  })

  test('of every type with any payload likewise', () => {
    fc.assert(
      fc.property(fc.nat(255), fc.nat(2 ** 31), fc.uint8Array({ maxLength: 100 }), (type, channel, payload) => {
        expect(['worked', 'guest_lost']).toContain(
          codeOf(() => createFrameDecoder()(encodeFrame(type, channel, payload))),
        )
      }),
      { numRuns: 2000 },
    )
  })

  test('that are too long are refused by their head, before anything is kept', () => {
    const head = Buffer.from(encodeFrame(66, 1))
    head.writeUInt32LE(33 * 1024, 0)
    expect(codeOf(() => createFrameDecoder()(head))).toBe('guest_lost')
  })

  test('of an exit carry code, signal, whether it was killed, and names', () => {
    const payload = Buffer.concat([Buffer.from([130, 0, 0, 0, 9, 0, 0, 0, 1]), Buffer.from('sh\0sleep\0cut')])
    expect(createFrameDecoder()(encodeFrame(68, 5, payload))).toEqual([
      { type: 'exit', channel: 5, code: 130, signal: 9, killed: true, left: ['sh', 'sleep'] },
    ])
  })
})

describe('frames of a network', () => {
  test('carry addresses, ports and what goes back with an answer', () => {
    const decode = createFrameDecoder()
    const frames = [
      [73, Uint8Array.of(198, 18, 0, 1, 0xbb, 1)],
      [76, Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)],
      [77, Uint8Array.of(17, 9, 9, 9, 9, 123, 0)],
    ] as const
    expect(frames.flatMap(([type, payload]) => decode(encodeFrame(type, 0x8000_0001, payload)))).toMatchObject([
      { type: 'open', channel: 0x8000_0001, address: '198.18.0.1', port: 443 },
      { type: 'dns', returnTo: Buffer.from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), query: Buffer.from([11, 12]) },
      { type: 'denied', protocol: 'udp', address: '9.9.9.9', port: 123 },
    ])
    for (const [type, length] of [
      [73, 5],
      [76, 9],
      [77, 7],
    ] as const)
      expect(codeOf(() => decode(encodeFrame(type, 1, new Uint8Array(length))))).toBe('guest_lost')
  })
})

describe('frames to the guest', () => {
  test('have the bytes that guest/agent.h says', () => {
    expect(Buffer.from(encodeFrame(2, 258, Uint8Array.of(7))).toString('hex')).toBe('01000000020201000007')
    expect(Buffer.from(execPayload(['ls', 'é'], { A: 'b' }, '/')).toString('hex')).toBe(
      '02000000020000006c7302000000c3a90100000003000000413d62010000002f00000000',
    )
    expect(Buffer.from(execPayload([Uint8Array.of(255)], {}, '/', { cols: 300, rows: 2 })).toString('hex')).toBe(
      '0100000001000000ff00000000010000002f2c010200',
    )
    expect(Buffer.from(signalPayload(15)).toString('hex')).toBe('0f000000')
    expect(Buffer.from(sizePayload(80, 256)).toString('hex')).toBe('50000001')
    expect(
      Buffer.from(networkPayload({ guest: '192.0.2.2', gateway: '192.0.2.1', prefix: 30, ports: [53, 443] })).toString(
        'hex',
      ),
    ).toBe('c0000202c00002011e3500bb01')
    expect(Buffer.from(mountPayload('share0', '/w', true)).toString('latin1')).toBe('share0\0/w\0\x01')
    expect(Buffer.from(timePayload(1_500.9)).toString('hex')).toBe('01000000000000000065cd1d')
  })
})
