import type { FileHandle } from 'node:fs/promises'
import type { Envelope } from './envelope.ts'
import { SessionLogError } from './errors.ts'
import {
  checkHeader,
  checkLine,
  type Header,
  type LineProblem,
  MAX_HEADER_BYTES,
  MAX_LINE_BYTES,
  placeProblem,
} from './format.ts'
import { eachLine, type RawLine, type Slice } from './lines.ts'
import { isLeftover, LineParser } from './parse-line.ts'
import { SessionIndex } from './view.ts'

/** What the header of a session usually fits into, in bytes. */
const HEADER_CHUNK = 16 * 1024

/** How a file ends: whole; with a line that lacks only its LF; or with bytes that a crash left (a cut line, blank lines). */
export type Tail = 'whole' | 'no_newline' | 'torn'

/** What one pass over a file found. */
export type Scan = {
  readonly index: SessionIndex
  readonly tail: Tail
  /** Bytes that were looked at: the file's size when the pass began. */
  readonly size: number
  /** Where the last good line ends, its LF counted: all of `size` unless the tail is torn or a problem stopped the pass. */
  readonly goodEnd: number
  /** Lines in `[0, goodEnd)`, the header counted. */
  readonly goodLines: number
  /** The problem that stopped the pass, or the first of all that were reported. */
  readonly problem?: LineProblem
}

/** What to do about a problem: stop there, or go on and look for more. */
export type OnProblem = (problem: LineProblem) => 'stop' | 'continue'

/**
 * Reads a session file once, from the first byte to the size it had at the start. Lines end at LF bytes and nowhere else.
 *
 * The last line with anything on it is the tail, whether or not blank lines follow, when it does not parse and is what a
 * write leaves that did not come to its end. A last line that parses and lacks its LF is good. Everything else that is
 * wrong is a problem.
 *
 * @throws SessionLogError when the first line is not a header: nothing after it is looked at.
 */
export async function scan(handle: FileHandle, file: string, onProblem: OnProblem): Promise<Scan> {
  const { size } = await handle.stat()
  const state: { body?: ScanState } = {}
  await eachLine(handle, size, (raw) => {
    if (state.body !== undefined) return state.body.take(raw)
    state.body = new ScanState(new SessionIndex(file, headerOf(raw, file)), raw, onProblem)
    return 'continue'
  })
  if (state.body === undefined) throw emptyFile(file)
  return state.body.finish(size)
}

/** The header of a file, from its first line alone. Throws as {@link scan} does. */
export async function readHeader(handle: FileHandle, file: string): Promise<Header> {
  const { size } = await handle.stat()
  const first: { header?: Header } = {}
  const take = (raw: RawLine) => {
    first.header = headerOf(raw, file)
    return 'stop' as const
  }
  await eachLine(handle, Math.min(size, MAX_HEADER_BYTES + 1), take, HEADER_CHUNK)
  if (first.header === undefined) throw emptyFile(file)
  return first.header
}

const emptyFile = (file: string) => new SessionLogError('not_a_session', 'the file is empty', { file, line: 1 })

function headerOf(raw: RawLine, file: string): Header {
  const parsed = raw.content === undefined ? undefined : new LineParser().parse(raw.content)
  const value = parsed !== undefined && 'value' in parsed ? parsed.value : {}
  const checked = checkHeader(value)
  if ('header' in checked) return checked.header
  throw new SessionLogError(checked.problem.code, checked.problem.message, { file, line: 1 })
}

/** A line that may turn out to be the tail, if nothing but blank lines follows. */
type Suspect = { readonly problem: LineProblem; readonly terminated: boolean; readonly content: 'blank' | Slice }

/** What is open while lines come in: whether the last thing seen may turn out to be the tail. */
class ScanState {
  readonly #index: SessionIndex
  readonly #onProblem: OnProblem
  readonly #parser = new LineParser()
  #goodEnd: number
  #goodLines = 1
  #terminated: boolean
  #suspect: Suspect | undefined
  #first: LineProblem | undefined

  constructor(index: SessionIndex, header: RawLine, onProblem: OnProblem) {
    this.#index = index
    this.#onProblem = onProblem
    this.#goodEnd = header.end
    this.#terminated = header.terminated
  }

  take(raw: RawLine): 'stop' | 'continue' {
    const { number: line, content, terminated } = raw
    if (content !== undefined && isBlank(content)) {
      this.#suspect ??= { problem: { line, code: 'blank', message: 'a blank line' }, terminated, content: 'blank' }
      return 'continue'
    }
    // Something stands after it, so it was no tail.
    const suspect = this.#suspect
    this.#suspect = undefined
    if (suspect !== undefined && this.#report(suspect.problem) === 'stop') return 'stop'
    // No writer of ours makes such a line, so no crash leaves a piece of one: it is never the tail.
    if (content === undefined)
      return this.#report({ line, code: 'too_long', message: `longer than ${MAX_LINE_BYTES} bytes` })
    const parsed = this.#parser.parse(content)
    if ('problem' in parsed) {
      this.#suspect = { problem: { line, ...parsed.problem }, terminated, content }
      return 'continue'
    }
    const problem = 'envelope' in parsed ? this.#addEnvelope(parsed.envelope, content) : this.#addValue(parsed.value)
    if (problem !== undefined) return this.#report({ line, ...problem })
    this.#terminated = terminated
    if (this.#first === undefined) {
      this.#goodEnd = raw.end
      this.#goodLines = line
    }
    return 'continue'
  }

  #addValue(value: unknown): Omit<LineProblem, 'line'> | undefined {
    const checked = checkLine(value, this.#index)
    if ('problem' in checked) return checked.problem
    this.#index.add(checked.line)
    return undefined
  }

  #addEnvelope({ id, seq, lane, parentId }: Envelope, place: Slice): Omit<LineProblem, 'line'> | undefined {
    const problem = placeProblem({ kind: 'entry', id, seq, names: parentId }, this.#index)
    if (problem === undefined) this.#index.addUnmade({ id, seq, lane }, place)
    return problem
  }

  #report(problem: LineProblem): 'stop' | 'continue' {
    this.#first ??= problem
    return this.#onProblem(problem)
  }

  finish(size: number): Scan {
    const suspect = this.#suspect
    const torn = suspect !== undefined && (suspect.content === 'blank' || isTorn(suspect.content, suspect.terminated))
    if (suspect !== undefined && !torn) this.#report(suspect.problem)
    return {
      index: this.#index,
      tail: torn ? 'torn' : this.#terminated ? 'whole' : 'no_newline',
      size,
      goodEnd: this.#goodEnd,
      goodLines: this.#goodLines,
      ...(this.#first === undefined ? {} : { problem: this.#first }),
    }
  }
}

/** A write that was cut has no LF; where one follows nevertheless, the line must look like a cut one. */
const isTorn = (content: Slice, terminated: boolean) => !terminated || isLeftover(content)

function isBlank({ buffer, from, to }: Slice): boolean {
  for (let at = from; at < to; at++) {
    const byte = buffer[at]
    if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0d) return false
  }
  return true
}
