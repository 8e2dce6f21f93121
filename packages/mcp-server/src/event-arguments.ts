/** Characters of an event's arguments, as the specification says. */
export const argumentCharacters = 4000

export type LoggedArguments = { readonly json: string; readonly cut: boolean }

/**
 * A call's arguments as its event keeps them: the values of the fields on the action's list, the size of every other.
 * An allowlist, so that a file's body, an environment value or a field that a client made up never lands in a row. `hide`
 * takes secrets out of a text.
 */
export function loggedArguments(
  args: unknown,
  allowed: ReadonlySet<string>,
  hide: (text: string) => string = createHide(),
): LoggedArguments {
  const fields = typeof args === 'object' && args !== null && !Array.isArray(args) ? Object.entries(args) : []
  const kept = fields
    .filter(([, value]) => value !== undefined)
    .slice(0, 64)
    .map(([key, value]) => [hide(key).slice(0, 64), allowed.has(key) ? shown(value, hide) : sizeOf(value)] as const)
  return cutJson(JSON.stringify(Object.fromEntries(kept)).toWellFormed())
}

/** What a listed field may hold; of anything else, which no action takes, the size is enough. */
function shown(value: unknown, hide: (text: string) => string): unknown {
  if (typeof value === 'string') return hide(value)
  if (typeof value === 'number' || typeof value === 'boolean') return value
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value.map(hide)
  return sizeOf(value)
}

/** `https://user:secret@host/…` → `https://host/…`, also inside of a longer text. Linear in its length. */
const userInfo = /:\/\/[^\s/?#]*@/g
/** The value of an HTTP authorization, as a command's argument may hold it. */
const authorization = /\b(Bearer|Basic)\s+[\x21-\x7e]+/gi
/** A token of kc's own making, whoever's it is. */
const ownToken = /kc_[A-Za-z0-9_-]{43}/g

/**
 * Takes secrets out of a text that is kept: user info of addresses, values of authorizations, tokens of seats, and the
 * `known` values.
 */
export const createHide =
  (...known: readonly string[]) =>
  (text: string): string =>
    known
      .filter((secret) => secret !== '')
      .reduce((rest, secret) => rest.replaceAll(secret, '(secret)'), text)
      .replaceAll(ownToken, '(secret)')
      .replaceAll(userInfo, '://')
      .replaceAll(authorization, '$1 (secret)')

/** Bytes of a call's arguments as JSON, near enough. Without recursion: a client may nest as deep as it likes. */
export function jsonBytes(value: unknown): number {
  let bytes = 0
  const waiting: unknown[] = [value]
  while (waiting.length > 0) {
    const next = waiting.pop()
    if (typeof next === 'string') bytes += Buffer.byteLength(next) + 2
    else if (typeof next === 'object' && next !== null) {
      bytes += 2
      for (const [key, entry] of Object.entries(next)) {
        bytes += Array.isArray(next) ? 1 : Buffer.byteLength(key) + 4
        waiting.push(entry)
      }
    } else bytes += String(next).length
  }
  return bytes
}

function sizeOf(value: unknown): string {
  if (typeof value === 'string') return `(${Buffer.byteLength(value)} bytes)`
  if (Array.isArray(value)) return `(${value.length} items)`
  if (typeof value === 'object' && value !== null) return `(${Object.keys(value).length} fields)`
  return `(${typeof value})`
}

function cutJson(json: string): LoggedArguments {
  return { json: cutText(json, argumentCharacters), cut: json.length > argumentCharacters }
}

/** The beginning of a text; a pair of surrogates stays whole, or is left out. */
export function cutText(text: string, characters: number): string {
  if (text.length <= characters) return text
  const end = /[\uD800-\uDBFF]/.test(text.charAt(characters - 1)) ? characters - 1 : characters
  return text.slice(0, end)
}
