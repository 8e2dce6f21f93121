/** What a session can be written down as. */
export const exportFormats = ['md', 'json', 'html'] as const
/** How much a model thinks, in words; a number of tokens is another way. */
export const thinkingWords = ['off', 'minimal', 'low', 'medium', 'high'] as const
/** The shells that there are completion scripts for. */
export const shells = ['bash', 'zsh', 'fish'] as const
/** Lists of what an agent's folder holds, for completion. */
export const listNames = ['sessions', 'entries', 'models', 'tools'] as const
export type ListName = (typeof listNames)[number]

/** What a word or an option's value is: one of these words, one of a list, or what only the user knows. */
type Takes = readonly string[] | ListName | 'anything'

export type OptionSpec = {
  /** Its value; without one it is a switch. */
  readonly takes?: Takes
  readonly short?: string
  /** Those of the command's actions that have it; all of them when absent. */
  readonly of?: readonly string[]
}

export type CommandSpec = {
  /** One line of the overview. */
  readonly about: string
  readonly options: Readonly<Record<string, OptionSpec>>
  /** The words that say what to do, with what may follow each; a command without such words has `words`. */
  readonly actions?: Readonly<Record<string, readonly Takes[]>>
  readonly words?: readonly Takes[]
}

const json = { json: {} } as const

/**
 * Every command with its options and words. The parser, completion, and the tests of the help and of `docs/cli.md` are made
 * from this table.
 */
export const commands = {
  terminal: {
    about: 'talk with the agent in this terminal; the same as reve alone',
    options: {
      model: { short: 'm', takes: 'models' },
      session: { short: 's', takes: 'sessions' },
      thinking: { takes: thinkingWords },
      theme: { takes: 'anything' },
      'no-services': {},
    },
  },
  init: { about: 'make a folder an agent (default: this one); never overwrites', options: json, words: ['anything'] },
  info: { about: 'show this agent: model, sandbox, egress, tools', options: json },
  run: {
    about: 'let the agent work on a prompt, or go on after a kill or a crash',
    options: {
      ...json,
      continue: { short: 'c' },
      model: { short: 'm', takes: 'models' },
      'max-turns': { takes: 'anything' },
      session: { short: 's', takes: 'sessions' },
      thinking: { takes: thinkingWords },
    },
  },
  exec: { about: "run a command in this agent's microVM", options: { wait: {} } },
  tool: {
    about: "run one of this agent's Lua tools; no name lists them",
    options: { ...json, args: { takes: 'anything' } },
    words: ['tools'],
  },
  sessions: {
    about: 'list, show, search, export, name, label, fork, verify and salvage sessions',
    options: {
      ...json,
      at: { takes: 'entries', of: ['fork'] },
      format: { takes: exportFormats, of: ['export'] },
      lane: { takes: 'anything', of: ['show', 'export', 'fork'] },
      regex: { of: ['search'] },
      remove: { of: ['label'] },
    },
    actions: {
      list: [],
      show: ['sessions'],
      search: ['anything'],
      export: ['sessions', 'anything'],
      name: ['sessions', 'anything'],
      rename: ['sessions', 'anything'],
      label: ['sessions', 'entries', 'anything'],
      fork: ['sessions', 'anything'],
      verify: ['sessions'],
      salvage: ['sessions', 'anything'],
    },
  },
  rewind: {
    about: 'take the conversation, and the files, back to an entry; nothing is lost',
    options: {
      ...json,
      files: {},
      'no-files': {},
      lane: { takes: 'anything' },
      session: { short: 's', takes: 'sessions' },
    },
    words: ['entries'],
  },
  serve: {
    about: 'work without a terminal: heartbeats and channels',
    options: {
      ...json,
      channels: {},
      heartbeats: {},
      http: { takes: 'anything' },
      session: { short: 's', takes: 'sessions' },
    },
  },
  image: {
    about: 'list, pull, build and remove the images of microVMs',
    options: { ...json, force: { of: ['rm'] }, packages: { takes: 'anything', of: ['build'] } },
    actions: { ls: [], pull: ['anything'], build: ['anything'], rm: ['anything'] },
  },
  doctor: { about: 'what works here, and how to get what does not', options: json },
  completion: {
    about: 'a completion script for bash, zsh or fish',
    options: { words: { takes: 'anything' } },
    words: [shells],
  },
} as const satisfies Readonly<Record<string, CommandSpec>>

export type Topic = keyof typeof commands

export const topics = Object.keys(commands) as readonly Topic[]

/** The table's row, with the types that all rows share. */
export const commandOf = (topic: Topic): CommandSpec => commands[topic]
