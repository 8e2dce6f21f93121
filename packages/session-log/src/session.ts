import { acquireLock, createIdSource, type Lock, LockHeldError } from '@reve/base'
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, realpath, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { type AppendFile, openAppendFile, type OpenFile } from './append-file.ts'
import { errnoOf, ioError, SessionLogError } from './errors.ts'
import { checkHeader, FORMAT_VERSION, type Header, MAX_HEADER_BYTES, RESERVED_HEADER_KEYS } from './format.ts'
import { type JsonObject, plainJson } from './json.ts'
import { type Durability, FileSessionLog, type Repair, type SessionLog } from './log.ts'
import { createWhole } from './new-file.ts'
import { readHeader, scan, type Scan } from './scan.ts'
import { SessionIndex, type SessionView } from './view.ts'

const RANDOM_POOL = 2048

/** Options of {@link openSession}. */
export type OpenOptions = {
  /** What an append promises when it does not say: default `flush`. */
  readonly durability?: Durability
  /** Milliseconds since 1970; default `Date.now`. */
  readonly now?: () => number
  /** Makes an id no line has yet: default time-ordered ids of `@reve/base`. Prefixes: `s_` session, `e_` entry, `r_` record. */
  readonly newId?: (prefix: string) => string
  /** The port to the file, for tests that break it; default the real file. */
  readonly openFile?: OpenFile
  /** Makes the session where there is no file yet. */
  readonly create?: NewSession
}

/** What the header of a new session says. */
export type NewSession = {
  /** What the session's working folder is; any text. */
  readonly cwd: string
  /** Default: made by `newId`. */
  readonly id?: string
  /** More keys for the header. */
  readonly extra?: JsonObject
}

/** Options of {@link createSession}. */
export type CreateOptions = Omit<OpenOptions, 'create'> & NewSession

/**
 * Makes a new session file (0600, its header on disk before this resolves) and opens it for writing. The folder must exist.
 *
 * @throws SessionLogError `exists` (anything but an empty file is in the place), `locked`, `not_found` (the folder),
 * `bad_draft` (a header that nobody could read), `io`.
 */
export async function createSession(file: string, options: CreateOptions): Promise<SessionLog> {
  const tools = toolsOf(options)
  const { header, bytes } = headerOf(file, options, tools)
  try {
    const real = await placeOf(file)
    await refuseContent(real)
    return await locked(real, async (lock) => {
      const empty = await refuseContent(real)
      await createWhole(real, async (handle) => writeAll(handle, bytes), { replace: empty })
      const output = await tools.openFile(real)
      return new FileSessionLog({
        ...tools,
        file: real,
        index: new SessionIndex(real, header),
        output,
        size: bytes.length,
        lock,
      })
    })
  } catch (error) {
    throw ioError(file, 'cannot create the session', error)
  }
}

/**
 * Opens a session for writing: takes the lock, reads all of it once, and mends what a crash leaves at the end (see `repaired`).
 * Symlinks are followed, and all names of a file share one lock. Anything else that is wrong is refused, and then no byte
 * of the file has changed.
 *
 * @throws SessionLogError `not_found`, `not_a_session`, `foreign_format`, `newer_version`, `older_version`,
 * `corrupt` (with `line`), `locked` (with `pid`), `io`.
 */
export async function openSession(file: string, options: OpenOptions = {}): Promise<SessionLog> {
  const { create, ...rest } = options
  try {
    return await openExisting(file, rest)
  } catch (error) {
    const isMissing = error instanceof SessionLogError && error.code === 'not_found'
    if (!isMissing || create === undefined) throw error
  }
  try {
    return await createSession(file, { ...rest, ...create })
  } catch (error) {
    // Somebody else was faster.
    if (!(error instanceof SessionLogError) || error.code !== 'exists') throw error
    return openExisting(file, rest)
  }
}

async function openExisting(file: string, options: OpenOptions): Promise<SessionLog> {
  const tools = toolsOf(options)
  try {
    const real = await realpath(file)
    // Before the lock, which is a file: none is left beside something that is no session.
    await reading(real, (handle) => readHeader(handle, real))
    return await locked(real, async (lock) => {
      const found = await reading(real, (handle) => scan(handle, real, () => 'stop'))
      if (found.problem !== undefined) throw corrupt(real, found.problem)
      const output = await tools.openFile(real)
      try {
        const repaired = await mend(real, output, found)
        const size = found.goodEnd + (found.tail === 'no_newline' ? 1 : 0)
        return new FileSessionLog({
          ...tools,
          file: real,
          index: found.index,
          output,
          size,
          lock,
          ...(repaired && { repaired }),
        })
      } catch (error) {
        await output.close()
        throw error
      }
    })
  } catch (error) {
    throw ioError(file, 'cannot open the session', error)
  }
}

/**
 * Reads a session for display. Takes no lock and changes nothing; a writer at work is no failure, and the view is what
 * was on disk at the start. `torn`: the file ended in the middle of a line, or in one that lacked its LF.
 *
 * @throws SessionLogError as {@link openSession}, but for `locked`.
 */
