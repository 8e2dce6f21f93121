import { describe, expect, test } from 'vitest'
import { checkPackages, parseImageReference, printRegistryReference } from '../../src/images/reference.ts'

const digest = `sha256:${'0123456789abcdef'.repeat(4)}`

describe('a reference', () => {
  test.each([
    ['alpine', 'docker.io/library/alpine:latest'],
    ['ubuntu:24.04', 'docker.io/library/ubuntu:24.04'],
    ['debian:12', 'docker.io/library/debian:12'],
    ['debian:latest', 'docker.io/library/debian:latest'],
    ['docker.io/library/debian:trixie-slim', 'docker.io/library/debian:trixie-slim'],
    ['docker.io/alpine', 'docker.io/library/alpine:latest'],
    ['team/app', 'docker.io/team/app:latest'],
    ['ghcr.io/a/b/c:v1.2_x', 'ghcr.io/a/b/c:v1.2_x'],
    ['localhost/app', 'localhost/app:latest'],
    ['127.0.0.1:5000/app:1', '127.0.0.1:5000/app:1'],
    ['[::1]:5000/app', '[::1]:5000/app:latest'],
    [`app@${digest}`, `docker.io/library/app@${digest}`],
    [`app:1@${digest}`, `docker.io/library/app@${digest}`],
    ['a-b__c/d.e', 'docker.io/a-b__c/d.e:latest'],
  ])('%s is %s', (ref, whole) => {
    const source = parseImageReference(ref)
    expect(source.kind).toBe('registry')
    if (source.kind === 'registry') expect(printRegistryReference(source.reference)).toBe(whole)
  })

  test('is a suite, Debian itself, or something on this machine', () => {
    expect(parseImageReference('debootstrap:bookworm')).toEqual({ kind: 'debootstrap', suite: 'bookworm' })
    expect(parseImageReference('debian:trixie-slim')).toEqual({
      kind: 'debian',
      suite: 'trixie',
      reference: { registry: 'docker.io', repository: 'library/debian', version: 'trixie-slim' },
    })
    expect(parseImageReference('dir:/a b/c:d')).toEqual({ kind: 'dir', path: '/a b/c:d' })
    expect(parseImageReference('tar:/root.tar')).toEqual({ kind: 'tar', path: '/root.tar' })
    expect(parseImageReference('oci:/a')).toEqual({ kind: 'oci', path: '/a' })
    expect(parseImageReference('oci-archive:/a.tar:1')).toEqual({ kind: 'oci-archive', path: '/a.tar', name: '1' })
    expect(parseImageReference('docker-archive:/a.tar:b/c:1')).toEqual({
      kind: 'docker-archive',
      path: '/a.tar',
      name: 'b/c:1',
    })
  })

  test.each([
    '',
    '--help',
    'debootstrap:',
    'debootstrap:a b',
    'debootstrap:../x',
    'dir:relative',
    'tar:',
    'oci-archive:x.tar',
    'oci:/a:',
    'docker-archive:',
    'debian:trixie-slim@sha256:0',
    `app@sha512:${'0'.repeat(64)}`,
    'UPPER',
    'a//b',
    '/a',
    'a/',
    'app:',
    'app:a b',
    'app:-x',
    `app:${'x'.repeat(129)}`,
    'x'.repeat(256),
    'a b',
    'http://x.example/y',
    'x.example:port/y',
    'x.example/../y',
    'a_b.c/d',
    'a\nb',
    'dir:/a\0b',
  ])('is not %j', (ref) => {
    expect(() => parseImageReference(ref)).toThrow(/^image ".*An image is "debian:trixie-slim"/s)
  })
})

describe('packages', () => {
  test('are sorted and each there once', () => {
    expect(checkPackages(['b1', 'a1', 'b1'])).toEqual(['a1', 'b1'])
  })
  test.each(['-y', 'a,b', 'a b', '../x', '?essential', 'A', 'a;b', '$(x)'])('have no %s among them', (name) => {
    expect(() => checkPackages([name])).toThrow(/not the name/)
  })
})
