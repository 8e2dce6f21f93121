import { closeSync, existsSync, openSync, realpathSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, resolve } from 'node:path'
import type BetterSqlite3 from 'better-sqlite3'
import { messageOf, ReveError } from './errors.ts'

/** Another process, or another part of this one, holds the lock. */
export class LockHeldError extends ReveError<'lock_held'> {
  override readonly name = 'LockHeldError'
  readonly path: string
  /** The holder's process id, as it wrote it down; it is information, the operating system's lock decides. */
  readonly pid: number | undefined
  constructor(path: string, pid: number | undefined) {
    super('lock_held', `${path} is held by ${pid === undefined ? 'another process' : `process ${pid}`}`, {
      hint: 'wait until that process is done with it, or end it; its lock ends with it',
    })
    this.path = path
    this.pid = pid
  }
}

/** A lock's file could not be made or opened. */
export class LockFileError extends ReveError<'lock_unusable'> {
  override readonly name = 'LockFileError'
}

/**
 * A held lock. It ends with `release`, or with the process, however that dies; dropping this object does not end it.
 *
 * Leave the file alone while it is held: whoever deletes it lets a second holder in, and on POSIX systems so does the
 * holder's own process when it opens and closes the file by other means (to copy the folder, for example).
 */
export type Lock = {
  /** Real path of the lock's file. */
  readonly path: string
  release(): void
  [Symbol.dispose](): void
}

// Native code, loaded when a lock is first taken: a program that only prints its version does not pay for it.
const require = createRequire(import.meta.url)
const openDatabase = (file: string, options: BetterSqlite3.Options): BetterSqlite3.Database => {
  const Database = require('better-sqlite3') as typeof BetterSqlite3
  return new Database(file, options)
}

/** Connections that hold a lock: one that nobody refers to would be closed by the garbage collector, and its lock lost. */
const holding = new Set<BetterSqlite3.Database>()

/** How long a busy file is tried before it counts as held: a look by `lockHolder`, or a loser of a race, is gone sooner. */
const graceMs = 50
/** How long the commit of the holder's row waits for those who are just reading it. */
const commitMs = 2000
/** How often a row that a rival overwrote in between is written again. */
const rowTries = 8

/**
 * Takes the lock at `path` at once. SQLite's write lock on that file is what holds it: the operating system drops it when
 * the process dies, and it works alike on every system. Two paths that lead to one file are one lock. A held lock is
 * refused after 50 ms.
 *
 * @throws LockHeldError naming the holder; LockFileError when the file cannot be made.
 */
export function tryAcquireLock(path: string, options: { readonly pid?: number } = {}): Lock {
  return take(path, options.pid ?? process.pid, graceMs)
}

function take(path: string, pid: number, busyMs: number): Lock {
  const file = realFile(path)
  const database = open(file)
  try {
    hold(database, pid, busyMs)
  } catch (error) {
    const holder = isBusy(error) ? readHolder(database) : undefined
    database.close()
    if (isBusy(error)) throw new LockHeldError(file, holder)
    throw new LockFileError('lock_unusable', `${file} cannot be locked: ${messageOf(error)}`, { cause: error })
  }
  holding.add(database)
  const release = (): void => {
    if (!holding.delete(database)) return
    database.exec('ROLLBACK')
    database.close()
  }
  return { path: file, release, [Symbol.dispose]: release }
}

/**
 * Leaves `database` in the transaction that is the lock, its holder's row committed before, so that whoever is refused
 * can read it. Between the two a rival may come in: then either that one is the holder, or it is gone again and the row
 * is put right.
 */
