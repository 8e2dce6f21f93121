import { chmod, lstat, readdir, rm } from 'node:fs/promises'

const hasCode = (error: unknown, ...codes: readonly string[]): boolean =>
  error instanceof Error && 'code' in error && codes.includes(String(error.code))

/** Removes a folder whatever its modes are; links are removed, never followed. One that is not there is no error. */
export async function removeTree(path: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await rm(path, { recursive: true, force: true })
    } catch (error) {
      if (attempt > 3 || !hasCode(error, 'EACCES', 'EPERM', 'ENOTEMPTY')) throw error
      await openDirectories(Buffer.from(path))
    }
  }
}

/**
 * Gives the owner back what a command took away: a directory of mode 000 can be neither listed nor emptied. What is gone meanwhile is
 * fine: Node's `rm` reports its first failure while it still removes other things.
 */
async function openDirectories(path: Buffer): Promise<void> {
  try {
    const stat = await lstat(path)
    if (!stat.isDirectory()) return
    if ((stat.mode & 0o700) !== 0o700) await chmod(path, 0o700)
    for (const name of await readdir(path, { encoding: 'buffer' }))
      await openDirectories(Buffer.concat([path, Buffer.from('/'), name]))
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
  }
}
