import { randomBytes } from 'node:crypto'
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

export type AtomicOptions = {
  /** Permission bits of the new file (default 0o600). */
  readonly mode?: number
  /** Whether file and folder are synced, so that it survives a power cut (default true). */
  readonly fsync?: boolean
}

const temporaryName = (path: string): string => `${path}.${process.pid}-${randomBytes(6).toString('hex')}.tmp`

/** Writes a file whole or not at all: readers see the old contents or the new ones. Leaves nothing behind when it fails. */
export async function writeFileAtomic(
  path: string,
  data: string | Uint8Array,
  options: AtomicOptions = {},
): Promise<void> {
  const temporary = temporaryName(path)
  try {
    const handle = await open(temporary, 'wx', options.mode ?? 0o600)
    try {
      await handle.writeFile(data)
      // The mode given to open is cut by the umask.
      await handle.chmod(options.mode ?? 0o600)
      if (options.fsync ?? true) await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  if (options.fsync ?? true) await syncFolder(dirname(path))
}

/** As `writeFileAtomic`, for code that may not wait. */
export function writeFileAtomicSync(path: string, data: string | Uint8Array, options: AtomicOptions = {}): void {
  const temporary = temporaryName(path)
  try {
    const fd = openSync(temporary, 'wx', options.mode ?? 0o600)
    try {
      writeFileSync(fd, data)
      if (options.fsync ?? true) fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
  if (options.fsync ?? true) {
    const fd = openSync(dirname(path), 'r')
    try {
      fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
  }
}

/** Makes a rename in `folder` durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
