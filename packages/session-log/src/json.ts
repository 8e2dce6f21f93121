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
    return { ok: true, value: copy(value, '', 0) }
  } catch (error) {
    if (error instanceof NotJsonSignal) return { ok: false, problem: error.at }
    throw error
  }
}

/** Whether a value is an object with string keys: not null, not an array. */
export function isObject(value: unknown): value is { readonly [key: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function copy(value: unknown, path: string, depth: number): Json {
  if (depth > MAX_DEPTH) refuse(path, `nested deeper than ${MAX_DEPTH} levels, or refers to itself`)
  if (value === null || typeof value === 'boolean') return value
  if (typeof value === 'string') return value.toWellFormed()
  if (typeof value === 'number') {
    return Number.isFinite(value) ? (Object.is(value, -0) ? 0 : value) : refuse(path, `${value} is not a JSON number`)
  }
  if (Array.isArray(value)) return Array.from(value, (item, index) => copy(item, join(path, String(index)), depth + 1))
  if (typeof value !== 'object') return refuse(path, `a ${typeof value} is not JSON`)
  const proto: unknown = Object.getPrototypeOf(value)
  if (proto !== Object.prototype && proto !== null) refuse(path, 'only plain objects are JSON')
  const entries = Object.entries(value)
    .filter(([, item]) => item !== undefined)
    .map(([key, item]): readonly [string, Json] => [key.toWellFormed(), copy(item, join(path, key), depth + 1)])
  return Object.fromEntries(entries)
}

const join = (path: string, key: string) => (path === '' ? key : `${path}/${key}`)

function refuse(path: string, reason: string): never {
  throw new NotJsonSignal({ path, reason })
}
