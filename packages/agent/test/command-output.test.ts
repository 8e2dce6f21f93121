import type { ExecResult } from '@reve/sandbox-microvm'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { commandText, createStreamEnd, endBytes } from '../src/command-output.ts'

const result = (given: Partial<ExecResult> = {}): ExecResult => ({
  exitCode: 0,
  cancelled: false,
  timedOut: false,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  stdoutBytes: given.stdout?.length ?? 0,
  stderrBytes: given.stderr?.length ?? 0,
  leftRunning: [],
  durationMs: 1,
  ...given,
})
const said = (text: string, given: Partial<ExecResult> = {}): string =>
  commandText(result({ stdout: Buffer.from(text), ...given }), 120)

describe('what a command came to', () => {
  test.each([
    ['nothing', said(''), '(no output)'],
    ['text', said('a\n\n'), 'a'],
    ['a failure', said('a', { exitCode: 2 }), 'a\n(exit 2)'],
    ['a cancelled one', said('a', { exitCode: 130, cancelled: true }), 'a\n(cancelled: the command was killed)'],
    ['one that had ended when its time was up', said('a', { leftRunning: ['sleep'] }), 'a'],
    [
      'a timeout',
      said('', { exitCode: 124, timedOut: true, leftRunning: ['sh', 'sleep'] }),
      '(timed out after 120 s; still running and killed: sh, sleep)',
    ],
    ['CRLF', said('a\r\nb\r\n'), 'a\r\nb'],
    ['a line that was written over', said('1\r2\r3\r4\r\nb'), '4 (3 earlier states of this line are left out)\nb'],
    ['a line that was cleared at the end', said('1\r2\r3\r   '), '3 (3 earlier states of this line are left out)'],
    ['lines of an old kind', said('one\rtwo\rthree'), 'one\rtwo\rthree'],
  ])('%s', (_, text, expected) => {
    expect(text).toBe(expected)
  })

  test('of a stream that was not kept whole, its end, and what is missing in between', () => {
    const end = createStreamEnd()
    end.add(Buffer.from(`${'x'.repeat(endBytes)}tail\n`))
    const stdout = Buffer.from('head')
    const stdoutBytes = stdout.length + endBytes + 5
    const text = commandText(result({ stdout, stdoutBytes }), 1, { stdout: end, stderr: createStreamEnd() })
    expect(text).toMatch(/^head\n\(5 more bytes of output were not kept\)\nx+tail$/)
  })

  test('characters that are cut where the kept part ends and the end begins show nothing wrong', () => {
    const euros = Buffer.from('€'.repeat(100))
    const end = createStreamEnd()
    end.add(euros)
    const stdout = euros.subarray(0, 100)
    const text = commandText(result({ stdout, stdoutBytes: 300 }), 1, { stdout: end, stderr: createStreamEnd() })
    expect(text).toMatch(/^€{33}\n\(2 more bytes of output were not kept\)\n€{66}$/)
  })
})

test('the end of a stream is its end, in whatever pieces it came', () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 50_000 }), { maxLength: 12 }),
      fc.nat(2 * endBytes),
      (chunks, count) => {
        const end = createStreamEnd()
        for (const chunk of chunks) end.add(chunk)
        const all = Buffer.concat(chunks)
        const wanted = Math.min(count, endBytes)
        expect(Buffer.compare(end.last(count), wanted === 0 ? Buffer.alloc(0) : all.subarray(-wanted))).toBe(0)
      },
    ),
    { numRuns: 50 },
  )
})
