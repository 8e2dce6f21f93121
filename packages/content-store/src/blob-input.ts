import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import { hasCode, StoreError } from './errors.ts'
import { Pace } from './host-dir.ts'
import { failed } from './layout.ts'
import { type Objects, pieceBytes } from './objects.ts'
import type { BlobId } from './types.ts'

/** Stores what a stream gives; its pieces are hashed and written as they come. */
export async function putBlobStream(
  objects: Objects,
  stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<BlobId> {
  const writer = objects.blobWriter()
  try {
    for await (const piece of stream) writer.write(piece)
    const blob = writer.finish()
    objects.putPending([blob])
    return blob.id
  } finally {
    writer.abandon()
  }
}

/** Stores a file's bytes. The file itself may be named through a link; only regular files are read. */
export async function putBlobFile(objects: Objects, path: string): Promise<BlobId> {
  return putBlobStream(objects, filePieces(path))
}

async function* filePieces(path: string): AsyncGenerator<Buffer, void, undefined> {
  let fd: number
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  } catch (error) {
    throw hasCode(error, 'ENOENT')
      ? new StoreError('not_found', `there is no file ${path}`, { path, cause: error })
      : failed(path, error)
  }
  try {
    if (!fstatSync(fd).isFile()) throw new StoreError('not_a_file', `${path} is not a regular file`, { path })
    const pace = new Pace(undefined)
    for (;;) {
      const piece = Buffer.allocUnsafe(pieceBytes)
      const length = readSync(fd, piece)
      if (length === 0) return
      yield piece.subarray(0, length)
      await pace.step(50)
    }
  } finally {
    closeSync(fd)
  }
}
