/** A hello is split over few records by those who mean it; each costs us a look from the start. */
const MOST_RECORDS = 16
/** Bytes of a hello with everything that post-quantum keys bring, many times over. */
const LONGEST_HELLO = 16_384

/** What the first bytes of a TLS client say. */
export type ClientHello =
  /** So far it is one; at least so many bytes are needed to go on. */
  | { readonly state: 'more'; readonly need: number }
  /** Whole. `serverName` in lower case, without a dot at the end; undefined: it names none. */
  | { readonly state: 'whole'; readonly serverName: string | undefined }
  | { readonly state: 'malformed' }

const MALFORMED = { state: 'malformed' } as const
const SERVER_NAME = 0

/**
 * Reads a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3) out of the bytes of a connection's start, for its server name. An
 * encrypted hello is known by its outer name, which is what the network sees. Takes any bytes.
 */
export function readClientHello(bytes: Uint8Array): ClientHello {
  const input = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  // The handshake message, out of its records.
  const parts: Buffer[] = []
  let have = 0
  let wanted: number | undefined
  let at = 0
  for (let records = 0; wanted === undefined || have < wanted; records += 1) {
    if (records === MOST_RECORDS) return MALFORMED
    if (input.length > at && input[at] !== 0x16) return MALFORMED
    if (input.length > at + 1 && input[at + 1] !== 3) return MALFORMED
    if (input.length < at + 5) return { state: 'more', need: at + 5 }
    const length = input.readUInt16BE(at + 3)
    if (length === 0 || length > LONGEST_HELLO) return MALFORMED
    if (input.length < at + 5 + length) return { state: 'more', need: at + 5 + length }
    parts.push(input.subarray(at + 5, at + 5 + length))
    have += length
    at += 5 + length
    if (wanted === undefined && have >= 4) {
      const start = Buffer.concat(parts)
      wanted = 4 + start.readUIntBE(1, 3)
      if (start[0] !== 1 || wanted > LONGEST_HELLO) return MALFORMED
    }
  }
  const reader = createReader(Buffer.concat(parts).subarray(4, wanted))
  try {
    return { state: 'whole', serverName: readServerName(reader) }
  } catch (error) {
    if (error instanceof RangeError) return MALFORMED
    throw error
  }
}

type Reader = ReturnType<typeof createReader>

/** Takes fields off the front; what is not there is a RangeError. */
function createReader(bytes: Buffer) {
  let at = 0
  const take = (length: number): Buffer => {
    if (length > bytes.length - at) throw new RangeError('cut short')
    at += length
    return bytes.subarray(at - length, at)
  }
  const number = (size: 1 | 2): number => take(size).readUIntBE(0, size)
  return {
    number,
    take,
    /** A field with its length in front. */
    vector: (size: 1 | 2): Buffer => take(number(size)),
    isDone: () => at === bytes.length,
  }
}

function readServerName(hello: Reader): string | undefined {
  hello.take(2 + 32) // version, random
  hello.vector(1) // session id
  hello.vector(2) // cipher suites
  hello.vector(1) // compression methods
  if (hello.isDone()) return undefined
  const extensions = createReader(hello.vector(2))
  if (!hello.isDone()) throw new RangeError('bytes after the extensions')
  let name: string | undefined
  let seen = false
  while (!extensions.isDone()) {
    const type = extensions.number(2)
    const body = extensions.vector(2)
    if (type !== SERVER_NAME) continue
    // Twice is forbidden, and a server that takes the other one is reached by a name that was not looked at.
    if (seen) throw new RangeError('two server names')
    seen = true
    const outer = createReader(body)
    const list = createReader(outer.vector(2))
    if (!outer.isDone()) throw new RangeError('bytes after the list')
    if (list.number(1) !== 0) throw new RangeError('no host name')
    const written = list.vector(2)
    if (!list.isDone()) throw new RangeError('two server names')
    name = written.toString('latin1').toLowerCase().replace(/\.$/, '')
    if (!/^[a-z0-9_.-]{1,255}$/.test(name)) throw new RangeError('no host name')
  }
  return name
}
