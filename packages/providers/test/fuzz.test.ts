import { Validator } from '@cfworker/json-schema'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createHttpModel } from '../src/index.ts'
import type { Api, AssistantMessage, JsonObject } from '../src/index.ts'
import { parseArguments } from '../src/arguments.ts'
import { apiSchemas } from './api-schemas.ts'
import { cases } from './fixtures.ts'
import { ask, config, play, run } from './play.ts'

/** How much, and from where on: a failure says its seed. */
const settings = {
  numRuns: Number(process.env['REVE_FUZZ_CASES'] ?? 1500),
  seed: Number(process.env['REVE_FUZZ_SEED'] ?? 20_260_105),
}

type Edit = { readonly at: number; readonly drop: number; readonly put: string | Uint8Array }

/** What has a meaning somewhere in these streams. */
const tokens = [
  ...[
    '{',
    '}',
    '[',
    ']',
    '"',
    '\\',
    ',',
    ':',
    '\n',
    '\r',
    '\n\n',
    'data: ',
    'event: error\n',
    'null',
    '{}',
    '[]',
    '-1',
    '1e999',
    '""',
  ],
  ...[
    '\\ud83d',
    '\uFEFF',
    '\0',
    '[DONE]',
    '"index":0,',
    '"id":null,',
    '"arguments":null',
    '"type":"error"',
    '"finish_reason":"stop"',
  ],
]
const edit: fc.Arbitrary<Edit> = fc.record({
  at: fc.nat(10_000),
  drop: fc.oneof(fc.constant(0), fc.nat(3), fc.nat(200)),
  put: fc.oneof(fc.constantFrom(...tokens), fc.uint8Array({ maxLength: 8 }), fc.constant('')),
})

function edited(bytes: Uint8Array, edits: readonly Edit[]): Uint8Array {
  return edits.reduce((before: Uint8Array, { at, drop, put }) => {
    const place = before.length === 0 ? 0 : at % before.length
    return Buffer.concat([before.subarray(0, place), Buffer.from(put), before.subarray(place + drop)])
  }, bytes)
}

const validators = Object.fromEntries(
  Object.entries(apiSchemas).map(([api, schema]) => [api, new Validator(schema, '2020-12')]),
)

/** What is sent to go on after an answer. */
async function nextBody(api: Api, message: AssistantMessage): Promise<unknown> {
  let sent: unknown
  const fetch: typeof globalThis.fetch = async (input, init) => {
    sent = JSON.parse(await new Request(input, init).text())
    return new Response('', { status: 500 })
  }
  await run(createHttpModel(config({ api }), { fetch }), { ...ask, messages: [...ask.messages, message] })
  return sent
}

test('a stream with anything wrong in it: one outcome, never a throw, no larger than what came, and the conversation can go on', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...cases),
      fc.array(edit, { minLength: 1, maxLength: 5 }),
      async ({ api, bytes }, edits) => {
        const stream = edited(bytes, edits)
        const { events, outcome } = await play(api, [stream])
        expect(['answer', 'failed']).toContain(outcome.type)
        // Escapes and the frame of an event are what may grow.
        expect(JSON.stringify([events, outcome]).length).toBeLessThan(stream.length * 20 + 10_000)
        if (outcome.type !== 'answer') return
        const { valid, errors } = validators[api]?.validate(await nextBody(api, outcome.message)) ?? {}
        expect(valid === true ? [] : errors?.slice(-3)).toEqual([])
      },
    ),
    settings,
  )
})

test('arguments of any text: an object that can be written down again, or the text itself', () => {
  const json = fc.oneof(
    fc.json({ maxDepth: 4 }),
    fc.object().map((value) => JSON.stringify(value)),
  )
  const text = fc
    .tuple(json, fc.array(edit, { maxLength: 3 }))
    .map(([given, edits]) => Buffer.from(edited(Buffer.from(given), edits)).toString())
  fc.assert(
    fc.property(text, fc.boolean(), (raw, complete) => {
      const parsed = parseArguments(raw, complete)
      if ('malformed' in parsed) {
        expect(parsed.malformed).toBe(raw)
        return
      }
      const again: JsonObject = JSON.parse(JSON.stringify(parsed.arguments))
      expect(again).toEqual(parsed.arguments)
      if (Object.keys(again).length === 0) expect(raw.trim() === '' ? complete : true).toBe(true)
    }),
    settings,
  )
})

test('a part of the arguments is never taken for all of them', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string({ minLength: 1 }), fc.jsonValue(), { minKeys: 1 }), fc.nat(), (object, at) => {
      const raw = JSON.stringify(object)
      const cut = raw.slice(0, 1 + (at % (raw.length - 1)))
      expect(parseArguments(cut, true)).toEqual({ malformed: cut })
    }),
    settings,
  )
})

test('a server that sends one line without end is left', async () => {
  const endless = async function* (): AsyncGenerator<Uint8Array> {
    const megabyte = new TextEncoder().encode('x'.repeat(1_000_000))
    yield new TextEncoder().encode('data: ')
    for (;;) yield megabyte
  }
  const fetch: typeof globalThis.fetch = async () =>
    new Response(ReadableStream.from(endless()), { headers: { 'content-type': 'text/event-stream' } })
  const { outcome } = await run(createHttpModel(config(), { fetch }))
  expect(outcome).toMatchObject({ type: 'failed', failure: { code: 'protocol' } })
})
