import { mkdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, isReveError, messageOf, writeFileAtomic } from '@reve/base'
import type { LayoutIndex, Store, TreeId } from '@reve/content-store'
import type { EntryLine, SessionLog, SessionView } from '@reve/session-log'
import * as v from 'valibot'
import { AgentError } from './errors.ts'

/** The record of a session that says what `workspace/` held once an entry was there. */
const RECORD = 'checkpoint'
/** A capture that takes longer is given up: the run goes on without this checkpoint. */
const CAPTURE_MS = 20_000
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
   * Makes the files what a checkpoint holds. What they are now is captured first; one that a kill cut off is finished at the next
   * opening.
   *
   * @throws AgentError `no_checkpoint` when the store does not have it, or what is there now cannot be captured.
   */
  restore(tree: string): Promise<Restored>
}

const Restoring = v.object({ version: v.literal(1), to: v.string() })

/** @param folder of the store, made at the first use; `workspace` is what is captured. */
export async function openCheckpoints(folder: string, workspace: string): Promise<Checkpoints> {
  // Of weight, and a run without a tool that writes has no use for it.
  const { openStore } = await import('@reve/content-store')
  const store: Store = await openStore(join(folder, 'store'))
  const journal = join(folder, 'restoring.json')
  let index: LayoutIndex | undefined
  let last: TreeId | undefined
  let queue: Promise<unknown> = Promise.resolve()
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const result = queue.then(work)
    queue = result.catch(() => undefined)
    return result
  }

  const captureNow = async (): Promise<TreeId> => {
    const report = await store.capture(workspace, {
      ...(last === undefined ? {} : { base: last }),
      ...(index === undefined ? {} : { index }),
      gitignore: true,
      exclude: EXCLUDED,
      leaveOutLarger: LARGEST_BYTES,
      signal: AbortSignal.timeout(CAPTURE_MS),
    })
    index = report.index
    last = report.tree
    return report.tree
  }

  const bringTo = async (to: TreeId): Promise<Restored> => {
    const before = await captureNow()
    await writeFileAtomic(journal, `${JSON.stringify({ version: 1, to })}\n`)
    const report = await store.update(workspace, { from: before, to })
    await rm(journal, { force: true })
    return { before, written: report.written, removed: report.removed, inTheWay: report.inTheWay }
  }

  const cut = await readFile(journal, 'utf8').catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  })
  const unfinished = v.safeParse(v.pipe(v.string(), v.parseJson(), Restoring), cut)
  if (unfinished.success && store.hasTree(unfinished.output.to)) await bringTo(unfinished.output.to)

  return {
    capture: () =>
      inTurn(async (): Promise<Checkpoint> => {
        try {
          return { type: 'captured', tree: await captureNow() }
        } catch (error) {
          const isLate = error instanceof Error && error.name === 'TimeoutError'
          return { type: 'skipped', reason: isLate ? `it took more than ${CAPTURE_MS / 1000} s` : messageOf(error) }
        }
      }),
    restore: (tree) =>
      inTurn(async () => {
        if (!store.hasTree(tree))
          throw new AgentError('no_checkpoint', `the files of this checkpoint are not in ${folder}`)
        try {
          return await bringTo(tree)
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
