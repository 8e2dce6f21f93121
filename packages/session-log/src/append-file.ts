import { close, constants, fdatasync, fstat, ftruncate, open, write } from 'node:fs'
import { promisify } from 'node:util'

/** The few things that the writer does to its file. A port, so that a test can break each of them. */
export interface AppendFile {
  /** Appends; resolves with the number of bytes that went in, which may be fewer than given. */
  write(bytes: Uint8Array): Promise<number>
  /** Makes all that was written survive a loss of power. */
  sync(): Promise<void>
  truncate(bytes: number): Promise<void>
  size(): Promise<number>
  close(): Promise<void>
}

/** Opens a file that exists for appending. */
export type OpenFile = (path: string) => Promise<AppendFile>

// Bare descriptors, not `FileHandle`: one of those ends the process when its owner was lost without closing it.
const fs = {
  open: promisify(open),
  fdatasync: promisify(fdatasync),
  ftruncate: promisify(ftruncate),
  fstat: promisify(fstat),
  close: promisify(close),
} as const

/** The real one. O_APPEND: the lines of a writer that ignores the lock are not written over. */
export const openAppendFile: OpenFile = async (path) => {
  const fd = await fs.open(path, constants.O_WRONLY | constants.O_APPEND)
  return {
    // By hand: what `promisify` adds to it is a good part of an append.
    write: (bytes) =>
      new Promise((resolve, reject) => {
        write(fd, bytes, (error, written) => (error === null ? resolve(written) : reject(error)))
      }),
    sync: () => fs.fdatasync(fd),
    truncate: (bytes) => fs.ftruncate(fd, bytes),
    size: async () => (await fs.fstat(fd)).size,
    close: () => fs.close(fd),
  }
}
