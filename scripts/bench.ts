// `npm run bench`: ours and a peer in the same run, medians, ratios; the table goes to bench/RESULTS.md.
import { writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { compare, type Outcome } from '../bench/measure.ts'
import * as microvm from '../bench/microvm.ts'
import * as microvmStart from '../bench/microvm-start.ts'
import * as sessionAppend from '../bench/session-append.ts'
import * as sessionOpen from '../bench/session-open.ts'
import * as start from '../bench/start.ts'

const { values } = parseArgs({ options: { quick: { type: 'boolean' } } })
const rounds = values.quick ? 5 : 11
const outcomes: Outcome[] = []
for (const comparison of [
  ...start.comparisons,
  ...sessionAppend.comparisons,
  ...sessionOpen.comparisons,
  ...microvmStart.comparisons,
  ...microvm.comparisons,
]) {
  const name = 'rows' in comparison ? comparison.rows.map((row) => row.name).join(', ') : comparison.name
  process.stderr.write(`${name} against ${comparison.peer}\n`)
  try {
    outcomes.push(...(await compare(comparison, rounds)))
  } catch (error) {
    process.stderr.write(`left out: ${error instanceof Error ? error.message : String(error)}\n`)
    process.exitCode = 1
  }
}

const table = [
  '| what | peer | unit | ours | the peer’s | ratio | goal |',
  '|---|---|---|---|---|---|---|',
  ...outcomes.map(
    ({ name, peer, unit, ours, theirs, ratio, goal }) =>
      `| ${name} | ${peer} | ${unit} | ${ours.toFixed(1)} | ${theirs.toFixed(1)} | ${ratio.toFixed(2)} | ${goal} |`,
  ),
].join('\n')
process.stdout.write(`${table}\n`)
await writeFile(
  new URL('../bench/RESULTS.md', import.meta.url),
  `# Results

\`npm run bench\`: ours and the peer in turn in one run, medians of ${rounds}. Compare within a row, not across machines.

${process.platform}-${process.arch}, ${cpus().length} processors, Node ${process.versions.node}.

${table}
`,
)
