import { mkdir, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { acquireLock, LockHeldError, type Lock } from '@reve/base'
import { MicroVmError } from './errors.ts'

/** A build takes minutes; whoever waits for one of another process waits as long. */
const WAIT_MS = 15 * 60_000

/**
 * What `find` gives, after a build if it gave nothing before. `build` fills a temporary folder and says what it shall be
 * called: it is there whole or not at all. Two builders, in one process or in two, build one after the other, and `find`
 * tells the second that there is nothing left to do.
 */
export async function buildOnce<T>(options: {
  /** File that stands for everything of this kind; the temporary folder lies beside it. */
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
  const temporary = join(parent, '.building')
  try {
    const meanwhile = await options.find()
    if (meanwhile !== undefined) return meanwhile
    // Under the lock, what lies here is left from a build that was killed.
    await rm(temporary, { recursive: true, force: true })
    await mkdir(temporary, { mode: 0o700 })
    await rename(temporary, await options.build(temporary))
    const built = await options.find()
    if (built === undefined)
      throw new MicroVmError('image_failed', `what was just built is not in ${parent}; is somebody else clearing it?`)
    return built
  } finally {
    await rm(temporary, { recursive: true, force: true })
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
