import { messageOf } from '@reve/base'
import type { Edit, LayoutReport, Store } from '@reve/content-store'
import type { CheckedAction } from './action.ts'
import { changesBetween } from './changes.ts'
import { slotEnvironment } from './environment.ts'
import { ActionError } from './errors.ts'
import { cancelled } from './flights.ts'
import { walkInside } from './inside.ts'
import type { CacheStore } from './named-caches.ts'
import type { ActionRecord } from './result.ts'
import type { Sandbox } from './sandbox.ts'
import type { ActionUser, CacheUse, Slot, SlotFolder } from './slot.ts'
import { toolCacheDirectories } from './tool-caches.ts'
import { spoolOf, watch, type OnOutput } from './watch.ts'

/** What a run needs beside its action. */
export type RunContext = {
  readonly store: Store
  readonly caches: CacheStore
  readonly slots: SlotFolder
  readonly sandbox: Sandbox
  readonly user: ActionUser | undefined
  /** The action's environment, but for what depends on the slot. */
  readonly environment: Readonly<Record<string, string>>
  readonly signal: AbortSignal
  readonly onOutput: OnOutput
  readonly queueMs: number
}

/**
 * Lays out the tree in a fresh slot, runs the command to its end, and reads back what it left. The slot itself is cut and removed
 * by the caller.
 *
 * @throws ActionError `bad_action`, `setup_failed`, `capture_failed`, `cancelled`.
 */
export async function runInSlot(context: RunContext, slot: Slot, action: CheckedAction): Promise<ActionRecord> {
  const { store, caches, slots, sandbox, user, signal } = context
  const lap = stopwatch()
  const layout = await store.layout(action.tree, slot.work, { owner: user, signal })
  const placed: CacheUse[] = []
  try {
    for (const use of action.caches) {
      await caches.putIn(use, slot)
      placed.push(use)
    }
    const cwd = await workingDirectory(slot, action.cwd)
    await slots.open(slot)
    if (signal.aborted) throw cancelled()
    const layoutMs = lap()
    const command = await sandbox.start(slot, {
      argv: action.argv,
      cwd,
      env: slotEnvironment(context.environment, slot),
    })
    const ended = await watch(command, slot, { timeoutMs: action.timeoutS * 1_000, signal }, context.onOutput)
    await slots.shut(slot)
    const failure = command.startFailure(ended.exit, ended.stderr.text)
    if (failure !== undefined) {
      throw new ActionError('setup_failed', `the command could not be started: ${failure}`, {
        hint: `programs are looked for in ${context.environment['PATH'] ?? ''}`,
      })
    }
    const runMs = lap()
    const [stdout, stderr] = await Promise.all([
      store.putBlobFile(spoolOf(slot, 'stdout')),
      store.putBlobFile(spoolOf(slot, 'stderr')),
    ])
    const captured = ended.stop === 'cancelled' ? nothing(action.tree) : await capture(context, slot, action, layout)
    return {
      ...captured,
      exitCode: ended.exit.exitCode,
      signal: ended.exit.signal,
      timedOut: ended.stop === 'timeout',
      cancelled: ended.stop === 'cancelled',
      stdout: { ...ended.stdout, blob: stdout },
      stderr: { ...ended.stderr, blob: stderr },
      leftRunning: ended.leftRunning,
      timing: {
        queueMs: Math.round(context.queueMs),
        layoutMs: Math.round(layoutMs),
        runMs: Math.round(runMs),
        captureMs: Math.round(lap()),
      },
    }
  } finally {
    await slots.shut(slot)
    await takeOutAll(caches, placed, slot)
  }
}

/** Each by itself: one that cannot be moved back does not cost the others. */
async function takeOutAll(caches: CacheStore, placed: readonly CacheUse[], slot: Slot): Promise<void> {
  const moved = await Promise.allSettled(placed.map((use) => caches.takeOut(use, slot)))
  for (const outcome of moved) if (outcome.status === 'rejected') throw outcome.reason
}

/** Milliseconds since the last call (or since it was made). */
function stopwatch(): () => number {
  let last = performance.now()
  return () => {
    const now = performance.now()
    const lap = now - last
    last = now
    return lap
  }
}

async function workingDirectory(slot: Slot, cwd: string): Promise<string> {
  const place = await walkInside(slot.work, cwd)
  switch (place.kind) {
    case 'directory':
      return place.path
    case 'missing':
      throw new ActionError('bad_action', `cwd: the tree has no directory ${cwd}`)
    case 'link':
      throw new ActionError('bad_action', `cwd: ${place.at} is a symbolic link, which is not followed here`)
    case 'other':
      throw new ActionError('bad_action', `cwd: ${place.at} is not a directory`)
    default:
      return place satisfies never
  }
}

type Captured = Pick<ActionRecord, 'tree' | 'changed' | 'notCaptured' | 'linksLeaving'>

const nothing = (tree: string): Captured => ({ tree, changed: [], notCaptured: [], linksLeaving: [] })

async function capture(
  { store, signal }: RunContext,
  slot: Slot,
  action: CheckedAction,
  layout: LayoutReport,
): Promise<Captured> {
  try {
    const report = await store.capture(slot.work, {
      base: action.tree,
      index: layout.index,
      exclude: [...toolCacheDirectories, ...action.caches.map(({ path }) => `./${path}`)],
      gitignore: action.gitignore,
      signal,
    })
    const [changing] = report.unstable
    if (changing !== undefined)
      throw new ActionError(
        'capture_failed',
        `${changing} changed while the result was read: something still writes it`,
      )
    const tree = carryOver(store, action, report.tree)
    return {
      tree,
      changed: changesBetween(store, action.tree, tree),
      notCaptured: report.skipped.map(({ path, why }) => ({ path, why })),
      linksLeaving: report.links.map(({ path, target }) => ({ path, target })),
    }
  } catch (error) {
    if (signal.aborted) throw cancelled()
    if (error instanceof ActionError) throw error
    throw new ActionError('capture_failed', `the result could not be read back: ${messageOf(error)}`, { cause: error })
  }
}

/** Where a cache stood, the result has what the input has, even if the action put a file or a link there. */
function carryOver(store: Store, action: CheckedAction, tree: string): string {
  const edits: Edit[] = []
  for (const { path } of action.caches) {
    const before = store.lookup(action.tree, path)
    const after = store.lookup(tree, path)
    // On the way to the cache the action may have put what it liked: that is its result.
    if (before?.id === after?.id || !parentCanBe(store, tree, path)) continue
    edits.push(before === undefined ? { path, remove: true } : { path, set: before })
  }
  return edits.length === 0 ? tree : store.editTree(tree, edits)
}

/** True if every part of the way to a path is a directory or missing. */
function parentCanBe(store: Store, tree: string, path: string): boolean {
  const parts = path.split('/')
  return parts.slice(0, -1).every((_part, index) => {
    const entry = store.lookup(tree, parts.slice(0, index + 1).join('/'))
    return entry === undefined || entry.kind === 'directory'
  })
}
