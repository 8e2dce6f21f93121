/**
 * A process of its own for the tests: `node --conditions=@reve/source child.ts <what> <file>`. It says what it does on
 * standard output, one JSON a line, written at once.
 */
import { writeSync } from 'node:fs'
import { type Draft, openSession, SessionLogError } from '../src/index.ts'

const [what, file = ''] = process.argv.slice(2)
const say = (value: unknown) => writeSync(1, `${JSON.stringify(value)}\n`)

const log = await openSession(file)
say({ open: process.pid, repaired: log.repaired ?? null })

const note = (data: string): Draft => ({
  kind: 'entry',
  lane: 'main',
  type: 'custom',
  payload: { customType: 'n', data },
})

switch (what) {
  case 'hold':
    setInterval(() => undefined, 1000)
    break
  case 'append':
    // Some alone, some together; small ones and ones of many pages; each acknowledged line is told.
    for (let round = 0; ; round++) {
      const appends = Array.from({ length: (round % 4) + 1 }, (_, i) =>
        log.append([note('ä€😀'.repeat(((round * 7 + i) % 50) ** 2)), note(`${round}.${i}`)]),
      )
      for (const lines of await Promise.all(appends)) for (const { id, seq } of lines) say({ id, seq })
    }
  case 'fill':
    try {
      for (;;) for (const { id, seq } of await log.append([note('x'.repeat(1000))])) say({ id, seq })
    } catch (error) {
      if (!(error instanceof SessionLogError)) throw error
      say({ failed: error.code, message: error.message })
    }
    break
  case undefined:
  default:
    throw new Error(`unknown: ${what}`)
}
