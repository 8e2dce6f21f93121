import { parseArgs } from 'node:util'

/** One parsed command line. */
export type Command =
  | { readonly type: 'help'; readonly topic: Topic | undefined }
  | { readonly type: 'version' }
  | { readonly type: 'init'; readonly folder: string; readonly json: boolean }
  | { readonly type: 'info'; readonly json: boolean }
  | { readonly type: 'exec'; readonly words: readonly string[] }
  | { readonly type: 'tool'; readonly name: string | undefined; readonly args: string }
  | {
      readonly type: 'run'
      /** The words of the prompt, joined; undefined when there are none. */
      readonly prompt: string | undefined
      /** The last word is `-`: what standard input holds comes after the others. */
      readonly stdin: boolean
      readonly resume: boolean
      readonly json: boolean
      readonly model: string | undefined
      readonly maxTurns: number | undefined
      /** A session to go on with, in place of the newest. */
      readonly session: string | undefined
      readonly thinking: ThinkingWord | number | undefined
    }
  | SessionsCommand
  | ImageCommand
  | { readonly type: 'doctor'; readonly json: boolean }
  | { readonly type: 'completion'; readonly shell: string | undefined }

/** `reve sessions`; where a session is named, the word may be a path, or the file name or the id of one of this agent's. */
export type SessionsCommand = { readonly type: 'sessions'; readonly json: boolean } & (
  | { readonly action: 'list' }
  /** Default: the newest. */
  | { readonly action: 'verify'; readonly session: string | undefined }
  /** A target that is not given: a new session of this agent, which is its newest then. */
  | { readonly action: 'salvage'; readonly session: string; readonly target: string | undefined }
  | {
      readonly action: 'fork'
      readonly session: string
      readonly target: string | undefined
      readonly at: string | undefined
      readonly lane: string | undefined
    }
  | { readonly action: 'name'; readonly session: string; readonly name: string }
  /** Default: the newest, and the lane `main`. */
  | { readonly action: 'show'; readonly session: string | undefined; readonly lane: string | undefined }
  | { readonly action: 'search'; readonly text: string; readonly regex: boolean }
  /** Without a target: standard output. */
  | {
      readonly action: 'export'
      readonly session: string
      readonly target: string | undefined
      readonly format: ExportFormat
      readonly lane: string | undefined
    }
)

const thinkingWords = ['off', 'minimal', 'low', 'medium', 'high'] as const
type ThinkingWord = (typeof thinkingWords)[number]

/** What a session can be written down as. */
export const exportFormats = ['md', 'json', 'html'] as const
export type ExportFormat = (typeof exportFormats)[number]

/** `reve image` */
export type ImageCommand = { readonly type: 'image'; readonly json: boolean } & (
  | { readonly action: 'ls' }
  | { readonly action: 'pull'; readonly ref: string }
  /** Without a reference: that of the agent in the current folder, with its packages. */
  | { readonly action: 'build'; readonly ref: string | undefined; readonly packages: readonly string[] }
  | { readonly action: 'rm'; readonly names: readonly string[]; readonly force: boolean }
)

export const topics = ['init', 'info', 'exec', 'tool', 'run', 'sessions', 'image', 'doctor', 'completion'] as const
export type Topic = (typeof topics)[number]

/** The command line makes no sense; the message says why, the caller adds where help is. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
  readonly topic: Topic | undefined
  constructor(message: string, topic?: Topic) {
    super(message)
    this.topic = topic
  }
}

/**
 * Parses the arguments after the program's name. Pure: reads and prints nothing.
 *
 * @throws UsageError
 */
