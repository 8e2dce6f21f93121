import { decode, encode, type Packet } from 'dns-packet'
import type { AllowList } from './allow-list.ts'
import type { EgressEvent } from './events.ts'
import type { SyntheticNames } from './names.ts'

/** Longer than any question with its options. */
const LONGEST_QUERY = 1024
const HEADER = 12
/** Seconds; an address stays the name's, so it could be more. */
const TTL = 60
const OUR_UDP_SIZE = 1232

const NO_ERROR = 0
const FORMAT_ERROR = 1
const SERVER_FAILURE = 2
const NO_SUCH_NAME = 3
const NOT_IMPLEMENTED = 4

/** A name that may be asked for; wider than a host name by `_`, as in `_dmarc`. */
const QUESTION_NAME = /^(?=.{1,253}$)(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}$/

/**
 * Answers one DNS message of a guest. A listed name has one A record, its synthetic address, and no other records; any other
 * name does not exist, which is an event, but for reverse look-ups. Nothing is ever asked of another server here. Takes any
 * bytes; undefined: what is no query gets no answer.
 */
export function answerDns(
  query: Uint8Array,
  parts: {
    readonly allow: AllowList
    readonly names: SyntheticNames
    readonly report: (event: EgressEvent) => void
  },
): Uint8Array | undefined {
  const head = Buffer.from(query.buffer, query.byteOffset, query.byteLength)
  if (head.length < HEADER || (head.readUInt16BE(2) & 0x80_00) !== 0) return undefined
  const [questions, answers, authorities, additionals] = [4, 6, 8, 10].map((at) => head.readUInt16BE(at))
  if (head.length > LONGEST_QUERY || questions !== 1 || answers !== 0 || authorities !== 0 || (additionals ?? 0) > 2)
    return bare(head, FORMAT_ERROR)
  if (((head.readUInt16BE(2) >> 11) & 15) !== 0) return bare(head, NOT_IMPLEMENTED)

  let asked: Packet
  try {
    asked = decode(head)
  } catch (error) {
    // The decoder has no other way to say that bytes are no message.
    return error instanceof Error ? bare(head, FORMAT_ERROR) : undefined
  }
  const question = asked.questions?.[0]
  const name = question?.name.toLowerCase()
  if (question === undefined || name === undefined || !QUESTION_NAME.test(name)) return bare(head, FORMAT_ERROR)

  const options = asked.additionals?.some(({ type }) => type === 'OPT') === true
  const reply = (code: number, address?: string): Uint8Array =>
    encode({
      type: 'response',
      id: head.readUInt16BE(0),
      // Recursion desired is copied; recursion is available; the code has the low four bits.
      flags: (head.readUInt16BE(2) & 0x01_00) | 0x00_80 | code,
      questions: [question],
      answers: address === undefined ? [] : [{ type: 'A', class: 'IN', name: question.name, ttl: TTL, data: address }],
      additionals: options
        ? [
            {
              type: 'OPT',
              name: '.',
              udpPayloadSize: OUR_UDP_SIZE,
              flags: 0,
              flag_do: false,
              extendedRcode: 0,
              ednsVersion: 0,
              options: [],
            },
          ]
        : [],
    })

  if (parts.allow.portsOf(name).length === 0) {
    if (!name.endsWith('.arpa'))
      parts.report({ type: 'denied', reason: 'not_listed', protocol: 'dns', host: name, line: `"${name}",` })
    return reply(NO_SUCH_NAME)
  }
  if (question.type !== 'A' || (question.class ?? 'IN') !== 'IN') return reply(NO_ERROR)
  const address = parts.names.addressOf(name)
  if (address !== undefined) return reply(NO_ERROR, address)
  parts.report({ type: 'denied', reason: 'limit', protocol: 'dns', host: name })
  return reply(SERVER_FAILURE)
}

/** A header alone, for what cannot be answered. */
function bare(query: Buffer, code: number): Uint8Array {
  const header = Buffer.alloc(HEADER)
  header.writeUInt16BE(query.readUInt16BE(0), 0)
  header.writeUInt16BE(0x80_80 | (query.readUInt16BE(2) & 0x79_00) | code, 2)
  return header
}
