import { randomBytes } from 'node:crypto'
import { chmod, lstat, mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { createActionRunner, type ActionRunner } from '@reve/action-runner'
import { isReveError, messageOf } from '@reve/base'
import { openStore, type Store } from '@reve/content-store'
import { createGitBridge, type GitBridge } from '@reve/git-bridge'
import { createEvents, type Event, type Events, type Metrics } from './events.ts'
import { loggedArguments, withoutUserInfo } from './event-arguments.ts'
import { ComputerError } from './errors.ts'
import { families } from './families/index.ts'
import { bindCall, targetOf, type Family } from './family.ts'
import { createSeats, type Seat, type Seats } from './seats.ts'

export type ComputerOptions = {
  /** The data directory (`KC_ROOT`); it is the computer. */
  readonly root: string
  /** The committer of exports. */
  readonly identity: { readonly name: string; readonly email: string }
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
  /** Size of the request, for its event. */
  readonly bytesIn?: number
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
  close(): Promise<void>
}

const paths = (root: string, workDir: string = root) => ({
  database: join(root, 'kc.db'),
  slots: join(workDir, 'slots'),
  caches: join(workDir, 'caches'),
  repositories: join(root, 'repos'),
})

/**
 * Makes a computer in `root`, or finds the one that is there. Running it again changes nothing.
 *
 * @throws StoreError when the folder cannot hold one.
 */
export async function initComputer(root: string): Promise<{ readonly created: boolean }> {
  const created = !(await exists(paths(root).database))
  await mkdir(root, { recursive: true, mode: 0o700 })
  const store = await openStore(root, { create: true })
  try {
    createSeats(store, { now: Date.now, random: randomBytes })
    createEvents(store, Date.now)
  } finally {
    store.close()
  }
  return { created }
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
    const git = createGitBridge({ store, reposDir: at.repositories, identity: options.identity })
    return assemble({ root, store, seats, events, runner, git, now })
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
}

function assemble({ root, store, seats, events, runner, git, now }: Parts): Computer {
  const call: Computer['call'] = async (seat, familyName, args, options) => {
    const started = performance.now()
    const family = families.find(({ name }) => name === familyName)
    /** The row of this call, whatever it came to. */
    const eventOf = (outcome: CallResult): Event => {
      const target = family === undefined ? undefined : targetOf(family, args)
      const logged = loggedArguments(args, target?.action?.logged ?? new Set(['action']))
      return {
        seat: seat.name,
        tool: target?.tool ?? familyName.slice(0, 64),
        arguments: logged.json,
        argumentsCut: logged.cut,
        ok: !outcome.isError,
        durationMs: performance.now() - started,
        bytesIn: options.bytesIn ?? Buffer.byteLength(JSON.stringify(args ?? null)),
        bytesOut: Buffer.byteLength(outcome.text),
        error: outcome.isError ? withoutUserInfo(outcome.text).slice(0, 2000).toWellFormed() : null,
        at: new Date(now()).toISOString(),
      }
    }
    const refused = async (error: unknown): Promise<CallResult> => {
      const outcome = { text: refusalText(error), isError: true }
      await events.record(eventOf(outcome))
      return outcome
    }
    let recorded = false
    const recordWithEffect = (text: string): void => {
      events.insert(eventOf({ text, isError: false }))
      recorded = true
    }
    try {
      if (family === undefined) throw unknownFamily(familyName)
      const bound = bindCall(family, args)
      const progress = options.progress ?? (() => undefined)
      const context = { store, runner, git, seats, events, seat, signal: options.signal, progress, recordWithEffect }
      if (bound.effect === 'write') {
        // The effect and its event are one transaction: neither is there without the other.
        return store.transaction(() => {
          const outcome = { text: bound.run(context), isError: false }
          events.insert(eventOf(outcome))
          return outcome
        })
      }
      const outcome = { text: await bound.run(context), isError: false }
      if (!recorded) await events.record(eventOf(outcome))
      return outcome
    } catch (error) {
      return refused(error)
    }
  }

  const close = async (): Promise<void> => {
    await runner.close()
    events.flush()
    store.close()
  }
  return {
    root,
    store,
    seats,
    events,
    call,
    metrics: (windowSeconds = 3600) => events.metrics(windowSeconds),
    close,
    [Symbol.asyncDispose]: close,
  }
}

const unknownFamily = (name: string): ComputerError =>
  new ComputerError(
    'bad_call',
    `there is no family "${name.slice(0, 64)}"; there are ${families.map((family: Family) => family.name).join(', ')}`,
  )

/** The folder may stand where everybody can write: one that somebody else made, or a link, is not taken. */
async function prepareWorkDir(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o711 })
  const found = await lstat(folder)
  if (!found.isDirectory() || (process.getuid !== undefined && found.uid !== process.getuid())) {
    throw new ComputerError(
      'bad_option',
      `${folder} is not a folder of this user's, so no action works in it; name another one as the work folder (KC_WORK_DIR)`,
    )
  }
  await chmod(folder, 0o711)
}

/** A refusal says what it says; a defect says that it is one, without its inside. */
function refusalText(error: unknown): string {
  if (isReveError(error)) return error.hint === undefined ? error.message : `${error.message} (${error.hint})`
  return `internal error: ${messageOf(error)}`
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
 * The seats of the computer in `root`, without opening the rest of it: `kc seat` works beside a server. That is safe
 * because each verb is one short transaction of SQLite, which serialises writers across processes, and because a server
 * reads its seats from the database at each call and keeps none in memory.
 *
 * @throws ComputerError `not_a_computer`.
 */
export async function openSeats(root: string): Promise<Seats & AsyncDisposable> {
  if (!(await exists(paths(root).database))) throw notAComputer(root)
  const store = await openStore(root, { create: false, lock: 'caller' })
  const seats = createSeats(store, { now: Date.now, random: randomBytes })
  return { ...seats, [Symbol.asyncDispose]: async () => store.close() }
}

const notAComputer = (root: string): ComputerError =>
  new ComputerError('not_a_computer', `${root} holds no computer (there is no kc.db); "kc init" makes one`)
