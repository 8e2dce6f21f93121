import { acquireLock, LockHeldError, type Lock } from '@reve/base'
import { existsSync } from 'node:fs'
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { GitError } from './errors.ts'
import { scratchPrefix } from './git.ts'
import { clearLeftovers } from './leftovers.ts'

/** How long another process that works in the folder is waited for. */
const defaultPatienceMs = 10_000

const cancelled = (): GitError => new GitError('cancelled', 'the git call was cancelled')

/**
 * The folder of the clones. While a verb runs, no other process works in it; verbs on one clone run one after the other, and
 * what a dead process left is gone before the first.
 */
export class ReposDir {
  readonly path: string
  readonly #patienceMs: number
  readonly #tails = new Map<string, Promise<unknown>>()
  /** Clones that were looked at since the lock was taken. */
  readonly #clean = new Set<string>()
  #users = 0
  #entered: Promise<Lock> | undefined

  constructor(path: string, patienceMs = defaultPatienceMs) {
    this.path = path
    this.#patienceMs = patienceMs
  }

  /** The folder of a clone. */
  of(name: string): string {
    return join(this.path, `${name}.git`)
  }

  /** Runs what only reads a clone; it waits for nobody but another process. */
  async read<T>(verb: () => Promise<T>): Promise<T> {
    this.#users += 1
    try {
      this.#entered ??= this.#enter()
      await this.#entered
      return await verb()
    } finally {
      this.#users -= 1
      if (this.#users === 0) await this.#leave()
    }
  }

  /** Runs what changes a clone, when its turn has come. */
  async change<T>(name: string, signal: AbortSignal | undefined, verb: () => Promise<T>): Promise<T> {
    return this.read(() =>
      this.#inTurn(name, signal, async () => {
        if (existsSync(this.of(name)) && !this.#clean.has(name)) {
          await clearLeftovers(this.of(name))
          this.#clean.add(name)
        }
        try {
          return await verb()
        } catch (error) {
          this.#clean.delete(name)
          throw error
        }
      }),
    )
  }

  async #enter(): Promise<Lock> {
    await mkdir(this.path, { recursive: true, mode: 0o700 })
    const lock = await this.#lock()
    this.#clean.clear()
    const stale = (await readdir(this.path)).filter((name) => name.startsWith(scratchPrefix))
    await Promise.all(stale.map((name) => rm(join(this.path, name), { recursive: true, force: true })))
    return lock
  }

  async #lock(): Promise<Lock> {
    try {
      return await acquireLock(join(this.path, '.lock'), { waitMs: this.#patienceMs })
    } catch (error) {
      if (!(error instanceof LockHeldError)) throw error
      const holder = error.pid === undefined ? 'another process' : `process ${error.pid}`
      throw new GitError('locked', `${holder} works in the folder of the clones`, {
        cause: error,
        hint: 'try again when it is done, or give each bridge a folder of its own',
      })
    }
  }

  async #leave(): Promise<void> {
    const entered = this.#entered
    this.#entered = undefined
    // One that could not enter holds nothing, and its callers were told.
    const lock = await entered?.catch(() => undefined)
    lock?.release()
  }

  async #inTurn<T>(name: string, signal: AbortSignal | undefined, verb: () => Promise<T>): Promise<T> {
    let waiting = true
    const begin = (): Promise<T> => {
      waiting = false
      if (signal?.aborted === true) throw cancelled()
      return verb()
    }
    const mine = (this.#tails.get(name) ?? Promise.resolve()).then(begin)
    // The next one waits for the end of this one, not for its success.
    const tail = mine
      .catch(() => undefined)
      .then(() => {
        if (this.#tails.get(name) === tail) this.#tails.delete(name)
      })
    this.#tails.set(name, tail)
    const calledOff = Promise.withResolvers<never>()
    const onAbort = (): void => {
      if (waiting) calledOff.reject(cancelled())
    }
    signal?.addEventListener('abort', onAbort)
    try {
      return await Promise.race([mine, calledOff.promise])
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }
}
