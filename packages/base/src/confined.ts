import { randomBytes } from 'node:crypto'
import { constants, existsSync } from 'node:fs'
import { lstat, mkdir, open, readdir, realpath, rename, rm, rmdir, stat, type FileHandle } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { codeOf, messageOf, ReveError } from './errors.ts'

export type ConfinedErrorCode =
  | 'escapes_root'
  | 'is_link'
  | 'not_found'
  | 'not_a_file'
  | 'not_a_folder'
  | 'too_large'
  | 'io'

/** A path below a root was refused, or could not be used. */
export class ConfinedError extends ReveError<ConfinedErrorCode> {
  override readonly name = 'ConfinedError'
}

export type ConfinedEntry = { readonly name: string; readonly kind: 'file' | 'folder' | 'link' | 'other' }

/**
 * Access to what lies below one folder, which somebody else may be changing at the same time. Paths are relative, with
 * `/`; no link is followed on any component, for reading or writing, so nothing outside is ever touched.
 *
 * On Linux each folder on the way is opened without following links and the next name is looked up in that open folder,
 * which leaves no moment between check and use. Elsewhere the same walk checks each name before it uses it: there a link
 * that is swapped in at the right microsecond is followed.
 */
export interface Confined {
  /** Real path of the root. */
  readonly root: string
  /** @throws ConfinedError `too_large` above `maxBytes`; `not_a_file` for anything but a regular file. */
  readBytes(path: string, options: { readonly maxBytes: number }): Promise<Uint8Array>
  /** As `readBytes`, decoded as UTF-8 with U+FFFD for what is not. */
  readText(path: string, options: { readonly maxBytes: number }): Promise<string>
  /** A file's or folder's size, and when its content and when anything of it changed (which nobody can set); a link is refused. */
  stat(path: string): Promise<{
    readonly kind: 'file' | 'folder' | 'other'
    readonly size: number
    readonly modifiedMs: number
    readonly changedMs: number
  }>
  exists(path: string): Promise<boolean>
  list(path: string): Promise<readonly ConfinedEntry[]>
  /** Makes the folder and those above it. */
  mkdirp(path: string): Promise<void>
  /** Writes the file whole or not at all; its folder must exist. A link in its place is replaced, not followed. */
  writeAtomic(path: string, data: string | Uint8Array, options?: { readonly mode?: number }): Promise<void>
  /** Removes a file, a link or an empty folder; what does not exist is fine. */
  remove(path: string): Promise<void>
}

const folderFlags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

/**
 * Opens a root for confined access.
 *
 * @param root an existing folder; a link here is the caller's choice and is followed.
 */
export async function openConfined(root: string): Promise<Confined> {
  const real = await realpath(root)
  const byHandle = existsSync('/proc/self/fd')
  const walk = byHandle ? handleWalk(real) : pathWalk(real)

  /** Looks at `path` without following it. */
  const look = (path: string) => walk(path, (at) => translated(path, lstat(at)))

  const readBytes: Confined['readBytes'] = (path, { maxBytes }) =>
    walk(path, async (at) => {
      // Not to hang on a FIFO that somebody put there.
      const handle = await translated(path, open(at, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK))
      try {
        const found = await handle.stat()
        if (!found.isFile()) throw new ConfinedError('not_a_file', `${path} is not a regular file`)
        return await readAtMost(handle, maxBytes, path)
      } finally {
        await handle.close()
      }
    })

  return {
    root: real,
    readBytes,
    readText: async (path, options) =>
      new TextDecoder('utf-8', { ignoreBOM: true }).decode(await readBytes(path, options)),
    stat: async (path) => {
      const found = await look(path)
      if (found.isSymbolicLink()) throw linkError(path)
      const kind = found.isFile() ? 'file' : found.isDirectory() ? 'folder' : 'other'
      return { kind, size: found.size, modifiedMs: found.mtimeMs, changedMs: found.ctimeMs }
    },
    exists: async (path) => {
      try {
        await look(path)
        return true
      } catch (error) {
        if (error instanceof ConfinedError && error.code === 'not_found') return false
        throw error
      }
    },
    list: (path) =>
      walk(path, async (at) => {
        // The folder itself may have been swapped for a link as well: it is opened without following one, then read.
        const folder = await translated(path, open(at, folderFlags))
        try {
          const entries = await translated(path, readdir(byHandle ? descriptor(folder) : at, { withFileTypes: true }))
          return entries.map((entry) => ({
            name: entry.name,
            kind: entry.isFile() ? 'file' : entry.isDirectory() ? 'folder' : entry.isSymbolicLink() ? 'link' : 'other',
          }))
        } finally {
          await folder.close()
        }
      }),
    mkdirp: async (path) => {
      const names = components(path)
      for (let depth = 1; depth <= names.length; depth++) {
        const partial = names.slice(0, depth).join('/')
        await walk(partial, async (at) => {
          await mkdir(at).catch((error: unknown) => {
            if (codeOf(error) !== 'EEXIST') throw translate(partial, error)
          })
          const found = await translated(partial, lstat(at))
          if (found.isSymbolicLink()) throw linkError(partial)
          if (!found.isDirectory()) throw new ConfinedError('not_a_folder', `${partial} is not a folder`)
        })
      }
    },
    writeAtomic: (path, data, options = {}) =>
      walk(path, async (at) => {
        // In the same folder, and short: the file's own name may be as long as a name can be.
        const temporary = join(dirname(at), `.${randomBytes(8).toString('hex')}.tmp`)
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
        try {
          const handle = await open(temporary, flags, options.mode ?? 0o600)
          try {
            await handle.writeFile(data)
            await handle.chmod(options.mode ?? 0o600)
            await handle.sync()
          } finally {
            await handle.close()
          }
          await rename(temporary, at)
        } catch (error) {
          await rm(temporary, { force: true })
          throw translate(path, error)
        }
      }),
    remove: (path) =>
      walk(path, async (at) => {
        try {
          if ((await lstat(at)).isDirectory()) await rmdir(at)
          else await rm(at)
        } catch (error) {
          if (codeOf(error) !== 'ENOENT') throw translate(path, error)
        }
      }),
  }
}

