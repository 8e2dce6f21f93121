import { closeSync, constants, existsSync, openSync, readdirSync } from 'node:fs'
import { platform } from 'node:os'
import { join, resolve } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { ByteName } from './names.ts'

// Linux can name a file relative to an open directory: what the path above it becomes meanwhile does not matter.
const byDescriptor = platform() === 'linux' && existsSync('/proc/self/fd')

/**
 * A directory of the host, held open. Its children are reached through the handle (Linux), so that a link that is put in the
 * place of a parent is never followed; elsewhere by path, and each directory is opened without following a link.
 */
export class HostDir {
  readonly #fd: number
  readonly #path: string

  private constructor(fd: number, path: string) {
    this.#fd = fd
    this.#path = path
  }

  /** Opens a directory; its last name must not be a link. */
  static open(path: string): HostDir {
    const absolute = resolve(path)
    return HostDir.#at(Buffer.from(absolute), Buffer.from(absolute).toString('latin1'))
  }

  static #at(path: Buffer, shown: string): HostDir {
    return new HostDir(openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW), shown)
  }

  /** The descriptor, for changing the directory's own owner. */
  get fd(): number {
    return this.#fd
  }

  /** Path of a child for a system call; the name's bytes stay as they are. */
  child(name: ByteName): Buffer {
    return Buffer.from(byDescriptor ? `/proc/self/fd/${this.#fd}/${name}` : join(this.#path, name), 'latin1')
  }

  /** Opens a child directory, never through a link. */
  directory(name: ByteName): HostDir {
    return HostDir.#at(this.child(name), join(this.#path, name))
  }

  /** Names of all children, in the order of bytes. */
  names(): readonly ByteName[] {
    const path = byDescriptor ? `/proc/self/fd/${this.#fd}/` : Buffer.from(this.#path, 'latin1')
    return readdirSync(path, 'buffer')
      .map((name) => name.toString('latin1'))
      .sort()
  }

  close(): void {
    closeSync(this.#fd)
  }
}

/** Lets other work run every so many steps, and stops when the signal says so. */
export class Pace {
  readonly #signal: AbortSignal | undefined
  #steps = 0

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal
  }

  /** One step of work that costs about a system call each. */
  async step(cost = 1): Promise<void> {
    this.#steps += cost
    if (this.#steps < 200) return
    this.#steps = 0
    await nextTurn()
    this.#signal?.throwIfAborted()
  }
}
