import type { AssistantMessage, JsonObject } from '@reve/providers/model'
import fc from 'fast-check'
import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { createCleaner } from '../src/clean.ts'
import { createDeltaFilter } from '../src/deltas.ts'
import { echoTool, newLog, rig } from './support.ts'

const secret = 'sk-1234567890'
const redact = (text: string): string => text.replaceAll(secret, '[redacted]')

test('a secret is in no byte of the file and in no event, wherever it comes from', async () => {
  const log = await newLog()
  const { harness, events } = rig(log, {
    redact,
    turns: [
      { text: 'x', fail: { code: 'server', message: `bad key ${secret}`, times: 1 } },
      { text: 'x', fail: { code: 'auth', message: 'never reached', times: 0 } },
    ],
    effects: { sleep: () => Promise.resolve() },
  })
  await harness.nextRun(`next ${secret}`)
  await harness.prompt(`my key is ${secret}`)
  const other = rig(log, {
    redact,
    turns: [
      {},
      {
        reasoning: `thinking of ${secret}`,
        text: `it is ${secret}!`,
        chunk: 3,
        calls: [
          { name: 'echo', arguments: { say: secret, [secret]: [secret] } },
          { name: secret, malformed: `{${secret}` },
          { name: 'boom', arguments: {} },
        ],
      },
      { text: 'done' },
    ],
    tools: [
      {
        ...echoTool(),
        run: (args, { progress }) => {
          progress(`at ${secret}`)
          return Promise.resolve({ content: [{ type: 'text', text: JSON.stringify(args) + secret }] })
        },
      },
      { ...echoTool(), name: 'boom', parameters: {}, run: () => Promise.reject(new Error(`with ${secret}`)) },
    ],
  })
  other.harness.subscribe((event) => {
    if (event.type === 'message') throw new Error(secret)
  })
  await other.harness.prompt(secret)
  const everything = (await readFile(log.file, 'utf8')) + JSON.stringify([events, other.events])
  expect(everything).not.toContain(secret)
  expect(everything).toContain('it is [redacted]!')
  // Not even cut into deltas.
  const deltas = other.events.flatMap((event) => (event.type === 'text' ? [event.delta] : []))
  expect(deltas.join('')).toContain('it is [redacted]!')
  expect(deltas.length).toBeGreaterThan(1)
})

test('reasoning that would no longer be byte for byte what the model wrote does not go back', () => {
  const cleaner = createCleaner(redact)
  const answer = (opaque: JsonObject): AssistantMessage => ({
    role: 'assistant',
    model: 'm/a',
    content: [{ type: 'reasoning', text: 'hm', opaque }],
    stopReason: 'stop',
  })
  expect(cleaner.assistant(answer({ signature: 'abc' })).content[0]).toHaveProperty('opaque')
  expect(cleaner.assistant(answer({ thinking: `so ${secret}` })).content[0]).toEqual({ type: 'reasoning', text: 'hm' })
})