export function parseCommand(argv: readonly string[]): Command {
  const [first, ...rest] = argv
  if (first === undefined) return { type: 'help', topic: undefined }
  if (first === '--version' || first === '-V' || first === 'version') return { type: 'version' }
  if (first === '--help' || first === '-h') return { type: 'help', topic: undefined }
  if (first === 'help') return { type: 'help', topic: rest[0] === undefined ? undefined : topicOf(rest[0]) }
  if (first.startsWith('-')) throw new UsageError(`unknown option ${first}`)
  const topic = topicOf(first)
  // The guest's command may have options of its own: only what stands before its first word is ours.
  if (topic === 'exec') return parseExec(rest)
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest
  if (own.includes('--help') || own.includes('-h')) return { type: 'help', topic }
  switch (topic) {
    case 'init': {
      const { values, positionals } = parse(topic, rest, { json: { type: 'boolean' } })
      atMost(topic, positionals, 1)
      return { type: 'init', folder: positionals[0] ?? '.', json: values.json === true }
    }
    case 'info':
    case 'doctor': {
      const { values, positionals } = parse(topic, rest, { json: { type: 'boolean' } })
      atMost(topic, positionals, 0)
      return { type: topic, json: values.json === true }
    }
    case 'tool': {
      const { values, positionals } = parse(topic, rest, { args: { type: 'string' } })
      atMost(topic, positionals, 1)
      return { type: 'tool', name: positionals[0], args: text(values.args) ?? '{}' }
    }
    case 'run': {
      const { values, positionals } = parse(topic, rest, {
        continue: { type: 'boolean', short: 'c' },
        json: { type: 'boolean' },
        model: { type: 'string', short: 'm' },
        'max-turns': { type: 'string' },
        session: { type: 'string', short: 's' },
        thinking: { type: 'string' },
      })
      const stdin = positionals.at(-1) === '-'
      const words = stdin ? positionals.slice(0, -1) : positionals
      return {
        type: 'run',
        prompt: words.length > 0 ? words.join(' ') : undefined,
        stdin,
        // A session that is named is one to go on with.
        resume: values.continue === true || values.session !== undefined,
        json: values.json === true,
        model: text(values.model),
        maxTurns: wholeNumber(text(values['max-turns'])),
        session: text(values.session),
        thinking: thinkingOf(text(values.thinking)),
      }
    }
    case 'sessions':
      return parseSessions(rest)
    case 'image':
      return parseImage(rest)
    case 'completion': {
      const { positionals } = parse(topic, rest, {})
      atMost(topic, positionals, 1)
      return { type: 'completion', shell: positionals[0] }
    }
    default:
      return topic satisfies never
  }
}

function parseExec(rest: readonly string[]): Command {
  const [first] = rest
  if (first === '--help' || first === '-h') return { type: 'help', topic: 'exec' }
  const words = first === '--' ? rest.slice(1) : rest
  if (first !== '--' && first?.startsWith('-')) {
    throw new UsageError(`unknown option ${first}; put -- before a command that begins with a dash`, 'exec')
  }
  if (words.length === 0) throw new UsageError('nothing to run', 'exec')
  return { type: 'exec', words }
}

function parseSessions(rest: readonly string[]): SessionsCommand {
  const json = { json: { type: 'boolean' } } as const
  const { values, positionals } = parse('sessions', rest, {
    ...json,
    at: { type: 'string' },
    lane: { type: 'string' },
    regex: { type: 'boolean' },
    format: { type: 'string' },
  })
  const [action = 'list', session, target] = positionals
  const lane = text(values.lane)
  const optionsOf: Readonly<Record<string, readonly string[]>> = {
    at: ['fork'],
    lane: ['fork', 'show', 'export'],
    regex: ['search'],
    format: ['export'],
  }
  for (const [option, actions] of Object.entries(optionsOf))
    if (values[option] !== undefined && !actions.includes(action))
      throw new UsageError(`--${option} is an option of sessions ${actions.join(', ')}`, 'sessions')
  const common = { type: 'sessions', json: values.json === true } as const
  switch (action) {
    case 'list':
      atMost('sessions', positionals, 1)
      return { ...common, action }
    case 'verify':
      atMost('sessions', positionals, 2)
      return { ...common, action, session }
    case 'salvage':
    case 'fork': {
      if (session === undefined) {
        const what = action === 'fork' ? 'the session to fork' : 'the refused file'
        throw new UsageError(`sessions ${action} takes ${what}`, 'sessions')
      }
      atMost('sessions', positionals, 3)
      return action === 'salvage'
        ? { ...common, action, session, target }
        : { ...common, action, session, target, at: text(values.at), lane }
    }
    case 'show':
      atMost('sessions', positionals, 2)
      return { ...common, action, session, lane }
    case 'search': {
      const words = positionals.slice(1).join(' ')
      if (words === '') throw new UsageError('sessions search takes what to look for', 'sessions')
      return { ...common, action, text: words, regex: values.regex === true }
    }
    case 'export': {
      if (session === undefined) throw new UsageError('sessions export takes the session to write down', 'sessions')
      atMost('sessions', positionals, 3)
      return { ...common, action, session, target, format: exportFormat(text(values.format), target), lane }
    }
    case 'rename':
    case 'name': {
      if (session === undefined || target === undefined)
        throw new UsageError('sessions name takes a session and its name', 'sessions')
      return { ...common, action: 'name', session, name: positionals.slice(2).join(' ') }
    }
    default:
      throw new UsageError(
        `sessions has no ${JSON.stringify(action)}; it has list, show, search, export, name, fork, verify and salvage`,
        'sessions',
      )
  }
}

