import { existsSync } from 'node:fs'
import { chown, mkdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { ActionError } from './errors.ts'
import { walkInside } from './inside.ts'
import { removeTree } from './remove-tree.ts'
import type { ActionUser, CacheUse, Slot } from './slot.ts'

/**
 * The named caches: `root/<name>/data` each. In the local sandbox a cache is moved into the slot while the run has it and moved
 * back afterwards: no link is ever followed to reach it, so none can be planted. Root and slots are on one file system.
 */
export class CacheStore {
  readonly #root: string
  readonly #user: ActionUser | undefined
  /** Who has a cache now; those who wait stand behind each other. */
  readonly #held = new Map<string, Promise<void>>()

  constructor(root: string, user: ActionUser | undefined) {
    this.#root = root
    this.#user = user
  }

  #data(name: string): string {
    return join(this.#root, name, 'data')
  }

  /**
   * Waits until the caches are free, in the order of their names so that two runs cannot wait for each other.
   *
   * @returns what gives them back.
   * @throws the signal's reason when it aborts first; nothing is held then.
   */
  async lock(names: readonly string[], signal: AbortSignal): Promise<() => void> {
    const releases: (() => void)[] = []
    const releaseAll = (): void => releases.forEach((release) => release())
    try {
      for (const name of [...names].sort()) releases.push(await this.#lockOne(name, signal))
    } catch (error) {
      releaseAll()
      throw error
    }
    return releaseAll
  }

  async #lockOne(name: string, signal: AbortSignal): Promise<() => void> {
    const before = this.#held.get(name) ?? Promise.resolve()
    const { promise: mine, resolve: release } = Promise.withResolvers<void>()
    const tail = before.then(() => mine)
    this.#held.set(name, tail)
    void tail.then(() => {
      if (this.#held.get(name) === tail) this.#held.delete(name)
    })
    const { promise: aborted, reject } = Promise.withResolvers<never>()
    const onAbort = (): void => reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      signal.throwIfAborted()
      await Promise.race([before, aborted])
      return release
    } catch (error) {
      release()
      throw error
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  /** Makes a cache if there is none. This comes before the slot: a cache that is missing then stands in a slot, and nowhere else. */
  async prepare(name: string): Promise<void> {
    const data = this.#data(name)
    await mkdir(join(this.#root, name), { recursive: true, mode: 0o700 })
    if (existsSync(data)) return
    await mkdir(data, { mode: 0o755 })
    await this.#own(data)
  }

  async #own(path: string): Promise<void> {
    if (this.#user !== undefined) await chown(path, this.#user.uid, this.#user.gid)
  }

  /**
   * Puts a cache at its path of the laid-out tree; what the tree has there is out of sight for the run.
   *
   * @throws ActionError `bad_action` when the way to the path is not made of directories.
   */
  async putIn(use: CacheUse, slot: Slot): Promise<void> {
    const place = await walkInside(slot.work, use.path, (path) => this.#own(path))
    if (place.kind === 'link' || place.kind === 'other') {
      throw new ActionError(
        'bad_action',
        `the cache "${use.name}" cannot stand at ${use.path}: ${place.at} is ${place.kind === 'link' ? 'a symbolic link' : 'not a directory'} in the tree`,
      )
    }
    await removeTree(place.path)
    try {
      await rename(this.#data(use.name), place.path)
    } catch (error) {
      throw new ActionError('setup_failed', `the cache "${use.name}" could not be moved into the slot`, {
        cause: error,
        hint: 'the folders of the caches and of the slots must be on one file system',
      })
    }
  }

  /** Moves a cache back after the run; if the action put something else in its place, that is left and the cache starts empty. */
  async takeOut(use: CacheUse, slot: Slot): Promise<void> {
    const place = await walkInside(slot.work, use.path)
    const data = this.#data(use.name)
    if (place.kind !== 'directory' || existsSync(data)) return
    await rename(place.path, data)
  }
}
