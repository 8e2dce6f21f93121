import type { shells } from './command-table.ts'

export type Shell = (typeof shells)[number]

/**
 * What makes a shell complete reve's command line: it asks reve itself, `reve completion --words …`, which answers a line for each
 * candidate, with what it is behind a tab. Nothing that is answered is expanded or run by the shell: names come from files.
 */
export const completionScripts = {
  bash: `# bash completion of reve
_reve() {
  local word="" line begun="" i
  local -a words=()
  # bash cuts words at : and =, which names have in them.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if [[ $i -gt 1 && ( \${COMP_WORDS[i]} == [:=]* || \${COMP_WORDS[i - 1]} == [:=]* ) ]]; then
      begun=$word
      word+=\${COMP_WORDS[i]}
      words[\${#words[@]}-1]=$word
    else
      begun="" word=\${COMP_WORDS[i]}
      words+=("$word")
    fi
    if [[ \${COMP_WORDS[i]} == [:=]* ]]; then begun=$word; fi
  done
  COMPREPLY=()
  while IFS=$'\\t' read -r line _; do
    if [[ $line == "$word"* ]]; then COMPREPLY+=("$(printf %q "\${line#"$begun"}")"); fi
  done < <("\${COMP_WORDS[0]}" completion --words "\${words[@]}" 2>/dev/null)
}
complete -o default -F _reve reve
`,
  zsh: `#compdef reve
_reve() {
  local line
  local -a found
  while IFS=$'\\t' read -r line _; do
    found+=("$line")
  done < <("\${words[1]}" completion --words "\${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( \${#found} )); then compadd -a found; else _files; fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _reve "$@"; else compdef _reve reve; fi
`,
  fish: `# fish completion of reve
function __reve_complete
  set -l line (commandline -opc) (commandline -ct)
  set -l found ($line[1] completion --words $line[2..] 2>/dev/null)
  if count $found >/dev/null
    printf '%s\\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c reve -f -a '(__reve_complete)'
`,
} as const satisfies Readonly<Record<Shell, string>>
