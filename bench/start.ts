import { execFile } from 'node:child_process'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Comparison } from './measure.ts'
import { installPi, piProgram, piVersion } from './pi.ts'

const run = promisify(execFile)
const node =
  (...args: readonly string[]) =>
  async (): Promise<void> => {
    await run(process.execPath, args)
  }
const bin = (path: string): string => fileURLToPath(new URL(`../apps/${path}`, import.meta.url))
const reve = bin('reve-cli/bin/reve.js')
const bare = node('-e', '0')
const pi = node(piProgram, '--version')

let agent = ''
/** An agent with what an agent has. */
async function prepareAgent(): Promise<void> {
  agent = await mkdtemp(join(tmpdir(), 'bench-agent-'))
  await writeFile(join(agent, 'agent.lua'), 'agent { model = "openai/some-model", thinking = "low" }\n')
  await writeFile(join(agent, 'sandbox.lua'), 'sandbox { allow = { "github.com" } }\n')
}
const info = async (): Promise<void> => {
  await run(process.execPath, [reve, 'info'], { cwd: agent })
}

/** What a user waits for before anything happens. */
export const comparisons: readonly Comparison[] = [
  { name: 'reve --version', peer: 'node -e 0', goal: 'at most 2', ours: node(reve, '--version'), theirs: bare },
  { name: 'reve info', peer: 'node -e 0', goal: 'at most 2', prepare: prepareAgent, ours: info, theirs: bare },
  {
    name: 'reve --version',
    peer: `pi ${piVersion} --version`,
    goal: 'below 1',
    prepare: installPi,
    ours: node(reve, '--version'),
    theirs: pi,
  },
  {
    name: 'reve info',
    peer: `pi ${piVersion} --version`,
    goal: 'below 1',
    prepare: async () => {
      await installPi()
      await prepareAgent()
    },
    ours: info,
    theirs: pi,
  },
  {
    name: 'kc --version',
    peer: 'node -e 0',
    goal: 'at most 2',
    ours: node(bin('kc-server/bin/kc.js'), '--version'),
    theirs: bare,
  },
]
