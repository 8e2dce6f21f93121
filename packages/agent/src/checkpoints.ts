import { access, mkdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, isReveError, messageOf, writeFileAtomic } from '@reve/base'
import type { LayoutIndex, Store, TreeId, UpdateReport } from '@reve/content-store'
import type { EntryLine, SessionLog, SessionView } from '@reve/session-log'
import * as v from 'valibot'
import { AgentError } from './errors.ts'

/** The record of a session that says what `workspace/` held once an entry was there. */
const RECORD = 'checkpoint'
/** A capture that takes longer is given up: the run goes on without this checkpoint. */
const CAPTURE_MS = 20_000
/** So long none is tried after one that was given up: the next effects would wait as long for nothing. */
const PAUSE_MS = 300_000
/** The ref of the tree that was captured last: what is ignored now and was not then stays in the next one. */
const REF = 'workspace'
/** Larger files are in no checkpoint, and left as they are by a rewind. */
const LARGEST_BYTES = 64 << 20
/** Folders that are made again by a command, and hold more than all the rest. */
const EXCLUDED: readonly string[] = ['node_modules', '.venv', '__pycache__', 'target/debug', 'target/release']

/** The files at one moment. */
export type Checkpoint =
  | { readonly type: 'captured'; readonly tree: string }
  | { readonly type: 'skipped'; readonly reason: string }

/** What a rewind of the files did. */
export type Restored = {
  /** What the files were before: a rewind to it undoes this one. */
  readonly before: string
  readonly written: number
  readonly removed: number
  /** Paths that could not be brought back: something that is in no checkpoint stands there. */
  readonly inTheWay: readonly string[]
}

/** The states of an agent's workspace, kept in a store of its own below `.reve/`. */
export interface Checkpoints extends AsyncDisposable {
  /** Captures the files as they are. Several at once are one after the other; never rejects. */
  capture(): Promise<Checkpoint>
  /**
   * Makes the files what a checkpoint holds. What they are now is captured first; when it fails, or a kill cuts it off, they become that
   * again: at once, or at the next opening.
   *
   * @throws AgentError `no_checkpoint` when the store does not have it, what is there now cannot be captured, or the disk refuses.
   */
  restore(tree: string): Promise<Restored>
}

const Restoring = v.object({ version: v.literal(1), backTo: v.string() })

/** Where a restore that was cut off is noted, below the folder of the checkpoints. */
const JOURNAL = 'restoring.json'

/**
 * @param folder of the store, made at the first use; `workspace` is what is captured.
 * @param options.now milliseconds (default: the system's clock); `deadline` ends one capture (default: after 20 s).
 * @throws StoreError of `@reve/content-store`, `locked` when another process has it.
 */
export async function openCheckpoints(
  folder: string,
  workspace: string,
  options: CheckpointTimes = {},
): Promise<Checkpoints> {
  // Of weight, and a run without a tool that writes has no use for it.
  const { openStore } = await import('@reve/content-store')
  const store: Store = await openStore(join(folder, 'store'))
  try {
    return await checkpointsIn(store, join(folder, JOURNAL), workspace, options)
  } catch (error) {
    store.close()
    throw error
  }
}

type CheckpointTimes = { readonly now?: () => number; readonly deadline?: () => AbortSignal }

/** Whether a restore of these checkpoints was cut off: opening them undoes it. */
export const wasRestoring = async (folder: string): Promise<boolean> =>
  access(join(folder, JOURNAL)).then(
    () => true,
    () => false,
  )

