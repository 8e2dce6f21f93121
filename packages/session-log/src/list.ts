import type { FileHandle } from 'node:fs/promises'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf, ioError, SessionLogError, type SessionLogErrorCode } from './errors.ts'
import { checkHeader, type Header, isEntry, isLine, type Line } from './format.ts'
import { isObject } from './json.ts'
import { isNameFact, WINDOW_BYTES } from './names.ts'
import { readHeader } from './scan.ts'
import { reading } from './session.ts'

/** One file of a folder. A broken one is listed with its problem, so that nobody wonders where it went. */
export type SessionSummary =
  | {
      readonly kind: 'session'
      readonly file: string
      readonly id: string
      readonly cwd: string
      /** ISO; the header's, else the file's. */
      readonly created: string
      /** ISO; the last line's or the header's, whichever is later. The file's where the last line is not in sight. */
      readonly modified: string
      readonly bytes: number
      /** The last name among the lines that were looked at: the first and the last 64 KiB. `restateName` keeps it there. */
      readonly name?: string
      /** How the text of the first user message begins: at most 200 characters; absent when the first 64 KiB do not hold all of the message. */
      readonly title?: string
    }
  | {
      readonly kind: 'broken'
      readonly file: string
      readonly modified: string
      readonly bytes: number
      readonly problem: { readonly code: SessionLogErrorCode; readonly message: string }
    }

const TITLE_CHARACTERS = 200
/** Most headers fit; of one that does not, all is read. */
const HEADER_WINDOW = 4 * 1024
/** So many files are looked at together: more would only fill memory. */
const AT_ONCE = 16
const LF = 0x0a

/**
 * The sessions of a folder (`*.jsonl`), the last modified first. Reads the head and the tail of each file and nothing
 * between them: that a session is listed does not say that it is whole. A folder that does not exist has none.
 *
 * @throws SessionLogError `io` when the folder cannot be read.
 */
export async function listSessions(folder: string): Promise<readonly SessionSummary[]> {
  const summaries = await mapSome(await sessionFiles(folder), summarise)
  return summaries
    .filter((summary) => summary !== undefined)
    .sort((a, b) => (a.modified === b.modified ? compare(a.file, b.file) : compare(b.modified, a.modified)))
}

/**
 * The file of a folder whose session has this id; of several (somebody copied one) the first by its name. Reads headers
 * only. Files that are no session are passed over.
 *
 * @throws SessionLogError `io` when the folder cannot be read.
 */
export async function findSession(folder: string, id: string): Promise<string | undefined> {
  const found = await mapSome(await sessionFiles(folder), async (file) => {
    try {
      return await reading(file, async (handle) => {
        const header = headerIn(await bytesAt(handle, 0, HEADER_WINDOW)) ?? (await readHeader(handle, file))
        return header.id === id ? file : undefined
      })
    } catch (error) {
      // Whatever is wrong with this file, it is not the one.
      if (error instanceof SessionLogError || errnoOf(error) !== undefined) return undefined
      throw error
    }
  })
  return found.find((file) => file !== undefined)
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)

async function sessionFiles(folder: string): Promise<readonly string[]> {
  try {
    const names = await readdir(folder)
    return names
      .filter((name) => name.endsWith('.jsonl'))
      .sort(compare)
      .map((name) => join(folder, name))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw ioError(folder, 'cannot list the sessions', error)
  }
}

