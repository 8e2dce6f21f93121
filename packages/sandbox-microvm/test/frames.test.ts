import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MicroVmError } from '../src/errors.ts'
import { createFrameDecoder, encodeFrame, execPayload, mountPayload, timePayload } from '../src/frames.ts'

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

describe('frames to the guest', () => {
  test('have the bytes that guest/agent.h says', () => {
    expect(Buffer.from(encodeFrame(2, 258, Uint8Array.of(7))).toString('hex')).toBe('01000000020201000007')
    expect(Buffer.from(execPayload(['ls', 'é'], { A: 'b' }, '/')).toString('hex')).toBe(
      '02000000020000006c7302000000c3a90100000003000000413d62010000002f',
    )
    expect(Buffer.from(mountPayload('share0', '/w', true)).toString('latin1')).toBe('share0\0/w\0\x01')
    expect(Buffer.from(timePayload(1_500.9)).toString('hex')).toBe('01000000000000000065cd1d')
  })
})
