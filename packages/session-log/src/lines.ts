import { isUtf8 } from 'node:buffer'
import type { FileHandle } from 'node:fs/promises'
import { MAX_HEADER_BYTES, MAX_LINE_BYTES } from './format.ts'

/** Nearly every session in one piece: memory beside the heap makes the collector look at the heap, once a piece. */
const CHUNK = 64 * 1024 * 1024
const LF = 0x0a

/** Bytes inside a larger buffer, which nobody changes: a slice may be kept. */
export type Slice = { readonly buffer: Buffer; readonly from: number; readonly to: number }

/** One line as it stands in a file. */
export type RawLine = {
  /** 1 for the first. */
  readonly number: number
  /** After its LF, if it has one: an offset in the file. */
  readonly end: number
  readonly terminated: boolean
  /** What stands in it without the LF, and whether that is UTF-8; undefined when it is longer than a line may be. */
  readonly content: (Slice & { readonly utf8: boolean }) | undefined
}

/** Cuts `[0, size)` of a file at LF bytes and hands over line after line until told to stop. */
export async function eachLine(
  handle: FileHandle,
  size: number,
  take: (line: RawLine) => 'stop' | 'continue',
  chunkBytes = CHUNK,
): Promise<void> {
  const cutter = new Cutter(take)
  for (let position = 0; position < size;) {
    // A chunk of its own for each read: lines that are parsed later keep theirs.
    const chunk = Buffer.allocUnsafeSlow(Math.min(chunkBytes, size - position))
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, position)
    // A file that shrank meanwhile ends where it ends now.
    if (bytesRead === 0) break
    position += bytesRead
    if (cutter.feed(chunk.subarray(0, bytesRead)) === 'stop') return
  }
  cutter.finish()
}

class Cutter {
  readonly #take: (line: RawLine) => 'stop' | 'continue'
  #number = 0
  /** Bytes before the chunk at hand. */
  #passed = 0
  /** The line that the last chunk ended in. Of one that is too long only the length is needed. */
  #parts: Buffer[] = []
  #held = 0

  constructor(take: (line: RawLine) => 'stop' | 'continue') {
    this.#take = take
  }

  feed(chunk: Buffer): 'stop' | 'continue' {
    const last = chunk.lastIndexOf(LF)
    let from = 0
    if (last !== -1) {
      const first = chunk.indexOf(LF)
      if (this.#held > 0) {
        if (this.#joined(chunk.subarray(0, first), this.#passed + first + 1, true) === 'stop') return 'stop'
        from = first + 1
      }
      // One look for all lines of the chunk; only when it finds something is there one for each.
      const utf8 = isUtf8(chunk.subarray(from, last + 1))
      while (from <= last) {
        const to = chunk.indexOf(LF, from)
        if (this.#hand(chunk, from, to, this.#passed + to + 1, true, utf8) === 'stop') return 'stop'
        from = to + 1
      }
    }
    if (from < chunk.length) {
      if (this.#held <= MAX_LINE_BYTES) this.#parts.push(chunk.subarray(from))
      this.#held += chunk.length - from
    }
    this.#passed += chunk.length
    // A first line without end is some other file, perhaps a huge one: enough was seen.
    return this.#number === 0 && this.#held > MAX_HEADER_BYTES ? this.finish() : 'continue'
  }

  /** What is held is a last line without LF. */
  finish(): 'stop' {
    if (this.#held > 0) this.#joined(Buffer.alloc(0), this.#passed, false)
    return 'stop'
  }

  #joined(rest: Buffer, end: number, terminated: boolean): 'stop' | 'continue' {
    const length = this.#held + rest.length
    const whole = length > MAX_LINE_BYTES ? undefined : join([...this.#parts, rest], length)
    this.#parts = []
    this.#held = 0
    return whole === undefined
      ? this.#take({ number: ++this.#number, end, terminated, content: undefined })
      : this.#hand(whole, 0, length, end, terminated, false)
  }

  #hand(buffer: Buffer, from: number, to: number, end: number, terminated: boolean, known: boolean) {
    const number = ++this.#number
    const tooLong = to - from > (number === 1 ? MAX_HEADER_BYTES : MAX_LINE_BYTES)
    const content = tooLong ? undefined : { buffer, from, to, utf8: known || isUtf8(buffer.subarray(from, to)) }
    return this.#take({ number, end, terminated, content })
  }
}

/** In memory of its own, as the chunks are. */
function join(parts: readonly Buffer[], length: number): Buffer {
  const whole = Buffer.allocUnsafeSlow(length)
  let at = 0
  for (const part of parts) at += part.copy(whole, at)
  return whole
}
