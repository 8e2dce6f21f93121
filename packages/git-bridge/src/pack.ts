import { createHash } from 'node:crypto'
import { pipeline, Readable } from 'node:stream'
import { createDeflate, deflateSync } from 'node:zlib'
import type { ObjectType } from './git-object.ts'

const typeCodes = { commit: 1, tree: 2, blob: 3 } as const satisfies Readonly<Record<ObjectType, number>>

/** An object of this size or more is compressed as a stream, beside other work. */
const streamedBytes = 64 * 1024
/** Bytes that are gathered before they are handed on. */
const pieceBytes = 64 * 1024

/** Writes git's pack format, version 2, each object whole: `git index-pack` checks it and puts it in its place. */
export class PackWriter {
  readonly #sink: (bytes: Uint8Array) => Promise<void>
  readonly #hash = createHash('sha1')
  #waiting: Uint8Array[] = []
  #held = 0

  /** @param count objects that will be written; the format says it first. */
  constructor(sink: (bytes: Uint8Array) => Promise<void>, count: number) {
    this.#sink = sink
    const header = Buffer.alloc(12)
    header.write('PACK', 'latin1')
    header.writeUInt32BE(2, 4)
    header.writeUInt32BE(count, 8)
    this.#take(header)
  }

  /** @param size of all pieces together, in bytes. */
  async object(type: ObjectType, size: number, pieces: Iterable<Uint8Array>): Promise<void> {
    this.#take(objectHeader(typeCodes[type], size))
    if (size < streamedBytes) this.#take(deflateSync(Buffer.concat([...pieces])))
    else {
      const deflate = createDeflate()
      // A source that fails makes the loop fail: alone it would end the process.
      pipeline(Readable.from(pieces, { objectMode: true }), deflate, () => undefined)
      for await (const data of deflate) {
        const piece: Buffer = data
        await this.#handOn(piece)
      }
    }
    if (this.#held >= pieceBytes) await this.#handOn()
  }

  async end(): Promise<void> {
    await this.#handOn()
    await this.#sink(this.#hash.digest())
  }

  #take(bytes: Uint8Array): void {
    this.#hash.update(bytes)
    this.#waiting.push(bytes)
    this.#held += bytes.length
  }

  async #handOn(last?: Uint8Array): Promise<void> {
    if (last !== undefined) this.#take(last)
    const bytes = Buffer.concat(this.#waiting)
    this.#waiting = []
    this.#held = 0
    await this.#sink(bytes)
  }
}

/** Type and size of an object: four bits of the size, then seven at a time, the lowest first. */
function objectHeader(code: number, size: number): Buffer {
  const bytes = [(code << 4) | (size % 16)]
  for (let rest = Math.floor(size / 16); rest > 0; rest = Math.floor(rest / 128)) {
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) | 0x80
    bytes.push(rest % 128)
  }
  return Buffer.from(bytes)
}
