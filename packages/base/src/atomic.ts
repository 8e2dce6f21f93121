import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'

export type AtomicOptions = {
  /** Permission bits of the new file (default 0o600). */
  readonly mode?: number
  /** Whether file and folder are synced, so that it survives a power cut (default true). */
  readonly fsync?: boolean
}

/** In the same folder, and short: the file's own name may be as long as a name can be. */
const temporaryName = (path: string): string => join(dirname(path), `.${randomBytes(8).toString('hex')}.tmp`)

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

/** Makes a rename in `folder` durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
