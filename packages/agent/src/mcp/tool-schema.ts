import type { Json, JsonObject } from '@reve/providers/model'
import { plainText } from './text.ts'

const mostDepth = 12
const mostNodes = 2000
const mostCharacters = 40_000
const describedCharacters = 1000
const formats: ReadonlySet<unknown> = new Set(['date-time', 'date', 'time', 'uri', 'email', 'uuid'])
const types: ReadonlySet<unknown> = new Set(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null'])

/**
 * A server's schema of arguments, as one that every API and the check of arguments take: known keywords with values of the right
 * kind; no expressions that the check would have to run; references only to definitions that are there. What is left out is for
 * the server to check, as it does anyway. A schema of too many parts becomes one that takes anything.
 */
export function toolSchema(given: unknown): JsonObject {
  const definitions = new Set<string>()
  if (isObject(given)) {
    for (const key of ['$defs', 'definitions']) {
      const map = given[key]
      for (const name of isObject(map) ? Object.keys(map) : []) definitions.add(`#/${key}/${name}`)
    }
  }
  const cleaner = createCleaner(definitions)
  const root = isObject(given) ? cleaner.object(given, 0) : {}
  // No API takes a choice in place of the object itself.
  const { anyOf: _any, oneOf: _one, allOf: _all, not: _not, enum: _enum, const: _const, $ref: _ref, ...rest } = root
  const schema: JsonObject = {
    ...rest,
    type: 'object',
    properties: isObject(rest['properties']) ? rest['properties'] : {},
  }
  const fits = !cleaner.isOver() && JSON.stringify(schema).length <= mostCharacters
  return fits ? schema : { type: 'object', properties: {}, additionalProperties: true }
}

const isObject = (value: unknown): value is { readonly [key: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Definitions whose names need no escaping anywhere. */
const simpleReference = /^#\/(\$defs|definitions)\/[A-Za-z0-9_.-]+$/

function createCleaner(definitions: ReadonlySet<string>) {
  let nodes = 0

  const schema = (value: Json, depth: number): Json => {
    if (typeof value === 'boolean') return value
    return isObject(value) && depth <= mostDepth ? object(value, depth) : {}
  }

  const object = (value: JsonObject, depth: number): JsonObject => {
    nodes += 1
    if (nodes > mostNodes) return {}
    const kept: Record<string, Json> = {}
    for (const [key, part] of Object.entries(value)) {
      const clean = keyword(key, part, depth)
      if (clean !== undefined) kept[key] = clean
    }
    // It would refuse what the expressions that are gone let through.
    if ('patternProperties' in value) delete kept['additionalProperties']
    const pattern = value['pattern']
    if (typeof pattern === 'string') {
      const matches = `Matches ${pattern}`
      kept['description'] = plainText(
        typeof kept['description'] === 'string' ? `${kept['description']} (${matches})` : matches,
        describedCharacters,
      )
    }
    return kept
  }

  const map = (value: Json, depth: number): Json | undefined =>
    isObject(value)
      ? Object.fromEntries(Object.entries(value).map(([name, part]) => [name, schema(part, depth + 1)]))
      : undefined

  const list = (value: Json, depth: number): Json | undefined =>
    Array.isArray(value) && value.length > 0 ? value.map((part) => schema(part, depth + 1)) : undefined

  const keyword = (key: string, value: Json, depth: number): Json | undefined => {
    switch (key) {
      case 'type':
        if (types.has(value)) return value
        return Array.isArray(value) && value.length > 0 && value.every((one) => types.has(one)) ? value : undefined
      case 'title':
      case 'description':
        return typeof value === 'string' ? plainText(value, describedCharacters) : undefined
      case 'format':
        return formats.has(value) ? value : undefined
      case 'enum':
        return Array.isArray(value) && value.length > 0 ? value : undefined
      case 'const':
      case 'default':
        return value
      case 'required':
        return Array.isArray(value) && value.every((one) => typeof one === 'string') ? [...new Set(value)] : undefined
      case 'minimum':
      case 'maximum':
      case 'exclusiveMinimum':
      case 'exclusiveMaximum':
        return typeof value === 'number' ? value : undefined
      case 'multipleOf':
        return typeof value === 'number' && value > 0 ? value : undefined
      case 'minLength':
      case 'maxLength':
      case 'minItems':
      case 'maxItems':
      case 'minProperties':
      case 'maxProperties':
        return Number.isSafeInteger(value) && Number(value) >= 0 ? value : undefined
      case 'uniqueItems':
        return typeof value === 'boolean' ? value : undefined
      case 'properties':
      case '$defs':
      case 'definitions':
        return map(value, depth)
      case 'additionalProperties':
      case 'items':
      case 'not':
      case 'contains':
        return typeof value === 'boolean' || isObject(value) ? schema(value, depth + 1) : undefined
      case 'anyOf':
      case 'oneOf':
      case 'allOf':
      case 'prefixItems':
        return list(value, depth)
      case '$ref':
        return typeof value === 'string' && simpleReference.test(value) && definitions.has(value) ? value : undefined
      default:
        return undefined
    }
  }

  return { object, isOver: () => nodes > mostNodes }
}
