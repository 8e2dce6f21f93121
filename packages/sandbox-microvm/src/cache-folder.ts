import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { acquireLock, codeOf, type Lock, LockHeldError, tryAcquireLock } from '@reve/base'
import { MicroVmError } from './errors.ts'

/** A build takes minutes; whoever waits for one of another process waits as long. */
const WAIT_MS = 15 * 60_000

/** Folders of a build that is under way begin so, followed by the name of its lock. */
const BUILDING = '.building-'
/** What a download keeps from one try to the next. */
const PARTIAL = '.partial-'
const REMOVING = '.removing-'

/**
 * What `find` gives, after a build if it gave nothing before. `build` fills a temporary folder and says what it shall be
 * called: it is there whole or not at all. Two builders, in one process or in two, build one after the other, and `find`
 * tells the second that there is nothing left to do.
 */
export async function buildOnce<T>(options: {
  /** File that stands for everything that is built one after the other; the temporary folder lies beside it. */
  readonly lock: string
  readonly find: () => Promise<T | undefined>
  /** Gives the path of the finished folder, which the temporary one is renamed to. */
  readonly build: (temporary: string) => Promise<string>
  readonly signal?: AbortSignal
}): Promise<T> {
  const found = await options.find()
  if (found !== undefined) return found
  const parent = dirname(options.lock)
  await mkdir(parent, { recursive: true, mode: 0o700 })
  const lock = await waitForLock(options.lock, options.signal)
  const temporary = join(parent, `${BUILDING}${basename(options.lock)}`)
  try {
    const meanwhile = await options.find()
    if (meanwhile !== undefined) return meanwhile
    // Under the lock, what lies here is left from a build that was killed.
    await rm(temporary, { recursive: true, force: true })
    await removeLeftovers(parent)
    await mkdir(temporary, { mode: 0o700 })
    await place(temporary, await options.build(temporary))
    const built = await options.find()
    if (built === undefined)
      throw new MicroVmError('image_failed', `what was just built is not in ${parent}; is somebody else clearing it?`)
    return built
  } catch (error) {
    throw noSpace(error, parent)
  } finally {
    await rm(temporary, { recursive: true, force: true })
    lock.release()
  }
}

/** The same thing may have been built under another lock: then it is there already. */
async function place(temporary: string, finished: string): Promise<void> {
  try {
    await rename(temporary, finished)
  } catch (error) {
    const code = codeOf(error)
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error
  }
}

/** A full disk, said so. */
function noSpace(error: unknown, folder: string): unknown {
  const code = codeOf(error)
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return error
  return new MicroVmError(
    'image_failed',
    `there is no space left in ${folder}; remove images that are not needed any more, or put the cache onto a larger disk`,
    { cause: error },
  )
}

/** A folder beside a lock, for its holder, that a failed build leaves to the next one. */
export const partialFolder = (lock: string): string => join(dirname(lock), `${PARTIAL}${basename(lock)}`)

/** A download that nobody goes on with is kept so long. */
const PARTIAL_MS = 24 * 3_600_000

/**
 * Removes what killed builds left beside their locks, whoever they were; what belongs to a running one stays.
 *
 * @param partialMs age from which downloads that nobody works on go as well
 */
export async function removeLeftovers(folder: string, partialMs = PARTIAL_MS): Promise<void> {
  for (const name of await readdir(folder).catch(() => [])) {
    const prefix = [BUILDING, PARTIAL, REMOVING].find((start) => name.startsWith(start))
    if (prefix === undefined) continue
    const path = join(folder, name)
    const found = await stat(path).catch(() => undefined)
    if (found === undefined || (prefix === PARTIAL && Date.now() - found.mtimeMs < partialMs)) continue
    if (prefix === REMOVING) await rm(path, { recursive: true, force: true })
    else await whileUnused(join(folder, name.slice(prefix.length)), () => rm(path, { recursive: true, force: true }))
  }
}

/** Does something while nobody holds a lock, or nothing. */
export async function whileUnused(path: string, work: () => Promise<void>): Promise<void> {
  let lock: Lock
  try {
    lock = tryAcquireLock(path)
  } catch (error) {
    if (error instanceof LockHeldError) return
    throw error
  }
  try {
    await work()
  } finally {
    lock.release()
  }
}

async function waitForLock(path: string, signal: AbortSignal | undefined): Promise<Lock> {
  try {
    return await acquireLock(path, { waitMs: WAIT_MS, ...(signal === undefined ? {} : { signal }) })
  } catch (error) {
    if (signal?.aborted === true) throw new MicroVmError('aborted', 'the start was cancelled')
    if (!(error instanceof LockHeldError)) throw error
    const builder = error.pid === undefined ? 'another process' : `process ${error.pid}`
    throw new MicroVmError(
      'image_failed',
      `${builder} has been building for ${WAIT_MS / 60_000} minutes; end it, or wait and try again`,
      { cause: error },
    )
  }
}
