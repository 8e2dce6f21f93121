import type { Topic } from './command-table.ts'

const overview = `reve: a durable coding agent. The directory is the agent.

usage: reve [options]              talk with the agent of this folder
       reve <command> [options]

  init [dir]        make a folder an agent (default: this one); never overwrites
  info              show this agent: model, sandbox, egress, tools
  run "prompt"      let the agent work on a prompt
  run --continue    pick the newest session up, also after a kill or a crash
  exec <cmd...>     run a command in this agent's microVM
  tool [name]       run one of this agent's Lua tools; no name lists them
  sessions          list, show, search, export, name, label, fork, verify and salvage sessions
  terminal          the same as reve alone
  rewind <entry>    take conversation and files back to an entry; nothing is lost
  serve             work without a terminal: heartbeats and channels
  image             list, pull, build and remove the images of microVMs
  doctor            what works here, and how to get what does not
  completion        a completion script for bash, zsh or fish

  --version         print the version
  --help            this text; "reve <command> --help" tells more

  mkdir my-agent && cd my-agent && reve init
  reve run "make the tests pass"

Every command of a model runs in a microVM; there is no other way.
exit codes: 0 done, 1 the work failed, 2 usage, 3 not an agent or bad configuration,
4 no VM, 5 in use by another process, 6 corrupt data, 130 interrupted
`

