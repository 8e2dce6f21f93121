import { readClientHello } from './client-hello.ts'

/** What a client's first bytes are. */
export type FirstBytes =
  /** A whole ClientHello, with the name that it asks for. */
  | { readonly kind: 'tls'; readonly serverName: string | undefined }
  /** The request line of HTTP/1. */
  | { readonly kind: 'http' }
  /** Any other protocol. */
  | { readonly kind: 'other' }
  /** Nothing came in time: in some protocols the server speaks first. */
  | { readonly kind: 'silent' }
  /** Cut short, too long or too slow. */
  | { readonly kind: 'malformed' }
  /** It closed without a byte. */
  | { readonly kind: 'ended' }

const TLS_HANDSHAKE = 0x16
const LONGEST_REQUEST_LINE = 16_384
const LONGEST_METHOD = 32
const METHOD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]*$/
const REQUEST_LINE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ ]+ HTTP\/1\.[01]\r?$/

/**
 * What bytes are, as far as they go; `more`: so many are needed to tell. `isAll`: no more will come. Takes any bytes; needs at
 * most 32 KiB of them.
 */
export function judgeFirstBytes(
  bytes: Buffer,
  isAll = false,
): FirstBytes | { readonly kind: 'more'; readonly need: number } {
  const found = judge(bytes)
  if (found.kind !== 'more' || !isAll) return found
  if (bytes.length === 0) return { kind: 'ended' }
  return { kind: bytes[0] === TLS_HANDSHAKE ? 'malformed' : 'other' }
}

function judge(bytes: Buffer): FirstBytes | { readonly kind: 'more'; readonly need: number } {
  if (bytes.length === 0) return { kind: 'more', need: 1 }
  if (bytes[0] === TLS_HANDSHAKE && (bytes.length === 1 || bytes[1] === 3)) {
    const hello = readClientHello(bytes)
    switch (hello.state) {
      case 'more':
        return { kind: 'more', need: hello.need }
      case 'whole':
        return { kind: 'tls', serverName: hello.serverName }
      case 'malformed':
        return { kind: 'malformed' }
    }
  }
  // Servers skip empty lines before a request, and so do we.
  let start = 0
  while (bytes[start] === 13 || bytes[start] === 10) start += 1
  const tooLong = start + LONGEST_REQUEST_LINE
  const space = bytes.indexOf(32, start)
  const method = bytes.toString(
    'latin1',
    start,
    Math.min(space === -1 ? bytes.length : space, start + LONGEST_METHOD + 1),
  )
  if (method.length > LONGEST_METHOD || !METHOD.test(method) || space === start) return { kind: 'other' }
  const end = bytes.indexOf(10, start)
  if (end === -1) return bytes.length > tooLong ? { kind: 'malformed' } : { kind: 'more', need: bytes.length + 1 }
  return { kind: REQUEST_LINE.test(bytes.toString('latin1', start, end)) ? 'http' : 'other' }
}
