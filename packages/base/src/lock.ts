import { closeSync, openSync, realpathSync } from 'node:fs'
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
    super('lock_held', `${path} is held by ${pid === undefined ? 'another process' : `process ${pid}`}`)
    this.path = path
    this.pid = pid
  }
}

/** A lock's file could not be made or opened. */
export class LockFileError extends ReveError<'lock_unusable'> {
  override readonly name = 'LockFileError'
}

/** A held lock. It ends with `release`, or with the process, however that dies. */
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

/**
 * Takes the lock at `path` at once. SQLite's write lock on that file is what holds it: the operating system drops it when
 * the process dies, and it works alike on every system. Two paths that lead to one file are one lock.
 *
 * @throws LockHeldError naming the holder; LockFileError when the file cannot be made.
 */
export function tryAcquireLock(path: string, options: { readonly pid?: number } = {}): Lock {
  const file = realFile(path)
  const database = open(file)
  try {
    // The row is committed before the lock is taken for good: whoever is refused can read it.
    database.pragma('journal_mode = DELETE')
    database.exec('CREATE TABLE IF NOT EXISTS holder (id INTEGER PRIMARY KEY CHECK (id = 0), pid INTEGER NOT NULL)')
    database.exec('BEGIN IMMEDIATE')
    database
      .prepare('INSERT INTO holder VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET pid = excluded.pid')
      .run(options.pid ?? process.pid)
    database.exec('COMMIT')
    database.exec('BEGIN IMMEDIATE')
  } catch (error) {
    const pid = isBusy(error) ? readHolder(database) : undefined
    database.close()
    if (isBusy(error)) throw new LockHeldError(file, pid)
    throw new LockFileError('lock_unusable', `${file} cannot be locked: ${messageOf(error)}`, { cause: error })
  }
  let held = true
  const release = (): void => {
    if (!held) return
    held = false
    database.exec('ROLLBACK')
    database.close()
  }
  return { path: file, release, [Symbol.dispose]: release }
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
  const tries = Math.ceil((options.waitMs ?? 0) / pollMs)
  for (let attempt = 0; ; attempt++) {
    options.signal?.throwIfAborted()
    try {
      return tryAcquireLock(path, options)
    } catch (error) {
      if (!(error instanceof LockHeldError) || attempt >= tries) throw error
    }
    await new Promise((done) => setTimeout(done, pollMs))
  }
}

/** Whether the lock at `path` is held, and by whom. */
export function lockHolder(path: string): { readonly held: boolean; readonly pid?: number } {
  try {
    tryAcquireLock(path).release()
    return { held: false }
  } catch (error) {
    if (!(error instanceof LockHeldError)) throw error
    return { held: true, ...(error.pid === undefined ? {} : { pid: error.pid }) }
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
    return openDatabase(file, { timeout: 0 })
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
    // The holder is between its two transactions, or has just made the file: it is held all the same.
    if (error instanceof Error) return undefined
    throw error
  }
}
