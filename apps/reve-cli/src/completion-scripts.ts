import { exportFormats, topics, type Topic } from './arguments.ts'

/** The shells that there are scripts for. */
export const shells = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof shells)[number]

/** Words that may stand after a command. A test holds that the parser takes each. */
export const words: Readonly<Record<Topic, readonly string[]>> = {
  init: ['--json'],
  info: ['--json'],
  exec: [],
  tool: ['--args'],
  run: ['--continue', '--json', '--max-turns', '--model', '--session', '--thinking'],
  sessions: [
    ...['list', 'show', 'search', 'export', 'name', 'fork', 'verify', 'salvage'],
    ...['--at', '--format', '--json', '--lane', '--regex'],
  ],
  image: ['ls', 'pull', 'build', 'rm', '--force', '--json', '--packages'],
  doctor: ['--json'],
  completion: [...shells],
}

/** Words after an option. */
const values: Readonly<Record<string, readonly string[]>> = {
  '--format': exportFormats,
  '--thinking': ['off', 'minimal', 'low', 'medium', 'high'],
}

const general = [...topics, 'help', '--help', '--version']

/** A script that makes a shell complete reve's command line. */
export function completionScript(shell: Shell): string {
  switch (shell) {
    case 'bash':
      return bash()
    case 'zsh':
      return `#compdef reve\nautoload -U +X bashcompinit && bashcompinit\n${bash()}`
    case 'fish':
      return fish()
    default:
      return shell satisfies never
  }
}

const bash = (): string => `# bash completion of reve
_reve() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD - 1]}" list
  case "$before" in
${Object.entries(values)
  .map(([option, list]) => `    ${option}) COMPREPLY=($(compgen -W "${list.join(' ')}" -- "$word")); return ;;`)
  .join('\n')}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    list="${general.join(' ')}"
  else
    case "\${COMP_WORDS[1]}" in
${topics.map((topic) => `      ${topic}) list="${[...words[topic], '--help'].join(' ')}" ;;`).join('\n')}
      help) list="${topics.join(' ')}" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$list" -- "$word"))
}
complete -o default -F _reve reve
`

const fish = (): string => `# fish completion of reve
${topics.map((topic) => `complete -c reve -n __fish_use_subcommand -f -a ${topic}`).join('\n')}
${topics
  .flatMap((topic) =>
    words[topic].map((word) => {
      const seen = `complete -c reve -n '__fish_seen_subcommand_from ${topic}'`
      if (!word.startsWith('--')) return `${seen} -a ${word}`
      const list = values[word]
      return `${seen} -l ${word.slice(2)}${list === undefined ? '' : ` -x -a '${list.join(' ')}'`}`
    }),
  )
  .join('\n')}
`
