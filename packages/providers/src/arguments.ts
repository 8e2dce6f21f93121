import type { JsonObject } from './model.ts'
import { isNestedWithin } from './well-formed.ts'

export type ParsedArguments = { readonly arguments: JsonObject } | { readonly malformed: string }

/**
 * The arguments of a call from the text that a model wrote. Nothing is repaired: what is not one whole JSON object stays
 * as text, because a guess at cut-off arguments is a valid call of something that nobody asked for.
 *
 * @param complete false when the answer or the call was cut (output cap, abort, no word that it is whole): then the empty
 *   text is a call whose arguments never came, and not one that needs none.
 */
export function parseArguments(raw: string, complete: boolean): ParsedArguments {
  const value = tryParse(raw)
  // Some servers encode the object once more, as a JSON string.
  const object = typeof value === 'string' ? tryParse(value) : value
  if (isObject(object) && isNestedWithin(object, deepest)) return { arguments: object }
  const none = raw.trim() === '' || value === null
  return none && complete ? { arguments: {} } : { malformed: raw }
}

/** What is nested deeper is no arguments of a tool, and could not be written down again by everyone. */
const deepest = 256

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text, finite)
  } catch {
    return undefined
  }
}

/** `1e999` parses, to a number that JSON cannot say again: it could be neither kept nor sent back. */
function finite(_key: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError('a number without bounds')
  return value
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
