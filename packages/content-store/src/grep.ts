import { RE2JS } from 're2js'
import { messageOf } from '@reve/base'
import { StoreError } from './errors.ts'
import { Pace } from './host-dir.ts'
import { objectKind, type Objects } from './objects.ts'
import { splitPath } from './path.ts'
import { isBinary } from './text-view.ts'
import type { Trees } from './trees.ts'
import type { StorePath, TreeId } from './types.ts'

export type GrepOptions = {
  /** A directory or file to search (default: all). */
  readonly path?: StorePath | undefined
  /** Most matching lines (default 200). */
  readonly limit?: number | undefined
  readonly ignoreCase?: boolean | undefined
  readonly signal?: AbortSignal | undefined
}

export type GrepMatch = {
  readonly path: StorePath
  /** 1-based. */
  readonly line: number
  /** The line, cut around the match when it is long. */
  readonly text: string
}

export type GrepResult = {
  readonly matches: readonly GrepMatch[]
  /** Binary files that match; their lines are not shown. */
  readonly binary: readonly StorePath[]
  /** Files searched. */
  readonly files: number
  /** Larger files, not searched. */
  readonly tooLarge: readonly StorePath[]
  /** Whether the limit ended the search: then more may match from `stoppedAt` on. To go on, narrow the path or raise the limit. */
  readonly truncated: boolean
  readonly stoppedAt: StorePath | null
}

/** Longest pattern, and largest file that is searched. */
const maxPattern = 4096
const maxFileBytes = 64 << 20
/** Most characters of a line that are shown. */
const shownCharacters = 300

type Parts = { readonly trees: Trees; readonly objects: Objects }

/** Searches the files of a tree line by line. Links and gitlinks are not searched. */
export async function grepTree(
  parts: Parts,
  tree: TreeId,
  pattern: string,
  options: GrepOptions = {},
): Promise<GrepResult> {
  const limit = options.limit ?? 200
  const search = compile(pattern, options.ignoreCase ?? false)
  const pace = new Pace(options.signal)
  const matches: GrepMatch[] = []
  const binary: StorePath[] = []
  const tooLarge: StorePath[] = []
  let files = 0
  const start = options.path ?? ''
  splitPath(start)
  for (const entry of parts.trees.walk(tree, start)) {
    if (entry.kind !== 'file' && entry.kind !== 'executable') continue
    if (parts.objects.size(entry.id) > maxFileBytes) {
      tooLarge.push(entry.path)
      continue
    }
    const bytes = parts.objects.read(entry.id, objectKind.blob)
    files += 1
    await pace.step(1 + bytes.length / 4096)
    if (search.cannotMatch(bytes)) continue
    // One rule for all: a binary file is named once, whatever number of its lines matches.
    const isText = !isBinary(bytes)
    for (const line of search.lines(bytes)) {
      if (line === 'pause') {
        await pace.step(200)
        continue
      }
      if (!isText) {
        binary.push(entry.path)
        break
      }
      if (matches.length >= limit) return { matches, binary, files, tooLarge, truncated: true, stoppedAt: entry.path }
      matches.push({ path: entry.path, line: line.number, text: cut(line.text, line.at) })
    }
  }
  return { matches, binary, files, tooLarge, truncated: false, stoppedAt: null }
}

/** Lines that are tried between two chances for other work. */
const pauseEvery = 2000

/** A line that matches; `pause` when it was long since the last one. */
type FoundLine = 'pause' | { readonly number: number; readonly text: string; readonly at: number }

type Search = { cannotMatch(bytes: Buffer): boolean; lines(bytes: Buffer): Generator<FoundLine, void, undefined> }

