import type { Topic } from './arguments.ts'
import { variables } from './environment.ts'

const overview = `kc: a computer served over MCP.

usage: kc <command> [options]

  init              make a computer in the data directory
  seat create NAME  make a seat; its token is printed once
  seat list         the seats; also: seat rekey NAME, seat remove NAME
  serve             serve the computer over MCP until it is told to stop
  fsck              check every object that a ref, snapshot or action reaches

  --root DIR        the data directory, instead of KC_ROOT
  --version         print the version
  --help            this text; "kc <command> --help" tells more, "kc help env" lists the variables

  kc init && kc seat create me && kc serve

exit codes: 0 done, 1 the work failed, 2 usage, 3 not a computer or bad configuration,
5 in use by another process, 6 corrupt data, 130 interrupted
`

const texts: Readonly<Record<Topic, string>> = {
  init: `usage: kc init [--root DIR]

Makes a computer in a new or empty folder. Run it again at any time, also while the computer is being
served: it changes nothing.
`,
  seat: `usage: kc seat create NAME | list [--json] | rekey NAME | remove NAME   [--root DIR]

A seat is an identity that acts, with one token. create and rekey print the token on standard
output, once: it is kept as a hash. They work while the computer is being served.

  TOKEN=$(kc seat create me)
`,
  serve: `usage: kc serve [--host ADDRESS] [--port PORT] [--json] [--root DIR]

Serves the computer at http://ADDRESS:PORT/mcp with a bearer token for each seat. GET /healthz
answers {"ok": true}. SIGTERM or Ctrl-C lets calls in flight end (KC_DRAIN_SECONDS) while new ones and
/healthz are answered with 503; a second one ends at once. --json prints {"event":"listening","url":…} on standard output.

An address other than loopback serves every machine that can reach it: put TLS in front.
`,
  fsck: `usage: kc fsck [--json] [--root DIR]

Reads every object that can be reached and checks its hash. Says what is missing or damaged. The
computer must not be served meanwhile.
`,
}

export function helpText(topic: Topic | 'env' | undefined): string {
  if (topic === undefined) return overview
  if (topic !== 'env') return texts[topic]
  return `${Object.entries(variables)
    .map(([name, meaning]) => `${name.padEnd(18)}${meaning}`)
    .join('\n')}\n`
}