export async function readSession(file: string): Promise<SessionView & { readonly torn: boolean }> {
  try {
    const real = await realpath(file)
    const once = () => reading(real, (handle) => scan(handle, real, () => 'stop'))
    let found = await once()
    // A writer that takes back a failed append under our eyes looks like damage, once.
    if (found.problem !== undefined) found = await once()
    if (found.problem !== undefined) throw corrupt(real, found.problem)
    return Object.assign(found.index, { torn: found.tail !== 'whole' })
  } catch (error) {
    throw ioError(file, 'cannot read the session', error)
  }
}

/** Opens a regular file for reading and closes it after `use`. Never blocks on a pipe, never reads a device. */
export async function reading<T>(file: string, use: (handle: FileHandle) => Promise<T>): Promise<T> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    if (!(await handle.stat()).isFile())
      throw new SessionLogError('not_a_session', 'this is not a regular file', { file })
    return await use(handle)
  } finally {
    await handle.close()
  }
}

/** Writes all bytes to a fresh handle. */
export async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length;) done += (await handle.write(bytes, done)).bytesWritten
}

function toolsOf(options: OpenOptions) {
  const now = options.now ?? Date.now
  return {
    now,
    newId: options.newId ?? createIdSource({ now, random: randomPool() }),
    durability: options.durability ?? 'flush',
    openFile: options.openFile ?? openAppendFile,
  } as const
}

/** Random bytes, drawn many at a time: a draw for each id would cost a good part of an append. */
function randomPool(): (count: number) => Uint8Array {
  let pool: Uint8Array = new Uint8Array()
  let used = 0
  return (count) => {
    if (used + count > pool.length) {
      pool = randomBytes(Math.max(count, RANDOM_POOL))
      used = 0
    }
    used += count
    return pool.subarray(used - count, used)
  }
}

function headerOf(
  file: string,
  options: CreateOptions,
  tools: ReturnType<typeof toolsOf>,
): { readonly header: Header; readonly bytes: Uint8Array } {
  const bad = (reason: string) => new SessionLogError('bad_draft', `header: ${reason}`, { file })
  const extra = options.extra ?? {}
  const reserved = Object.keys(extra).find((key) => RESERVED_HEADER_KEYS.has(key))
  if (reserved !== undefined) throw bad(`extra carries the reserved key ${JSON.stringify(reserved)}`)
  const id = options.id ?? tools.newId('s_')
  const ts = new Date(tools.now()).toISOString()
  const plain = plainJson({ kind: 'header', version: FORMAT_VERSION, id, cwd: options.cwd, ts, ...extra })
  if (!plain.ok) throw bad(`${plain.problem.path}: ${plain.problem.reason}`)
  const checked = checkHeader(plain.value)
  if ('problem' in checked) throw bad(checked.problem.message)
  const bytes = Buffer.from(`${JSON.stringify(checked.header)}\n`, 'utf8')
  if (bytes.length > MAX_HEADER_BYTES)
    throw bad(`it has ${bytes.length} bytes; at most ${MAX_HEADER_BYTES} are allowed`)
  return { header: checked.header, bytes }
}

/** The real path of a file that may not exist yet. */
async function placeOf(file: string): Promise<string> {
  try {
    return await realpath(file)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error
    return join(await realpath(dirname(file)), basename(file))
  }
}

/** Refuses a place where something is; says whether an empty file is there. */
async function refuseContent(real: string): Promise<boolean> {
  try {
    const found = await stat(real)
    if (found.isFile() && found.size === 0) return true
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false
    throw error
  }
  throw new SessionLogError('exists', 'the file exists already and is not overwritten', {
    file: real,
    hint: 'open it, or choose another name',
  })
}

/** Runs `use` under the lock of a file; on success the lock is the result's to release. */
async function locked<T>(real: string, use: (lock: Lock) => Promise<T>): Promise<T> {
  const lock = await lockOf(real)
  try {
    return await use(lock)
  } catch (error) {
    lock.release()
    throw error
  }
}

async function lockOf(real: string): Promise<Lock> {
  try {
    return await acquireLock(`${real}.lock`)
  } catch (cause) {
    if (!(cause instanceof LockHeldError)) throw cause
    const { pid } = cause
    const holder = pid === undefined ? 'another process' : `process ${pid}`
    throw new SessionLogError('locked', `the session is open for writing in ${holder}`, {
      file: real,
      cause,
      hint: 'close it there first; reading needs no lock',
      ...(pid === undefined ? {} : { pid }),
    })
  }
}

function corrupt(file: string, problem: NonNullable<Scan['problem']>): SessionLogError {
  return new SessionLogError('corrupt', problem.message, {
    file,
    line: problem.line,
    hint: 'nothing was changed; salvage copies the good lines before this one to a new file',
  })
}

async function mend(file: string, output: AppendFile, found: Scan): Promise<Repair | undefined> {
  const size = await output.size()
  if (size !== found.size) {
    throw new SessionLogError(
      'io',
      'the file changed while it was being read: something writes to it without the lock',
      { file },
    )
  }
  switch (found.tail) {
    case 'whole':
      return undefined
    case 'torn':
      await output.truncate(found.goodEnd)
      await output.sync()
      return { kind: 'torn_tail_cut', bytes: size - found.goodEnd }
    case 'no_newline': {
      const written = await output.write(Uint8Array.of(0x0a))
      if (written !== 1) throw new SessionLogError('io', 'the missing newline could not be written', { file })
      await output.sync()
      return { kind: 'newline_added', bytes: 1 }
    }
    default:
      return found.tail satisfies never
  }
}
