import { decode, encode, type Packet } from 'dns-packet'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createAllowList } from '../../src/egress/allow-list.ts'
import { answerDns } from '../../src/egress/dns.ts'
import type { EgressEvent } from '../../src/egress/events.ts'
import { createSyntheticNames } from '../../src/egress/names.ts'
import { rule } from './support.ts'

const NAMES = ['a.test', '*.b.test']

function server(names = createSyntheticNames()) {
  const events: EgressEvent[] = []
  const parts = { allow: createAllowList(NAMES.map(rule)), names, report: (event: EgressEvent) => events.push(event) }
  return {
    events,
    names,
    raw: (query: Uint8Array) => answerDns(query, parts),
    ask: (
      question: { readonly name: string; readonly type?: 'A' | 'AAAA' | 'MX' | 'PTR'; readonly class?: 'IN' | 'CH' },
      more: Packet = {},
    ) => {
      const answer = answerDns(
        encode({ type: 'query', id: 4711, flags: 0x01_00, questions: [{ type: 'A', ...question }], ...more }),
        parts,
      )
      return answer === undefined ? undefined : decode(Buffer.from(answer))
    },
  }
}

const rcode = (answer: Uint8Array | undefined): number | undefined =>
  answer === undefined ? undefined : (answer[3] ?? 0) & 15

describe('DNS', () => {
  test('gives a listed name its synthetic address, however it is spelt', () => {
    const { ask, names, events } = server()
    const answer = ask({ name: 'A.Test' })
    expect(answer).toMatchObject({
      id: 4711,
      type: 'response',
      rcode: 'NOERROR',
      flag_rd: true,
      flag_ra: true,
      questions: [{ name: 'A.Test', type: 'A' }],
      answers: [{ name: 'A.Test', type: 'A', ttl: 60, data: names.addressOf('a.test') }],
    })
    expect(ask({ name: 'x.y.b.test' })?.answers).toHaveLength(1)
    expect(events).toEqual([])
  })

  test('has no other records of a listed name', () => {
    const { ask, events } = server()
    for (const type of ['AAAA', 'MX'] as const)
      expect(ask({ name: 'a.test', type })).toMatchObject({ rcode: 'NOERROR', answers: [] })
    expect(ask({ name: 'a.test', class: 'CH' })?.answers).toEqual([])
    expect(events).toEqual([])
  })

  test('knows no other name, with the line that would change that', () => {
    const { ask, events } = server()
    for (const name of ['evil.test', 'b.test', 'secret-data.evil.example', 'a.test.evil', '_x.evil'])
      expect(ask({ name })).toMatchObject({ rcode: 'NXDOMAIN', answers: [] })
    expect(events[0]).toEqual({
      type: 'denied',
      reason: 'not_listed',
      protocol: 'dns',
      host: 'evil.test',
      line: '"evil.test",',
    })
    expect(events).toHaveLength(5)
  })

  test('is quiet about reverse look-ups', () => {
    const { ask, events } = server()
    expect(ask({ name: '1.0.18.198.in-addr.arpa', type: 'PTR' })).toMatchObject({ rcode: 'NXDOMAIN' })
    expect(events).toEqual([])
  })

  test('answers options with options', () => {
    const { ask } = server()
    const answer = ask(
      { name: 'a.test' },
      {
        additionals: [
          {
            type: 'OPT',
            name: '.',
            udpPayloadSize: 4096,
            flags: 0,
            flag_do: false,
            extendedRcode: 0,
            ednsVersion: 0,
            options: [],
          },
        ],
      },
    )
    expect(answer?.additionals).toMatchObject([{ type: 'OPT', udpPayloadSize: 1232 }])
    expect(answer?.answers).toHaveLength(1)
  })

  test('fails, with an event, when there are too many names', () => {
    const { ask, events } = server(createSyntheticNames(1))
    ask({ name: '1.b.test' })
    expect(ask({ name: '2.b.test' })).toMatchObject({ rcode: 'SERVFAIL' })
    expect(events).toEqual([{ type: 'denied', reason: 'limit', protocol: 'dns', host: '2.b.test' }])
  })

  test('refuses what is no plain query', () => {
    const { raw, events } = server()
    const query = encode({ type: 'query', id: 1, questions: [{ type: 'A', name: 'a.test' }] })
    const changed = (at: number, value: number): Uint8Array => {
      const copy = Uint8Array.from(query)
      copy[at] = value
      return copy
    }
    expect(rcode(raw(query))).toBe(0)
    expect(raw(new Uint8Array(11))).toBeUndefined()
    expect(raw(changed(2, 0x80))).toBeUndefined()
    expect(rcode(raw(changed(2, 0x28)))).toBe(4)
    for (const [at, value] of [
      [5, 0],
      [5, 2],
      [7, 1],
      [9, 1],
      [11, 3],
      [12, 0xc0],
      [13, 0x1b],
      [12, 63],
    ] as const)
      expect(rcode(raw(changed(at, value))), `${at}`).toBe(1)
    expect(rcode(raw(Buffer.concat([query, Buffer.alloc(2000)])))).toBe(1)
    expect(events).toEqual([])
  })

  test('takes any bytes: it answers, or not, and never throws', () => {
    const { raw } = server()
    const query = encode({
      type: 'query',
      id: 1,
      questions: [{ type: 'A', name: 'a.test' }],
      additionals: [
        {
          type: 'OPT',
          name: '.',
          udpPayloadSize: 4096,
          flags: 0,
          flag_do: false,
          extendedRcode: 0,
          ednsVersion: 0,
          options: [],
        },
      ],
    })
    const header = Buffer.from('0001010000010000000000', 'hex')
    const mutated = fc
      .tuple(fc.array(fc.tuple(fc.nat(query.length - 1), fc.nat(255)), { maxLength: 6 }), fc.nat(query.length))
      .map(([changes, cut]) => {
        const copy = Buffer.from(query)
        for (const [at, value] of changes) copy[at] = value
        return copy.subarray(0, cut)
      })
    const headed = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.concat([header, bytes]))
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 600 }), mutated, headed), (bytes) => {
        const answer = raw(bytes)
        if (answer === undefined) return
        expect(answer.length).toBeLessThanOrEqual(bytes.length + 600)
        expect(Buffer.from(answer).subarray(0, 2)).toEqual(Buffer.from(bytes).subarray(0, 2))
        expect((answer[2] ?? 0) & 0x80).toBe(0x80)
      }),
      { numRuns: 5000 },
    )
  })
})
