import { parseArgs } from 'node:util'
import { didYouMean } from '@reve/base'
import type {
  Command,
  ExportFormat,
  ImageCommand,
  RewindCommand,
  ServeCommand,
  SessionsCommand,
  TerminalCommand,
  ThinkingWord,
} from './command.ts'
import { commandOf, exportFormats, thinkingWords, topics, type Topic } from './command-table.ts'

export type { Command, ImageCommand, RewindCommand, ServeCommand, SessionsCommand, TerminalCommand } from './command.ts'

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
  if (first === undefined) return parseTerminal([])
  if (first === '--version' || first === '-V' || first === 'version') return { type: 'version' }
  if (first === '--help' || first === '-h') return { type: 'help', topic: undefined }
  if (first === 'help') return { type: 'help', topic: rest[0] === undefined ? undefined : topicOf(rest[0]) }
  if (first.startsWith('-')) return parseTerminal(argv)
  const topic = topicOf(first)
  // The guest's command may have options of its own: only what stands before its first word is ours.
  if (topic === 'exec') return isHelp(rest[0]) ? { type: 'help', topic } : parseExec(rest)
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest
  if (own.includes('--help') || own.includes('-h')) return { type: 'help', topic }
  switch (topic) {
    case 'init': {
      const { values, positionals } = parse(topic, rest)
      atMost(topic, positionals, 1)
      return { type: 'init', folder: positionals[0] ?? '.', json: values['json'] === true }
    }
    case 'info':
    case 'doctor': {
      const { values, positionals } = parse(topic, rest)
      atMost(topic, positionals, 0)
      return { type: topic, json: values['json'] === true }
    }
    case 'tool': {
      const { values, positionals } = parse(topic, rest)
      atMost(topic, positionals, 1)
      return {
        type: 'tool',
        name: positionals[0],
        args: text(values['args']) ?? '{}',
        json: values['json'] === true,
      }
    }
    case 'terminal':
      return parseTerminal(rest)
    case 'run':
      return parseRun(rest)
    case 'rewind':
      return parseRewind(rest)
    case 'serve':
      return parseServe(rest)
    case 'sessions':
      return parseSessions(rest)
    case 'image':
      return parseImage(rest)
    case 'completion': {
      // The line that is completed has options of its own.
      if (rest[0] === '--words') return { type: 'completion', shell: undefined, line: rest.slice(1) }
      const { positionals } = parse(topic, rest)
      atMost(topic, positionals, 1)
      return { type: 'completion', shell: positionals[0], line: undefined }
    }
    default:
      return topic satisfies never
  }
}

function parseTerminal(rest: readonly string[]): TerminalCommand {
  const { values, positionals } = parse('terminal', rest)
  atMost('terminal', positionals, 0)
  return {
    type: 'terminal',
    model: text(values['model']),
    session: text(values['session']),
    thinking: thinkingOf(text(values['thinking']), 'terminal'),
    theme: text(values['theme']),
    services: values['no-services'] !== true,
  }
}

function parseRun(rest: readonly string[]): Command {
  const { values, positionals } = parse('run', rest)
  const stdin = positionals.at(-1) === '-'
  const words = stdin ? positionals.slice(0, -1) : positionals
  return {
    type: 'run',
    prompt: words.length > 0 ? words.join(' ') : undefined,
    stdin,
    // A session that is named is one to go on with.
    resume: values['continue'] === true || values['session'] !== undefined,
    json: values['json'] === true,
    model: text(values['model']),
    maxTurns: wholeNumber(text(values['max-turns'])),
    session: text(values['session']),
    thinking: thinkingOf(text(values['thinking'])),
  }
}

function parseServe(rest: readonly string[]): ServeCommand {
  const { values, positionals } = parse('serve', rest)
  atMost('serve', positionals, 0)
  const http = portOf(text(values['http']))
  const chosen = { heartbeats: values['heartbeats'] === true, channels: values['channels'] === true }
  const neither = !chosen.heartbeats && !chosen.channels
  if (http !== undefined && !neither && !chosen.channels)
    throw new UsageError('--http is a channel: it makes no sense with --heartbeats alone', 'serve')
  return {
    type: 'serve',
    heartbeats: chosen.heartbeats || neither,
    channels: chosen.channels || neither,
    http,
    session: text(values['session']),
    json: values['json'] === true,
  }
}

function portOf(value: string | undefined): number | undefined {
  if (value === undefined) return undefined
  if (/^\d{1,5}$/.test(value) && Number(value) < 65_536) return Number(value)
  throw new UsageError(`--http takes a port from 0 to 65535, not ${JSON.stringify(value)}`, 'serve')
}

function parseRewind(rest: readonly string[]): RewindCommand {
  const { values, positionals } = parse('rewind', rest)
  const [entry] = positionals
  if (entry === undefined)
    throw new UsageError(
      'rewind takes the entry to go back to, by its id or label; "reve sessions show" has them',
      'rewind',
    )
  atMost('rewind', positionals, 1)
  const noFiles = values['no-files'] === true
  if (noFiles && values['files'] === true) throw new UsageError('--files and --no-files exclude each other', 'rewind')
  return {
    type: 'rewind',
    entry,
    files: !noFiles,
    session: text(values['session']),
    lane: text(values['lane']),
    json: values['json'] === true,
  }
}

const isHelp = (word: string | undefined): boolean => word === '--help' || word === '-h'

