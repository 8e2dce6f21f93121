import type { Json, JsonObject } from '@reve/providers/model'
import { wellFormed } from './clean.ts'

/**
 * Arguments as a schema wants them, where a model encoded a value once too often: a string where no string may stand
 * becomes the array, object, number, boolean or null that its text is JSON of, if that may stand there; null is dropped
 * where an optional property may not be null.
 *
 * Only what cannot fit as it stands is touched: arguments that are valid come back as they are, the same object. What the
 * schema says in words not looked at here (`not`, `if`, foreign references) is taken to allow everything, so a value
 * under it stays. Text that is decoded may hold what its escapes hid: clean the result as if it had just arrived.
 */
export function coerceArguments(schema: JsonObject, args: JsonObject): JsonObject {
  const fitted = fit(new Shapes(schema), [schema], args, 0)
  return isObject(fitted) ? fitted : args
}

/** Deeper values stay as they are, and a text that is nested deeper is not decoded. */
const maxDepth = 64
/** Longer texts are not decoded. */
const maxText = 4_000_000

/** JSON Schema's types as bits; `number` is both of its halves, so that `integer` is a part of it. */
const kinds = { null: 1, boolean: 2, integer: 4, fraction: 8, string: 16, array: 32, object: 64 } as const
const number = kinds.integer | kinds.fraction
const everything = 127

/** A value under all of these schemas, at that depth of the arguments. */
function fit(shapes: Shapes, schemas: readonly Json[], value: Json, depth: number): Json {
  if (schemas.length === 0 || depth > maxDepth) return value
  const allowed = shapes.kindsOfAll(schemas)
  const decoded = typeof value === 'string' && (allowed & kinds.string) === 0 ? decode(value, allowed) : value
  if (isArray(decoded)) return fitArray(shapes, shapes.binding(schemas, kinds.array), decoded, depth)
  if (isObject(decoded)) return fitObject(shapes, shapes.binding(schemas, kinds.object), decoded, depth)
  return decoded
}

function fitArray(
  shapes: Shapes,
  binding: readonly JsonObject[],
  values: readonly Json[],
  depth: number,
): readonly Json[] {
  // Tuples are left alone: the drafts disagree on how they are written.
  const items = binding.flatMap((schema) =>
    isObject(schema['items']) && schema['prefixItems'] === undefined ? [schema['items']] : [],
  )
  const fitted = values.map((value) => fit(shapes, items, value, depth + 1))
  return fitted.some((value, index) => value !== values[index]) ? fitted : values
}

function fitObject(shapes: Shapes, binding: readonly JsonObject[], value: JsonObject, depth: number): JsonObject {
  const required = new Set(binding.flatMap((schema) => listOf(schema['required'])))
  let changed = false
  const fitted = Object.entries(value).flatMap(([key, item]): readonly (readonly [string, Json])[] => {
    const named = binding.flatMap((schema) => ownOf(schema['properties'], key))
    const optional = named.length > 0 && !required.has(key)
    if (item === null && optional && (shapes.kindsOfAll(named) & kinds.null) === 0) {
      changed = true
      return []
    }
    const others = binding.flatMap((schema) => additionalOf(schema, key))
    const next = fit(shapes, [...named, ...others], item, depth + 1)
    changed ||= next !== item
    return [[key, next]]
  })
  return changed ? Object.fromEntries(fitted) : value
}

/** The schema of a key that has none by name. */
function additionalOf(schema: JsonObject, key: string): readonly Json[] {
  const { additionalProperties: additional, patternProperties, properties } = schema
  if (additional === undefined || patternProperties !== undefined || ownOf(properties, key).length > 0) return []
  return [additional]
}

/** What a text is JSON of, if that is allowed and is plain; else the text. */
function decode(text: string, allowed: number): Json {
  if (text.length > maxText) return text
  let value: Json
  try {
    value = JSON.parse(text)
  } catch {
    return text
  }
  return (kindOf(value) & allowed) !== 0 && isPlain(value, 0) ? wellFormed(value) : text
}

/** Whether a log line can hold it and it says what its text said: no endless numbers, none that lost digits, no abyss. */
function isPlain(value: Json, depth: number): boolean {
  if (depth > maxDepth) return false
  if (typeof value === 'number') {
    return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value))
  }
  if (typeof value !== 'object' || value === null) return true
  return Object.values(value).every((item: Json) => isPlain(item, depth + 1))
}

/** What a schema document says about the types of values; knows the local references in it. */
class Shapes {
  readonly #root: JsonObject
  readonly #known = new Map<JsonObject, number>()

