import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type LayoutIndex, openStore, type Store, type TreeId } from '@reve/content-store'
import type { Comparison } from './measure.ts'

const FILES = 16_000
const CHANGES = 10

type Place = {
  readonly root: string
  readonly folder: string
  readonly store: Store
  readonly tree: TreeId
  readonly index: LayoutIndex
  /** The same tree with ten files changed, on two sides. */
  readonly left: TreeId
}
let place: Place | undefined
const there = (): Place => {
  if (place === undefined) throw new Error('nothing is prepared')
  return place
}

const git = (folder: string, args: readonly string[], config: readonly string[] = []): string =>
  execFileSync('git', [...config.flatMap((line) => ['-c', line]), ...args], {
    cwd: folder,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {
      PATH: process.env['PATH'] ?? '/usr/bin:/bin',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_SYSTEM: '/dev/null',
    },
  })

/** Some 30 MB of text in 320 folders. */
function makeFiles(folder: string): void {
  for (let index = 0; index < FILES; index++) {
    const parent = join(folder, `part-${index % 16}`, `sub-${index % 320}`)
    mkdirSync(parent, { recursive: true })
    writeFileSync(join(parent, `file-${index}.ts`), `export const value${index} = ${index}\n`.repeat(20 + (index % 80)))
  }
}

async function prepare(): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'bs-'))
  process.once('exit', () => rmSync(root, { recursive: true, force: true }))
  const folder = join(root, 'files')
  makeFiles(folder)
  const store = await openStore(join(root, 'store'))
  // Nothing counts as unchanged that was written within a tick of the clock.
  await new Promise((done) => setTimeout(done, 100))
  const { tree, index } = await store.capture(folder)
  const left = store.editTree(
    tree,
    Array.from({ length: CHANGES }, (_, at) => ({
      path: `part-${at}/sub-${at}/file-${at}.ts`,
      set: { kind: 'file', id: store.putBlob(Buffer.from(`changed ${at}\n`)) },
    })),
  )
  place = { root, folder, store, tree, index, left }
  git(folder, ['init', '-q'])
  git(folder, ['add', '-A'])
}

let counter = 0
const fresh = (): string => join(there().root, `fresh-${counter++}`)

/** Ours into a new store, every byte and row durable. */
async function importFiles(): Promise<void> {
  const root = fresh()
  {
    await using store = await openStore(root)
    const { tree } = await store.capture(there().folder)
    if (tree !== there().tree) throw new Error('another tree came of it')
  }
  rmSync(root, { recursive: true })
}

function gitImport(config: readonly string[]): void {
  const directory = fresh()
  const repository = ['--git-dir', directory, '--work-tree', there().folder]
  git(there().folder, ['init', '-q', '--bare', directory])
  git(there().folder, [...repository, 'add', '-A'], config)
  git(there().folder, [...repository, 'write-tree'], config)
  rmSync(directory, { recursive: true })
}

/** Milliseconds of the laying out alone: to remove so many files takes longer, and is the file system's. */
async function laidOut(layOut: (dir: string) => Promise<unknown>): Promise<readonly number[]> {
  const dir = fresh()
  const started = performance.now()
  await layOut(dir)
  const took = performance.now() - started
  rmSync(dir, { recursive: true })
  return [took]
}

/** Trees of 16,000 files in and out, and what an editor does with them, against git doing the same. */
export const comparisons: readonly Comparison[] = [
  {
    name: `import ${FILES} files, durable`,
    peer: 'git add -A && git write-tree',
    goal: 'at most 0.25',
    prepare,
    ours: importFiles,
    theirs: async () => gitImport([]),
  },
  {
    name: `import ${FILES} files, durable (both)`,
    peer: 'the same with core.fsync=all',
    goal: 'at most 0.1',
    ours: importFiles,
    theirs: async () => gitImport(['core.fsync=all', 'core.fsyncMethod=fsync']),
  },
  {
    rows: [{ name: `lay ${FILES} files out`, unit: 'ms', goal: 'at most 0.6' }],
    peer: 'git checkout-index -a',
    ours: () => laidOut((dir) => there().store.layout(there().tree, dir)),
    theirs: () => laidOut(async (dir) => git(there().folder, ['checkout-index', '-a', `--prefix=${dir}/`])),
  },
  {
    name: `capture ${FILES} unchanged files again`,
    peer: 'git add -A',
    goal: 'at most 3',
    ours: async () => {
      const { store, folder, tree, index } = there()
      const report = await store.capture(folder, { base: tree, index })
      if (report.tree !== tree) throw new Error('another tree came of it')
    },
    theirs: async () => {
      git(there().folder, ['add', '-A'])
    },
  },
  {
    name: `diff of ${CHANGES} changes in ${FILES} files`,
    peer: 'git diff-index',
    ours: async () => {
      const { store, tree, left } = there()
      if ([...store.diffTrees(tree, left)].length !== CHANGES) throw new Error('another difference')
    },
    theirs: async () => {
      git(there().folder, ['diff-files', '--name-only'])
    },
  },
  {
    name: `grep of ${FILES} files`,
    peer: 'git grep',
    ours: async () => {
      const { store, tree } = there()
      const found = await store.fs.grep(tree, 'value15999 ')
      if (found.matches.length === 0) throw new Error('nothing was found')
    },
    theirs: async () => {
      git(there().folder, ['grep', '-n', '--max-count=1', 'value15999 '])
    },
  },
]
