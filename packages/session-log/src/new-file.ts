import { type FileHandle, link, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { errnoOf, SessionLogError } from './errors.ts'

/** Where a file system without hard links says so. */
const NO_LINKS: ReadonlySet<string> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

/** With the process's id, what makes a temporary name nobody else's. */
let counter = 0

/**
 * Makes a file that is there whole or not at all (0600): written beside its place under a temporary name, synced, then
 * linked, which never replaces anything. `replace` is for a caller that knows that an empty file is in the place.
 *
 * @throws SessionLogError `exists`; what `write` throws. Leaves no temporary file behind.
 */
export async function createWhole(
  file: string,
  write: (handle: FileHandle) => Promise<void>,
  options: { readonly replace?: boolean } = {},
): Promise<void> {
  const { temporary, handle } = await openTemporary(file)
  try {
    try {
      await write(handle)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await (options.replace === true ? rename(temporary, file) : publish(temporary, file))
  } finally {
    await rm(temporary, { force: true })
  }
  await syncFolder(dirname(file))
}

async function openTemporary(file: string): Promise<{ readonly temporary: string; readonly handle: FileHandle }> {
  for (;;) {
    const temporary = `${file}.${process.pid}-${++counter}.tmp`
    try {
      return { temporary, handle: await open(temporary, 'wx', 0o600) }
    } catch (error) {
      // Left by a dead process that had our id: the next number is free.
      if (errnoOf(error) !== 'EEXIST') throw error
    }
  }
}

async function publish(temporary: string, file: string): Promise<void> {
  try {
    await link(temporary, file)
  } catch (error) {
    const code = errnoOf(error)
    if (code === 'EEXIST') throw alreadyThere(file, error)
    if (code === undefined || !NO_LINKS.has(code)) throw error
    // Without links the name is taken first, so that nothing of anybody else's is replaced.
    await takeName(file)
    await rename(temporary, file)
  }
}

async function takeName(file: string): Promise<void> {
  try {
    await (await open(file, 'wx', 0o600)).close()
  } catch (error) {
    throw errnoOf(error) === 'EEXIST' ? alreadyThere(file, error) : error
  }
}

const alreadyThere = (file: string, cause: unknown) =>
  new SessionLogError('exists', 'the file exists already and is not overwritten', {
    file,
    cause,
    hint: 'choose another name',
  })

/** A new name survives a loss of power only when its folder is synced too. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
