import { createPublicKey, generateKeyPairSync, hash, type KeyObject, sign } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import { bits, bool, bytes, context, integer, oid, pem, sequence, set, text, time } from './der.ts'

/** A certificate and its key, both PEM. */
export type Identity = { readonly certificate: string; readonly key: string }

/** A certificate authority whose key lives in this object and nowhere else. */
export type Authority = {
  /** PEM of its own certificate. */
  readonly certificate: string
  /** A new certificate for a server of that name. */
  issue(name: string): Identity
  /** The same, kept until it is near its end, ready for TLS. */
  contextFor(name: string): SecureContext
}

const DAY_MS = 86_400_000
/** A guest's clock may be behind. */
const EARLIER_MS = 2 * DAY_MS
const AUTHORITY_MS = 3650 * DAY_MS
const LEAF_MS = 90 * DAY_MS
const MOST_CONTEXTS = 256

const ECDSA_WITH_SHA256 = sequence(oid('1.2.840.10045.4.3.2'))
const P256_POINT_BYTES = 65

/**
 * A new authority: ECDSA on P-256, ten years. Its key is made here and cannot be read out.
 *
 * X.509 is written by hand: only four extensions are needed and nothing is parsed; the library for it would bring twenty
 * packages and a quarter of a second of start-up.
 */
export function createAuthority(parts: {
  readonly name: string
  readonly now: () => number
  readonly randomBytes: (length: number) => Uint8Array
}): Authority {
  const authorityKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
  const leafKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
  const leafKeyText = leafKey.export({ type: 'pkcs8', format: 'pem' })
  const authorityId = keyId(authorityKey)
  const issuer = commonName(parts.name)
  const contexts = new Map<string, { readonly until: number; readonly context: SecureContext }>()

  const certificate = (subject: Buffer, key: KeyObject, until: number, extensions: readonly Buffer[]): string => {
    const serial = Buffer.from(parts.randomBytes(16))
    // Positive, and never with a zero byte in front.
    serial[0] = ((serial[0] ?? 0) & 0x3f) | 0x40
    const body = sequence(
      context(0, integer(Buffer.from([2]))),
      integer(serial),
      ECDSA_WITH_SHA256,
      issuer,
      sequence(time(parts.now() - EARLIER_MS), time(until)),
      subject,
      publicKey(key),
      context(3, sequence(...extensions)),
    )
    return pem('CERTIFICATE', sequence(body, ECDSA_WITH_SHA256, bits(sign('sha256', body, authorityKey))))
  }

  const issue = (name: string): Identity => ({
    // The name stands in the subject's alternative name alone: a common name ends at 64 characters.
    certificate: certificate(commonName('reve sandbox'), leafKey, parts.now() + LEAF_MS, [
      extension('2.5.29.19', true, sequence()),
      extension('2.5.29.15', true, bits(Buffer.from([0x80]), 7)),
      extension('2.5.29.37', false, sequence(oid('1.3.6.1.5.5.7.3.1'))),
      extension('2.5.29.17', false, sequence(context(2, Buffer.from(name, 'latin1'), 'primitive'))),
      extension('2.5.29.14', false, bytes(keyId(leafKey))),
      extension('2.5.29.35', false, sequence(context(0, authorityId, 'primitive'))),
    ]),
    key: leafKeyText,
  })

  return {
    certificate: certificate(issuer, authorityKey, parts.now() + AUTHORITY_MS, [
      extension('2.5.29.19', true, sequence(bool(true), integer(Buffer.from([0])))),
      extension('2.5.29.15', true, bits(Buffer.from([0x06]), 1)),
      extension('2.5.29.14', false, bytes(authorityId)),
    ]),
    issue,
    contextFor: (name) => {
      const known = contexts.get(name)
      if (known !== undefined && parts.now() < known.until) return known.context
      if (contexts.size >= MOST_CONTEXTS) contexts.clear()
      const identity = issue(name)
      const context = createSecureContext({ cert: identity.certificate, key: identity.key, minVersion: 'TLSv1.2' })
      contexts.set(name, { until: parts.now() + LEAF_MS / 2, context })
      return context
    },
  }
}

const commonName = (name: string): Buffer => sequence(set(sequence(oid('2.5.4.3'), text(name))))

const extension = (id: string, critical: boolean, value: Buffer): Buffer =>
  critical ? sequence(oid(id), bool(true), bytes(value)) : sequence(oid(id), bytes(value))

const publicKey = (key: KeyObject): Buffer => createPublicKey(key).export({ type: 'spki', format: 'der' })

/** RFC 7093: the front of a hash over the key's bits, which stand at the end of their envelope. */
const keyId = (key: KeyObject): Buffer =>
  hash('sha256', publicKey(key).subarray(-P256_POINT_BYTES), 'buffer').subarray(0, 20)