/** By its name, else by the end of the file's. */
function exportFormat(given: string | undefined, target: string | undefined): ExportFormat {
  const word = given ?? /\.(\w+)$/.exec(target ?? '')?.[1] ?? 'md'
  const format = exportFormats.find((known) => known === word || (known === 'html' && word === 'htm'))
  if (format !== undefined) return format
  if (given === undefined) return 'md'
  throw new UsageError(`--format takes ${exportFormats.join(', ')}, not ${JSON.stringify(given)}`, 'sessions')
}

function parseImage(rest: readonly string[]): ImageCommand {
  const { values, positionals } = parse('image', rest, {
    json: { type: 'boolean' },
    force: { type: 'boolean' },
    packages: { type: 'string' },
  })
  const [action = 'ls', ref] = positionals
  if (values.force !== undefined && action !== 'rm') throw new UsageError('--force is an option of image rm', 'image')
  if (values.packages !== undefined && action !== 'build')
    throw new UsageError('--packages is an option of image build', 'image')
  const common = { type: 'image', json: values.json === true } as const
  switch (action) {
    case 'ls':
      atMost('image', positionals, 1)
      return { ...common, action }
    case 'pull':
      if (ref === undefined) throw new UsageError('image pull takes the image to pull', 'image')
      atMost('image', positionals, 2)
      return { ...common, action, ref }
    case 'build': {
      const packages = text(values.packages)?.split(',').filter(Boolean) ?? []
      if (ref === undefined && packages.length > 0)
        throw new UsageError(
          "--packages needs an image; without one it is the agent's, with the agent's packages",
          'image',
        )
      atMost('image', positionals, 2)
      return { ...common, action, ref, packages }
    }
    case 'rm':
      if (ref === undefined) throw new UsageError('image rm takes the images to remove', 'image')
      return { ...common, action, names: positionals.slice(1), force: values.force === true }
    default:
      throw new UsageError(`image has no ${JSON.stringify(action)}; it has ls, pull, build and rm`, 'image')
  }
}

type Options = NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>

function parse(topic: Topic, args: readonly string[], options: Options) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true })
  } catch (error) {
    if (error instanceof TypeError) throw new UsageError(error.message.split('. ')[0] ?? error.message, topic)
    throw error
  }
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

function wholeNumber(value: string | undefined): number | undefined {
  if (value === undefined) return undefined
  if (!/^[1-9]\d{0,5}$/.test(value))
    throw new UsageError(`--max-turns takes a whole number from 1, not ${JSON.stringify(value)}`, 'run')
  return Number(value)
}

function thinkingOf(value: string | undefined): ThinkingWord | number | undefined {
  if (value === undefined) return undefined
  const word = thinkingWords.find((known) => known === value)
  if (word !== undefined) return word
  if (/^\d{1,7}$/.test(value)) return Number(value)
  throw new UsageError(
    `--thinking takes ${thinkingWords.join(', ')} or a number of tokens, not ${JSON.stringify(value)}`,
    'run',
  )
}

function atMost(topic: Topic, words: readonly string[], count: number): void {
  const extra = words[count]
  if (extra !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(extra)}`, topic)
}

function topicOf(word: string): Topic {
  const topic = topics.find((candidate) => candidate === word)
  if (topic === undefined) throw new UsageError(`no command "${word}"; there are ${topics.join(', ')}`)
  return topic
}
