import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createHarness } from '@reve/harness'
import { createScriptedModel, type JsonObject } from '@reve/providers/model'
import { openSession } from '@reve/session-log'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { toolSchema } from '../../src/mcp/tool-schema.ts'

/** Whether a run takes tools with these schemas, and calls the first one with these arguments. */
async function run(schemas: readonly JsonObject[], args: JsonObject = {}) {
  await using log = await openSession(join(await mkdtemp(join(tmpdir(), 'schema-')), 's.jsonl'), {
    create: { cwd: 'w' },
  })
  const model = createScriptedModel({
    id: 'demo/m',
    turns: [{ calls: [{ name: 't0', arguments: args }] }, { text: 'Done.' }],
  })
  let called: JsonObject | undefined
  const harness = createHarness({
    log,
    model,
    system: '',
    tools: schemas.map((parameters, index) => ({
      name: `t${index}`,
      description: '',
      parameters,
      replay: 'never',
      run: async (given) => {
        called = given
        return { content: '' }
      },
    })),
  })
  await harness.recover()
  const { outcome } = await harness.prompt('go')
  await harness.close()
  return { outcome, called }
}

test('what a model needs to know stays, what would break an API or run on our side goes', async () => {
  const schema = toolSchema({
    $schema: 'http://json-schema.org/draft-04/schema#',
    type: 'object',
    oneOf: [{ required: ['a'] }, { required: ['b'] }],
    properties: {
      a: { type: 'string', description: 'An \u001b[31mA\u{E0041}', pattern: '^(x+)+$', default: '' },
      b: { $ref: '#/$defs/B', 'x-own': 1 },
      c: { $ref: 'https://example.com/schema.json' },
      d: { type: 'array', items: { type: ['integer', 'null'] }, minItems: 1 },
      description: { type: 'string', format: 'date' },
      e: { type: 'number', exclusiveMinimum: true, minimum: 0 },
      f: { type: 'object', patternProperties: { '^x': {} }, additionalProperties: false },
    },
    required: ['a'],
    $defs: { B: { enum: ['x', 'y'] } },
    additionalProperties: false,
  })
  expect(schema).toEqual({
    type: 'object',
    properties: {
      a: { type: 'string', description: 'An A (Matches ^(x+)+$)', default: '' },
      b: { $ref: '#/$defs/B' },
      c: {},
      d: { type: 'array', items: { type: ['integer', 'null'] }, minItems: 1 },
      description: { type: 'string', format: 'date' },
      e: { type: 'number', minimum: 0 },
      f: { type: 'object' },
    },
    required: ['a'],
    $defs: { B: { enum: ['x', 'y'] } },
    additionalProperties: false,
  })
  const args = { a: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx!', b: 'x', c: 1 }
  expect(await run([schema], args)).toEqual({ outcome: 'completed', called: args })
  expect((await run([schema], { a: 'x', b: 'z' })).called).toBeUndefined()
})

test('a schema that is none, or too large or deep, takes anything', async () => {
  const anything = { type: 'object', properties: {}, additionalProperties: true }
  const wide = Object.fromEntries(Array.from({ length: 3000 }, (_, index) => [`p${index}`, { type: 'string' }]))
  expect(toolSchema({ type: 'object', properties: wide })).toEqual(anything)
  expect(toolSchema({ type: 'object', properties: { a: { enum: ['x'.repeat(50_000)] } } })).toEqual(anything)
  let deep: JsonObject = { type: 'string' }
  for (let depth = 0; depth < 10_000; depth++) deep = { type: 'object', properties: { deep } }
  expect(JSON.stringify(toolSchema(deep)).length).toBeLessThan(2000)
  for (const none of [undefined, null, 1, 'x', []]) expect(toolSchema(none)).toEqual({ type: 'object', properties: {} })
})

test('whatever a server sends as a schema, a run takes it', async () => {
  const keys = [
    'type',
    'properties',
    '$ref',
    '$defs',
    'definitions',
    'items',
    'anyOf',
    'pattern',
    'enum',
    '$id',
    'id',
    'not',
    'required',
    'minimum',
    'format',
    '__proto__',
    'a/b',
  ]
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom('object', 'string', '#', '#/$defs/a', '#/$defs/$ref', '#/definitions/id', '(', 1, -1, true, null),
      fc.dictionary(fc.constantFrom(...keys), tie('value')),
      fc.array(tie('value'), { maxLength: 3 }),
    ),
  }))
  const schemas = fc.sample(value, 500).map(toolSchema)
  expect((await run(schemas)).outcome).toBe('completed')
})
