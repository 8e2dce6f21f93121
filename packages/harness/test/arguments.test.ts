import type { JsonObject } from '@reve/providers/model'
import { expect, test } from 'vitest'
import { argumentCheck } from '../src/arguments.ts'
import { echoTool } from './support.ts'

const check = (parameters: JsonObject, args: JsonObject) => argumentCheck({ ...echoTool(), parameters })(args)

test('every problem by its pointer, and only where it is', () => {
  const parameters = {
    type: 'object',
    properties: { names: { type: 'array', items: { type: 'string' } }, mode: { enum: ['r', 'w'] } },
    required: ['names', 'mode'],
    additionalProperties: false,
  }
  expect(check(parameters, { names: ['a'], mode: 'r' })).toBeUndefined()
  const problems = check(parameters, { names: ['a', 1], mode: 'x', more: true })?.split('\n') ?? []
  expect(problems).toEqual([
    expect.stringMatching(/^\/names\/1: .*string/),
    expect.stringMatching(/^\/mode: /),
    expect.stringMatching(/^\/: .*more/),
  ])
})

test('many problems are counted', () => {
  const args = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`k${index}`, 1]))
  const problems = check({ type: 'object', additionalProperties: { type: 'string' } }, args)?.split('\n') ?? []
  expect(problems).toHaveLength(9)
  expect(problems.at(-1)).toMatch(/^and \d+ more$/)
})

test('a schema that is broken is said to be, whenever that is found', () => {
  expect(check({ properties: { a: { $ref: '#/$defs/nowhere' } } }, { a: 1 })).toMatch(/schema of tool "echo" is broken/)
  expect(check({ properties: { a: { pattern: '(' } } }, { a: 'x' })).toMatch(/schema of tool "echo" is broken/)
})

test('the draft is the one that the schema names', () => {
  const tuple = { type: 'object', properties: { a: { items: [{ type: 'string' }] } } }
  expect(check({ ...tuple, $schema: 'http://json-schema.org/draft-07/schema#' }, { a: [1] })).toBeDefined()
  expect(check({ type: 'object', properties: { a: { prefixItems: [{ type: 'string' }] } } }, { a: [1] })).toBeDefined()
})
