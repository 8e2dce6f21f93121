import { Transform } from 'node:stream'

/** Texts to look for and what stands in their place; strings are bytes, one character each (`latin1`). */
export type Replacements = ReadonlyMap<string, string>

/** Replaces in text and in streams. */
export type Replacer = {
  /** Leftmost first, of several that start together the longest; what was put in is not looked at again. */
  text(input: string, onFound?: (found: string) => void): string
  /** The same over a stream of bytes, however it is cut; holds back only what may be the start of a match. */
  stream(onFound?: (found: string) => void): Transform
}

/** Makes a replacer; undefined when there is nothing to look for. */
export function createReplacer(replacements: Replacements): Replacer | undefined {
  const wanted = [...replacements.keys()].filter((key) => key !== '').toSorted((a, b) => b.length - a.length)
  if (wanted.length === 0) return undefined
  const pattern = new RegExp(
    wanted.map((key) => key.replaceAll(/[$()*+.?[\\\]^{|}/-]/g, String.raw`\$&`)).join('|'),
    'g',
  )
  const longest = wanted[0]?.length ?? 0

  const replaced = (found: string, onFound: ((found: string) => void) | undefined): string => {
    onFound?.(found)
    return replacements.get(found) ?? found
  }

  /** Where in `input`, from `from` on, something could begin that goes on after the end. */
  const openFrom = (input: string, from: number): number => {
    for (let at = Math.max(from, input.length - longest + 1); at < input.length; at += 1) {
      const length = input.length - at
      if (wanted.some((key) => key.length > length && key.startsWith(input.slice(at)))) return at
    }
    return input.length
  }

  return {
    text: (input, onFound) => input.replace(pattern, (found) => replaced(found, onFound)),
    stream: (onFound) => {
      let held = ''
      return new Transform({
        transform: (chunk: Buffer, _encoding, done) => {
          const input = held + chunk.toString('latin1')
          const out: string[] = []
          let at = 0
          let open = openFrom(input, at)
          for (;;) {
            pattern.lastIndex = at
            const match = pattern.exec(input)
            if (match === null || match.index >= open) break
            out.push(input.slice(at, match.index), replaced(match[0], onFound))
            at = match.index + match[0].length
            if (at > open) open = openFrom(input, at)
          }
          out.push(input.slice(at, open))
          held = input.slice(open)
          done(null, Buffer.from(out.join(''), 'latin1'))
        },
        flush: (done) => {
          done(
            null,
            Buffer.from(
              held.replace(pattern, (found) => replaced(found, onFound)),
              'latin1',
            ),
          )
        },
      })
    },
  }
}
