import type { Json, JsonObject } from '@reve/providers/model'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { argumentCheck } from '../src/arguments.ts'
import { coerceArguments } from '../src/coerce.ts'
import { echoTool } from './support.ts'

/** What becomes of `value` as the property `v` under `schema`, which may use `$defs`. */
function coerced(schema: Json, value: Json, more: JsonObject = {}): Json | undefined {
  const args = { v: value }
  const result = coerceArguments({ type: 'object', properties: { v: schema }, ...more }, args)
  // What nothing happened to is the very same.
  if (JSON.stringify(result) === JSON.stringify(args)) expect(result).toBe(args)
  return result['v']
}

// oxlint-disable-next-line unicorn/no-thenable -- the word is JSON Schema's
const conditional = (when: Json, what: Json): JsonObject => ({ if: when, then: what })

const list = { type: 'array', items: { type: 'string' } }
const record = { type: 'object', properties: { n: { type: 'integer' }, of: list } }

describe('a text that was encoded once too often', () => {
  test.each<[string, Json, Json, Json]>([
    ['array', list, '["a","b"]', ['a', 'b']],
    ['object', record, ' {"n":1}\n', { n: 1 }],
    ['array or null', { type: ['array', 'null'] }, '[]', []],
    ['null of array or null', { anyOf: [{ type: 'array' }, { type: 'null' }] }, 'null', null],
    ['boolean', { type: 'boolean' }, 'true', true],
    ['integer', { type: 'integer' }, '12', 12],
    ['number', { type: 'number' }, '-1.5e2', -150],
    ['number of an enumeration', { enum: [1, 2] }, '2', 2],
    ['constant', { const: false }, 'false', false],
    ['inside of another', record, '{"n":"3","of":"[\\"x\\"]"}', { n: 3, of: ['x'] }],
    ['items', { type: 'array', items: { type: 'boolean' } }, ['true', false], [true, false]],
    ['values of a map', { type: 'object', additionalProperties: { type: 'integer' } }, { a: '1' }, { a: 1 }],
  ])('%s', (_, schema, value, expected) => expect(coerced(schema, value)).toEqual(expected))

  test('at the top, beside what fits', () => {
    const args = { v: '[1]', w: 'stays' }
    expect(coerceArguments({ properties: { v: { type: 'array' }, w: { type: 'string' } } }, args)).toEqual({
      v: [1],
      w: 'stays',
    })
    expect(args).toEqual({ v: '[1]', w: 'stays' })
  })
})

