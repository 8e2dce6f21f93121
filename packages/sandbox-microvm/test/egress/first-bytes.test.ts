import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { judgeFirstBytes } from '../../src/egress/first-bytes.ts'

const judge = (text: string, isAll = false): string => judgeFirstBytes(Buffer.from(text, 'latin1'), isAll).kind

describe('first bytes', () => {
  test.each([
    ['GET / HTTP/1.1\r\n', 'http'],
    ['POST /a?b HTTP/1.0\n', 'http'],
    ['\r\n\r\nM-SEARCH * HTTP/1.1\r\nHost', 'http'],
    ['CONNECT evil.test:443 HTTP/1.1\r\n', 'http'],
    ['GET / HTTP/1.1', 'more'],
    ['GE', 'more'],
    ['\r\n', 'more'],
    ['PRI * HTTP/2.0\r\n\r\n', 'other'],
    ['OPTIONS rtsp://x RTSP/1.0\r\n', 'other'],
    ['SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n', 'other'],
    ['EHLO here\r\n', 'other'],
    ['PING\r\n', 'other'],
    ['\0\0\0\x08\x04\xd2\x16\x2f', 'other'],
    [' GET / HTTP/1.1\r\n', 'other'],
    ['A'.repeat(33), 'other'],
    [`GET /${'a'.repeat(17_000)}`, 'malformed'],
    ['\x16', 'more'],
    ['\x16\x03', 'more'],
    ['\x16\x04', 'other'],
    ['\x16\x03\x01\x00\x00', 'malformed'],
    ['\x80\x2e\x01\x03\x01', 'other'],
    ['', 'more'],
  ])('%j are %s', (text, kind) => {
    expect(judge(text)).toBe(kind)
  })

  test('that are all there is are known for what they are', () => {
    expect(judge('', true)).toBe('ended')
    expect(judge('hello there', true)).toBe('other')
    expect(judge('\x16\x03\x01', true)).toBe('malformed')
  })

  test('of any kind are told, with at most 32 KiB, or asked for more of', () => {
    const pieces = fc.constantFrom(
      'GET',
      ' ',
      '/',
      'HTTP/1.1',
      '\r',
      '\n',
      '\x16',
      '\x03',
      '\x01',
      '\0',
      'a'.repeat(9000),
    )
    const texts = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.array(pieces, { maxLength: 12 }).map((list) => Buffer.from(list.join(''), 'latin1')),
    )
    fc.assert(
      fc.property(texts, (bytes) => {
        const found = judgeFirstBytes(Buffer.from(bytes))
        if (found.kind === 'more') {
          expect(found.need).toBeGreaterThan(bytes.length)
          expect(bytes.length).toBeLessThan(32_768)
        }
        expect(judgeFirstBytes(Buffer.from(bytes), true).kind).not.toBe('more')
      }),
      { numRuns: 5000 },
    )
  })
})
