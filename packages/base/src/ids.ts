/** Gives `count` random bytes. */
export type RandomBytes = (count: number) => Uint8Array

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz'
const timeCharacters = 10
const randomCharacters = 10

/**
 * `prefix` and 20 characters of Crockford's base 32 in lower case: 10 of time in milliseconds, 10 of randomness (50 bits),
 * so that ids sort by their time.
 */
export function timeOrderedId(prefix: string, nowMs: number, random: RandomBytes): string {
  return prefix + encodeTime(nowMs) + encodeRandom(random(randomCharacters))
}

/** A source of ids that rise strictly, also within one millisecond and when the clock steps back. */
export function createIdSource(options: {
  readonly now: () => number
  readonly random: RandomBytes
}): (prefix: string) => string {
  let last = 0
  return (prefix) => {
    last = Math.max(options.now(), last + 1)
    return timeOrderedId(prefix, last, options.random)
  }
}

function encodeTime(ms: number): string {
  let rest = Math.floor(ms)
  let text = ''
  for (let index = 0; index < timeCharacters; index++) {
    text = (alphabet[rest % 32] ?? '0') + text
    rest = Math.floor(rest / 32)
  }
  return text
}

const encodeRandom = (bytes: Uint8Array): string => [...bytes].map((byte) => alphabet[byte % 32]).join('')
