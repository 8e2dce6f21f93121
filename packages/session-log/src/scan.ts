import { isUtf8 } from 'node:buffer'
import type { FileHandle } from 'node:fs/promises'
import { SessionLogError } from './errors.ts'
import { checkHeader, checkLine, type Header, MAX_HEADER_BYTES, MAX_LINE_BYTES, type LineProblem } from './format.ts'
import { SessionIndex } from './view.ts'

const CHUNK = 512 * 1024
const LF = 0x0a
const SPACE = new Set([0x20, 0x09, 0x0d])

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
 * The last line with anything on it is the tail when it does not parse, whether or not blank lines follow: that is
 * what a crash leaves. A last line that parses and lacks its LF is good. Everything else that is wrong is a problem.
 *
 * @throws SessionLogError when the first line is not a header: nothing after it is looked at.
 */
export async function scan(handle: FileHandle, file: string, onProblem: OnProblem): Promise<Scan> {
  const { size } = await handle.stat()
  let state: ScanState | undefined
  for await (const raw of rawLines(handle, size)) {
    if (state === undefined) state = new ScanState(new SessionIndex(file, headerOf(raw, file)), raw)
    else if (state.take(raw, onProblem) === 'stop') break
  }
  if (state === undefined) throw new SessionLogError('not_a_session', 'the file is empty', { file, line: 1 })
  return state.finish(size)
}

/** The header of a file, from its first line alone. Throws as {@link scan} does. */
export async function readHeader(handle: FileHandle, file: string): Promise<Header> {
  const { size } = await handle.stat()
  for await (const raw of rawLines(handle, Math.min(size, MAX_HEADER_BYTES + 1))) return headerOf(raw, file)
  throw new SessionLogError('not_a_session', 'the file is empty', { file, line: 1 })
}

type RawLine = {
  /** 1 for the first. */
  readonly number: number
  readonly start: number
  /** After its LF, if it has one. */
  readonly end: number
  readonly terminated: boolean
  /** Without the LF; undefined when the line is longer than a line may be. Valid until the next line is asked for. */
  readonly bytes: Uint8Array | undefined
}

/** Cuts `[0, size)` at LF bytes. Holds one line and one chunk at most. */
async function* rawLines(handle: FileHandle, size: number): AsyncGenerator<RawLine> {
  let number = 0
  let start = 0
  let position = 0
  let parts: Buffer[] = []
  let held = 0
  const line = (last: Buffer, end: number, terminated: boolean): RawLine => {
    const tooLong = held + last.length > (number === 0 ? MAX_HEADER_BYTES : MAX_LINE_BYTES)
    const bytes = tooLong ? undefined : parts.length === 0 ? last : Buffer.concat([...parts, last])
    const raw = { number: ++number, start, end, terminated, bytes }
    parts = []
    held = 0
    start = end
    return raw
  }
  while (position < size) {
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK, size - position))
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, position)
    // A file that shrank meanwhile ends where it ends now.
    if (bytesRead === 0) break
    const data = chunk.subarray(0, bytesRead)
    let from = 0
    for (let lf = data.indexOf(LF); lf !== -1; lf = data.indexOf(LF, from)) {
      yield line(data.subarray(from, lf), position + lf + 1, true)
      from = lf + 1
    }
    const rest = data.subarray(from)
    // Of a line that is too long anyway only the length is needed.
    if (rest.length > 0 && held <= MAX_LINE_BYTES) parts.push(rest)
    held += rest.length
    position += bytesRead
    // Some other file, perhaps a huge one: enough was seen.
    if (number === 0 && held > MAX_HEADER_BYTES) break
  }
  if (held > 0) {
    const last = parts.pop() ?? Buffer.alloc(0)
    held -= last.length
    yield line(last, position, false)
  }
}

type Parsed = { readonly value: unknown } | { readonly problem: Omit<LineProblem, 'line'> }

function parse(bytes: Uint8Array): Parsed {
  if (!isUtf8(bytes)) return { problem: { code: 'not_utf8', message: 'the line is not valid UTF-8' } }
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'))
    return { value }
  } catch (error) {
    // The parser's own message quotes the line, which may hold anything.
    if (error instanceof SyntaxError) return { problem: { code: 'not_json', message: 'the line is not valid JSON' } }
    throw error
  }
}

function headerOf(raw: RawLine, file: string): Header {
  const parsed = raw.bytes === undefined ? undefined : parse(raw.bytes)
  const value = parsed !== undefined && 'value' in parsed ? parsed.value : undefined
  const checked = checkHeader(value)
  if ('header' in checked) return checked.header
  throw new SessionLogError(checked.problem.code, checked.problem.message, { file, line: 1 })
}

/** What is open while lines come in: whether the last thing seen may turn out to be the tail. */
class ScanState {
  readonly #index: SessionIndex
  #goodEnd: number
  #goodLines = 1
  #terminated: boolean
  /** A line that does not parse, or a blank one: the tail's begin if nothing but blank lines follows, else a problem. */
  #suspect: LineProblem | undefined
  #first: LineProblem | undefined
  #stopped = false

  constructor(index: SessionIndex, header: RawLine) {
    this.#index = index
    this.#goodEnd = header.end
    this.#terminated = header.terminated
  }

  take(raw: RawLine, onProblem: OnProblem): 'stop' | 'continue' {
    const blank = raw.bytes?.every((byte) => SPACE.has(byte)) ?? false
    if (blank) {
      this.#suspect ??= { line: raw.number, code: 'blank', message: 'a blank line' }
      return 'continue'
    }
    // Something stands after it, so it was no tail.
    if (this.#suspect !== undefined && this.#report(this.#suspect, onProblem) === 'stop') return 'stop'
    this.#suspect = undefined
    // No writer of ours makes such a line, so no crash leaves a piece of one: it is never the tail.
    if (raw.bytes === undefined) {
      return this.#report(
        { line: raw.number, code: 'too_long', message: `longer than ${MAX_LINE_BYTES} bytes` },
        onProblem,
      )
    }
    const parsed = parse(raw.bytes)
    if ('problem' in parsed) {
      this.#suspect = { line: raw.number, ...parsed.problem }
      return 'continue'
    }
    const checked = checkLine(parsed.value, this.#index)
    if ('problem' in checked) return this.#report({ line: raw.number, ...checked.problem }, onProblem)
    this.#index.add(checked.line)
    this.#terminated = raw.terminated
    if (this.#first === undefined) {
      this.#goodEnd = raw.end
      this.#goodLines = raw.number
    }
    return 'continue'
  }

  #report(problem: LineProblem, onProblem: OnProblem): 'stop' | 'continue' {
    this.#first ??= problem
    const verdict = onProblem(problem)
    if (verdict === 'stop') this.#stopped = true
    return verdict
  }

  finish(size: number): Scan {
    const tail: Tail =
      this.#suspect !== undefined && !this.#stopped ? 'torn' : this.#terminated ? 'whole' : 'no_newline'
    return {
      index: this.#index,
      tail,
      size,
      goodEnd: this.#goodEnd,
      goodLines: this.#goodLines,
      ...(this.#first === undefined ? {} : { problem: this.#first }),
    }
  }
}