/** Maps with a bound on how many are under way. */
async function mapSome<T, R>(items: readonly T[], map: (item: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = []
  const next = items.entries()
  const work = async () => {
    for (const [index, item] of next) results[index] = await map(item)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return results
}

async function summarise(file: string): Promise<SessionSummary | undefined> {
  let seen = { bytes: 0, modified: new Date(0).toISOString() }
  try {
    const { size, mtime } = await stat(file)
    seen = { bytes: size, modified: mtime.toISOString() }
    return await reading(file, async (handle) => {
      const ends = await endsOf(handle, size)
      return summary(file, headerIn(ends.bytes) ?? (await readHeader(handle, file)), seen, ends)
    })
  } catch (error) {
    const failure = ioError(file, 'cannot read the session', error)
    // It went away between the listing and the look.
    if (failure.code === 'not_found') return undefined
    return { kind: 'broken', file, ...seen, problem: { code: failure.code, message: failure.message } }
  }
}

function summary(
  file: string,
  header: Header,
  seen: { readonly bytes: number; readonly modified: string },
  { head, tail }: Ends,
): SessionSummary {
  const name = nameIn(tail) ?? nameIn(head)
  const title = titleIn(head)
  const created = header.ts ?? seen.modified
  const last =
    firstOf((tail.length > 0 ? tail : head).toReversed(), lineOf)?.ts ?? (tail.length > 0 ? seen.modified : created)
  return {
    kind: 'session',
    file,
    id: header.id,
    cwd: header.cwd,
    created,
    // A fork is as old as its header, whatever it took over.
    modified: last > created ? last : created,
    bytes: seen.bytes,
    ...(typeof name?.['value'] === 'string' ? { name: name['value'] } : {}),
    ...(title === undefined ? {} : { title }),
  }
}

/** The first and the last window of a file, cut into lines. */
type Ends = {
  /** The first window, and the last where nothing is between them. */
  readonly bytes: Buffer
  readonly head: readonly Buffer[]
  /** Empty when `head` is all of the file. */
  readonly tail: readonly Buffer[]
}

async function endsOf(handle: FileHandle, size: number): Promise<Ends> {
  if (size <= 2 * WINDOW_BYTES) {
    const bytes = await bytesAt(handle, 0, size)
    return { bytes, head: linesIn(bytes), tail: [] }
  }
  const bytes = await bytesAt(handle, 0, WINDOW_BYTES)
  const tail = await bytesAt(handle, size - WINDOW_BYTES, WINDOW_BYTES)
  return { bytes, head: linesIn(bytes), tail: linesIn(tail) }
}

async function bytesAt(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(length), 0, length, position)
  return buffer.subarray(0, bytesRead)
}

function linesIn(bytes: Buffer): readonly Buffer[] {
  const lines: Buffer[] = []
  let from = 0
  for (let lf = bytes.indexOf(LF); lf !== -1; lf = bytes.indexOf(LF, from)) {
    lines.push(bytes.subarray(from, lf))
    from = lf + 1
  }
  return [...lines, bytes.subarray(from)]
}

/** The header, when it stands whole in the window and is good; all else is for {@link readHeader} to judge. */
function headerIn(window: Buffer): Header | undefined {
  const end = window.indexOf(LF)
  const checked = end === -1 ? undefined : checkHeader(valueOf(window.subarray(0, end)))
  return checked !== undefined && 'header' in checked ? checked.header : undefined
}

function nameIn(lines: readonly Buffer[]): Line | undefined {
  // A look for the word first: most lines need no parsing.
  const facts = lines.toReversed().filter((bytes) => bytes.includes('fact_set'))
  return firstOf(facts, (bytes) => {
    const line = lineOf(bytes)
    return line !== undefined && isNameFact(line) ? line : undefined
  })
}

function titleIn(lines: readonly Buffer[]): string | undefined {
  const text = firstOf(lines, (bytes) => {
    const line = lineOf(bytes)
    return line === undefined ? undefined : userText(line)
  })?.trim()
  if (text === undefined || text === '') return undefined
  // Characters are code points, of two units at most.
  return [...text.slice(0, 2 * TITLE_CHARACTERS).toWellFormed()].slice(0, TITLE_CHARACTERS).join('')
}

/** The text of a user's message, as far as a log that knows no messages can tell: a string, or parts that have a `text`. */
function userText(line: Line): string | undefined {
  const message = isEntry(line) && line.type === 'message' ? line['message'] : undefined
  if (!isObject(message) || message['role'] !== 'user') return undefined
  const content = message['content']
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content
    .flatMap((part) => (isObject(part) && typeof part['text'] === 'string' ? [part['text']] : []))
    .join('\n')
}

function firstOf<T, R>(items: readonly T[], look: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const found = look(item)
    if (found !== undefined) return found
  }
  return undefined
}

/** A line that lies whole in its window; one that a window cuts does not parse. What else does not is for opening to judge. */
function lineOf(bytes: Buffer): Line | undefined {
  const value = valueOf(bytes)
  return isLine(value) ? value : undefined
}

function valueOf(bytes: Buffer): unknown {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    return value
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}
