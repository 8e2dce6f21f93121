import { execFileSync } from 'node:child_process'
import { randomBytes, X509Certificate } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createAuthority } from '../../src/egress/authority.ts'
import { oid, time } from '../../src/egress/der.ts'

const openssl = (() => {
  try {
    return execFileSync('openssl', ['version'], { encoding: 'utf8' }).trim()
  } catch {
    return undefined
  }
})()
if (openssl === undefined) process.stderr.write('skipped: openssl is not installed here\n')

const make = (now = Date.now) => createAuthority({ name: 'an authority', now, randomBytes })

describe('an authority', () => {
  test('issues certificates for a name and for servers, which it signed', () => {
    const authority = make()
    const root = new X509Certificate(authority.certificate)
    const leaf = new X509Certificate(authority.issue('api.test').certificate)
    expect(root.ca).toBe(true)
    expect(root.verify(root.publicKey)).toBe(true)
    expect(leaf.ca).toBe(false)
    expect(leaf.verify(root.publicKey)).toBe(true)
    expect(leaf.checkIssued(root)).toBe(true)
    expect(leaf.checkHost('api.test')).toBe('api.test')
    expect(leaf.checkHost('x.api.test')).toBeUndefined()
    expect(leaf.subjectAltName).toBe('DNS:api.test')
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1'])
    expect(leaf.publicKey.asymmetricKeyDetails?.namedCurve).toBe('prime256v1')
  })

  test('is another one each time, with other numbers on each certificate', () => {
    const [one, two] = [make(), make()]
    expect(
      new X509Certificate(one.issue('a.test').certificate).verify(new X509Certificate(two.certificate).publicKey),
    ).toBe(false)
    const serials = Array.from({ length: 50 }, () => new X509Certificate(one.issue('a.test').certificate).serialNumber)
    expect(new Set(serials).size).toBe(50)
  })

  test('has its key nowhere in what can be read of it', () => {
    const authority = make()
    expect(Object.keys(authority).toSorted()).toEqual(['certificate', 'contextFor', 'issue'])
    expect(JSON.stringify(authority)).not.toContain('PRIVATE')
    expect(authority.certificate).not.toContain('PRIVATE')
  })

  test('keeps a context until it is near its end', () => {
    let now = Date.now()
    const authority = make(() => now)
    const first = authority.contextFor('a.test')
    expect(authority.contextFor('a.test')).toBe(first)
    expect(authority.contextFor('b.test')).not.toBe(first)
    now += 60 * 86_400_000
    expect(authority.contextFor('a.test')).not.toBe(first)
  })

  test('issues for names of any length', () => {
    const name = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.test`
    expect(new X509Certificate(make().issue(name).certificate).checkHost(name)).toBe(name)
  })

  test.skipIf(openssl === undefined)('passes the strict checks of OpenSSL', () => {
    const folder = mkdtempSync(join(tmpdir(), 'egress-ca-'))
    try {
      const authority = make()
      writeFileSync(join(folder, 'ca.pem'), authority.certificate)
      writeFileSync(join(folder, 'leaf.pem'), authority.issue('api.test').certificate)
      const verify = (...more: string[]) =>
        execFileSync(
          'openssl',
          [
            'verify',
            '-x509_strict',
            '-purpose',
            'sslserver',
            ...more,
            '-CAfile',
            join(folder, 'ca.pem'),
            join(folder, 'leaf.pem'),
          ],
          { encoding: 'utf8', stdio: 'pipe' },
        )
      expect(verify('-verify_hostname', 'api.test')).toContain('OK')
      expect(() => verify('-verify_hostname', 'evil.test')).toThrow(/mismatch/)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

describe('DER', () => {
  test('has identifiers and times as the standard writes them', () => {
    expect(oid('1.2.840.10045.4.3.2').toString('hex')).toBe('06082a8648ce3d040302')
    expect(oid('2.5.29.17').toString('hex')).toBe('0603551d11')
    expect(
      time(Date.UTC(2049, 11, 31, 23, 59, 59))
        .subarray(2)
        .toString(),
    ).toBe('491231235959Z')
    expect(
      time(Date.UTC(2050, 0, 1))
        .subarray(2)
        .toString(),
    ).toBe('20500101000000Z')
    expect(time(0)[0]).toBe(0x17)
  })
})
