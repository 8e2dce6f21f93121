import { MarshalError, decodeLossy, showPath } from './marshal.ts'
import type { LuaValue } from './values.ts'

/**
 * The text of a tool's result: a string as it is (bytes that are not UTF-8 become U+FFFD), nil the empty string, anything
 * else JSON with an indent of two and sorted keys; integers keep all their digits.
 */
export function resultText(value: LuaValue | undefined): string {
  if (value === undefined) return ''
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return decodeLossy(value)
  return print(value, '', [])
}

function print(value: LuaValue, indent: string, path: readonly (string | number)[]): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'bigint') return `${value}`
  if (typeof value === 'number') {
    if (Number.isFinite(value)) return JSON.stringify(value)
    throw new MarshalError(
      `${path.length === 0 ? '' : `${showPath(path)}: `}${value} cannot be written as JSON; return it as a string`,
    )
  }
  if (typeof value === 'string') return JSON.stringify(value)
  if (value instanceof Uint8Array) return JSON.stringify(decodeLossy(value))
  const inner = `${indent}  `
  const isList = Array.isArray(value)
  const parts = isList
    ? value.map((item: LuaValue, index) => `${inner}${print(item, inner, [...path, index + 1])}`)
    : Object.entries(value).map(
        ([key, item]) => `${inner}${JSON.stringify(key)}: ${print(item, inner, [...path, key])}`,
      )
  const [open, close] = isList ? ['[', ']'] : ['{', '}']
  return parts.length === 0 ? `${open}${close}` : `${open}\n${parts.join(',\n')}\n${indent}${close}`
}