function compile(pattern: string, ignoreCase: boolean): Search {
  const bad = (why: string, cause?: unknown): StoreError =>
    new StoreError('bad_pattern', `the pattern ${JSON.stringify(pattern.slice(0, 80))} ${why}`, {
      ...(cause === undefined ? {} : { cause }),
      hint: 'the syntax is RE2: no lookaround, no backreferences; \\Q…\\E takes a text as it stands',
    })
  if (pattern === '') throw bad('is empty')
  if (pattern.length > maxPattern) throw bad(`is longer than ${maxPattern} characters`)
  if (pattern.includes('\n')) throw bad('holds a newline: lines are searched one by one')
  let regex: RE2JS
  try {
    regex = RE2JS.compile(pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0)
  } catch (error) {
    throw bad(`is no regular expression: ${messageOf(error)}`, error)
  }
  const literal = ignoreCase ? undefined : literalOf(pattern)
  const needle = literal === undefined ? undefined : Buffer.from(literal.text)
  return {
    cannotMatch: (bytes) => needle !== undefined && !bytes.includes(needle),
    lines: (bytes) =>
      needle === undefined
        ? allLines(bytes, regex)
        : literalLines(bytes, needle, literal?.whole === true ? undefined : regex),
  }
}

/** Every line, tried with the expression. */
function* allLines(bytes: Buffer, regex: RE2JS): Generator<FoundLine, void, undefined> {
  let number = 0
  for (let start = 0; start < bytes.length;) {
    number += 1
    const newline = bytes.indexOf(0x0a, start)
    const end = newline === -1 ? bytes.length : newline
    const text = lineOf(bytes, start, end)
    const matcher = regex.matcher(text)
    if (matcher.find()) yield { number, text, at: matcher.start() }
    if (number % pauseEvery === 0) yield 'pause'
    start = end + 1
  }
}

/** Only lines that hold a text which every match must hold. */
function* literalLines(bytes: Buffer, needle: Buffer, regex: RE2JS | undefined): Generator<FoundLine, void, undefined> {
  let number = 1
  let counted = 0
  for (let hit = bytes.indexOf(needle); hit !== -1;) {
    for (let at = bytes.indexOf(0x0a, counted); at !== -1 && at < hit; at = bytes.indexOf(0x0a, counted)) {
      number += 1
      counted = at + 1
    }
    const newline = bytes.indexOf(0x0a, hit)
    const end = newline === -1 ? bytes.length : newline
    const text = lineOf(bytes, counted, end)
    if (regex === undefined) yield { number, text, at: bytes.toString('utf8', counted, hit).length }
    else {
      const matcher = regex.matcher(text)
      if (matcher.find()) yield { number, text, at: matcher.start() }
    }
    hit = end + 1 > bytes.length ? -1 : bytes.indexOf(needle, end + 1)
  }
}

function lineOf(bytes: Buffer, start: number, end: number): string {
  return bytes.toString('utf8', start, end > start && bytes[end - 1] === 0x0d ? end - 1 : end)
}

/** The longest text that every match must hold, found where the pattern is simple enough to be sure. */
export function literalOf(pattern: string): { readonly text: string; readonly whole: boolean } | undefined {
  // Alternatives, groups, classes, flags and \Q leave it open which text must be there.
  if (/[|()[\]{}]|\\[QEpPxuU0-9]/.test(pattern)) return undefined
  const runs: string[] = ['']
  let whole = true
  const end = (): void => {
    runs.push('')
    whole = false
  }
  const characters = [...pattern]
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at] ?? ''
    let literal: string | undefined
    if (character === '\\') {
      const next = characters[++at] ?? ''
      literal = /[A-Za-z0-9]/.test(next) ? undefined : next
    } else if (!'.^$*+?'.includes(character)) literal = character
    const quantifier = characters[at + 1]
    if (literal === undefined || quantifier === '*' || quantifier === '?') end()
    else {
      runs[runs.length - 1] += literal
      if (quantifier === '+') end()
    }
  }
  const text = runs.reduce((longest, run) => (run.length > longest.length ? run : longest), '')
  return text === '' ? undefined : { text, whole }
}

function cut(text: string, at: number): string {
  if (text.length <= shownCharacters) return text
  const start = Math.max(0, Math.min(at - shownCharacters / 4, text.length - shownCharacters))
  const piece = text.slice(start, start + shownCharacters)
  // Half a surrogate pair at an edge is dropped.
  const whole = piece.replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '')
  return `${start > 0 ? '…' : ''}${whole}${start + shownCharacters < text.length ? '…' : ''}`
}