async function checkpointsIn(
  store: Store,
  journal: string,
  workspace: string,
  { now = Date.now, deadline = () => AbortSignal.timeout(CAPTURE_MS) }: CheckpointTimes,
): Promise<Checkpoints> {
  let index: LayoutIndex | undefined
  let pausedUntil = Number.NEGATIVE_INFINITY
  let queue: Promise<unknown> = Promise.resolve()
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const result = queue.then(work)
    queue = result.catch(() => undefined)
    return result
  }

  const setLast = (tree: TreeId): void => {
    const found = store.refs.find(REF)
    const act = { actor: 'reve' }
    if (found === undefined) store.refs.create(REF, tree, act)
    else if (found.tree !== tree) store.refs.move(REF, { ...act, expectedTree: found.tree, newTree: tree })
  }

  const captureNow = async (signal?: AbortSignal): Promise<TreeId> => {
    const base = store.refs.find(REF)?.tree
    const report = await store.capture(workspace, {
      ...(base === undefined ? {} : { base }),
      ...(index === undefined ? {} : { index }),
      gitignore: true,
      exclude: EXCLUDED,
      leaveOutLarger: LARGEST_BYTES,
      signal,
    })
    index = report.index
    setLast(report.tree)
    return report.tree
  }

  const bringTo = async (from: TreeId, to: TreeId): Promise<UpdateReport> => {
    const report = await store.update(workspace, { from, to })
    setLast(to)
    await rm(journal, { force: true })
    return report
  }

  const restore = async (to: TreeId): Promise<Restored> => {
    const before = await captureNow()
    await writeFileAtomic(journal, `${JSON.stringify({ version: 1, backTo: before })}\n`)
    try {
      const { written, removed, inTheWay } = await bringTo(before, to)
      return { before, written, removed, inTheWay }
    } catch (error) {
      // Half of one state and half of another is nobody's. What cannot be undone now is undone at the next opening.
      await captureNow()
        .then((mixture) => bringTo(mixture, before))
        .catch(() => undefined)
      throw error
    }
  }

  const cut = await readFile(journal, 'utf8').catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  })
  const unfinished = v.safeParse(v.pipe(v.string(), v.parseJson(), Restoring), cut)
  if (unfinished.success && store.hasTree(unfinished.output.backTo))
    await bringTo(await captureNow(), unfinished.output.backTo)

  return {
    capture: () =>
      inTurn(async (): Promise<Checkpoint> => {
        const late = `it takes more than ${CAPTURE_MS / 1000} s`
        if (now() < pausedUntil) return { type: 'skipped', reason: late }
        const signal = deadline()
        try {
          return { type: 'captured', tree: await captureNow(signal) }
        } catch (error) {
          if (!signal.aborted) return { type: 'skipped', reason: messageOf(error) }
          pausedUntil = now() + PAUSE_MS
          return { type: 'skipped', reason: `${late}; the next one is in ${PAUSE_MS / 60_000} minutes at the earliest` }
        }
      }),
    restore: (tree) =>
      inTurn(async () => {
        if (!store.hasTree(tree))
          throw new AgentError('no_checkpoint', 'the files of this checkpoint are not in the store any more')
        try {
          return await restore(tree)
        } catch (error) {
          if (!isReveError(error)) throw error
          throw new AgentError('no_checkpoint', `the files could not be brought back: ${error.message}`, {
            cause: error,
          })
        }
      }),
    [Symbol.asyncDispose]: async () => {
      await queue
      store.close()
    },
  }
}

/** Opens the checkpoints of an agent; why not, when another process has them. */
export async function tryCheckpoints(
  folder: string,
  workspace: string,
): Promise<Checkpoints | { readonly reason: string }> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return await openCheckpoints(folder, workspace)
  } catch (error) {
    if (!isReveError(error)) throw error
    return { reason: error.message }
  }
}

/** Notes in the log what the files were once `entryId` was there. */
export async function noteCheckpoint(
  log: SessionLog,
  lane: string,
  entryId: string | null,
  tree: string,
): Promise<void> {
  await log.append([{ kind: 'record', lane, type: RECORD, payload: { entryId, tree } }])
}

/** The tree that was noted last in a session. */
export function lastCheckpoint(view: SessionView): string | undefined {
  const record = view.records().findLast(({ type }) => type === RECORD)
  return typeof record?.['tree'] === 'string' ? record['tree'] : undefined
}

/**
 * What the files were once the last entry of `path` was there: as noted for it or for the nearest one before it; before any,
 * what was noted first of all. Undefined when nothing was.
 */
export function checkpointAt(view: SessionView, path: readonly EntryLine[]): string | undefined {
  const noted = new Map<string | null, string>()
  let first: string | undefined
  for (const record of view.records()) {
    const { entryId, tree } = record
    if (record.type !== RECORD || typeof tree !== 'string' || (typeof entryId !== 'string' && entryId !== null))
      continue
    noted.set(entryId, tree)
    first ??= tree
  }
  for (const { id } of path.toReversed()) {
    const tree = noted.get(id)
    if (tree !== undefined) return tree
  }
  return first
}
