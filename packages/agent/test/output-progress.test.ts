import { describe, expect, test } from 'vitest'
import { type Clock, outputProgress } from '../src/output-progress.ts'

/** A clock that is moved by hand. */
function handClock(): Clock & { pass(ms: number): void } {
  let time = 0
  let waiting: { readonly at: number; readonly callback: () => void }[] = []
  return {
    now: () => time,
    after: (ms, callback) => {
      const entry = { at: time + ms, callback }
      waiting.push(entry)
      return () => {
        waiting = waiting.filter((other) => other !== entry)
      }
    },
    pass(ms) {
      time += ms
      const due = waiting.filter(({ at }) => at <= time)
      waiting = waiting.filter(({ at }) => at > time)
      for (const { callback } of due) callback()
    },
  }
}

function watched() {
  const clock = handClock()
  const shown: string[] = []
  const progress = outputProgress((line) => shown.push(line), clock)
  const add = (text: string | Uint8Array, stream: 'stdout' | 'stderr' = 'stdout'): void =>
    progress.add(stream, typeof text === 'string' ? Buffer.from(text) : text)
  return { clock, shown, add, progress }
}

describe('the newest line of a running command', () => {
  test('is shown at once, then at most every 200 ms, and the last is never left out', () => {
    const { clock, shown, add } = watched()
    add('one\n')
    add('two\n')
    add('three\nfour\n')
    expect(shown).toEqual(['one'])
    clock.pass(199)
    expect(shown).toEqual(['one'])
    clock.pass(1)
    expect(shown).toEqual(['one', 'four'])
    clock.pass(1000)
    add('five\n', 'stderr')
    expect(shown).toEqual(['one', 'four', 'five'])
  })

  test('is whole: no part of a line, of a character, of a word', () => {
    const { clock, shown, add } = watched()
    const euro = Buffer.from('€\n')
    add(euro.subarray(0, 2))
    clock.pass(1000)
    expect(shown).toEqual([])
    add(euro.subarray(2))
    clock.pass(1000)
    add(`${'word '.repeat(60)}\n`)
    clock.pass(1000)
    add(`${'x'.repeat(300)}\n`)
    clock.pass(1000)
    expect(shown).toEqual(['€', `${'word '.repeat(39)}word …`])
  })

  test('of lines that return to their start, and between blank ones', () => {
    const { clock, shown, add } = watched()
    add('10%\r20%\r')
    clock.pass(1000)
    add('\n\n   \n')
    clock.pass(1000)
    expect(shown).toEqual(['20%'])
  })

  test('a line without an end takes no memory, and what comes after it is shown', () => {
    const { clock, shown, add } = watched()
    for (let index = 0; index < 100; index++) add('x'.repeat(4000))
    add(' end\nnext\n')
    clock.pass(1000)
    add(`${'y'.repeat(5000)}\n`)
    add('last\n')
    clock.pass(1000)
    expect(shown).toEqual(['next', 'last'])
  })

  test('moves no cursor, and nothing comes after the end', () => {
    const { clock, shown, add, progress } = watched()
    add('\u001b[2Jred \u001b]0;title\u0007alert\n')
    add('late\n')
    progress.end()
    clock.pass(1000)
    expect(shown).toEqual(['red alert'])
  })
})