describe('stays as it is', () => {
  test.each<[string, Json, Json]>([
    ['a string where strings may stand', { type: ['array', 'string'] }, '["a"]'],
    ['a string where anything may', {}, '["a"]'],
    ['a string where anything may, said so', true, '["a"]'],
    ['a string where nothing may', false, '["a"]'],
    ['a string that a branch takes', { anyOf: [list, { type: 'string' }] }, '["a"]'],
    ['a string of an enumeration', { enum: ['1', 2] }, '2'],
    ['a string under properties without a type', { properties: { n: { type: 'integer' } } }, '{"n":1}'],
    ['JSON of another type', list, '{"a":1}'],
    ['a fraction for an integer', { type: 'integer' }, '1.5'],
    ['no JSON', { type: 'boolean' }, 'True'],
    ['nearly JSON', list, '["a",]'],
    ['the empty text', { type: 'integer' }, ''],
    ['a number that would lose digits', { type: 'integer' }, '9007199254740993'],
    ['a number that would lose digits, deeper', { type: 'array' }, '[[9007199254740993]]'],
    ['a number without an end', { type: 'array' }, '[1e999]'],
    ['a number for a string', { type: 'string' }, 1],
    ['a type that nobody knows', { type: 'list' }, '["a"]'],
    ['an abyss', { type: 'array' }, '['.repeat(70) + ']'.repeat(70)],
    ['a text of megabytes', { type: 'array' }, `[${' '.repeat(4_000_000)}]`],
    ['what `not` speaks of', { not: { type: 'string' } }, '["a"]'],
    ['what `if` speaks of', conditional(true, { type: 'array' }), '["a"]'],
    ['a tuple', { type: 'array', prefixItems: [{ type: 'integer' }], items: { type: 'integer' } }, ['1']],
    [
      'a key that a pattern may mean',
      { patternProperties: { a: {} }, additionalProperties: { type: 'integer' } },
      { b: '1' },
    ],
  ])('%s', (_, schema, value) => expect(coerced(schema, value)).toEqual(value))

  test('a property with a name is no additional one', () => {
    const args = { v: '["a"]' }
    expect(coerceArguments({ properties: { v: {} }, additionalProperties: list }, args)).toBe(args)
  })

  test('what lies too deep', () => {
    const bottom = (depth: number): JsonObject => {
      let args: JsonObject = { n: '1' }
      for (let n = 0; n < depth; n++) args = { of: args }
      return args
    }
    const schema = { properties: { of: { $ref: '#' }, n: { type: 'integer' } } }
    const near = bottom(20)
    expect(coerceArguments(schema, near)).not.toBe(near)
    const far = bottom(20_000)
    expect(coerceArguments(schema, far)).toBe(far)
  })

  test('a property that objects have anyway is none of the schema', () => {
    const args: JsonObject = JSON.parse('{"constructor":"[1]","__proto__":"[1]","toString":null}')
    expect(coerceArguments({ properties: {}, required: [] }, args)).toBe(args)
    expect(coerceArguments({ properties: {}, additionalProperties: { type: 'array' } }, { valueOf: '[1]' })).toEqual({
      valueOf: [1],
    })
    const hostile: JsonObject = JSON.parse('{"properties":{"__proto__":{"type":"array"}}}')
    const result = coerceArguments(hostile, args)
    expect(JSON.stringify(result)).toBe('{"constructor":"[1]","__proto__":[1],"toString":null}')
    expect(Object.getPrototypeOf(result)).toBe(Object.prototype)
  })
})

test('a lone surrogate that escapes hid does not come out', () => {
  expect(coerced(list, '["\\ud83d","\\ud83d\\ude00"]')).toEqual(['\ufffd', '😀'])
})

describe('null', () => {
  const object = (schema: Json, required: readonly string[] = []): JsonObject => ({
    type: 'object',
    properties: { v: schema, w: {} },
    required,
  })
  test('is dropped where a property may be missing and may not be null', () => {
    expect(coerceArguments(object({ type: 'string' }), { w: 1, v: null })).toEqual({ w: 1 })
    expect(coerced({ type: 'array', items: object({ enum: ['a'] }) }, [{ v: null }])).toEqual([{}])
  })
  test.each<[string, JsonObject]>([
    ['required', object({ type: 'string' }, ['v'])],
    ['required by a part', { ...object({ type: 'string' }), allOf: [{ required: ['v'] }] }],
    ['nullable', object({ type: ['string', 'null'] })],
    ['a nullable branch', object({ anyOf: [list, { type: 'null' }] })],
    ['an enumeration with null', object({ enum: ['a', null] })],
    ['unnamed', { additionalProperties: { type: 'string' } }],
    ['of no schema', { properties: {} }],
  ])('stays: %s', (_, schema) => {
    const args = { v: null }
    expect(coerceArguments(schema, args)).toBe(args)
  })
})

