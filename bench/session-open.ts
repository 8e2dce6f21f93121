import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { writeConversation } from './conversation.ts'
import type { Comparison } from './measure.ts'
import { installPi, piFile, piVersion } from './pi.ts'

const run = promisify(execFile)
const entries = 50_000
const out = fileURLToPath(new URL('out/', import.meta.url))
/** Its session manager alone: the whole of it would start with more memory than the measured part needs. */
const piModule = piFile('dist/core/session-manager.js')
const ourModule = fileURLToPath(new URL('../packages/session-log/dist/index.js', import.meta.url))
const child = fileURLToPath(new URL('session-open-child.mjs', import.meta.url))
const files = {
  bare: join(out, 'session-bare.jsonl'),
  recorded: join(out, 'session-recorded.jsonl'),
  pi: join(out, 'session-pi.jsonl'),
}

async function prepare(): Promise<void> {
  await installPi()
  writeConversation(entries, files)
}

type Cost = { readonly cpuMs: number; readonly memoryMiB: number; readonly entries: number; readonly text: string }

let seen: string | undefined
const cost = (side: 'ours' | 'pi', file: string, module: string) => async (): Promise<readonly number[]> => {
  const { stdout } = await run(process.execPath, [child, side, file, module])
  const { cpuMs, memoryMiB, ...conversation }: Cost = JSON.parse(stdout)
  const text = JSON.stringify(conversation)
  seen ??= text
  if (text !== seen || conversation.entries !== entries) throw new Error('the two sides read different conversations')
  return [cpuMs, memoryMiB]
}

const rows = (name: string, goal: string) => [
  { name: `${name}: CPU`, unit: 'ms', goal },
  { name: `${name}: memory`, unit: 'MiB', goal },
]

/** Opening a long session: CPU time and growth of the process's memory, each in a process of its own. */
export const comparisons: readonly Comparison[] = [
  {
    peer: `pi ${piVersion}`,
    prepare,
    rows: rows(`open ${entries} entries (43 MB)`, 'below 1'),
    ours: cost('ours', files.bare, ourModule),
    theirs: cost('pi', files.pi, piModule),
  },
  {
    peer: `pi ${piVersion}, which has no records`,
    prepare,
    rows: rows('the same with 62500 records of a harness', ''),
    ours: cost('ours', files.recorded, ourModule),
    theirs: cost('pi', files.pi, piModule),
  },
]
