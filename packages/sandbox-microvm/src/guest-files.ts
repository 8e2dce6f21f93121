import { dirname } from 'node:path/posix'
import { sanitiseLine } from '@reve/base'
import { MicroVmError, type MicroVmErrorCode } from './errors.ts'
import type { GuestConnection } from './guest-connection.ts'
import type { ByteSource, ExecResult, GuestPath, ReadFileOptions, WriteFileOptions } from './spec.ts'

/** Reading one file of a guest, as a backend does it: `onChunk` gets its bytes, and none while it is busy. */
export type FileRead = ReadFileOptions & {
  readonly path: GuestPath
  readonly onChunk: (chunk: Uint8Array) => void | Promise<void>
}

/** Writing one file of a guest, as a backend does it. */
export type FileWrite = WriteFileOptions & { readonly path: GuestPath; readonly source: Uint8Array | ByteSource }

/** An exit code of guest/file.c that is no errno. */
const NOT_A_FILE = 200

/** What the guest's errno means to a caller. */
const codes: ReadonlyMap<number, MicroVmErrorCode> = new Map([
  [2, 'not_found'],
  [20, 'not_found'],
  [21, 'not_a_file'],
  [NOT_A_FILE, 'not_a_file'],
  [1, 'not_permitted'],
  [13, 'not_permitted'],
  [30, 'not_permitted'],
  [27, 'no_space'],
  [28, 'no_space'],
  [122, 'no_space'],
])

/** The longest text of an error that is kept. */
const TEXT_BYTES = 1000

/** A path as it is shown. */
export const showPath = (path: GuestPath): string =>
  sanitiseLine(typeof path === 'string' ? path : Buffer.from(path).toString('utf8'), 300)

/** The path, or a `bad_spec`. */
export function checkPath(path: GuestPath): GuestPath {
  const bytes = Buffer.from(path)
  if (bytes[0] === 0x2f && !bytes.includes(0)) return path
  throw new MicroVmError('bad_spec', `"${showPath(path)}" is not the absolute path of a file in the guest`)
}

/** The options, or a `bad_spec`. */
export function checkRange(options: ReadFileOptions): ReadFileOptions {
  for (const [name, value] of Object.entries({ offset: options.offset, maxBytes: options.maxBytes }))
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0))
      throw new MicroVmError('bad_spec', `${name} is ${value}; give a whole number of bytes`)
  return options
}

/** The mode, or a `bad_spec`. */
export function checkMode(mode: number | undefined): void {
  if (mode !== undefined && !(Number.isInteger(mode) && mode >= 0 && mode <= 0o7777))
    throw new MicroVmError('bad_spec', `mode is ${mode}; give permission bits, for example 0o644`)
}

function judge(result: ExecResult, doing: string): void {
  if (result.cancelled) throw new MicroVmError('aborted', `${doing} was cancelled`)
  if (result.exitCode === 0) return
  const text = result.exitCode === NOT_A_FILE ? 'not a regular file' : Buffer.from(result.stderr).toString()
  throw new MicroVmError(
    result.signal === undefined ? (codes.get(result.exitCode) ?? 'file_failed') : 'file_failed',
    `${doing}: ${sanitiseLine(text === '' ? `it ended with ${result.exitCode}` : text, 300)}`,
  )
}

/** Reads a file through the agent of `guest`. */
export async function readGuestFile(guest: GuestConnection, read: FileRead): Promise<void> {
  const limit = read.maxBytes ?? Number.MAX_SAFE_INTEGER
  const result = await guest.file(['read', read.path, String(read.offset ?? 0), String(limit)], {
    stdin: new Uint8Array(),
    maxOutputBytes: TEXT_BYTES,
    onOutput: (stream, chunk) => (stream === 'stdout' ? read.onChunk(chunk) : undefined),
    ...(read.signal === undefined ? {} : { signal: read.signal }),
  })
  judge(result, `reading ${showPath(read.path)} in the guest`)
}

/** Writes a file through the agent of `guest`; `unique` names what stands beside it meanwhile. */
export async function writeGuestFile(guest: GuestConnection, write: FileWrite, unique: string): Promise<void> {
  const mode = write.mode === undefined ? '' : write.mode.toString(8)
  // Paths are bytes: latin1 keeps each as it is.
  const folder = dirname(Buffer.from(write.path).toString('latin1'))
  const temporary = Buffer.from(`${folder === '/' ? '' : folder}/.reve-${unique}`, 'latin1')
  const order = write.atomic === true ? ['replace', write.path, mode, temporary] : ['write', write.path, mode]
  const result = await guest.file(order, {
    stdin: write.source,
    maxOutputBytes: TEXT_BYTES,
    ...(write.signal === undefined ? {} : { signal: write.signal }),
  })
  judge(result, `writing ${showPath(write.path)} in the guest`)
}
