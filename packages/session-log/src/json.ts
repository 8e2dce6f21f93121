/** A JSON value. The log's own definition: it knows nothing of models or messages. */
export type Json = string | number | boolean | null | JsonArray | JsonObject
/** A JSON array. */
export type JsonArray = readonly Json[]
/** A JSON object. */
export type JsonObject = { readonly [key: string]: Json }

/** Values nested deeper than this are refused: everybody's recursive reader must survive a line. */
const MAX_DEPTH = 500

/** Why a value is not JSON, and where in it (a JSON pointer without the leading slash; '' is the value itself). */
export type NotJson = { readonly path: string; readonly reason: string }

/** Thrown inside {@link plainJson} only: it turns it into its result. */
class NotJsonSignal extends Error {
  readonly at: NotJson
  constructor(at: NotJson) {
    super(at.reason)
    this.at = at
  }
}

/**
 * A deep copy of `value` that is exactly what a JSON text can say. Lone surrogates become U+FFFD, so that the text is
 * always valid UTF-8 for every reader; properties that are `undefined` are dropped, as `JSON.stringify` does.
 * Everything that `JSON.stringify` would bend in silence (NaN, infinities, bigint, functions, class instances, holes, cycles) is refused.
 */
export function plainJson(
  value: unknown,
): { readonly ok: true; readonly value: Json } | { readonly ok: false; readonly problem: NotJson } {
  try {
    return { ok: true, value: copy(value, []) }
  } catch (error) {
    if (error instanceof NotJsonSignal) return { ok: false, problem: error.at }
    throw error
  }
}

/** Whether a value is an object with string keys: not null, not an array. */
export function isObject(value: unknown): value is { readonly [key: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** `path` is where `value` stands; the same list on all levels, so that a good value pays for no names. */
function copy(value: unknown, path: string[]): Json {
  switch (typeof value) {
    case 'string':
      return value.toWellFormed()
    case 'number':
      if (!Number.isFinite(value)) refuse(path, `${value} is not a JSON number`)
      return value === 0 ? 0 : value
    case 'boolean':
      return value
    case 'object':
      break
    default:
      return refuse(path, `a ${typeof value} is not JSON`)
  }
  if (value === null) return value
  if (path.length > MAX_DEPTH) refuse(path, `nested deeper than ${MAX_DEPTH} levels, or refers to itself`)
  return Array.isArray(value) ? copyArray(value, path) : copyObject(value, path)
}

function copyArray(value: readonly unknown[], path: string[]): Json {
  const result: Json[] = []
  // By index: a hole is an undefined, which JSON cannot say.
  for (let index = 0; index < value.length; index++) {
    path.push(String(index))
    result.push(copy(value[index], path))
    path.pop()
  }
  return result
}

function copyObject(value: object, path: string[]): Json {
  const proto: unknown = Object.getPrototypeOf(value)
  if (proto !== Object.prototype && proto !== null) refuse(path, 'only plain objects are JSON')
  const result: { [key: string]: Json } = {}
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue
    path.push(key)
    setOwn(result, key.toWellFormed(), copy(item, path))
    path.pop()
  }
  return result
}

/** Assigning to `__proto__` would set the prototype. */
function setOwn(object: { [key: string]: Json }, key: string, value: Json): void {
  if (key !== '__proto__') object[key] = value
  else Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true })
}

function refuse(path: readonly string[], reason: string): never {
  throw new NotJsonSignal({ path: path.join('/'), reason })
}
