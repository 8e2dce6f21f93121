import type { EgressEvent } from '@reve/sandbox-microvm'
import { expect, test } from 'vitest'
import { createNetworkNotes, withNetworkNotes } from '../src/network-notes.ts'

const denied = (host: string): EgressEvent => ({
  type: 'denied',
  reason: 'not_listed',
  protocol: 'dns',
  host,
  line: `"${host}",`,
})

test('a result names the host that was not let through and the line that lets it', () => {
  const notes = createNetworkNotes(() => 0)
  const mark = notes.mark()
  notes.add({ type: 'connected', host: 'listed.example', port: 443, address: '192.0.2.1' })
  notes.add(denied('example.com'))
  notes.add(denied('example.com'))
  const text = withNetworkNotes('curl: (6) Could not resolve host', notes.after(mark, ''))
  expect(text.split('\n')).toHaveLength(2)
  expect(text).toMatch(/^curl: .*\n\(network: .*example\.com.*sandbox\.lua.*\)$/)
  expect(withNetworkNotes('fine', notes.after(notes.mark(), ''))).toBe('fine')
})

test('what was told shortly before is told again where the output names the host', () => {
  let now = 0
  const notes = createNetworkNotes(() => now)
  notes.add(denied('example.com'))
  const mark = notes.mark()
  expect(notes.after(mark, 'other')).toEqual([])
  expect(notes.after(mark, 'cannot reach example.com')).toHaveLength(1)
  now = 60_000
  expect(notes.after(mark, 'cannot reach example.com')).toEqual([])
})

test('of many the first few are told', () => {
  const notes = createNetworkNotes(() => 0)
  const mark = notes.mark()
  for (let index = 0; index < 1000; index++) notes.add(denied(`host-${index}.example`))
  const told = notes.after(mark, '')
  expect(told).toHaveLength(6)
  expect(told.at(-1)).toBe('and 195 more')
})
