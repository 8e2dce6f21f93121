import { expect, test } from 'vitest'
import { allowedHost, allowedOrigin } from '../src/hosts.ts'

const served = { host: '127.0.0.1', allowedHosts: ['kc.example'] }

test.each([
  ['127.0.0.1:7333', true],
  ['LOCALHOST:7333', true],
  ['[::1]:7333', true],
  ['kc.example', true],
  ['evil.example:7333', false],
  ['localhost.evil.example', false],
  ['127.0.0.1.evil.example', false],
  ['', false],
  [undefined, false],
])('Host %s', (host, allowed) => {
  expect(allowedHost(host, served)).toBe(allowed)
})

test('an IPv6 address that is served is named in brackets', () => {
  expect(allowedHost('[fd00::1]:7333', { host: 'fd00::1' })).toBe(true)
  expect(allowedHost('fd00::1', { host: 'fd00::2' })).toBe(false)
})

test.each([
  [undefined, true],
  ['http://localhost:3000', true],
  ['https://kc.example', true],
  ['https://evil.example', false],
  ['null', false],
  ['file://', false],
])('Origin %s', (origin, allowed) => {
  expect(allowedOrigin(origin, served)).toBe(allowed)
})
