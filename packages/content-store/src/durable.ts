import { closeSync, constants, fsyncSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { hasCode } from './errors.ts'

/** Makes the bytes of a file, or the names in a folder, survive a power cut. */
export function syncPath(path: string): void {
  const fd = openSync(path, constants.O_RDONLY)
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** Makes a folder, and those above it that are missing, private to its owner; their names are durable when it returns. */
export function makeFolder(path: string): void {
  const folder = resolve(path)
  const first = mkdirSync(folder, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = folder; ; made = dirname(made)) {
    syncReadable(dirname(made))
    if (made === first || made === dirname(made)) return
  }
}

/** A folder above ours may be one that we may pass but not read: then its owner has to care. */
function syncReadable(folder: string): void {
  try {
    syncPath(folder)
  } catch (error) {
    if (!hasCode(error, 'EACCES', 'EPERM')) throw error
  }
}
