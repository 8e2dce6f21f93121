import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore, type Store } from '@reve/content-store'
import { createGitBridge, type GitBridge } from '@reve/git-bridge'
import type { Comparison } from './measure.ts'

const FILES = 10_000
const person = { name: 'bench', email: 'bench@localhost' }

type Place = {
  readonly root: string
  /** A repository with its work tree. */
  readonly work: string
  /** A store that has imported it, its bridge, and the tree. */
  readonly store: Store
  readonly bridge: GitBridge
  readonly tree: string
  /** git's own clone of it. */
  readonly clone: string
}
let place: Place | undefined
const there = (): Place => {
  if (place === undefined) throw new Error('nothing is prepared')
  return place
}

const git = (folder: string, ...args: readonly string[]): string =>
  execFileSync('git', ['-c', `user.name=${person.name}`, '-c', `user.email=${person.email}`, ...args], {
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

const bridgeOf = (store: Store, folder: string): GitBridge =>
  createGitBridge({ store, reposDir: join(folder, 'repos'), identity: person })

/** Some 15 MB of text in 200 folders. */
function makeFiles(folder: string): void {
  for (let index = 0; index < FILES; index++) {
    const parent = join(folder, `part-${index % 10}`, `sub-${index % 200}`)
    mkdirSync(parent, { recursive: true })
    writeFileSync(join(parent, `file-${index}.ts`), `export const value${index} = ${index}\n`.repeat(20 + (index % 80)))
  }
}

async function prepare(): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'bg-'))
  process.once('exit', () => rmSync(root, { recursive: true, force: true }))
  const work = join(root, 'work')
  makeFiles(work)
  git(work, 'init', '-q', '-b', 'main')
  git(work, 'add', '-A')
  git(work, 'commit', '-q', '-m', 'first')
  git(work, 'repack', '-a', '-d', '-q')
  const store = await openStore(join(root, 'store'))
  const bridge = bridgeOf(store, root)
  const { tree } = await bridge.import({ src: work, name: 'work', actor: 'bench' })
  const clone = join(root, 'clone.git')
  git(root, 'clone', '-q', '--bare', `file://${work}`, clone)
  place = { root, work, store, bridge, tree, clone }
}

let counter = 0
const fresh = (): string => {
  const folder = join(there().root, `fresh-${counter++}`)
  mkdirSync(folder)
  return folder
}

/** Milliseconds of `work` alone, in a folder of its own that is removed afterwards. */
async function inFolder(prepareFolder: (folder: string) => Promise<() => Promise<void>>): Promise<readonly number[]> {
  const folder = fresh()
  const work = await prepareFolder(folder)
  const started = performance.now()
  await work()
  const took = performance.now() - started
  rmSync(folder, { recursive: true })
  return [took]
}

/** A repository without a commit, to export to. */
async function emptyClone(bridge: GitBridge, folder: string): Promise<void> {
  git(folder, 'init', '-q', '--bare', 'empty.git')
  await bridge.import({ src: join(folder, 'empty.git'), name: 'empty', actor: 'bench' })
}

const exportTo = (bridge: GitBridge, name: string, tree: string): Promise<unknown> =>
  bridge.export({ name, tree, branch: 'main', message: 'export', actor: 'bench' })

/** The store's tree with one file changed. */
function edited(): string {
  const { store, tree } = there()
  const id = store.putBlob(Buffer.from(`changed ${counter++}\n`))
  return store.editTree(tree, [{ path: 'part-3/sub-3/file-3.ts', set: { kind: 'file', id } }])
}

/** The same in the work tree. */
function editWork(): void {
  writeFileSync(join(there().work, 'part-3/sub-3/file-3.ts'), `changed ${counter++}\n`)
}

/** Repositories into trees and back, against git with its own index and work tree. */
export const comparisons: readonly Comparison[] = [
  {
    rows: [{ name: `import a repository of ${FILES} files`, unit: 'ms' }],
    peer: 'git clone --bare && git read-tree',
    prepare,
    ours: () =>
      inFolder(async (folder) => {
        const store = await openStore(join(folder, 'store'))
        const bridge = bridgeOf(store, folder)
        return async () => {
          const { tree } = await bridge.import({ src: there().work, name: 'work', actor: 'bench' })
          if (tree !== there().tree) throw new Error('another tree came of it')
          store.close()
        }
      }),
    theirs: () =>
      inFolder(async (folder) => async () => {
        git(folder, 'clone', '-q', '--bare', `file://${there().work}`, 'clone.git')
        git(join(folder, 'clone.git'), 'read-tree', 'HEAD')
      }),
  },
  {
    name: 'import it again when nothing changed',
    peer: 'git fetch && git read-tree',
    ours: async () => {
      await there().bridge.import({ src: there().work, name: 'work', actor: 'bench' })
    },
    theirs: async () => {
      git(there().clone, 'fetch', '-q', 'origin', '+refs/heads/*:refs/remotes/origin/*')
      git(there().clone, 'read-tree', 'HEAD')
    },
  },
  {
    rows: [{ name: `export ${FILES} files to an empty clone`, unit: 'ms' }],
    peer: 'git add -A && git commit',
    ours: () =>
      inFolder(async (folder) => {
        // A store that knows nothing of git yet, as after a capture.
        const store = await openStore(join(folder, 'store'))
        const { tree } = await store.capture(there().work)
        const bridge = bridgeOf(store, folder)
        await emptyClone(bridge, folder)
        return async () => {
          await exportTo(bridge, 'empty', tree)
          store.close()
        }
      }),
    theirs: () =>
      inFolder(async (folder) => async () => {
        const repository = [`--git-dir=${join(folder, 'new.git')}`, `--work-tree=${there().work}`]
        git(there().work, 'init', '-q', '--bare', join(folder, 'new.git'))
        git(there().work, ...repository, 'add', '-A')
        git(there().work, ...repository, 'commit', '-q', '-m', 'export')
      }),
  },
  {
    name: `export a change of one file in ${FILES}`,
    peer: 'git add -A && git commit',
    ours: async () => {
      await exportTo(there().bridge, 'work', edited())
    },
    theirs: async () => {
      editWork()
      git(there().work, 'add', '-A')
      git(there().work, 'commit', '-q', '-m', 'export')
    },
  },
]
