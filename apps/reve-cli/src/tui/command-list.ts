/** What completes the argument of a command. */
export type ArgumentKind = 'model' | 'thinking' | 'session' | 'skill' | 'theme' | 'format' | 'label' | 'none' | 'text'

/** A command that begins with `/`. */
export type SlashCommand = {
  readonly name: string
  readonly about: string
  /** What its argument is; `none` takes none. */
  readonly takes: ArgumentKind
  readonly usage?: string
}

/** The terminal's own commands, in the order of `/help`. */
export const slashCommands: readonly SlashCommand[] = [
  { name: 'help', about: 'keys and commands', takes: 'none' },
  { name: 'model', about: 'the model of what comes next', takes: 'model', usage: '[provider/model]' },
  { name: 'thinking', about: 'how hard it thinks', takes: 'thinking', usage: '[off|minimal|low|medium|high|tokens]' },
  {
    name: 'compact',
    about: 'put a summary in the place of the older part',
    takes: 'text',
    usage: '[what it should mind]',
  },
  { name: 'tree', about: 'the whole conversation: go back, label, look', takes: 'none' },
  { name: 'fork', about: 'a new session that begins with this conversation', takes: 'text', usage: '[name]' },
  { name: 'rewind', about: 'go back to an earlier entry, with the files', takes: 'label', usage: '[entry or label]' },
  { name: 'new', about: 'a new session', takes: 'none' },
  { name: 'resume', about: 'another session of this folder', takes: 'session', usage: '[session]' },
  { name: 'name', about: 'name this session', takes: 'text', usage: '<name>' },
  { name: 'queue', about: 'say something when the run is done; alone: what waits', takes: 'text', usage: '[text]' },
  { name: 'skills', about: 'the skills; with a name, use it', takes: 'skill', usage: '[skill] [task]' },
  { name: 'tools', about: 'what the model can call', takes: 'none' },
  { name: 'sandbox', about: 'the microVM and what it may reach', takes: 'none' },
  { name: 'cost', about: 'what was spent', takes: 'none' },
  { name: 'export', about: 'write the conversation to a file', takes: 'format', usage: '[md|html|json] [file]' },
  { name: 'copy', about: 'copy the last answer', takes: 'none' },
  { name: 'agents', about: 'the sub-agents, and what they do', takes: 'none' },
  { name: 'theme', about: 'colours', takes: 'theme', usage: '[dark|light|none]' },
  { name: 'quit', about: 'leave; nothing is lost', takes: 'none' },
]

export const thinkingLevels: readonly string[] = ['off', 'minimal', 'low', 'medium', 'high']
export const exportFormats = ['md', 'html', 'json'] as const

/** What a line that begins with `/` says. The name is a whole word: `/compactfoo` is not `/compact`. */
export function parseSlash(text: string): { readonly name: string; readonly args: string } | undefined {
  const [, name, args] = /^\/([A-Za-z][\w-]*)(?:\s+([\s\S]*))?$/.exec(text.trimEnd()) ?? []
  return name === undefined ? undefined : { name, args: args?.trim() ?? '' }
}
