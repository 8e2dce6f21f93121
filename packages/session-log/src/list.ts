import type { FileHandle } from 'node:fs/promises'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf, ioError, type SessionLogErrorCode } from './errors.ts'
import { type Header, isLine, type Line } from './format.ts'
import { readHeader } from './scan.ts'
import { reading } from './session.ts'

/** The fact that names a session: `fact_set {key: "name", value: "…"}`. */
export const NAME_FACT = 'name'

/** One file of a folder. A broken one is listed with its problem, so that nobody wonders where it went. */
export type SessionSummary =
  | {
      readonly kind: 'session'
      readonly file: string
      readonly id: string
      readonly cwd: string
      /** ISO; the header's, else the file's. */
      readonly created: string
      /** ISO; the last line's, else the file's. */
      readonly modified: string
      readonly bytes: number
      /** The last {@link NAME_FACT} among the lines that were looked at: the first and the last 64 KiB. */
      readonly name?: string
    }
  | {
      readonly kind: 'broken'
      readonly file: string
      readonly modified: string
      readonly bytes: number
      readonly problem: { readonly code: SessionLogErrorCode; readonly message: string }
    }

const WINDOW = 64 * 1024

/**
 * The sessions of a folder (`*.jsonl`), the last modified first. Reads the head and the tail of each file and nothing
 * between them: that a session is listed does not say that it is whole. A folder that does not exist has none.
 */
export async function listSessions(folder: string): Promise<readonly SessionSummary[]> {
  const names = await namesIn(folder)
  const summaries: SessionSummary[] = []
  for (const name of names.filter((name) => name.endsWith('.jsonl'))) {
    const summary = await summarise(join(folder, name))
    if (summary !== undefined) summaries.push(summary)
  }
  return summaries.sort((a, b) =>
    a.modified === b.modified ? compare(a.file, b.file) : compare(b.modified, a.modified),
  )
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)

async function namesIn(folder: string): Promise<readonly string[]> {
  try {
    return await readdir(folder)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw ioError(folder, 'cannot list the sessions', error)
  }
}

async function summarise(file: string): Promise<SessionSummary | undefined> {
  let seen = { bytes: 0, modified: new Date(0).toISOString() }
  try {
    const { size, mtime } = await stat(file)
    seen = { bytes: size, modified: mtime.toISOString() }
    return await reading(file, async (handle) =>
      summary(file, await readHeader(handle, file), seen, await windowLines(handle, size)),
    )
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
  lines: readonly Line[],
): SessionSummary {
  const name = lines.findLast(
    (line) => line.kind === 'record' && line.type === 'fact_set' && line['key'] === NAME_FACT,
  )?.['value']
  return {
    kind: 'session',
    file,
    id: header.id,
    cwd: header.cwd,
    created: header.ts ?? seen.modified,
    modified: lines.at(-1)?.ts ?? header.ts ?? seen.modified,
    bytes: seen.bytes,
    ...(typeof name === 'string' ? { name } : {}),
  }
}

/** The lines that lie whole in the first or the last window. What does not parse there is for opening to judge. */
async function windowLines(handle: FileHandle, size: number): Promise<readonly Line[]> {
  const tailStart = Math.max(size - WINDOW, Math.min(size, WINDOW))
  const head = await textAt(handle, 0, Math.min(size, WINDOW))
  const tail = await textAt(handle, tailStart, size - tailStart)
  // A small file is one text; of a big one each window's cut line drops out by not parsing.
  const texts = tailStart === WINDOW ? [head + tail] : [head, tail]
  return texts.flatMap((text) => text.split('\n').flatMap(lineOf))
}

async function textAt(handle: FileHandle, position: number, length: number): Promise<string> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, position)
  return buffer.subarray(0, bytesRead).toString('latin1')
}

function lineOf(latin1: string): readonly Line[] {
  try {
    const value: unknown = JSON.parse(Buffer.from(latin1, 'latin1').toString('utf8'))
    return isLine(value) ? [value] : []
  } catch (error) {
    if (error instanceof SyntaxError) return []
    throw error
  }
}
