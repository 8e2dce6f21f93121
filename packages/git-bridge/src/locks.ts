import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * Takes away what a killed git left in a clone: lock files and half-written packs. Only for a clone that nothing else uses
 * now; one process owns the computer, and its verbs on one clone stand in a queue.
 */
export async function clearLeftovers(dir: string): Promise<void> {
  const top = await readdir(dir)
  const stale = top.filter((name) => name.endsWith('.lock')).map((name) => join(dir, name))
  const refs = await readdir(join(dir, 'refs'), { recursive: true, withFileTypes: true })
  stale.push(
    ...refs
      .filter((entry) => entry.isFile() && entry.name.endsWith('.lock'))
      .map((entry) => join(entry.parentPath, entry.name)),
  )
  const packs = await readdir(join(dir, 'objects', 'pack'))
  stale.push(...packs.filter((name) => name.startsWith('tmp_')).map((name) => join(dir, 'objects', 'pack', name)))
  await Promise.all(stale.map((path) => rm(path, { force: true })))
}

/** Verbs on the same clone, one after the other. */
export class Queues {
  readonly #tails = new Map<string, Promise<unknown>>()

  async run<T>(name: string, verb: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(name) ?? Promise.resolve()
    const mine = before.then(verb, verb)
    // The next one waits for the end of this one, not for its success.
    const tail = mine.catch(() => undefined)
    this.#tails.set(name, tail)
    try {
      return await mine
    } finally {
      if (this.#tails.get(name) === tail) this.#tails.delete(name)
    }
  }
}
