import { expect, test } from 'vitest'
import { fingerprint } from '../src/index.ts'

const spec = { image: { ref: 'debian:trixie-slim', packages: ['git', 'python3'] }, bootstrap: ['npm ci'] }

test('a fingerprint never changes by itself: a disk of an older version is found again', () => {
  expect(fingerprint(spec)).toBe('419a1c47bcc8ee9838bba2754ee3b979896029ed55a693487be46f3e085fa11e')
  expect(fingerprint({ image: { ref: 'debootstrap:bookworm', packages: [] }, bootstrap: [] })).toBe(
    '42bf7893c558a6086d5618a48001a7dd36b642622690e04f938eb2db2c1e137b',
  )
})

test('it covers image, packages as a set, bootstrap in order, and backend', () => {
  const changed = [
    { ...spec, image: { ...spec.image, ref: 'debootstrap:trixie' } },
    { ...spec, image: { ...spec.image, packages: ['git'] } },
    { ...spec, bootstrap: [] },
    { ...spec, bootstrap: ['npm ci', 'x'] },
    { ...spec, bootstrap: ['x', 'npm ci'] },
  ].map((other) => fingerprint(other))
  expect(new Set([fingerprint(spec), fingerprint(spec, 'microsandbox'), ...changed]).size).toBe(7)
  expect(fingerprint({ ...spec, image: { ...spec.image, packages: ['python3', 'git', 'git'] } })).toBe(
    fingerprint(spec),
  )
})

test('it does not cover what may change over one disk', () => {
  const more = { ...spec, env: { A: 'b' }, cpus: 7, memoryMiB: 1, egress: { kind: 'list', hosts: ['a.b'] }, mounts: [] }
  expect(fingerprint(more)).toBe(fingerprint(spec))
})