const texts: Readonly<Record<Topic, string>> = {
  terminal: `usage: reve terminal [-m provider/model] [-s session] [--thinking level] [--theme name]
                     [--no-services]
       reve [options]

Opens the newest conversation of this folder in the terminal, or a new one, and goes on with what was
interrupted if you want. Type and press Enter; /help lists keys and commands, @ completes files, ! runs
a command in the microVM. Heartbeats and channels run meanwhile.

  -m, --model        provider/model in place of the one in agent.lua
  -s, --session      a session in place of the newest
      --thinking     off, minimal, low, medium, high, or a number of tokens
      --theme        dark, light, none, or a theme file (default: theme.yml, else by the background)
      --no-services  without heartbeats and channels

  reve
  reve --session nightly --thinking high
`,
  init: `usage: reve init [dir] [--json]

Makes dir (default: the current folder) an agent directory. Run it again at any time:
it creates what is missing and leaves what you edited as it is.

      --json   the result as JSON

  mkdir my-agent && cd my-agent && reve init
  reve init ~/agents/reviewer
`,
  info: `usage: reve info [--json]

Shows the agent of this folder. Checks agent.lua, sandbox.lua and tools/; starts nothing.
"reve doctor" also checks models.yml and whether the model's key is set.

      --json   the same, and the rest of the policy, as JSON

  reve info --json | jq .sandbox.allow
`,
  exec: `usage: reve exec [--wait] [--] <cmd...>

Runs a command in this agent's microVM (sh -lc, in /workspace). One word is shell text
as it stands; several words are quoted each. Put -- before a command with options.

      --wait   while another process has the VM: wait until it lets it go, in place of a refusal

  reve exec -- git log --oneline -n 3
  reve exec 'ls *.md | wc -l'
  git diff | reve exec 'wc -l'

Input, output and exit code are the command's. Where both input and output are a terminal it
gets one: editors and shells work, Ctrl-C goes to the command. The command's exit code is the exit code; 125 means that reve itself failed.
`,
  tool: `usage: reve tool [name] [--args JSON] [--json]

Runs one of this agent's Lua tools, as the model would. No name lists them. The name and the
arguments are checked before a VM boots.

      --args JSON   an object (default: {})
      --json        the result as JSON

  reve tool
  reve tool example --args '{"commits":2}'
`,
  run: `usage: reve run [options] "prompt"
       reve run --continue ["prompt"]

Lets the agent work on a prompt in a new session. Without a prompt, and where the last word
is "-", standard input is read. The answer goes to standard output, what happens on the way to standard error.

  -c, --continue     take the newest session up: what was interrupted is reconciled and said,
                     then it goes on (or on with a new prompt)
  -m, --model M      provider/model of models.yml instead of agent.lua's
      --max-turns N  stop after N requests to the model
  -s, --session S    go on with that session (a path, a file name or an id) instead of the newest
      --thinking T   off, minimal, low, medium, high or a number of tokens, instead of agent.lua's
      --json         the run's events on standard output, one JSON object a line

Ctrl-C stops the run and keeps it; a second one ends reve at once. Nothing is lost either way.

  reve run "make the tests pass"
  reve run --continue
  git diff | reve run "review this:" -
`,
  sessions: `usage: reve sessions [list]
       reve sessions show [session] [--lane LANE]
       reve sessions search <text> [--regex]
       reve sessions export <session> [file] [--format md|json|html] [--lane LANE]
       reve sessions verify [session]
       reve sessions salvage <session> [new-file]
       reve sessions fork <session> [new-file] [--at ENTRY] [--lane LANE]
       reve sessions name <session> <name>
       reve sessions label <session> <entry> <label>|--remove

list      the sessions of this agent, the last used first, with their name or first prompt
show      a conversation (default: the newest), from its beginning to where its lane is
search    what was said in all sessions of this agent, with the entry and the line of it;
          small letters match large ones too; 1 when there is nothing
export    write a session down: Markdown and JSON of one lane, or one HTML page with all branches
verify    check every line of a session (default: the newest)
salvage   copy what is good of a refused session to a new file; the refused one stays
fork      copy the conversation up to an entry to a new file, as a session of its own
name      say what a session is called; refused while another process works in it
label     mark an entry, by which "fork --at" and "reve rewind" find it too

A session is a path, or the file name or the id of one of this agent's. A new file never
replaces one; without one, salvage and fork make a session of this agent that is its newest:
"reve run --continue" goes on with it.

      --at ENTRY   the id or label of the last entry to keep (default: where the lane is)
      --lane LANE  whose conversation (default: main)
      --format F   md, json or html (default: by the file's name, else md)
      --regex      the text is a regular expression
      --remove     take the label off
      --json       the result as JSON

  reve sessions search "flaky test"
  reve sessions export main-20260105T100000000Z-0a1b2c3d.jsonl page.html
`,
  rewind: `usage: reve rewind <entry> [options]

Takes the newest session back to an entry (its id, or its label), as a new branch, and the files
of workspace/ to what they were then. The present files are kept as a checkpoint, and nothing
leaves the session: rewind to a later entry to undo it.

      --no-files   the conversation alone
      --files      the files as well: what is done without either
  -s, --session S  that session (a path, a file name or an id) instead of the newest
      --lane LANE  whose conversation (default: main)
      --json       the result as JSON

Files are checkpointed after each tool that may write. Not in checkpoints, and left as they are: what
.gitignore names, .git, node_modules and the like, and files over 64 MiB.

  reve sessions show
  reve rewind e_01jgwq0v3k7
`,
  serve: `usage: reve serve [--heartbeats] [--channels] [options]

Works without a terminal until a signal: runs the heartbeats of workspace/HEARTBEAT.yml, and answers
what comes in over channels. Without either option, both. In the newest session, or in a new one
where there is none, which is in use meanwhile.

      --heartbeats  these alone: each beat is a run on a lane of its own, and what it says goes into
                    the conversation when that next goes on
      --channels    these alone: a text file put into channels/drop/in is a message, its answer
                    a file in channels/drop/out. Where agent.lua has channels, those instead
      --http PORT   a channel for programs of this machine as well, on 127.0.0.1; the token that
                    they show is in $REVE_HTTP_TOKEN (16 characters or more)
  -s, --session S   that session (a path, a file name or an id) instead of the newest
      --json        what happens on standard output, one JSON object a line

A first signal stops the work that goes on and ends in order, with 0; a second one ends reve at once.

  reve serve
  REVE_HTTP_TOKEN=$(openssl rand -hex 16) reve serve --channels --http 7400
`,
  image: `usage: reve image [ls]
       reve image pull <image>
       reve image build [image] [--packages A,B,...]
       reve image rm <image>... [--force]

ls      the images of this machine's cache, the last used first; agents share them
pull    get an image of a registry, or its newer version if its tag has moved
build   make an image ready; without one: that of this folder's agent, with its packages
rm      remove images, by name, id or the start of an id; not one that a disk is made over

An image is one of
  debian:trixie-slim             Debian, from a registry or built from its packages
  debootstrap:trixie             Debian, built from the packages of this machine's own mirror
  [registry/]name[:tag|@digest]  any image for linux/amd64 with a shell
  oci-archive:/path.tar[:tag]    what skopeo, buildah or "docker buildx -o type=oci" write
  docker-archive:/path.tar[:name]  what "docker save" writes
  oci:/folder[:tag]              the same as a folder
  tar:/root.tar, dir:/root       a root file system

A private registry is asked with what "docker login", "podman login" or "skopeo login" wrote into a file
(not into a helper program). Behind a proxy, set HTTPS_PROXY and NODE_USE_ENV_PROXY=1.

      --packages  Debian packages to put into it
      --force     also an image that disks are made over: their agents make new ones
      --json      the result as JSON

  reve image build debootstrap:trixie --packages git,jq
`,
  completion: `usage: reve completion bash|zsh|fish

Prints a script that makes the shell complete reve's command line.

  bash   reve completion bash > ~/.local/share/bash-completion/completions/reve
  zsh    reve completion zsh > "\${fpath[1]}/_reve"
  fish   reve completion fish > ~/.config/fish/completions/reve.fish
`,
  doctor: `usage: reve doctor [--json]

Says whether a microVM can boot here, on what, and what is missing with the command to get it.
In an agent's folder it also checks the agent's files with their places, which keys of models.yml
and secrets of sandbox.lua are set, and the room on the disk. Asks no provider.

      --json   the findings as JSON
`,
}

export const helpText = (topic: Topic | undefined): string => (topic === undefined ? overview : texts[topic])
