import type { ArgumentKind, SlashCommand } from './command-list.ts'

/** What could stand at the cursor. */
export type Wanted = {
  /** The part of the text that a candidate takes the place of. */
  readonly from: number
  readonly to: number
  readonly query: string
} & (
  | { readonly kind: 'file' }
  | { readonly kind: 'command' }
  | { readonly kind: 'argument'; readonly of: SlashCommand; readonly takes: ArgumentKind }
)

export type Candidate = {
  /** What is put in. */
  readonly value: string
  /** What is shown, if it is something else. */
  readonly label?: string
  readonly detail?: string
  /** Whether something is to follow, so that a space is put in too. */
  readonly more: boolean
}

/** The list that is open. `wanted` is what it was made for. */
export type Completion = {
  readonly wanted: Wanted
  readonly items: readonly Candidate[]
  readonly selected: number
  /** Said under the list, for example that more files are being looked for. */
  readonly note?: string
}

/**
 * What the text before the cursor asks for: `@` at the start of a word a file, `/` at the start of everything a command, and after a
 * command its argument.
 */
export function wantedAt(text: string, cursor: number, commands: readonly SlashCommand[]): Wanted | undefined {
  const before = text.slice(0, cursor)
  const file = /(?:^|\s)@("[^"\n]*|[^\s"]*)$/.exec(before.slice(-1024))
  if (file !== null) {
    const typed = file[1] ?? ''
    return { kind: 'file', from: cursor - typed.length - 1, to: cursor, query: typed.replace(/^"/, '') }
  }
  if (!before.startsWith('/') || before.length > 1024 || before.includes('\n')) return undefined
  const [, name, rest] = /^\/([\w-]*)(?:\s+(.*))?$/.exec(before) ?? []
  if (name === undefined) return undefined
  if (rest === undefined && !/\s/.test(before)) return { kind: 'command', from: 0, to: cursor, query: name }
  const of = commands.find((command) => command.name === name)
  if (of === undefined || rest === undefined) return undefined
  // Only the first word is completed; what follows it is free.
  if (of.takes === 'none' || of.takes === 'text' || /\s/.test(rest)) return undefined
  return { kind: 'argument', of, takes: of.takes, from: cursor - rest.length, to: cursor, query: rest }
}

/** Commands that fit: an exact name first, then those that begin so, then those that have it. */
export function commandCandidates(query: string, commands: readonly SlashCommand[]): readonly Candidate[] {
  const wanted = query.toLowerCase()
  const rank = (name: string): number =>
    name === wanted ? 0 : name.startsWith(wanted) ? 1 : name.includes(wanted) ? 2 : 3
  return commands
    .filter(({ name }) => rank(name.toLowerCase()) < 3)
    .toSorted((a, b) => rank(a.name.toLowerCase()) - rank(b.name.toLowerCase()))
    .map(({ name, about, takes, usage }) => ({
      value: `/${name}`,
      ...(usage === undefined ? {} : { label: `/${name} ${usage}` }),
      detail: about,
      more: takes !== 'none',
    }))
}

/** Words that fit, those that begin so first. */
export function wordCandidates(
  query: string,
  words: readonly { readonly value: string; readonly label?: string; readonly detail?: string }[],
  more: boolean,
): readonly Candidate[] {
  const wanted = query.toLowerCase()
  const text = (word: (typeof words)[number]): string => `${word.value} ${word.label ?? ''}`.toLowerCase()
  const starting = words.filter((word) => word.value.toLowerCase().startsWith(wanted))
  const having = words.filter((word) => !word.value.toLowerCase().startsWith(wanted) && text(word).includes(wanted))
  return [...starting, ...having].map((word) => ({ ...word, more }))
}

/** A list with new items: the highlight stays on the same value. */
export function withItems(
  before: Completion | undefined,
  wanted: Wanted,
  items: readonly Candidate[],
  note?: string,
): Completion | undefined {
  if (items.length === 0 && note === undefined) return undefined
  const value =
    before?.wanted.kind === wanted.kind && before.selected > 0 ? before.items[before.selected]?.value : undefined
  const kept = value === undefined ? -1 : items.findIndex((item) => item.value === value)
  return { wanted, items, selected: Math.max(0, kept), ...(note === undefined ? {} : { note }) }
}

/** The next item, or the one before; round at the ends. */
export function selected(completion: Completion, by: number): Completion {
  const count = completion.items.length
  return count === 0 ? completion : { ...completion, selected: (completion.selected + by + count) % count }
}

/**
 * What accepting the highlighted item puts into the text; undefined when there is none. Enter does not accept what is typed out
 * already: there is nothing more to choose, it sends.
 */
export function accepted(
  completion: Completion,
  text: string,
  how: 'tab' | 'enter',
): { readonly from: number; readonly to: number; readonly text: string } | undefined {
  const item = completion.items[completion.selected]
  if (item === undefined) return undefined
  const { wanted } = completion
  const value = wanted.kind === 'file' ? mention(item.value) : item.value
  const space = item.more && !/^\s/.test(text.slice(wanted.to)) ? ' ' : ''
  if (text.slice(wanted.from, wanted.to) === value && (space === '' || how === 'enter')) return undefined
  return { from: wanted.from, to: wanted.to, text: value + space }
}

/** A path in a prompt; one with a space stands in quotes. */
export const mention = (path: string): string => (/[\s"]/.test(path) ? `@"${path}"` : `@${path}`)

/** A file's size as people say it. */
export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`
}
