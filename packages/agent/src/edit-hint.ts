/** A longer file is not searched for what nearly matches. */
const searchedBytes = 1 << 20
const searchedLines = 50_000
/** Nor for a longer text. */
const soughtLines = 1000
const shownCharacters = 200
const shownLines = 10
/** How much a line has to have in common with the wanted one to be worth telling, from 0 to 1. */
const likeness = 0.5

/** Why a text is not found in a file that its author believed to hold it, as far as that can be seen; one sentence. */
export function missHint(file: Buffer, old: string): string | undefined {
  if (file.length > searchedBytes) return undefined
  const lines = linesOf(file.toString('utf8'))
  if (lines.length > searchedLines) return undefined
  const wanted = linesOf(old)
  if (hasNumbers(wanted)) return 'leave out the line numbers that read shows'
  const first = wanted.findIndex(({ core }) => core !== '')
  const sought = wanted.slice(first, wanted.findLastIndex(({ core }) => core !== '') + 1)
  if (first < 0 || sought.length > soughtLines) return undefined
  return sameButForSpace(lines, sought) ?? beginsLike(lines, sought) ?? nearestLine(lines, sought)
}

/** A line, and what of it counts when white space around does not. */
type Line = { readonly text: string; readonly core: string }

const linesOf = (text: string): readonly Line[] =>
  text.split(/\r?\n/).map((line) => ({ text: line, core: line.trim() }))

const hasNumbers = (wanted: readonly Line[]): boolean =>
  wanted.some(({ core }) => core !== '') && wanted.every(({ text, core }) => /^\s*\d+\s{2}/.test(text) || core === '')

/** How many of the sought lines stand at a place, one after the other. */
function commonAt(lines: readonly Line[], at: number, sought: readonly Line[]): number {
  let length = 0
  while (length < sought.length && lines[at + length]?.core === sought[length]?.core) length++
  return length
}

function sameButForSpace(lines: readonly Line[], sought: readonly Line[]): string | undefined {
  const at = lines.findIndex((_, start) => commonAt(lines, start, sought) === sought.length)
  if (at < 0) return undefined
  const there = lines.slice(at, at + Math.min(sought.length, shownLines)).map(({ text }) => quote(text))
  const more = sought.length > shownLines ? ' and so on' : ''
  return `${place(at, sought.length)} differ${sought.length === 1 ? 's' : ''} only in white space; the file has ${there.join(' ')}${more}`
}

/** The place where most of the first lines are there, and what stands where it goes apart. */
function beginsLike(lines: readonly Line[], sought: readonly Line[]): string | undefined {
  let best = { at: -1, length: 0 }
  for (let at = 0; at < lines.length; at++) {
    const length = commonAt(lines, at, sought)
    if (length > best.length) best = { at, length }
  }
  // One line, of which there may be many, says little: a bracket, say.
  if (best.length === 0 || (best.length === 1 && (sought[0]?.core.length ?? 0) < 4)) return undefined
  const there = lines[best.at + best.length]
  const expected = quote(sought[best.length]?.text ?? '')
  const found = there === undefined ? 'the file ends there' : `the file has ${quote(there.text)}, not ${expected}`
  return `it begins like ${place(best.at, best.length)}, but then, at line ${best.at + best.length + 1}, ${found}`
}

function nearestLine(lines: readonly Line[], sought: readonly Line[]): string | undefined {
  const pairs = pairsOf(sought[0]?.core ?? '')
  let best = { at: -1, score: 0 }
  for (const [at, { core }] of lines.entries()) {
    const score = core === '' ? 0 : likenessOf(pairs, pairsOf(core))
    if (score > best.score) best = { at, score }
  }
  if (best.score < likeness) return undefined
  return `the nearest is line ${best.at + 1}: ${quote(lines[best.at]?.text ?? '')}`
}

/** The pairs of neighbouring characters of a line, or of its first part. */
function pairsOf(line: string): ReadonlyMap<string, number> {
  const pairs = new Map<string, number>()
  const end = Math.min(line.length, 500) - 1
  for (let at = 0; at < end; at++) {
    const pair = line.slice(at, at + 2)
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1)
  }
  return pairs
}

/** Sørensen and Dice's coefficient of two bags. */
function likenessOf(one: ReadonlyMap<string, number>, other: ReadonlyMap<string, number>): number {
  let [common, all] = [0, 0]
  for (const [pair, count] of one) {
    common += Math.min(count, other.get(pair) ?? 0)
    all += count
  }
  for (const count of other.values()) all += count
  return all === 0 ? 0 : (2 * common) / all
}

const place = (at: number, length: number): string =>
  length === 1 ? `line ${at + 1}` : `lines ${at + 1} to ${at + length}`

function quote(line: string): string {
  const characters = [...line]
  const cut = characters.length > shownCharacters
  return JSON.stringify(cut ? `${characters.slice(0, shownCharacters).join('')}…` : line)
}
