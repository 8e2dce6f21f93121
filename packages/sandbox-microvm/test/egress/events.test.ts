import { describe, expect, test } from 'vitest'
import { type EgressEvent, egressText, limitEvents } from '../../src/egress/events.ts'

const denied = (host: string): EgressEvent => ({
  type: 'denied',
  reason: 'not_listed',
  protocol: 'dns',
  host,
  line: `"${host}",`,
})

describe('events', () => {
  test('that are the same come once in a while', () => {
    const seen: EgressEvent[] = []
    let now = 1000
    const report = limitEvents(
      (event) => seen.push(event),
      () => now,
    )
    for (let index = 0; index < 100; index += 1) report(denied('a.test'))
    expect(seen).toHaveLength(1)
    now += 10_000
    report(denied('a.test'))
    expect(seen).toHaveLength(2)
    now = 5
    report(denied('a.test'))
    expect(seen).toHaveLength(3)
  })

  test('that are many are counted, and traffic does not hide refusals', () => {
    const seen: EgressEvent[] = []
    let now = 1000
    const report = limitEvents(
      (event) => seen.push(event),
      () => now,
    )
    for (let index = 0; index < 10_000; index += 1)
      report({ type: 'connected', host: 'a.test', port: index, address: '1.1.1.1' })
    expect(seen).toHaveLength(50)
    for (let index = 0; index < 10_000; index += 1) report(denied(`${index}.test`))
    expect(seen.filter(({ type }) => type === 'denied')).toHaveLength(50)
    now += 1000
    report(denied('last.test'))
    const left = seen.map((event) => (event.type === 'suppressed' ? event.count : 0)).reduce((a, b) => a + b)
    expect(left).toBe(20_000 - 100)
    expect(seen.at(-1)).toEqual(denied('last.test'))
  })

  test('are told in one line, with what to add', () => {
    expect(egressText(denied('pypi.org'))).toBe(
      'blocked dns to pypi.org: the name is not listed; to let it through, add "pypi.org", to allow in sandbox.lua',
    )
    const all: EgressEvent[] = [
      { type: 'denied', reason: 'server_name', protocol: 'tls', host: 'a.test', port: 443, asked: 'evil.test' },
      { type: 'connected', host: 'a.test', port: 443, address: '1.1.1.1' },
      { type: 'closed', host: 'a.test', port: 443, sent: 1, received: 2 },
      { type: 'unreachable', host: 'a.test', port: 443, reason: 'timeout' },
      { type: 'tls_failed', host: 'a.test', port: 443, side: 'server', code: 'CERT_HAS_EXPIRED' },
      { type: 'tls_failed', host: 'a.test', port: 443, side: 'guest' },
      { type: 'secret_used', name: 'A', host: 'a.test' },
      { type: 'secret_missing', name: 'A', host: 'a.test' },
      { type: 'secret_unusable', name: 'A', host: 'a.test' },
      { type: 'secret_withheld', name: 'A', host: 'a.test', reason: 'plain_http' },
      { type: 'secret_withheld', name: 'A', host: 'a.test', reason: 'other_host' },
      { type: 'suppressed', count: 3 },
    ]
    for (const event of all) expect(egressText(event)).toMatch(/^[\x20-\x7e]+$/)
  })
})