function hold(database: BetterSqlite3.Database, pid: number, busyMs: number): void {
  for (let attempt = 1; ; attempt++) {
    database.pragma(`busy_timeout = ${busyMs}`)
    database.exec('BEGIN IMMEDIATE')
    // Without its row, which is information only, the lock is as good.
    if (attempt > rowTries || readHolder(database) === pid) return
    database.exec('CREATE TABLE IF NOT EXISTS holder (id INTEGER PRIMARY KEY CHECK (id = 0), pid INTEGER NOT NULL)')
    database.prepare('INSERT INTO holder VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET pid = excluded.pid').run(pid)
    database.pragma(`busy_timeout = ${commitMs}`)
    try {
      database.exec('COMMIT')
    } catch (error) {
      if (!isBusy(error)) throw error
      database.exec('ROLLBACK')
    }
  }
}

/** How often a held lock is tried again while waiting. */
const pollMs = 50

/**
 * Takes the lock at `path`, waiting up to `waitMs` (default 0) for its holder to end.
 *
 * @throws LockHeldError, LockFileError; the signal's reason when it is aborted first.
 */
export async function acquireLock(
  path: string,
  options: { readonly pid?: number; readonly waitMs?: number; readonly signal?: AbortSignal } = {},
): Promise<Lock> {
  // The grace of a refusal is a wait between tries here, not one that stops everything else in the process.
  const tries = Math.ceil(Math.max(options.waitMs ?? 0, graceMs) / pollMs)
  for (let attempt = 0; ; attempt++) {
    options.signal?.throwIfAborted()
    try {
      return take(path, options.pid ?? process.pid, 0)
    } catch (error) {
      if (!(error instanceof LockHeldError) || attempt >= tries) throw error
    }
    await new Promise((done) => setTimeout(done, pollMs))
  }
}

/**
 * Whether the lock at `path` is held, and by whom. Makes no file and leaves no trace in one.
 *
 * @throws LockFileError when there is a file that cannot be used as a lock.
 */
export function lockHolder(path: string): { readonly held: boolean; readonly pid?: number } {
  const file = realFile(path)
  if (!existsSync(file)) return { held: false }
  const database = connect(file)
  try {
    database.exec('BEGIN IMMEDIATE')
    database.exec('ROLLBACK')
    return { held: false }
  } catch (error) {
    if (!isBusy(error)) throw unusable(file, error)
    const pid = readHolder(database)
    return { held: true, ...(pid === undefined ? {} : { pid }) }
  } finally {
    database.close()
  }
}

function realFile(path: string): string {
  const absolute = resolve(path)
  try {
    return realpathSync(absolute)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw unusable(absolute, error)
  }
  try {
    return join(realpathSync(dirname(absolute)), basename(absolute))
  } catch (error) {
    throw unusable(absolute, error)
  }
}

function open(file: string): BetterSqlite3.Database {
  try {
    create(file)
  } catch (error) {
    throw unusable(file, error)
  }
  return connect(file)
}

function connect(file: string): BetterSqlite3.Database {
  try {
    return openDatabase(file, { timeout: 0, fileMustExist: true })
  } catch (error) {
    throw unusable(file, error)
  }
}

/**
 * Makes the file, readable for its owner alone; SQLite would make it readable for everybody. Only a new file is opened
 * here: to close a descriptor of one that this process has locked would drop the lock (POSIX).
 */
function create(file: string): void {
  try {
    closeSync(openSync(file, 'ax', 0o600))
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
  }
}

const unusable = (file: string, cause: unknown): LockFileError =>
  new LockFileError('lock_unusable', `${file} cannot be used as a lock: ${messageOf(cause)}`, { cause })

const isBusy = (error: unknown): boolean =>
  error instanceof Error &&
  'code' in error &&
  typeof error.code === 'string' &&
  /^SQLITE_(BUSY|LOCKED)/.test(error.code)

function readHolder(database: BetterSqlite3.Database): number | undefined {
  try {
    const row = database.prepare('SELECT pid FROM holder').get()
    return typeof row === 'object' && row !== null && 'pid' in row && typeof row.pid === 'number' ? row.pid : undefined
  } catch (error) {
    // There is no row yet, or it is just being committed.
    if (error instanceof Error) return undefined
    throw error
  }
}
