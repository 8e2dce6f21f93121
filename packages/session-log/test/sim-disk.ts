import { readFileSync, writeFileSync } from 'node:fs'
import type { AppendFile, OpenFile } from '../src/append-file.ts'

/** Thrown by a disk whose power is gone: the process that sees it is as good as dead. */
export class PowerCut extends Error {}

/** Answers a question that only a real disk could: a number from 0 up to, not including, `below`. All zeros: what is unsynced is lost. */
export type Choose = (below: number) => number

/**
 * A disk with a cache, behind the writer's port to its file. It remembers what has surely reached the medium (everything at
 * the last sync) and which blocks were touched since. A power cut takes any subset of those back to what they held, zeros
 * where they are new, and leaves the file at any size between the old and the new one.
 *
 * The file itself shows what a running system shows: all writes, at once.
 */
export class SimDisk {
  readonly #blockBytes: number
  readonly #path: string
  #durable: Buffer
  #touched = new Set<number>()
  #sizes: number[] = []
  /** Calls of write, sync and truncate that are still answered. */
  #left = Infinity

  constructor(path: string, blockBytes: number) {
    this.#path = path
    this.#blockBytes = blockBytes
    this.#durable = readFileSync(path)
  }

  /** The port: the write, sync or truncate after `calls` of them meets a {@link PowerCut} in its middle, and all later ones. */
  openFile(calls: number, choose: Choose): OpenFile {
    this.#left = calls
    return async (): Promise<AppendFile> => ({
      write: async (bytes) => {
        const last = this.#spend()
        const done = last ? bytes.subarray(0, choose(bytes.length + 1)) : bytes
        this.#change(Buffer.concat([readFileSync(this.#path), done]))
        if (last) throw new PowerCut()
        return bytes.length
      },
      sync: async () => {
        if (this.#spend()) throw new PowerCut()
        this.#durable = readFileSync(this.#path)
        this.#touched.clear()
        this.#sizes = []
      },
      truncate: async (size) => {
        const last = this.#spend()
        if (!last || choose(2) === 0) this.#change(readFileSync(this.#path).subarray(0, size))
        if (last) throw new PowerCut()
      },
      size: async () => readFileSync(this.#path).length,
      close: async () => undefined,
    })
  }

  /** The power goes. From here on the file is what the medium holds. */
  cut(choose: Choose): void {
    const now = readFileSync(this.#path)
    const sizes = [this.#durable.length, now.length, ...this.#sizes]
    const [low, high] = [Math.min(...sizes), Math.max(...sizes)]
    // Mostly a size that the file had; else any between them.
    const size = choose(4) === 3 ? low + choose(high - low + 1) : (sizes[choose(sizes.length)] ?? now.length)
    const medium = Buffer.alloc(size)
    this.#durable.copy(medium)
    for (const block of this.#touched) {
      if (choose(2) === 0) continue
      const from = block * this.#blockBytes
      const to = Math.min(from + this.#blockBytes, size)
      if (from >= size) continue
      medium.fill(0, from, to)
      now.subarray(from, to).copy(medium, from)
    }
    writeFileSync(this.#path, medium)
    this.#durable = medium
    this.#touched.clear()
    this.#sizes = []
    this.#left = Infinity
  }

  /** Whether this call is the one that the power goes in. After it there is nobody to call. */
  #spend(): boolean {
    if (this.#left < 0) throw new PowerCut()
    return this.#left-- === 0
  }

  #change(content: Buffer): void {
    const before = readFileSync(this.#path).length
    const [from, to] = [Math.min(before, content.length), Math.max(before, content.length)]
    for (let at = from - (from % this.#blockBytes); at < to; at += this.#blockBytes) {
      this.#touched.add(at / this.#blockBytes)
    }
    this.#sizes.push(content.length)
    writeFileSync(this.#path, content)
  }
}
