import type { Line, Span } from './spans.ts'

const words = (text: string): ReadonlySet<string> => new Set(text.split(' '))

const common =
  'if else for while do return break continue switch case default try catch finally throw new class import from export function const let var in of true false null'
const keywords: Readonly<Record<string, ReadonlySet<string>>> = {
  js: words(
    `${common} async await yield typeof instanceof extends implements interface type enum public private protected readonly static this super undefined void as satisfies declare namespace keyof delete`,
  ),
  py: words(
    'def class if elif else for while return import from as with try except finally raise in is not and or None True False lambda pass break continue global nonlocal yield async await assert del match case',
  ),
  sh: words(
    'if then else elif fi for while until do done case esac in function return local export set unset exit cd echo source',
  ),
  c: words(
    `${common} int char float double long short unsigned signed struct union enum typedef sizeof static extern void bool auto goto public private protected virtual template typename namespace using package func go defer chan map range select interface fn let mut pub impl trait use mod match self Self crate move ref where async await dyn unsafe loop String string final abstract extends implements override nil`,
  ),
  rb: words(
    'def end class module if elsif else unless while until for in do return yield begin rescue ensure raise then case when nil true false self require and or not attr_reader attr_accessor',
  ),
  lua: words(
    'and break do else elseif end false for function goto if in local nil not or repeat return then true until while',
  ),
  sql: words(
    'select from where insert into update delete create table drop alter join left right inner outer on group by order limit and or not null as set values primary key index SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE DROP ALTER JOIN LEFT RIGHT INNER OUTER ON GROUP BY ORDER LIMIT AND OR NOT NULL AS SET VALUES PRIMARY KEY INDEX',
  ),
  data: words('true false null yes no'),
}

type Family = {
  readonly words: ReadonlySet<string>
  readonly line: readonly string[]
  readonly block?: readonly [string, string]
  readonly quotes: string
}

const family = (name: string, line: readonly string[], quotes: string, block?: readonly [string, string]): Family => ({
  words: keywords[name] ?? new Set(),
  line,
  quotes,
  ...(block && { block }),
})

const families: Readonly<Record<string, Family>> = {
  js: family('js', ['//'], '"\'`', ['/*', '*/']),
  py: family('py', ['#'], '"\'', ['"""', '"""']),
  sh: family('sh', ['#'], '"\''),
  c: family('c', ['//'], '"\'`', ['/*', '*/']),
  rb: family('rb', ['#'], '"\'`'),
  lua: family('lua', ['--'], '"\'', ['--[[', ']]']),
  sql: family('sql', ['--'], '"\'', ['/*', '*/']),
  css: family('data', [], '"\'', ['/*', '*/']),
  data: family('data', ['#', '//'], '"\''),
  html: family('data', [], '"\'', ['<!--', '-->']),
}

/** Languages, by the family that they are coloured as. */
const languages: Readonly<Record<keyof typeof families, string>> = {
  js: 'js jsx ts tsx mjs javascript typescript',
  py: 'py python',
  sh: 'sh bash zsh shell console fish dockerfile make',
  c: 'c h cpp c++ cc cs java go rust rs kotlin swift zig php',
  rb: 'rb ruby',
  lua: 'lua',
  sql: 'sql',
  css: 'css scss',
  data: 'json jsonc yaml yml toml ini',
  html: 'html xml svg',
}

const names: ReadonlyMap<string, Family | undefined> = new Map(
  Object.entries(languages).flatMap(([name, all]) => all.split(' ').map((language) => [language, families[name]])),
)

/** What one line leaves to the next: the end of the comment (or text) that is open. */
export type HighlightState = { readonly open?: string }

const languageOf = (info: string): Family | undefined =>
  names.get(/^[\w+#-]*/.exec(info.trim().toLowerCase())?.[0] ?? '')

const isDiff = (info: string): boolean => /^(?:diff|patch)\b/i.test(info.trim())

/** Colours one line of code: comments, texts, numbers and keywords of its language; as it is for a language that is not known. */
export function highlight(line: string, info: string, state: HighlightState = {}): readonly [Line, HighlightState] {
  if (isDiff(info)) return [[diffLine(line)], {}]
  const language = languageOf(info)
  // Nobody reads a line of such a length, and a pattern should not have to.
  if (language === undefined || line.length > 2000) return [[{ text: line, style: {} }], {}]
  return coloured(line, language, state)
}

function diffLine(text: string): Span {
  if (/^(?:\+\+\+|---)/.test(text)) return { text, style: { bold: true } }
  if (text.startsWith('+')) return { text, style: { role: 'added' } }
  if (text.startsWith('-')) return { text, style: { role: 'removed' } }
  return { text, style: text.startsWith('@@') ? { role: 'accent' } : {} }
}

const comment = { role: 'comment' } as const
const string = { role: 'string' } as const
const number = { role: 'number' } as const
const keyword = { role: 'keyword' } as const
const plain = {}

function coloured(line: string, language: Family, state: HighlightState): readonly [Line, HighlightState] {
  const spans: Span[] = []
  const push = (text: string, style: Span['style']): void => {
    if (text !== '') spans.push({ text, style })
  }
  let at = 0
  if (state.open !== undefined) {
    const end = line.indexOf(state.open)
    if (end < 0) return [[{ text: line, style: comment }], state]
    at = end + state.open.length
    push(line.slice(0, at), comment)
  }
  const word = /[A-Za-z_$][\w$]*|\d[\w.]*|\s+|./gsu
  while (at < line.length) {
    if (language.block !== undefined && line.startsWith(language.block[0], at)) {
      const [open, close] = language.block
      const end = line.indexOf(close, at + open.length)
      if (end < 0) {
        push(line.slice(at), comment)
        return [spans, { open: close }]
      }
      push(line.slice(at, end + close.length), comment)
      at = end + close.length
      continue
    }
    const before = line[at - 1]
    if (
      language.line.some((mark) => line.startsWith(mark, at)) &&
      (before === undefined || /[\s;{}(),]/.test(before))
    ) {
      push(line.slice(at), comment)
      break
    }
    const character = line[at] ?? ''
    if (language.quotes.includes(character)) {
      let end = at + 1
      while (end < line.length && line[end] !== character) end += line[end] === '\\' ? 2 : 1
      push(line.slice(at, end + 1), string)
      at = end + 1
      continue
    }
    word.lastIndex = at
    const [text = character] = word.exec(line) ?? []
    push(text, /^\d/.test(text) ? number : language.words.has(text) ? keyword : plain)
    at += text.length
  }
  return [spans, {}]
}