describe('references and branches', () => {
  const defs = {
    $defs: { list, deep: { $ref: '#/$defs/list' }, 'a/b~c': { type: 'integer' }, own: { $id: 'x', type: 'array' } },
  }
  test.each<[string, Json, Json, Json]>([
    ['a local reference', { $ref: '#/$defs/deep' }, '["a"]', ['a']],
    ['an escaped one', { $ref: '#/$defs/a~1b~0c' }, '1', 1],
    ['one through a list', { $ref: '#/$defs/list/items' }, 'x', 'x'],
    ['a part', { allOf: [{ description: 'x' }, list] }, '["a"]', ['a']],
    [
      'the one branch for the type',
      { anyOf: [{ type: 'array', items: { type: 'integer' } }, { type: 'null' }] },
      ['1'],
      [1],
    ],
    ['the one of several', { oneOf: [record, list] }, '{"n":"1"}', { n: 1 }],
    ['two branches for the type', { anyOf: [record, { type: 'object' }] }, '{"n":"1"}', { n: '1' }],
    // Not ours to follow.
    ['a foreign reference', { $ref: 'https://example.com/x' }, '[]', '[]'],
    ['one to nowhere', { $ref: '#/$defs/none' }, '[]', '[]'],
    ['one that no pointer is', { $ref: '#%' }, '[]', '[]'],
    ['one that is broken', { $ref: '#/%zz' }, '[]', '[]'],
    ['one into a document of its own', { $ref: '#/$defs/own' }, '[]', '[]'],
  ])('%s', (_, schema, value, expected) => expect(coerced(schema, value, defs)).toEqual(expected))

  test('a schema that comes back to itself', () => {
    const tree = {
      type: 'object',
      properties: { leaf: { type: 'integer' }, of: { type: 'array', items: { $ref: '#' } } },
    }
    expect(coerceArguments(tree, { of: '[{"leaf":"1","of":"[{\\"leaf\\":\\"2\\"}]"}]' })).toEqual({
      of: [{ leaf: 1, of: [{ leaf: 2 }] }],
    })
    const loop = { $defs: { a: { $ref: '#/$defs/b' }, b: { anyOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/a' }] } } }
    expect(coerced({ $ref: '#/$defs/a' }, '[]', loop)).toBe('[]')
  })

  test('a schema of many doors takes no time, and one without a floor ends', () => {
    const doors = Object.fromEntries(
      Array.from({ length: 60 }, (_, n) => [
        `d${n}`,
        { anyOf: [{ $ref: `#/$defs/d${n + 1}` }, { $ref: `#/$defs/d${n + 1}` }] },
      ]),
    )
    expect(coerced({ $ref: '#/$defs/d0' }, '[]', { $defs: doors })).toBe('[]')
    let deep: Json = { type: 'array' }
    for (let n = 0; n < 20_000; n++) deep = { allOf: [deep] }
    expect(coerced(deep, '[]')).toBe('[]')
  })
})

describe('for any schema', () => {
  const leaf = fc.constantFrom<Json>(
    {},
    true,
    { type: 'string' },
    { type: 'integer' },
    { type: 'number' },
    { type: 'boolean' },
    { type: 'null' },
    { type: ['array', 'null'] },
    { type: ['string', 'object'] },
    { enum: ['1', 1, null] },
    { enum: ['[]', [], {}] },
    { const: 1 },
    { $ref: '#' },
    { $ref: '#/$defs/x' },
    { not: { type: 'string' } },
  )
  const { schema } = fc.letrec<{ schema: Json }>((tie) => {
    const one = tie('schema')
    const some = fc.array(one, { minLength: 1, maxLength: 3 })
    const keyed = fc.dictionary(fc.constantFrom('a', 'b'), one, { maxKeys: 2 })
    return {
      schema: fc.oneof(
        { maxDepth: 3, withCrossShrink: true },
        { arbitrary: leaf, weight: 8 },
        fc.record({ type: fc.constant('array'), items: one }),
        fc.record({ type: fc.constant('array'), prefixItems: some, items: one }),
        fc.record(
          {
            type: fc.constant('object'),
            properties: keyed,
            additionalProperties: one,
            patternProperties: fc.dictionary(fc.constantFrom('a', 'c'), one, { maxKeys: 1 }),
            required: fc.constantFrom<Json>([], ['a'], ['b', 'a']),
          },
          { requiredKeys: ['type', 'properties'] },
        ),
        fc.record({ anyOf: some, properties: keyed }, { requiredKeys: ['anyOf'] }),
        fc.record({ oneOf: some, type: fc.constantFrom('object', 'array') }, { requiredKeys: ['oneOf'] }),
        fc.record({ allOf: some }),
        fc.tuple(one, one, one).map(([when, what, other]) => ({ ...conditional(when, what), else: other })),
        fc.record({ $ref: fc.constant('#/$defs/x'), type: fc.constantFrom('array', 'string') }),
      ),
    }
  })
  const root = fc.record(
    {
      $schema: fc.constantFrom(
        'http://json-schema.org/draft-07/schema#',
        'https://json-schema.org/draft/2019-09/schema',
        'https://json-schema.org/draft/2020-12/schema',
      ),
      properties: fc.record({ a: schema, b: schema }, { requiredKeys: ['a'] }),
      required: fc.constantFrom<Json>([], ['a']),
      $defs: fc.record({ x: schema }),
    },
    { requiredKeys: ['properties', '$defs'] },
  )
  const { value } = fc.letrec<{ value: Json }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constantFrom<Json>(
        null,
        true,
        1,
        1.5,
        'x',
        '1',
        '[]',
        '{}',
        'true',
        'null',
        '{"a":null}',
        '["1"]',
        '{"a":"[]"}',
      ),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom('a', 'b', 'c'), tie('value'), { maxKeys: 3 }),
    ),
  }))
  const args = fc.record({ a: value, b: value }, { requiredKeys: ['a'] })

  test('what is valid comes back as it is, and twice changes no more than once', () => {
    let valid = 0
    let changed = 0
    fc.assert(
      fc.property(root, args, (parameters, given) => {
        // The check marks the schemas that it has seen: each has its own.
        const problems = argumentCheck({ ...echoTool(), parameters: structuredClone<JsonObject>(parameters) })(given)
        const before = JSON.stringify(given)
        const result = coerceArguments(parameters, given)
        if (problems === undefined) {
          valid++
          expect(result).toBe(given)
        }
        if (result !== given) changed++
        expect(JSON.stringify(given)).toBe(before)
        expect(coerceArguments(parameters, result)).toBe(result)
      }),
      { numRuns: 2000 },
    )
    // Both sides of it were tried.
    expect(valid).toBeGreaterThan(20)
    expect(changed).toBeGreaterThan(20)
  })

  test('what was encoded once too often is found again, wherever no string may stand', () => {
    const plain = {
      type: 'object',
      properties: {
        names: list,
        flag: { type: 'boolean' },
        size: { anyOf: [{ type: 'number' }, { type: 'null' }] },
        of: { $ref: '#/$defs/node' },
        text: { type: 'string' },
      },
      $defs: {
        node: {
          type: 'object',
          properties: { n: { type: 'integer' }, of: { type: 'array', items: { $ref: '#/$defs/node' } } },
        },
      },
    }
    const node = fc.letrec<{ node: JsonObject }>((tie) => ({
      node: fc.record(
        { n: fc.integer(), of: fc.array(tie('node'), { maxLength: 2, depthIdentifier: 'node' }) },
        { requiredKeys: [] },
      ),
    })).node
    const good = fc.record(
      {
        names: fc.array(fc.string()),
        flag: fc.boolean(),
        size: fc.option(fc.double({ noNaN: true, min: -1e6, max: 1e6 }).map((n) => n + 0)),
        of: node,
        text: fc.constantFrom('[1]', 'true', 'x'),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(good, fc.infiniteStream(fc.boolean()), (given, coins) => {
        const once = (item: Json): Json =>
          typeof item !== 'string' && coins.next().value ? JSON.stringify(item) : item
        const encode = (item: Json): Json => {
          if (Array.isArray(item)) return once(item.map((one: Json) => encode(one)))
          if (typeof item === 'object' && item !== null) return once(encodeFields(item))
          return once(item)
        }
        const encodeFields = (object: object): JsonObject =>
          Object.fromEntries(Object.entries(object).map(([key, item]: [string, Json]) => [key, encode(item)]))
        expect(JSON.stringify(coerceArguments(plain, encodeFields(given)))).toBe(JSON.stringify(given))
      }),
      { numRuns: 500 },
    )
  })
})
