import { type FileHandle, open } from 'node:fs/promises'
import { MicroVmError } from '../errors.ts'

/** The block of the file systems that are made here. */
export const BLOCK = 4096

/** Blocks that lie one after the other, both in their file and in the spool. */
export type Run = { readonly at: number; readonly from: number; readonly count: number }

/** A file's bytes: its size, and which of its blocks are where; the others are zeroes. */
export type Content = { readonly size: number; readonly runs: readonly Run[] }

const ZEROES = Buffer.alloc(BLOCK)
const BUFFERED = 256
/** A file with more holes than this keeps its zeroes: what is remembered of it stays small. */
const MAX_RUNS = 50_000

/** The contents of files in one temporary file, in whole blocks, zeroes left out, until it is known where each belongs. */
export class Spool {
  readonly #file: FileHandle
  readonly #limit: number
  readonly #buffer = Buffer.alloc(BUFFERED * BLOCK)
  #blocks = 0
  #buffered = 0
  #total = 0
  #runs: { at: number; from: number; count: number }[] = []
  #block = Buffer.alloc(BLOCK)
  #index = -1

  private constructor(file: FileHandle, limit: number) {
    this.#file = file
    this.#limit = limit
  }

  /** @param limit bytes that it takes, zeroes counted */
  static async create(path: string, limit: number): Promise<Spool> {
    return new Spool(await open(path, 'wx+', 0o600), limit)
  }

  /** Adds bytes at `offset` of the current file; offsets rise. @throws MicroVmError `image_failed` over the limit */
  async write(offset: number, bytes: Uint8Array): Promise<void> {
    this.#total += bytes.length
    if (this.#total > this.#limit)
      throw new MicroVmError(
        'image_failed',
        `the image is larger than ${Math.round(this.#limit / 2 ** 30)} GiB when unpacked, which is the limit; use a smaller one`,
      )
    for (let done = 0; done < bytes.length;) {
      const index = Math.floor((offset + done) / BLOCK)
      const inside = (offset + done) % BLOCK
      const count = Math.min(BLOCK - inside, bytes.length - done)
      if (index !== this.#index) {
        await this.#flushBlock()
        this.#index = index
      }
      this.#block.set(bytes.subarray(done, done + count), inside)
      done += count
    }
  }

  /** Ends the current file. */
  async end(size: number): Promise<Content> {
    await this.#flushBlock()
    const runs = this.#runs
    this.#runs = []
    return { size, runs }
  }

  /** A whole small file. */
  async add(bytes: Uint8Array): Promise<Content> {
    await this.write(0, bytes)
    return this.end(bytes.length)
  }

  async #flushBlock(): Promise<void> {
    if (this.#index < 0) return
    const at = this.#index
    this.#index = -1
    if (this.#runs.length < MAX_RUNS && this.#block.equals(ZEROES)) return
    const last = this.#runs.at(-1)
    if (last !== undefined && last.at + last.count === at && last.from + last.count === this.#blocks) last.count += 1
    else this.#runs.push({ at, from: this.#blocks, count: 1 })
    this.#block.copy(this.#buffer, this.#buffered * BLOCK)
    this.#block.fill(0)
    this.#buffered += 1
    this.#blocks += 1
    if (this.#buffered === BUFFERED) await this.#flush()
  }

  async #flush(): Promise<void> {
    if (this.#buffered === 0) return
    const length = this.#buffered * BLOCK
    await writeAll(this.#file, this.#buffer.subarray(0, length), (this.#blocks - this.#buffered) * BLOCK)
    this.#buffered = 0
  }

  /** The start of a file, at most so many bytes. */
  async read(content: Content, most: number): Promise<Buffer> {
    await this.#flush()
    const bytes = Buffer.alloc(Math.min(content.size, most))
    for (const { at, from, count } of content.runs) {
      const start = at * BLOCK
      const length = Math.min(count * BLOCK, bytes.length - start)
      if (length > 0) await this.#file.read(bytes, start, length, from * BLOCK)
    }
    return bytes
  }

  /** Copies blocks out of it into `target`, from its block `to` on. */
  async copy(run: Pick<Run, 'from' | 'count'>, target: FileHandle, to: number): Promise<void> {
    await this.#flush()
    const buffer = Buffer.alloc(Math.min(run.count, BUFFERED) * BLOCK)
    for (let done = 0; done < run.count;) {
      const count = Math.min(BUFFERED, run.count - done)
      const part = buffer.subarray(0, count * BLOCK)
      for (let read = 0; read < part.length;) {
        const { bytesRead } = await this.#file.read(part, read, part.length - read, (run.from + done) * BLOCK + read)
        if (bytesRead === 0) throw new Error('the spool is shorter than what was written to it')
        read += bytesRead
      }
      await writeAll(target, part, (to + done) * BLOCK)
      done += count
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close()
  }
}

/** Writes all of it. */
export async function writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;)
    done += (await file.write(bytes, done, bytes.length - done, position + done)).bytesWritten
}
