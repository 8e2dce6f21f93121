/** Characters of an event's arguments, as the specification says. */
export const argumentCharacters = 4000

export type LoggedArguments = { readonly json: string; readonly cut: boolean }

/**
 * A call's arguments as its event keeps them: the values of the fields on the action's list, the size of every other.
 * An allowlist, so that a file's body, an environment value or a field that a client made up never lands in a row.
 */
export function loggedArguments(args: unknown, allowed: ReadonlySet<string>): LoggedArguments {
  const fields = typeof args === 'object' && args !== null && !Array.isArray(args) ? Object.entries(args) : []
  const kept = fields
    .filter(([, value]) => value !== undefined)
    .slice(0, 64)
    .map(([key, value]) => [key.slice(0, 64), allowed.has(key) ? plain(value) : sizeOf(value)] as const)
  return cutJson(JSON.stringify(Object.fromEntries(kept)).toWellFormed())
}

/** Strings lose the user info of any URL in them; anything nested keeps its shape. */
function plain(value: unknown): unknown {
  if (typeof value === 'string') return withoutUserInfo(value)
  if (Array.isArray(value)) return value.map(plain)
  return value
}

/** `https://user:secret@host/…` → `https://host/…`, also inside of a longer text. */
export const withoutUserInfo = (text: string): string => text.replaceAll(/\b([a-z][a-z0-9+.-]*:\/\/)[^\s/@]*@/gi, '$1')

function sizeOf(value: unknown): string {
  if (typeof value === 'string') return `(${Buffer.byteLength(value)} bytes)`
  if (Array.isArray(value)) return `(${value.length} items)`
  if (typeof value === 'object' && value !== null) return `(${Object.keys(value).length} fields)`
  return `(${typeof value})`
}

function cutJson(json: string): LoggedArguments {
  if (json.length <= argumentCharacters) return { json, cut: false }
  // A pair of surrogates stays whole.
  const end = /[\uD800-\uDBFF]/.test(json.charAt(argumentCharacters - 1)) ? argumentCharacters - 1 : argumentCharacters
  return { json: json.slice(0, end), cut: true }
}
