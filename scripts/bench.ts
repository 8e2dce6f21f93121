// `npm run bench`: ours and a peer in the same run, medians, ratios; the table goes to bench/RESULTS.md.
import { writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { compare, type Outcome } from '../bench/measure.ts'
import * as sessionAppend from '../bench/session-append.ts'
import * as start from '../bench/start.ts'

const { values } = parseArgs({ options: { quick: { type: 'boolean' } } })
const rounds = values.quick ? 5 : 11
const outcomes: Outcome[] = []
for (const comparison of [...start.comparisons, ...sessionAppend.comparisons]) {
  process.stderr.write(`${comparison.name} against ${comparison.peer}\n`)
  outcomes.push(await compare(comparison, rounds))
}

const table = [
  '| what | peer | ours, ms | peer, ms | ratio | goal |',
  '|---|---|---|---|---|---|',
  ...outcomes.map(
    ({ name, peer, oursMs, theirsMs, ratio, goal }) =>
      `| ${name} | ${peer} | ${oursMs.toFixed(1)} | ${theirsMs.toFixed(1)} | ${ratio.toFixed(2)} | ${goal} |`,
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