  constructor(root: JsonObject) {
    this.#root = root
  }

  /** The kinds that may stand under all of these schemas: at least those that really may. */
  kindsOfAll(schemas: readonly Json[]): number {
    return schemas.reduce<number>((sum, schema) => sum & this.#kindsOf(schema, 0), everything)
  }

  #kindsOf(schema: Json | undefined, depth: number): number {
    if (schema === false) return 0
    if (!isObject(schema) || this.#isForeign(schema) || depth > maxDepth) return everything
    const known = this.#known.get(schema)
    if (known !== undefined) return known
    const found = this.#readKinds(schema, depth + 1)
    this.#known.set(schema, found)
    return found
  }

  #readKinds(schema: JsonObject, depth: number): number {
    // Older drafts ignore what stands beside a reference; ignoring it allows more, never less.
    if (schema['$ref'] !== undefined) return this.#kindsOf(this.#resolve(schema['$ref']), depth)
    const { type, const: only, enum: values, allOf, anyOf, oneOf } = schema
    const union = (bits: readonly number[]): number => bits.reduce((sum, bit) => sum | bit, 0)
    let allowed = everything
    if (type !== undefined) allowed &= union((isArray(type) ? type : [type]).map(kindsOfType))
    if (only !== undefined) allowed &= kindOf(only)
    if (isArray(values)) allowed &= union(values.map(kindOf))
    for (const part of listOf(allOf)) allowed &= this.#kindsOf(part, depth)
    for (const branches of [anyOf, oneOf]) {
      if (isArray(branches)) allowed &= union(branches.map((branch) => this.#kindsOf(branch, depth)))
    }
    return allowed
  }

  /** The schemas that a value of that kind must fit for certain: themselves, what they refer to, their parts, and a branch that is the only one for the kind. */
  binding(schemas: readonly Json[], kind: number): readonly JsonObject[] {
    const found = new Set<JsonObject>()
    const visit = (schema: Json | undefined, depth = 0): void => {
      if (!isObject(schema) || this.#isForeign(schema) || found.has(schema) || depth > maxDepth) return
      found.add(schema)
      if (schema['$ref'] !== undefined) return visit(this.#resolve(schema['$ref']), depth + 1)
      for (const part of listOf(schema['allOf'])) visit(part, depth + 1)
      for (const branches of [schema['anyOf'], schema['oneOf']]) {
        const open = listOf(branches).filter((branch) => (this.#kindsOf(branch, 0) & kind) !== 0)
        if (open.length === 1) visit(open[0], depth + 1)
      }
    }
    for (const schema of schemas) visit(schema)
    return [...found].filter((schema) => schema['$ref'] === undefined)
  }

  /** Another `$id` gives references below it another meaning. */
  #isForeign(schema: JsonObject): boolean {
    return schema['$id'] !== undefined && schema !== this.#root
  }

  /** The target of `#` or `#/a/b`; undefined for every other reference. */
  #resolve(reference: Json): Json | undefined {
    if (typeof reference !== 'string' || !/^#(\/[^%]*)?$/.test(reference)) return undefined
    let at: Json | undefined = this.#root
    for (const token of reference.split('/').slice(1)) {
      const key = token.replaceAll('~1', '/').replaceAll('~0', '~')
      at = isArray(at) ? at[Number(key)] : ownOf(at, key)[0]
      if (isObject(at) && this.#isForeign(at)) return undefined
    }
    return at
  }
}

function kindOf(value: Json): number {
  if (value === null) return kinds.null
  if (typeof value === 'boolean') return kinds.boolean
  if (typeof value === 'string') return kinds.string
  if (typeof value === 'number') return Number.isInteger(value) ? kinds.integer : kinds.fraction
  return isArray(value) ? kinds.array : kinds.object
}

function kindsOfType(name: Json): number {
  switch (name) {
    case 'null':
    case 'boolean':
    case 'integer':
    case 'string':
    case 'array':
    case 'object':
      return kinds[name]
    case 'number':
      return number
    default:
      return everything
  }
}

const isArray = (value: Json | undefined): value is readonly Json[] => Array.isArray(value)

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !isArray(value)
}

const listOf = (value: Json | undefined): readonly Json[] => (isArray(value) ? value : [])

/** The value of an own key, in a list; none for what is no object, or has no such key. */
function ownOf(value: Json | undefined, key: string): readonly Json[] {
  const item = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined
  return item === undefined ? [] : [item]
}