describe('a stream of deltas', () => {
  const cutAt = (text: string, sizes: readonly number[]): readonly string[] => {
    const pieces: string[] = []
    let at = 0
    for (const size of sizes) pieces.push(text.slice(at, (at += size)))
    return [...pieces, text.slice(at)]
  }

  test('cut anywhere, shows what the whole text would show', () => {
    const words = fc.array(
      fc.constantFrom(secret, 'word', ' ', '\n', '😀', '一二三', 'x'.repeat(150), secret.slice(0, 5)),
      { maxLength: 12 },
    )
    fc.assert(
      fc.property(words, fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 30 }), (parts, sizes) => {
        const text = parts.join('')
        const filter = createDeltaFilter(createCleaner(redact), true)
        const shown = cutAt(text, sizes).map((delta) => filter.push(delta))
        shown.push(filter.flush())
        expect(shown.join('')).toBe(redact(text))
        expect(shown.every((piece) => piece.isWellFormed())).toBe(true)
      }),
      { numRuns: 1000 },
    )
  })

  test('a secret that the longest stretch would cut waits for its end', () => {
    const filter = createDeltaFilter(createCleaner(redact), true)
    const shown = [...`${secret}${'x'.repeat(200)}`].map((character) => filter.push(character))
    expect([...shown, filter.flush()].join('')).toBe(`[redacted]${'x'.repeat(200)}`)
  })

  test('without a redaction shows all but half a character at once', () => {
    const filter = createDeltaFilter(createCleaner(), false)
    expect([
      filter.push('word'),
      filter.push('a\ud83d'),
      filter.push('\ude00'),
      filter.push('\ud83d'),
      filter.flush(),
    ]).toEqual(['word', 'a', '😀', '', '\ufffd'])
  })

  test('does not hold back a long text without spaces', () => {
    const filter = createDeltaFilter(createCleaner(redact), true)
    expect(filter.push('一'.repeat(1000)).length).toBe(1000 - 128)
  })

  const key = `-----BEGIN PRIVATE KEY-----\n${'MIIEvQIBADANBgkqhkiG9w0 BAQEFAASC\n'.repeat(40)}-----END PRIVATE KEY-----`
  const ending = [key, `${key}\n`, `${key}\n\n`, `${key}\n${key}\n`]

  test.each(ending)('a key of several lines is never shown in part (%#)', (secretKey) => {
    const filter = createDeltaFilter(
      createCleaner((text) => text.replaceAll(secretKey, '[redacted]')),
      true,
    )
    const text = `It is:\n${secretKey}Keep it well, and so on.`
    const shown = (text.match(/[^]{1,7}/g) ?? []).map((delta) => filter.push(delta))
    expect([...shown, filter.flush()].join('')).toBe('It is:\n[redacted]Keep it well, and so on.')
    // And it streams on, before and after.
    expect(shown.slice(0, 4).join('')).toContain('It is:')
    expect(shown.join('')).toContain('Keep it well')
  })

  test('a text that only mentions a key streams on after a while', () => {
    const filter = createDeltaFilter(createCleaner(redact), true)
    filter.push('A key begins with -----BEGIN and so on. ')
    expect(filter.push('word '.repeat(4000)).length).toBeGreaterThan(16_384)
  })

  test('and does not give away a key that comes meanwhile', () => {
    const filter = createDeltaFilter(
      createCleaner((text) => text.replaceAll(key, '[redacted]')),
      true,
    )
    const text = `A key begins with -----BEGIN and so on. ${'word '.repeat(3200)}${key} is one.`
    const shown = (text.match(/[^]{1,50}/g) ?? []).map((delta) => filter.push(delta))
    expect([...shown, filter.flush()].join('')).toBe(text.replaceAll(key, '[redacted]'))
  })

  const phrase = 'correct horse\nbattery staple'
  const telling = Object.assign(
    (text: string) => text.replaceAll(phrase, '[redacted]').replaceAll(secret, '[redacted]'),
    {
      unfinished: (text: string) =>
        Math.max(
          ...[phrase, secret].map((value) =>
            [...value].reduce(
              (longest, _, index) => (index > 0 && text.endsWith(value.slice(0, index)) ? index : longest),
              0,
            ),
          ),
        ),
    },
  )

  test('a redaction that tells what is unfinished holds back that and no more', () => {
    const filter = createDeltaFilter(createCleaner(telling), true)
    expect([filter.push('Say correct'), filter.push(' horse\nbat'), filter.push(' or sk-1'), filter.flush()]).toEqual([
      'Say ',
      '',
      'correct horse\nbat or ',
      'sk-1',
    ])
  })

  test('and cut anywhere, shows what the whole text would show', () => {
    const words = fc.array(fc.constantFrom(phrase, secret, 'word', ' ', '😀', phrase.slice(0, 9), secret.slice(0, 5)), {
      maxLength: 12,
    })
    fc.assert(
      fc.property(words, fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 30 }), (parts, sizes) => {
        const filter = createDeltaFilter(createCleaner(telling), true)
        const shown = cutAt(parts.join(''), sizes).map((delta) => filter.push(delta))
        expect([...shown, filter.flush()].join('')).toBe(telling(parts.join('')))
      }),
      { numRuns: 1000 },
    )
  })
})

test('a secret split over adjacent texts of a result is found, other parts stay apart', () => {
  const text = (value: string) => ({ type: 'text', text: value }) as const
  const image = { type: 'image', mimeType: 'image/png', data: 'AA==' } as const
  const cleaner = createCleaner(redact)
  expect(cleaner.content([text('a'), text(`b ${secret}`), image])).toEqual([text('a'), text('b [redacted]'), image])
  expect(cleaner.content([text(`a ${secret.slice(0, 5)}`), text(secret.slice(5)), image, text('c')])).toEqual([
    text('a [redacted]'),
    image,
    text('c'),
  ])
})
