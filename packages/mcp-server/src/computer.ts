import { randomBytes } from 'node:crypto'
import { chmod, lstat, mkdir, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { createActionRunner, type ActionRunner } from '@reve/action-runner'
import { isReveError } from '@reve/base'
import { openStore, type Store } from '@reve/content-store'
import { createGitBridge, type GitBridge, type GitBridgeOptions } from '@reve/git-bridge'
import { answerCalls } from './calls.ts'
import { ComputerError } from './errors.ts'
import { createEvents, type Events, type Metrics } from './events.ts'
import { openSeatTables } from './seat-database.ts'
import { createSeats, type Seat, type Seats } from './seats.ts'

export type ComputerOptions = {
  /** The data directory (`KC_ROOT`); it is the computer. */
  readonly root: string
  /** The committer of exports. */
  readonly identity: { readonly name: string; readonly email: string }
  /** What git may show to other sides, or how to get it, asked at each import and push (default nothing). */
  readonly gitCredentials?: NonNullable<GitBridgeOptions['credentials']>
  /** The user that local actions run as; unset: the server's own. */
  readonly actionUser?: { readonly uid: number; readonly gid: number; readonly name: string }
  /**
   * Folder for the slots and caches of actions (default: in the data directory, which nobody but its owner can enter). With
   * an `actionUser` it must be one that this user can reach, on one file system.
   */
  readonly workDir?: string
  /** An action is refused when the data disk has less than this free. */
  readonly minFreeBytes?: number
  /** What tells this host apart for local actions: part of their keys. */
  readonly hostFingerprint: string
  /** Values that no event may hold, beside tokens of kc's own making: a token that the host handed in. */
  readonly secrets?: readonly string[]
  /** Milliseconds since the epoch. */
  readonly now?: () => number
  /** Random bytes, for tokens. */
  readonly random?: (count: number) => Uint8Array
}

/** What a call came to: text for the model, and whether it failed. */
export type CallResult = { readonly text: string; readonly isError: boolean }

export type CallOptions = {
  readonly signal: AbortSignal
  readonly progress?: (text: string) => void
  /** The token that the call came with: its event must not hold it. */
  readonly token?: string
}

/** An open computer. One process has it; others are refused with that one's pid. */
export interface Computer extends AsyncDisposable {
  readonly root: string
  readonly store: Store
  readonly seats: Seats
  readonly events: Events
  /**
   * Runs one call as `seat`: binds it to its action, runs it, and writes its event before this resolves. Never throws
   * for what a client sent or asked for: a refusal is a result.
   */
  call(seat: Seat, family: string, args: unknown, options: CallOptions): Promise<CallResult>
  metrics(windowSeconds?: number): Metrics
  /** Cancels the calls that run, waits until each has its event, and gives the data directory up. Harmless when done twice. */
  close(): Promise<void>
}

const paths = (root: string, workDir: string = root) => ({
  database: join(root, 'kc.db'),
  slots: join(workDir, 'slots'),
  caches: join(workDir, 'caches'),
  repositories: join(root, 'repos'),
})

/**
 * Makes a computer in `root`, or finds the one that is there, also while it is served. Running it again changes nothing.
 *
 * @throws ComputerError `bad_option` for a folder that holds other things; StoreError when it cannot hold a computer.
 */
export async function initComputer(root: string): Promise<{ readonly created: boolean }> {
  const created = !(await exists(paths(root).database))
  if (created) await refuseFilled(root)
  let store: Store
  try {
    store = await openStore(root, { create: true })
  } catch (error) {
    // Whoever has it open has a computer there.
    if (!created && isReveError(error) && error.code === 'locked') return { created }
    throw error
  }
  try {
    createSeats(store, { now: Date.now, random: randomBytes })
    createEvents(store, Date.now)
  } finally {
    store.close()
  }
  return { created }
}

/** A computer closes its folder to everybody else, so it takes none that other things are in. */
async function refuseFilled(root: string): Promise<void> {
  if (!(await exists(root))) return
  if (!(await stat(root)).isDirectory())
    throw new ComputerError('bad_option', `${root} is not a folder; name a new or an empty one for the computer`)
  // A computer that was being made may be there, and the root of a file system has a folder of its own.
  const foreign = (await readdir(root)).find((name) => !name.startsWith('kc.') && name !== 'lost+found')
  if (foreign === undefined) return
  throw new ComputerError(
    'bad_option',
    `${root} holds other things (${JSON.stringify(foreign)}); name a new or an empty folder for the computer`,
  )
}

/**
 * Opens the computer in `root`.
 *
 * @throws ComputerError `not_a_computer`; StoreError `locked` naming the process that has it, `newer_format`, `corrupt`.
 */
export async function openComputer(options: ComputerOptions): Promise<Computer> {
  const { root } = options
  const at = paths(root, options.workDir)
  if (!(await exists(at.database))) {
    throw notAComputer(root)
  }
  const now = options.now ?? Date.now
  const store = await openStore(root, { now })
  try {
    const seats = createSeats(store, { now, random: options.random ?? randomBytes })
    const events = createEvents(store, now)
    await mkdir(at.repositories, { recursive: true, mode: 0o700 })
    if (options.workDir !== undefined && options.workDir !== root) await prepareWorkDir(options.workDir)
    const runner = createActionRunner({
      store,
      slotsDir: at.slots,
      cachesDir: at.caches,
      hostFingerprint: options.hostFingerprint,
      now,
      ...(options.actionUser === undefined ? {} : { actionUser: options.actionUser }),
      ...(options.minFreeBytes === undefined ? {} : { minFreeBytes: options.minFreeBytes }),
    })
    await runner.ready()
    const git = createGitBridge({
      store,
      reposDir: at.repositories,
      identity: options.identity,
      ...(options.gitCredentials === undefined ? {} : { credentials: options.gitCredentials }),
    })
    return assemble({ root, store, seats, events, runner, git, now, secrets: options.secrets ?? [] })
  } catch (error) {
    store.close()
    throw error
  }
}

type Parts = {
  readonly root: string
  readonly store: Store
  readonly seats: Seats
  readonly events: Events
  readonly runner: ActionRunner
  readonly git: GitBridge
  readonly now: () => number
  readonly secrets: readonly string[]
}

function assemble({ root, ...parts }: Parts): Computer {
  const { store, seats, events, runner } = parts
  const calls = answerCalls(parts)
  let closing: Promise<void> | undefined
  const end = async (): Promise<void> => {
    const settled = calls.stop()
    await runner.close()
    await settled
    store.close()
  }
  const close = (): Promise<void> => (closing ??= end())
  return {
    root,
    store,
    seats,
    events,
    call: calls.call,
    metrics: (windowSeconds = 3600) => events.metrics(windowSeconds),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/**
 * The folder may stand where everybody can write: one that somebody else made, or can write into, is not taken. One that is
 * made here can be passed through by the user of the actions; one that was there keeps its mode.
 */
async function prepareWorkDir(folder: string): Promise<void> {
  if ((await mkdir(folder, { recursive: true, mode: 0o711 })) !== undefined) await chmod(folder, 0o711)
  const found = await lstat(folder)
  const own = process.getuid?.() ?? found.uid
  if (found.isDirectory() && found.uid === own && (found.mode & 0o022) === 0) return
  throw new ComputerError(
    'bad_option',
    `${folder} is not a folder that only this user can write into, so no action works in it; name another one as the work folder (KC_WORK_DIR)`,
  )
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path)
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) return false
    throw error
  }
}

/**
 * The seats of the computer in `root`, without the rest of it: `kc seat` works beside a server. That is safe because it
 * touches no other table and no file, each verb is one short transaction of SQLite, which serialises writers across
 * processes, and a server reads its seats from the database at each call and keeps none in memory. Only tables of another
 * version need the whole store, and its lock, to be brought up to date.
 *
 * @throws ComputerError `not_a_computer`; StoreError `locked`, `newer_format`, `corrupt`.
 */
export async function openSeats(root: string): Promise<Seats & AsyncDisposable> {
  const { database } = paths(root)
  if (!(await exists(database))) throw notAComputer(root)
  const tables = openSeatTables(database) ?? (await openStore(root, { create: false }))
  const seats = createSeats(tables, { now: Date.now, random: randomBytes })
  return { ...seats, [Symbol.asyncDispose]: async () => tables.close() }
}

const notAComputer = (root: string): ComputerError =>
  new ComputerError('not_a_computer', `${root} holds no computer (there is no kc.db); "kc init" makes one`)
