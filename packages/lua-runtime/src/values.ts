/**
 * A value that left Lua. Plain data: it holds no reference into the Lua state.
 *
 * Integers outside ±(2^53−1) are `bigint`; a string that is not UTF-8 is a `Uint8Array`; `json.null` is `null`. A table
 * with the keys 1..n is an array (holes are `null`, at least half of the slots must be filled), a table with string keys an
 * object with sorted keys, and an empty table `{}` unless `json.array()` made it.
 */
export type LuaValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly LuaValue[]
  | { readonly [key: string]: LuaValue }

/** A JSON value, as a model sends it. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue }

/** A JSON object, as a model sends it for a tool's arguments. */
export type JsonObject = { readonly [key: string]: JsonValue }

/** What Lua's author calls such a value: for messages. */
export function luaTypeName(value: unknown): string {
  if (value === undefined) return 'nil'
  if (value === null) return 'null'
  if (typeof value === 'string')
    return `the string ${JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)}`
  if (typeof value === 'number' || typeof value === 'bigint') return `the number ${value}`
  if (typeof value === 'boolean') return `${value}`
  if (value instanceof Uint8Array) return 'a string of bytes'
  if (Array.isArray(value)) return 'a list'
  return 'a table'
}

/** True for a table with string keys (or none). */
export function isLuaTable(value: unknown): value is { readonly [key: string]: LuaValue } {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
}

/** An empty Lua table has no shape: where a list is expected, it is the empty list. */
export function emptyTableAsList(value: unknown): unknown {
  return isLuaTable(value) && Object.keys(value).length === 0 ? [] : value
}
