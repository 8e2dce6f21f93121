import { parseArgs } from 'node:util'

/** One parsed command line. `root` is `--root`, before the environment is asked. */
export type Command =
  | { readonly type: 'help'; readonly topic: Topic | 'env' | undefined }
  | { readonly type: 'version' }
  | { readonly type: 'init'; readonly root: string | undefined }
  | { readonly type: 'seat'; readonly action: 'list'; readonly root: string | undefined; readonly json: boolean }
  | {
      readonly type: 'seat'
      readonly action: 'create' | 'rekey' | 'remove'
      readonly name: string
      readonly root: string | undefined
    }
  | {
      readonly type: 'serve'
      readonly root: string | undefined
      readonly host: string | undefined
      readonly port: string | undefined
      readonly json: boolean
    }
  | { readonly type: 'fsck'; readonly root: string | undefined; readonly json: boolean }

export const topics = ['init', 'seat', 'serve', 'fsck'] as const
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
  if (first === undefined || first === '--help' || first === '-h') return { type: 'help', topic: undefined }
  if (first === '--version' || first === '-V' || first === 'version') return { type: 'version' }
  if (first === 'help') {
    const [word] = rest
    return { type: 'help', topic: word === undefined || word === 'env' ? word : topicOf(word) }
  }
  if (first.startsWith('-')) throw new UsageError(`unknown option ${JSON.stringify(first)}`)
  const topic = topicOf(first)
  if (rest.includes('--help') || rest.includes('-h')) return { type: 'help', topic }
  const { values, positionals } = parse(topic, rest)
  const empty = Object.entries(values).find(([, value]) => value === '')
  // An empty address is every address, and an empty folder is the one that one happens to be in.
  if (empty !== undefined) throw new UsageError(`--${empty[0]} needs a value`, topic)
  const root = text(values['root'])
  const json = values['json'] === true
  switch (topic) {
    case 'init':
      atMost(topic, positionals, 0)
      return { type: 'init', root }
    case 'fsck':
      atMost(topic, positionals, 0)
      return { type: 'fsck', root, json }
    case 'serve':
      atMost(topic, positionals, 0)
      return { type: 'serve', root, json, host: text(values['host']), port: text(values['port']) }
    case 'seat':
      return parseSeat(positionals, root, json)
    default:
      return topic satisfies never
  }
}

function parseSeat(words: readonly string[], root: string | undefined, json: boolean): Command {
  const [action, name] = words
  switch (action) {
    case 'list':
      atMost('seat', words, 1)
      return { type: 'seat', action, root, json }
    case 'create':
    case 'rekey':
    case 'remove':
      atMost('seat', words, 2)
      if (name === undefined) throw new UsageError(`seat ${action} needs the seat's name`, 'seat')
      return { type: 'seat', action, name, root }
    case undefined:
      throw new UsageError('seat needs one of create, list, rekey, remove', 'seat')
    default:
      throw new UsageError(`seat has no ${JSON.stringify(action)}; it has create, list, rekey and remove`, 'seat')
  }
}

const optionsOf: Readonly<Record<Topic, NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>>> = {
  init: { root: { type: 'string' } },
  fsck: { root: { type: 'string' }, json: { type: 'boolean' } },
  seat: { root: { type: 'string' }, json: { type: 'boolean' } },
  serve: { root: { type: 'string' }, json: { type: 'boolean' }, host: { type: 'string' }, port: { type: 'string' } },
}

function parse(topic: Topic, args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: optionsOf[topic], allowPositionals: true, strict: true })
  } catch (error) {
    if (error instanceof TypeError) throw new UsageError(error.message.split('. ')[0] ?? error.message, topic)
    throw error
  }
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

function atMost(topic: Topic, words: readonly string[], count: number): void {
  const extra = words[count]
  if (extra !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(extra)}`, topic)
}

function topicOf(word: string): Topic {
  const topic = topics.find((candidate) => candidate === word)
  if (topic === undefined) throw new UsageError(`no command ${JSON.stringify(word)}; there are ${topics.join(', ')}`)
  return topic
}