function parseExec(rest: readonly string[]): Command & { readonly type: 'exec' } {
  const [first] = rest
  if (first === '--wait') return { ...parseExec(rest.slice(1)), wait: true }
  const words = first === '--' ? rest.slice(1) : rest
  if (first !== '--' && first?.startsWith('-')) {
    throw new UsageError(`unknown option ${first}; put -- before a command that begins with a dash`, 'exec')
  }
  if (words.length === 0) throw new UsageError('nothing to run', 'exec')
  return { type: 'exec', words, wait: false }
}

function parseSessions(rest: readonly string[]): SessionsCommand {
  const { values, positionals } = parse('sessions', rest)
  const [action = 'list', session, target] = positionals
  const lane = text(values['lane'])
  optionsOfAction('sessions', values, action)
  const common = { type: 'sessions', json: values['json'] === true } as const
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
        : { ...common, action, session, target, at: text(values['at']), lane }
    }
    case 'show':
      atMost('sessions', positionals, 2)
      return { ...common, action, session, lane }
    case 'search': {
      const words = positionals.slice(1).join(' ')
      if (words === '') throw new UsageError('sessions search takes what to look for', 'sessions')
      return { ...common, action, text: words, regex: values['regex'] === true }
    }
    case 'export': {
      if (session === undefined) throw new UsageError('sessions export takes the session to write down', 'sessions')
      atMost('sessions', positionals, 3)
      return { ...common, action, session, target, format: exportFormat(text(values['format']), target), lane }
    }
    case 'rename':
    case 'name': {
      if (session === undefined || target === undefined)
        throw new UsageError('sessions name takes a session and its name', 'sessions')
      return { ...common, action: 'name', session, name: positionals.slice(2).join(' ') }
    }
    case 'label': {
      const remove = values['remove'] === true
      const label = positionals.slice(3).join(' ')
      if (session === undefined || target === undefined || remove === (label !== ''))
        throw new UsageError('sessions label takes a session, an entry, and its label or --remove', 'sessions')
      return { ...common, action, session, entry: target, label: remove ? undefined : label }
    }
    default:
      throw unknownAction('sessions', action)
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
  const { values, positionals } = parse('image', rest)
  const [action = 'ls', ref] = positionals
  optionsOfAction('image', values, action)
  const common = { type: 'image', json: values['json'] === true } as const
  switch (action) {
    case 'ls':
      atMost('image', positionals, 1)
      return { ...common, action }
    case 'pull':
      if (ref === undefined) throw new UsageError('image pull takes the image to pull', 'image')
      atMost('image', positionals, 2)
      return { ...common, action, ref }
    case 'build': {
      const packages = text(values['packages'])?.split(',').filter(Boolean) ?? []
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
      return { ...common, action, names: positionals.slice(1), force: values['force'] === true }
    default:
      throw unknownAction('image', action)
  }
}

type Values = Readonly<Record<string, string | boolean | readonly (string | boolean)[] | undefined>>

function parse(
  topic: Topic,
  args: readonly string[],
): { readonly values: Values; readonly positionals: readonly string[] } {
  const specs = Object.entries(commandOf(topic).options)
  const options = Object.fromEntries(
    specs.map(([name, { takes, short }]) => [
      name,
      {
        type: takes === undefined ? ('boolean' as const) : ('string' as const),
        ...(short === undefined ? {} : { short }),
      },
    ]),
  )
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true })
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const [sentence = error.message] = error.message.split('. ')
    const [, misspelt] = /^Unknown option '--([^']+)'/.exec(sentence) ?? []
    const hint = misspelt === undefined ? '' : didYouMean(misspelt, Object.keys(options)).replace('"', '"--')
    throw new UsageError(`${sentence}${hint}`, topic)
  }
}

/** An option of one action makes no sense with another. */
function optionsOfAction(topic: Topic, values: Values, action: string): void {
  for (const [name, { of }] of Object.entries(commandOf(topic).options))
    if (values[name] !== undefined && of !== undefined && !of.includes(action))
      throw new UsageError(`--${name} is an option of ${topic} ${of.join(', ')}`, topic)
}

function unknownAction(topic: Topic, word: string): UsageError {
  const known = Object.keys(commandOf(topic).actions ?? {})
  return new UsageError(
    `${topic} has no ${JSON.stringify(word)}${didYouMean(word, known)}; it has ${known.join(', ')}`,
    topic,
  )
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

function wholeNumber(value: string | undefined): number | undefined {
  if (value === undefined) return undefined
  if (!/^[1-9]\d{0,5}$/.test(value))
    throw new UsageError(`--max-turns takes a whole number from 1, not ${JSON.stringify(value)}`, 'run')
  return Number(value)
}

function thinkingOf(value: string | undefined, topic: Topic = 'run'): ThinkingWord | number | undefined {
  if (value === undefined) return undefined
  const word = thinkingWords.find((known) => known === value)
  if (word !== undefined) return word
  if (/^\d{1,7}$/.test(value)) return Number(value)
  throw new UsageError(
    `--thinking takes ${thinkingWords.join(', ')} or a number of tokens, not ${JSON.stringify(value)}`,
    topic,
  )
}

function atMost(topic: Topic, words: readonly string[], count: number): void {
  const extra = words[count]
  if (extra !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(extra)}`, topic)
}

function topicOf(word: string): Topic {
  const topic = topics.find((candidate) => candidate === word)
  if (topic === undefined)
    throw new UsageError(`no command "${word}"${didYouMean(word, topics)}; there are ${topics.join(', ')}`)
  return topic
}
