import { redactSecrets, sanitiseTerminal, unfinishedSecret } from '@reve/base'
import { StringDecoder } from 'node:string_decoder'
import type { GitProgress } from './progress.ts'
import { progressOf } from './progress.ts'

/** Characters of git's messages that are kept: the end says why. */
const keptCharacters = 8 * 1024
/** A line that does not end is taken apart here. */
const lineLimit = 16 * 1024

/** What git says beside its answer: progress goes to a listener, the end of the rest is kept, without secrets. */
export class Messages {
  readonly #secrets: readonly string[]
  readonly #onProgress: (progress: GitProgress) => void
  readonly #decoder = new StringDecoder('utf8')
  #line = ''
  #kept = ''

  constructor(secrets: readonly string[], onProgress: (progress: GitProgress) => void) {
    this.#secrets = secrets
    this.#onProgress = onProgress
  }

  push(chunk: Buffer): void {
    const lines = `${this.#line}${this.#decoder.write(chunk)}`.split(/[\r\n]/)
    this.#line = lines.pop() ?? ''
    for (const line of lines) this.#take(`${line}\n`)
    if (this.#line.length <= lineLimit) return
    // What may be the beginning of a secret waits for the rest of it.
    const cut = this.#line.length - unfinishedSecret(this.#line, this.#secrets)
    this.#take(this.#line.slice(0, cut))
    this.#line = this.#line.slice(cut)
  }

  #take(line: string): void {
    const progress = progressOf(line)
    if (progress === undefined) this.#kept = `${this.#kept}${redactSecrets(line, this.#secrets)}`.slice(-keptCharacters)
    else if (progress !== 'other') this.#onProgress(progress)
  }

  /** The end of what was said, fit to be shown. */
  text(): string {
    this.#take(`${this.#line}${this.#decoder.end()}`)
    this.#line = ''
    return sanitiseTerminal(this.#kept).trim()
  }
}