/** Gives `use` a path of the last component that no swapped link can redirect. */
type Walk = <T>(path: string, use: (at: string) => Promise<T>) => Promise<T>

function handleWalk(root: string): Walk {
  return async (path, use) => {
    const names = components(path)
    const last = names.pop() ?? '.'
    let folder: FileHandle = await translated(path, open(root, folderFlags))
    try {
      for (const name of names) {
        const next: FileHandle = await translated(path, open(join(descriptor(folder), name), folderFlags))
        await folder.close()
        folder = next
      }
      return await use(`${descriptor(folder)}/${last}`)
    } finally {
      await folder.close()
    }
  }
}

const descriptor = (handle: FileHandle): string => `/proc/self/fd/${handle.fd}`

function pathWalk(root: string): Walk {
  return async (path, use) => {
    const names = components(path)
    const last = names.pop() ?? '.'
    let at = root
    for (const name of names) {
      at = join(at, name)
      const found = await translated(path, lstat(at))
      if (found.isSymbolicLink()) throw linkError(path)
      if (!found.isDirectory()) throw new ConfinedError('not_a_folder', `${path}: ${name} is not a folder`)
    }
    await translated(path, stat(at))
    return use(`${at}/${last}`)
  }
}

/** The names of a relative path; `.` and empty ones fall out, `..` and absolute paths are refused. */
function components(path: string): string[] {
  const names = path.split('/').filter((name) => name !== '' && name !== '.')
  if (path.startsWith('/') || names.includes('..') || path.includes('\0')) {
    throw new ConfinedError(
      'escapes_root',
      `${JSON.stringify(path)} is not a path below the folder: no "..", no leading "/"`,
    )
  }
  return names
}

async function readAtMost(handle: FileHandle, maxBytes: number, path: string): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let total = 0
  for (;;) {
    const chunk = Buffer.allocUnsafe(64 << 10)
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, total)
    if (bytesRead === 0) return Buffer.concat(chunks)
    total += bytesRead
    if (total > maxBytes) throw new ConfinedError('too_large', `${path} has more than ${maxBytes} bytes`)
    chunks.push(chunk.subarray(0, bytesRead))
  }
}

const linkError = (path: string): ConfinedError =>
  new ConfinedError('is_link', `${path} is, or leads through, a symbolic link, which is not followed here`)

async function translated<T>(path: string, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw translate(path, error)
  }
}

function translate(path: string, error: unknown): unknown {
  if (error instanceof ConfinedError) return error
  switch (codeOf(error)) {
    case 'ENOENT':
      return new ConfinedError('not_found', `${path} does not exist`, { cause: error })
    case 'ELOOP':
    case 'EMLINK':
      return linkError(path)
    case 'ENOTDIR':
      // Opening a link as a folder without following it ends here too.
      return new ConfinedError('not_a_folder', `${path} leads through something that is not a folder`, { cause: error })
    case 'EISDIR':
      return new ConfinedError('not_a_file', `${path} is a folder`, { cause: error })
    case undefined:
      return error
    default:
      return new ConfinedError('io', `${path}: ${messageOf(error)}`, { cause: error })
  }
}
