import * as v from 'valibot'
import type { JsonObject } from './model.ts'
import { isNestedWithin } from './well-formed.ts'

/** An event that is not what its API promises. Caught where streams are read, becomes a `protocol` failure. */
export class UnexpectedEvent extends Error {
  override readonly name = 'UnexpectedEvent'
}

/** Reads an event's data; what the schema does not name is ignored, for servers add to it at any time. */
export function readEvent<const S extends v.GenericSchema>(schema: S, data: unknown): v.InferOutput<S> {
  const result = v.safeParse(schema, data)
  if (result.success) return result.output
  const [issue] = result.issues
  throw new UnexpectedEvent(
    `the server sent an event of an unknown form (${v.getDotPath(issue) ?? 'event'}: not ${issue.expected ?? 'that'})`,
  )
}

/** What is nested deeper could be read, but not be written down again by everyone. */
const deepest = 256

/** The type of an event, where it has one. */
export const typed = v.object({ type: v.optional(v.string(), '') })
/** Absent, null or text: servers use all three for nothing. */
export const text = v.nullish(v.string())
export const tokens = v.nullish(v.number())
/** Any object, as it came out of JSON: the very same one, so that nothing of it changes. */
export const anyObject = v.custom<JsonObject>(
  (value) => typeof value === 'object' && value !== null && !Array.isArray(value) && isNestedWithin(value, deepest),
  'an object',
)
