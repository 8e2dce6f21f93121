import type { Readable } from 'node:stream'
import { GitError } from './errors.ts'

/** Reads lines and counted bytes from a stream, holding no more than one piece beyond what is asked for. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Buffer>
  #rest: Buffer = Buffer.alloc(0)

  constructor(stream: Readable) {
    this.#chunks = stream[Symbol.asyncIterator]()
  }

  async #more(): Promise<boolean> {
    const next = await this.#chunks.next()
    if (next.done === true) return false
    this.#rest = this.#rest.length === 0 ? next.value : Buffer.concat([this.#rest, next.value])
    return true
  }

  /** Bytes up to the next `byte`, without it; undefined at the end of the stream. A stream that ends before it is an error. */
  async until(byte: number): Promise<Buffer | undefined> {
    for (let from = 0; ;) {
      const at = this.#rest.indexOf(byte, from)
      if (at !== -1) {
        const found = this.#rest.subarray(0, at)
        this.#rest = this.#rest.subarray(at + 1)
        return found
      }
      from = this.#rest.length
      if (await this.#more()) continue
      if (this.#rest.length > 0) throw new GitError('io', 'the output of git ends in the middle of a line')
      return undefined
    }
  }

  /** The next `length` bytes in pieces as they come. */
  async *pieces(length: number): AsyncGenerator<Buffer, void, undefined> {
    for (let missing = length; missing > 0;) {
      if (this.#rest.length === 0 && !(await this.#more())) throw new GitError('io', 'the output of git ends too early')
      const piece = this.#rest.subarray(0, missing)
      this.#rest = this.#rest.subarray(piece.length)
      missing -= piece.length
      yield piece
    }
  }

  /** The next `length` bytes, as a copy of their own. */
  async exactly(length: number): Promise<Buffer> {
    const whole = Buffer.allocUnsafe(length)
    let at = 0
    for await (const piece of this.pieces(length)) at += piece.copy(whole, at)
    return whole
  }
}
