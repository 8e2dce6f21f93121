import { createWriteStream } from 'node:fs'
import type { Readable } from 'node:stream'
import { finished } from 'node:stream/promises'

/** Bytes kept from the start of a stream for its text. */
export const headBytes = 8 * 1024
/** Bytes kept from the end of a stream for its text. */
export const tailBytes = 24 * 1024

/** One output stream of a run. */
export type OutputText = {
  /** The whole stream when it is short; else its head, a marker line that says how much is missing, and its tail. Not UTF-8: U+FFFD. */
  readonly text: string
  /** Length of the whole stream. */
  readonly bytes: number
  /** Bytes that `text` leaves out, at the marker; 0 when it is whole. */
  readonly cutBytes: number
}

/** Keeps the head and the tail of a stream in bounded memory. */
export class HeadTail {
  #head: Buffer = Buffer.alloc(0)
  #tail: Buffer[] = []
  #tailLength = 0
  #bytes = 0

  /** Length of all that was pushed. */
  get bytes(): number {
    return this.#bytes
  }

  push(chunk: Buffer): void {
    this.#bytes += chunk.length
    const room = headBytes - this.#head.length
    if (room > 0) this.#head = Buffer.concat([this.#head, chunk.subarray(0, room)])
    const rest = chunk.subarray(Math.max(0, room))
    if (rest.length === 0) return
    // A copy: a slice would keep the whole chunk alive.
    this.#tail.push(Buffer.from(rest.subarray(-tailBytes)))
    this.#tailLength += Math.min(rest.length, tailBytes)
    if (this.#tailLength > 4 * tailBytes) this.#compact()
  }

  #compact(): void {
    const joined = Buffer.concat(this.#tail).subarray(-tailBytes)
    this.#tail = [Buffer.from(joined)]
    this.#tailLength = joined.length
  }

  finish(): OutputText {
    this.#compact()
    const tail = this.#tail[0] ?? Buffer.alloc(0)
    if (this.#head.length + tail.length === this.#bytes) {
      return { text: Buffer.concat([this.#head, tail]).toString('utf8'), bytes: this.#bytes, cutBytes: 0 }
    }
    const head = withoutTornEnd(this.#head)
    const end = withoutTornStart(tail)
    const cutBytes = this.#bytes - head.length - end.length
    const newline = head.at(-1) === 0x0a ? '' : '\n'
    const marker = `${newline}[... ${cutBytes} bytes cut here ...]\n`
    return { text: `${head.toString('utf8')}${marker}${end.toString('utf8')}`, bytes: this.#bytes, cutBytes }
  }
}

const isContinuation = (byte: number): boolean => (byte & 0xc0) === 0x80

/** Takes an unfinished UTF-8 sequence off the end. */
function withoutTornEnd(bytes: Buffer): Buffer {
  for (let back = 1; back <= 4 && back <= bytes.length; back += 1) {
    const byte = bytes.at(-back) ?? 0
    if (isContinuation(byte)) continue
    const need = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return need > back ? bytes.subarray(0, -back) : bytes
  }
  return bytes
}

/** Takes the rest of a UTF-8 sequence, at most three bytes, off the start. */
function withoutTornStart(bytes: Buffer): Buffer {
  let start = 0
  while (start < 3 && start < bytes.length && isContinuation(bytes[start] ?? 0)) start += 1
  return bytes.subarray(start)
}

/** A stream being written to a file of the slot while its head and tail are kept. */
export type Collector = {
  /** Settles when the source has ended, or was destroyed, and the file has all of it. */
  readonly done: Promise<OutputText>
}

/**
 * Copies `source` to a new file at `path` (0600), with back pressure: memory stays bounded whatever the command writes.
 *
 * @param onChunk sees each chunk; it may not keep it.
 */
export function collect(source: Readable, path: string, onChunk: (chunk: Buffer) => void): Collector {
  const kept = new HeadTail()
  const file = createWriteStream(path, { flags: 'wx', mode: 0o600 })
  const copy = async (): Promise<OutputText> => {
    const written = finished(file)
    // Seen below; without this a disk that fills up while the source is silent would be an unhandled rejection.
    written.catch(() => undefined)
    try {
      for await (const data of source) {
        const chunk: Buffer = data
        kept.push(chunk)
        onChunk(chunk)
        if (!file.write(chunk))
          await Promise.race([written, new Promise<void>((resolve) => void file.once('drain', resolve))])
      }
    } catch (error) {
      // Cut off on purpose after the drain: what came is what there is. A failing disk is told apart by `written`.
      if (!isCutOff(error)) throw error
    } finally {
      file.end()
    }
    await written
    return kept.finish()
  }
  return { done: copy() }
}

function isCutOff(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE'
}
