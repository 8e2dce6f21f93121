// `npm run bench [-- --quick] [subject...]`: ours and a peer in the same run, medians, ratios; each subject's table is kept in
// bench/RESULTS.md, those that were not measured stay as they were.
import { readFile, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { compare, type Comparison, type Outcome } from '../bench/measure.ts'
import * as git from '../bench/git.ts'
import * as microvm from '../bench/microvm.ts'
import * as microvmStart from '../bench/microvm-start.ts'
import * as providerStream from '../bench/provider-stream.ts'
import * as sessionAppend from '../bench/session-append.ts'
import * as sessionOpen from '../bench/session-open.ts'
import * as store from '../bench/store.ts'
import * as start from '../bench/start.ts'
import * as tui from '../bench/tui.ts'

const subjects: Readonly<Record<string, readonly Comparison[]>> = {
  start: start.comparisons,
  'session-append': sessionAppend.comparisons,
  'session-open': sessionOpen.comparisons,
  store: store.comparisons,
  git: git.comparisons,
  'provider-stream': providerStream.comparisons,
  tui: tui.comparisons,
  'microvm-start': microvmStart.comparisons,
  microvm: microvm.comparisons,
}

const { values, positionals } = parseArgs({ options: { quick: { type: 'boolean' } }, allowPositionals: true })
const unknown = positionals.filter((name) => !Object.hasOwn(subjects, name))
if (unknown.length > 0) {
  process.stderr.write(`no such subject: ${unknown.join(', ')}; there are ${Object.keys(subjects).join(', ')}\n`)
  process.exit(2)
}
const rounds = values.quick ? 5 : 11
const file = new URL('../bench/RESULTS.md', import.meta.url)
const sections = parseSections(await readFile(file, 'utf8'))
for (const subject of positionals.length > 0 ? positionals : Object.keys(subjects)) {
  const outcomes: Outcome[] = []
  for (const comparison of subjects[subject] ?? []) {
    const name = 'rows' in comparison ? comparison.rows.map((row) => row.name).join(', ') : comparison.name
    process.stderr.write(`${name} against ${comparison.peer}\n`)
    try {
      outcomes.push(...(await compare(comparison, rounds)))
    } catch (error) {
      process.stderr.write(`left out: ${error instanceof Error ? error.message : String(error)}\n`)
      process.exitCode = 1
    }
  }
  const text = `${process.platform}-${process.arch}, ${cpus().length} processors, Node ${process.versions.node}, medians of ${rounds}.\n\n${table(outcomes)}`
  process.stdout.write(`${subject}\n${text}\n\n`)
  if (outcomes.length > 0) sections.set(subject, text)
}
const kept = Object.keys(subjects).flatMap((name) => {
  const text = sections.get(name)
  return text === undefined ? [] : [`## ${name}\n\n${text}\n`]
})
await writeFile(
  file,
  `# Results

\`npm run bench\`: ours and the peer in turn in one run. Compare within a row, not across machines.

${kept.join('\n')}`,
)

function table(outcomes: readonly Outcome[]): string {
  return [
    '| what | peer | unit | ours | the peer’s | ratio | goal |',
    '|---|---|---|---|---|---|---|',
    ...outcomes.map(
      ({ name, peer, unit, ours, theirs, ratio, goal }) =>
        `| ${name} | ${peer} | ${unit} | ${ours.toFixed(1)} | ${theirs.toFixed(1)} | ${ratio.toFixed(2)} | ${goal} |`,
    ),
  ].join('\n')
}

function parseSections(text: string): Map<string, string> {
  return new Map(
    text
      .split(/^## /m)
      .slice(1)
      .map((section): [string, string] => {
        const [name = '', ...lines] = section.split('\n')
        return [name.trim(), lines.join('\n').trim()]
      }),
  )
}
