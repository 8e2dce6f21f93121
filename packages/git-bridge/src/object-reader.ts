import { Readable } from 'node:stream'
import { ByteReader } from './byte-reader.ts'
import { GitError } from './errors.ts'
import { failed, type GitSession, type GitStream } from './git.ts'
import type { ObjectType, Oid } from './git-object.ts'

const args = ['cat-file', '--batch'] as const

/** Reads objects of a clone through one git that stays, started when it is needed, in the order in which they are asked for. */
export class ObjectReader {
  readonly #git: GitSession
  readonly #dir: string
  #open: { readonly call: GitStream; readonly reader: ByteReader } | undefined

  constructor(git: GitSession, dir: string) {
    this.#git = git
    this.#dir = dir
  }

  #started(): { readonly call: GitStream; readonly reader: ByteReader } {
    if (this.#open === undefined) {
      const call = this.#git.stream(this.#dir, args)
      this.#open = { call, reader: new ByteReader(call.stdout) }
    }
    return this.#open
  }

  /**
   * Calls `take` for each object in turn; it must read all `size` bytes.
   *
   * @throws GitError `io` when an object is missing or is another thing, `cancelled`.
   */
  async each(
    type: ObjectType,
    oids: readonly Oid[],
    take: (oid: Oid, size: number, reader: ByteReader) => Promise<void>,
  ): Promise<void> {
    if (oids.length === 0) return
    const { call, reader } = this.#started()
    // git answers while it is still being asked: neither waits for the other with a full pipe.
    Readable.from(lines(oids)).pipe(call.stdin, { end: false })
    for (const oid of oids) {
      const header = (await reader.until(0x0a))?.toString('latin1') ?? ''
      const [found, what, size] = header.split(' ')
      if (found !== oid || what !== type) {
        this.#git.checkSignal()
        throw new GitError('io', `git cannot read the ${type} ${oid}: ${header === '' ? 'it gave no answer' : header}`)
      }
      await take(oid, Number(size), reader)
      await reader.exactly(1)
    }
  }

  /** @throws GitError `io` when git found something wrong. */
  async end(): Promise<void> {
    if (this.#open === undefined) return
    const { call } = this.#open
    call.stdin.end()
    call.stdout.resume()
    const { code, stderr } = await call.ended
    if (code !== 0) throw failed(args, { code, stderr })
  }
}

function* lines(oids: readonly Oid[]): Generator<string> {
  for (let at = 0; at < oids.length; at += 500) yield `${oids.slice(at, at + 500).join('\n')}\n`
}
