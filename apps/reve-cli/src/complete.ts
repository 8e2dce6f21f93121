import { commandOf, topics, type CommandSpec, type ListName, type OptionSpec, type Topic } from './command-table.ts'

/** What could stand at a place of a command line. */
export type Candidates = {
  readonly words: readonly { readonly word: string; readonly about: string }[]
  /** These of the agent's as well. */
  readonly list?: ListName
  /** Stands before each of them: the option of `--option=value`. */
  readonly prefix?: string
}

const NONE: Candidates = { words: [] }

/**
 * What the last word of a command line may become.
 *
 * @param line the words after the program's name; the last one is being typed and may be empty.
 */
export function candidates(line: readonly string[]): Candidates {
  const [first, ...rest] = line
  if (first === undefined || rest.length === 0) {
    const general = ['help', '--help', '--version'].map((word) => ({ word, about: '' }))
    return { words: [...topics.map((word) => ({ word, about: commandOf(word).about })), ...general] }
  }
  if (first === 'help') return rest.length === 1 ? plain(topics) : NONE
  const topic = topics.find((known) => known === first)
  // What follows is the guest's.
  if (topic === undefined || topic === 'exec') return NONE
  return ofCommand(topic, commandOf(topic), rest)
}

function ofCommand(topic: Topic, { options, actions, words = [] }: CommandSpec, rest: readonly string[]): Candidates {
  const typed = rest.at(-1) ?? ''
  const before = rest.slice(0, -1)
  if (before.includes('--')) return NONE
  const [, option] = /^--?(.*)$/s.exec(before.at(-1) ?? '') ?? []
  const { takes } = optionOf(options, option) ?? {}
  if (takes !== undefined) return of(takes)
  const [prefix, named] = /^--([^=]+)=/.exec(typed) ?? []
  if (prefix !== undefined) return { ...of(optionOf(options, named)?.takes ?? 'anything'), prefix }
  const positionals = before.filter((word, index) => !word.startsWith('-') && !isValue(options, before[index - 1]))
  const [action] = positionals
  if (typed.startsWith('-')) {
    const own = Object.entries(options).filter(
      ([, spec]) => action === undefined || (spec.of?.includes(action) ?? true),
    )
    return { words: [...own.map(([name]) => name), 'help'].map((name) => ({ word: `--${name}`, about: '' })) }
  }
  if (topic === 'run') return NONE
  if (actions === undefined) return of(words[positionals.length] ?? 'anything')
  if (action === undefined) return plain(Object.keys(actions))
  return of(actions[action]?.[positionals.length - 1] ?? 'anything')
}

const optionOf = (options: CommandSpec['options'], name: string | undefined): OptionSpec | undefined =>
  name === undefined || name === ''
    ? undefined
    : (options[name] ?? Object.values(options).find(({ short }) => short === name))

const isValue = (options: CommandSpec['options'], before: string | undefined): boolean =>
  before?.startsWith('-') === true && optionOf(options, before.replace(/^--?/, ''))?.takes !== undefined

function of(takes: NonNullable<OptionSpec['takes']>): Candidates {
  if (takes === 'anything') return NONE
  return typeof takes === 'string' ? { words: [], list: takes } : plain(takes)
}

const plain = (words: readonly string[]): Candidates => ({ words: words.map((word) => ({ word, about: '' })) })
