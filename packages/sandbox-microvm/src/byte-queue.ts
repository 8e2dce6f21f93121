/**
 * Bytes in one piece of memory that grows to twice what it holds and no further: many small pieces cost no more than one
 * large one. What is appended is copied; the frames of a guest are windows into larger buffers that must not be kept alive.
 */
export class ByteQueue {
  #bytes = Buffer.alloc(0)
  #length = 0

  get length(): number {
    return this.#length
  }

  append(piece: Uint8Array): void {
    const length = this.#length + piece.length
    if (length > this.#bytes.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(length, Math.min(2 * this.#bytes.length, length + MAX_SPARE)))
      this.#bytes.copy(grown, 0, 0, this.#length)
      this.#bytes = grown
    }
    this.#bytes.set(piece, this.#length)
    this.#length = length
  }

  /** All bytes; the queue is empty after it and does not touch them any more. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#length)
    this.#bytes = Buffer.alloc(0)
    this.#length = 0
    return new Uint8Array(taken.buffer, taken.byteOffset, taken.length)
  }
}

const MAX_SPARE = 1024 * 1024
