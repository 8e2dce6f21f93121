// `npm start`: both programs do their main job, for real, and say what they do.
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { kcDemo } from './kc.ts'
import { reveDemo } from './reve.ts'
import { DemoFailure, dim, heading, say } from './show.ts'

const usage = `usage: npm start -- [--model provider/model] [--keep] [reve|kc]

--model  a model of scripts/demo/agent-files.ts instead of the scripted one, such as
         openai/gpt-5.6-luna with OPENAI_API_KEY set
--keep   leave the demonstration's folder for a look
`

async function main(): Promise<number> {
  const options = ((): ReturnType<typeof parse> | undefined => {
    try {
      return parse()
    } catch (error) {
      process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${usage}`)
      return undefined
    }
  })()
  if (options === undefined) return 2
  if (options.values.help) {
    process.stdout.write(usage)
    return 0
  }
  const { values, positionals } = options
  const wants = (name: string): boolean => positionals.length === 0 || positionals.includes(name)
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'demo-')))
  let exitCode = 0
  try {
    const model = values.model ?? process.env['REVE_MODEL'] ?? 'demo/scripted'
    // One half that cannot work here does not keep the other from being seen.
    if (wants('reve')) exitCode = (await shown(() => reveDemo(folder, model))) || exitCode
    if (wants('kc')) exitCode = (await shown(() => kcDemo(folder))) || exitCode
  } finally {
    if (values.keep) say(dim(`\n(kept: ${folder})`))
    else await rm(folder, { recursive: true, force: true })
  }
  next()
  return exitCode
}

/** Runs one half and gives its exit code. */
async function shown(demo: () => Promise<void>): Promise<number> {
  try {
    await demo()
    return 0
  } catch (error) {
    if (!(error instanceof DemoFailure)) throw error
    process.stderr.write(`\nnpm start: ${error.message}\n`)
    return error.exitCode
  }
}

const parse = () =>
  parseArgs({
    options: { model: { type: 'string' }, keep: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
    allowPositionals: true,
  })

function next(): void {
  heading('Where to go next (inside of this folder, both are on npx)')
  say(`npx reve init my-agent && cd my-agent     an agent of your own; set a key that its models.yml names
npx reve run "make the tests pass"        let it work; --continue picks it up again
npx reve doctor                           what works on this machine
npx kc init && npx kc seat create me      a computer and a token
npx kc serve                              the computer, over MCP
README.md, docs/architecture.md           how it is built`)
}

process.exitCode = await main()
