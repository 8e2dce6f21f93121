import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { endToEnd, judgeHead } from '../../src/egress/http-head.ts'

const here = { name: 'api.test', port: 443, secure: true }
const judge = (target: string, headers: readonly string[], version = '1.1', dialled = here) => {
  const judged = judgeHead({ target, version, headers }, dialled)
  return judged.ok ? judged.target : judged.status
}

describe('a request head', () => {
  test.each([
    ['/x', ['Host', 'api.test'], '/x'],
    ['/x', ['HOST', 'API.test:443'], '/x'],
    ['/x', ['Host', 'api.test.'], '/x'],
    ['/x', ['Host', 'api.test:'], '/x'],
    ['*', ['Host', 'api.test'], '*'],
    ['https://api.test', ['Host', 'api.test'], '/'],
    ['HTTPS://API.TEST:443/a?b', ['Host', 'api.test'], '/a?b'],
    ['https://api.test?b', ['Host', 'api.test'], '/?b'],
    ['/x', ['Host', 'evil.test'], 421],
    ['/x', ['Host', 'api.test.evil'], 421],
    ['/x', ['Host', 'xapi.test'], 421],
    ['/x', ['Host', 'api.test:80'], 421],
    ['/x', ['Host', 'api.test:443:443'], 421],
    ['/x', ['Host', 'user@api.test'], 421],
    ['/x', ['Host', 'api.test, evil.test'], 421],
    ['/x', ['Host', ''], 421],
    ['https://evil.test/', ['Host', 'api.test'], 421],
    ['https://api.test@evil.test/', ['Host', 'api.test'], 421],
    ['https://api.test\\@evil.test/', ['Host', 'api.test'], 421],
    ['http://api.test/', ['Host', 'api.test'], 421],
    ['https://api.test/', ['Host', 'evil.test'], 421],
    ['/x', ['Host', 'api.test', 'host', 'api.test'], 400],
    ['/x', [], 400],
    ['x', ['Host', 'api.test'], 400],
    ['', ['Host', 'api.test'], 400],
    ['evil.test:443', ['Host', 'api.test'], 400],
  ])('%s %j is %s', (target, headers, expected) => {
    expect(judge(target, headers)).toBe(expected)
  })

  test('of HTTP/1.0 may leave out the host, which is then put in', () => {
    expect(judgeHead({ target: '/', version: '1.0', headers: ['A', 'b'] }, here)).toMatchObject({
      ok: true,
      fields: [
        ['Host', 'api.test'],
        ['A', 'b'],
      ],
    })
  })

  test('names the port where it is not the usual one', () => {
    const plain = { name: 'api.test', port: 8080, secure: false }
    expect(judge('/', ['Host', 'api.test:8080'], '1.1', plain)).toBe('/')
    expect(judge('/', ['Host', 'api.test'], '1.1', plain)).toBe(421)
    expect(judge('http://api.test:8080/a', ['Host', 'api.test:8080'], '1.1', plain)).toBe('/a')
    expect(judge('/', ['Host', 'api.test'], '1.1', { ...plain, port: 80 })).toBe('/')
  })

  test('goes on without what ends here', () => {
    expect(
      endToEnd([
        ['Connection', 'close'],
        ['KEEP-ALIVE', 'x'],
        ['Proxy-Authorization', 'y'],
        ['Upgrade', 'h2c'],
        ['TE', 'trailers'],
        ['Transfer-Encoding', 'chunked'],
      ]),
    ).toEqual([
      ['TE', 'trailers'],
      ['Transfer-Encoding', 'chunked'],
    ])
  })

  test('of any text goes to that host and to no other, or nowhere', () => {
    const pieces = fc.constantFrom(
      'api.test',
      'evil.test',
      ':',
      '443',
      '@',
      '/',
      '\\',
      '.',
      '//',
      'https',
      '?',
      '#',
      ' ',
      '\0',
    )
    const texts = fc.oneof(
      fc.string(),
      fc.array(pieces, { maxLength: 7 }).map((list) => list.join('')),
    )
    fc.assert(
      fc.property(texts, fc.array(texts, { maxLength: 4 }), texts, (target, others, host) => {
        const judged = judgeHead(
          { target, version: '1.1', headers: ['Host', host, ...others.flatMap((value) => ['X', value])] },
          here,
        )
        if (!judged.ok) return
        expect(host.toLowerCase()).toMatch(/^api\.test\.?(?::(?:0{0,2}443)?)?$/)
        expect(judged.target === '*' || judged.target.startsWith('/')).toBe(true)
      }),
      { numRuns: 5000 },
    )
  })
})
