import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore, type Store } from '@reve/content-store'
import {
  createActionRunner,
  type Action,
  type ActionResult,
  type ActionRunner,
  type ActionRunnerOptions,
  type RunOptions,
} from '../src/index.ts'

export type World = {
  readonly root: string
  readonly store: Store
  readonly runner: ActionRunner
  readonly slots: string
  /** A tree of these text files; a name that ends in `*` is executable. */
  tree(files: Readonly<Record<string, string>>): string
  /** Runs a shell script on a tree (default: the empty one). */
  sh(script: string, action?: Partial<Action>, options?: RunOptions): Promise<ActionResult>
  read(tree: string, path: string): string | undefined
  path(name: string): string
  remove(): Promise<void>
}

/** A store and a runner. Folders may be passed through, so that actions can run as another user. */
export async function world(options: Partial<ActionRunnerOptions> = {}): Promise<World> {
  const root = mkdtempSync(join(tmpdir(), 'action-runner-'))
  const store = await openStore(join(root, 'store'))
  const slots = join(root, 'slots')
  const runner = createActionRunner({ store, slotsDir: slots, hostFingerprint: 'test', ...options })
  return {
    root,
    store,
    runner,
    slots,
    tree: (files) =>
      store.editTree(
        store.emptyTree,
        Object.entries(files).map(([path, content]) => ({
          path: path.replace(/\*$/, ''),
          set: { kind: path.endsWith('*') ? 'executable' : 'file', id: store.putBlob(Buffer.from(content)) },
        })),
      ),
    sh: (script, action = {}, runOptions = {}) =>
      runner.run({ tree: store.emptyTree, argv: ['sh', '-c', script], ...action }, runOptions),
    read(tree, path) {
      const entry = store.lookup(tree, path)
      return entry === undefined ? undefined : Buffer.from(store.readBlob(entry.id)).toString('utf8')
    },
    path: (name) => join(root, name),
    async remove() {
      await runner.close()
      await store[Symbol.asyncDispose]()
      rmSync(root, { recursive: true, force: true })
    },
  }
}

/** Lines of a file that actions append to, outside of every slot; none if there is no file. */
export function linesOf(path: string): readonly string[] {
  try {
    return readFileSync(path, 'utf8').split('\n').filter(Boolean)
  } catch {
    return []
  }
}

/** Pids of live processes whose command line holds `word`. */
export function processesWith(word: string): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(word)
      } catch {
        return false
      }
    })
    .map(Number)
}

/** Waits, bounded, until something is so. */
export async function until(what: string, isSo: () => boolean): Promise<void> {
  for (let turn = 0; turn < 1_500; turn += 1) {
    if (isSo()) return
    await new Promise((resolve) => void setTimeout(resolve, 10))
  }
  throw new Error(`never: ${what}`)
}

/**
 * A script that starts four processes that ignore SIGTERM: in the same group, in an own group, in an own session, and forked
 * twice. Each carries `word` in its command line and adds its name to `ready`.
 */
export function escapees(word: string, ready: string): string {
  const stay = (name: string): string => `trap "" TERM; echo ${name} >>"${ready}"; while :; do sleep 1; done # ${word}`
  return `
    trap '' TERM
    sh -c '${stay('same-group')}' &
    perl -e 'setpgrp(0, 0); exec "sh", "-c", shift' '${stay('own-group')}' &
    setsid sh -c '${stay('own-session')}' &
    perl -e 'exit if fork; use POSIX; POSIX::setsid(); exit if fork; exec "sh", "-c", shift' '${stay('double-fork')}' &
    while [ "$({ wc -l <"${ready}" || echo 0; } 2>/dev/null)" -lt 4 ]; do sleep 0.02; done
    echo all-ready
    while :; do sleep 1; done # ${word}`
}
