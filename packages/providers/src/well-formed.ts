import type { Json, JsonObject } from './model.ts'

/**
 * The same value with every lone surrogate replaced by U+FFFD, in strings and in keys: JSON can escape half of a
 * character, but every server refuses it, and a conversation that holds one would be refused for ever.
 */
export function wellFormed<T extends Json>(value: T): T
export function wellFormed(value: Json): Json {
  if (typeof value === 'string') return value.isWellFormed() ? value : value.toWellFormed()
  if (typeof value !== 'object' || value === null) return value
  if (isArray(value)) return value.map((item) => wellFormed(item))
  const object: JsonObject = value
  return Object.fromEntries(Object.entries(object).map(([key, item]) => [key.toWellFormed(), wellFormed(item)]))
}

/** Whether a value has at most `levels` arrays and objects within each other. */
export function isNestedWithin(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return levels > 0 && Object.values(value).every((item) => isNestedWithin(item, levels - 1))
}

function isArray(value: Json): value is readonly Json[] {
  return Array.isArray(value)
}
