/** Whether a path (relative, with `/` between its parts) is meant by a pattern. */
export type PathMatcher = (path: string) => boolean

/** `{a,b}` makes a pattern of each; more of them are refused. */
const mostAlternatives = 256

/**
 * A glob pattern: `*` and `?` within a part, `[a-z]`, `[!a-z]`, `{a,b}`, `**` as a part for any number of parts, `\` before what
 * stands for itself. Without a `/` it means names at any depth. Takes time of the product of both lengths at most.
 *
 * @returns what is wrong, for a pattern of too many alternatives.
 */
export function globMatcher(pattern: string): PathMatcher | { readonly problem: string } {
  const below = pattern.replace(/^(\.\/+)+/, '')
  const alternatives = expandBraces(below)
  if (alternatives.length > mostAlternatives)
    return { problem: `{…} stands for more than ${mostAlternatives} patterns` }
  const matchers = alternatives.map((alternative) => {
    const parts = alternative.replace(/\/+$/, '').split(/\/+/)
    return (parts.length === 1 && below === pattern ? ['**', ...parts] : parts).map(parsePart)
  })
  return (path) => {
    const names = path.split('/').map((name) => [...name])
    return matchers.some((parts) => matchesParts(parts, names))
  }
}

/** Where the braces open that stand for alternatives, their texts, and where they close; undefined without any. */
function firstBraces(
  pattern: string,
): { readonly start: number; readonly end: number; readonly parts: readonly string[] } | undefined {
  const open: { start: number; commas: number[] }[] = []
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern[at]
    if (character === '\\') at++
    else if (character === '{') open.push({ start: at, commas: [] })
    else if (character === ',') open.at(-1)?.commas.push(at)
    else if (character === '}') {
      const innermost = open.pop()
      if (innermost === undefined || innermost.commas.length === 0) continue
      const cuts = [innermost.start, ...innermost.commas, at]
      const parts = cuts.slice(1).map((cut, index) => pattern.slice((cuts[index] ?? 0) + 1, cut))
      return { start: innermost.start, end: at + 1, parts }
    }
  }
  return undefined
}

function expandBraces(pattern: string): readonly string[] {
  let patterns: readonly string[] = [pattern]
  for (;;) {
    let isDone = true
    const next: string[] = []
    for (const one of patterns) {
      const braces = firstBraces(one)
      if (braces === undefined) next.push(one)
      else {
        isDone = false
        const { start, end, parts } = braces
        next.push(...parts.map((part) => one.slice(0, start) + part + one.slice(end)))
      }
      if (next.length > mostAlternatives) return next
    }
    patterns = next
    if (isDone) return patterns
  }
}

type Wild = { readonly type: 'any number' }
type Character = Wild | { readonly type: 'character'; readonly is: (character: string) => boolean }
type Part = Wild | { readonly type: 'name'; readonly characters: readonly Character[] }
const wild: Wild = { type: 'any number' }

function parsePart(text: string): Part {
  if (text === '**') return wild
  const written = [...text]
  const characters: Character[] = []
  for (let at = 0; at < written.length; at++) {
    const character = written[at] ?? ''
    const set = character === '[' ? parseSet(written, at) : undefined
    if (character === '*') {
      if (characters.at(-1) !== wild) characters.push(wild)
    } else if (character === '?') characters.push({ type: 'character', is: () => true })
    else if (set !== undefined) {
      characters.push({ type: 'character', is: set.is })
      at = set.last
    } else {
      if (character === '\\' && at + 1 < written.length) at++
      const wanted = written[at]
      characters.push({ type: 'character', is: (found) => found === wanted })
    }
  }
  return { type: 'name', characters }
}

/** `[...]` from its bracket on; undefined when it is not closed, and the bracket stands for itself. */
function parseSet(
  characters: readonly string[],
  start: number,
): { readonly is: (character: string) => boolean; readonly last: number } | undefined {
  const isNegated = ['!', '^'].includes(characters[start + 1] ?? '')
  const first = start + (isNegated ? 2 : 1)
  // A bracket that comes first is one of the set.
  const last = characters.indexOf(']', first + 1)
  if (last < 0) return undefined
  const ranges: (readonly [number, number])[] = []
  for (let at = first; at < last; at++) {
    const low = codeOf(characters[at])
    const isRange = characters[at + 1] === '-' && at + 2 < last
    ranges.push([low, isRange ? codeOf(characters[at + 2]) : low])
    if (isRange) at += 2
  }
  const is = (character: string): boolean => {
    const code = codeOf(character)
    return ranges.some(([low, high]) => low <= code && code <= high) !== isNegated
  }
  return { is, last }
}

const codeOf = (character: string | undefined): number => character?.codePointAt(0) ?? -1

type Name = readonly string[]

const matchesParts = (parts: readonly Part[], names: readonly Name[]): boolean =>
  matchesAll(parts, names, (part, name) => part.type === 'name' && matchesName(part.characters, name))

const matchesName = (characters: readonly Character[], name: Name): boolean =>
  matchesAll(characters, name, (wanted, character) => wanted.type === 'character' && wanted.is(character))

/** Goes on from the last wildcard when it fails, never from one before: what that took is enough. */
function matchesAll<P extends { readonly type: string }, V>(
  pattern: readonly P[],
  values: readonly V[],
  matches: (element: P, value: V) => boolean,
): boolean {
  let at = 0
  let back = { at: -1, from: 0 }
  for (let from = 0; from < values.length;) {
    const element = pattern[at]
    // Not undefined: `from` is inside.
    const value = values[from] as V
    if (element?.type === wild.type) back = { at: at++, from }
    else if (element !== undefined && matches(element, value)) {
      at++
      from++
    } else if (back.at >= 0) {
      back = { at: back.at, from: back.from + 1 }
      at = back.at + 1
      from = back.from
    } else return false
  }
  return pattern.slice(at).every(({ type }) => type === wild.type)
}
