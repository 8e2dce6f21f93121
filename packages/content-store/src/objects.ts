import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '@reve/base'
import type { Database } from './database.ts'
import { makeFolder, syncPath } from './durable.ts'
import { hasCode, StoreError } from './errors.ts'
import { type Hasher, treeKeys } from './hasher.ts'
import type { BlobId, Hash } from './types.ts'

/** What an object is, as the number in its row. */
export const objectKind = { blob: 1, directory: 2, chunk: 3 } as const
export type ObjectKind = (typeof objectKind)[keyof typeof objectKind]

const kindNames: Readonly<Record<ObjectKind, string>> = { 1: 'blob', 2: 'tree', 3: 'tree chunk' }

type Row = { readonly kind: ObjectKind; readonly size: number; readonly data: Buffer | null }

/** How much of a file is in memory at once when it is read, hashed and written. */
export const pieceBytes = 1 << 20

/** Longest object that is handed out as one piece of memory. */
export const maxWholeBytes = 1 << 30

/** A blob whose bytes are durable (or small and in memory) while its row is still to be written. */
export type PendingBlob = {
  readonly id: BlobId
  readonly size: number
  readonly data: Buffer | null
  readonly folder: string | null
}

/**
 * Objects by hash: small ones in their row, larger blobs as immutable files `blobs/ab/cdef…`. The order is always: bytes
 * durable, then the row that names them.
 */
export class Objects {
  readonly #database: Database
  readonly #hasher: Hasher
  readonly #blobs: string
  readonly #temporary: string
  readonly #inlineLimit: number
  readonly #vouched = new WeakSet<object>()
  #counter = 0

  constructor(options: {
    readonly database: Database
    readonly hasher: Hasher
    readonly root: string
    readonly inlineLimit: number
  }) {
    this.#database = options.database
    this.#hasher = options.hasher
    this.#blobs = join(options.root, 'blobs')
    this.#temporary = join(options.root, 'tmp')
    this.#inlineLimit = options.inlineLimit
    // What a killed process left half written; nothing names it.
    rmSync(this.#temporary, { recursive: true, force: true })
    mkdirSync(this.#temporary, { mode: 0o700 })
    makeFolder(this.#blobs)
  }

  /** Folder for short-lived files on the store's own disk, private to it. */
  get temporaryFolder(): string {
    return this.#temporary
  }

  /** Most bytes that a row holds itself. */
  get inlineLimit(): number {
    return this.#inlineLimit
  }

  stat(id: Hash): { readonly kind: ObjectKind; readonly size: number } | undefined {
    return this.#database.prepare<Row>('SELECT kind, size FROM object WHERE hash = ?').get(Buffer.from(id, 'hex'))
  }

  /** Notes that every blob of an index is here: what is stored stays stored. */
  vouchFor(index: object): void {
    this.#vouched.add(index)
  }

  /** Whether it need not be asked blob by blob. */
  vouchesFor(index: object): boolean {
    return this.#vouched.has(index)
  }

  has(id: Hash, ...kinds: readonly ObjectKind[]): boolean {
    const found = this.stat(id)
    return found !== undefined && kinds.includes(found.kind)
  }

  /** Stores a small object under its (given, right) hash. What is stored already is compared, and mended when it is damaged. */
  putRow(kind: ObjectKind, hash: Buffer, data: Uint8Array): void {
    const known = this.#database.prepare<Row>('SELECT kind, size, data FROM object WHERE hash = ?').get(hash)
    if (known === undefined) {
      this.#database
        .prepare('INSERT INTO object (hash, kind, size, data) VALUES (?, ?, ?, ?)')
        .run(hash, kind, data.length, data)
    } else if (known.data === null ? !this.#fileIsRight(hash.toString('hex'), known.size) : !known.data.equals(data)) {
      this.#database
        .prepare('UPDATE object SET kind = ?, size = ?, data = ? WHERE hash = ?')
        .run(kind, data.length, data, hash)
    }
  }

  putBlob(bytes: Uint8Array): BlobId {
    const hash = this.#hasher.hash(bytes)
    const id = hash.toString('hex')
    if (bytes.length <= this.#inlineLimit) {
      this.#database.join(() => this.putRow(objectKind.blob, hash, bytes))
      return id
    }
    const writer = this.blobWriter()
    try {
      writer.write(bytes)
      this.putPending([writer.finish()])
    } finally {
      writer.abandon()
    }
    return id
  }

  /** Writes the rows of blobs whose bytes are ready, in one transaction. */
  putPending(pending: readonly PendingBlob[]): void {
    const folders = new Set(pending.flatMap((blob) => (blob.folder === null ? [] : [blob.folder])))
    for (const folder of folders) syncPath(folder)
    // A folder may itself be new, or be left by a process that died before it could say so.
    if (folders.size > 0) syncPath(this.#blobs)
    this.#database.transaction(() => {
      for (const blob of pending) {
        const hash = Buffer.from(blob.id, 'hex')
        if (blob.data !== null) this.putRow(objectKind.blob, hash, blob.data)
        else {
          this.#database
            .prepare(
              'INSERT INTO object (hash, kind, size) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET data = NULL, size = excluded.size',
            )
            .run(hash, objectKind.blob, blob.size)
        }
      }
    })
  }

  /** Takes a blob in pieces. It stays in memory up to the inline limit and goes to a file beyond it. */
  blobWriter(): BlobWriter {
    return new BlobWriter({
      hasher: this.#hasher,
      inlineLimit: this.#inlineLimit,
      temporary: () => join(this.#temporary, `blob-${this.#counter++}`),
      place: (id, temporary, size) => this.#placeFile(id, temporary, size),
    })
  }

  /** All bytes of an object, verified. */
  read(id: Hash, kind: ObjectKind): Buffer {
    const row = this.#row(id, kind)
    if (row.data !== null) {
      this.#verify(id, kind, row.data, row.size)
      return row.data
    }
    if (row.size > maxWholeBytes) {
      throw new StoreError('too_large', `blob ${id} has ${row.size} bytes, too many to read at once`, {
        hash: id,
        hint: 'read it as a stream',
      })
    }
    const fd = this.#openFile(id)
    try {
      const bytes = readAll(fd, row.size + 1)
      this.#verify(id, kind, bytes, row.size)
      return bytes
    } finally {
      closeSync(fd)
    }
  }

  /** The pieces of a blob in order; its end is reached only when the hash is right. */
  *pieces(id: BlobId): Generator<Buffer, void, undefined> {
    const row = this.#row(id, objectKind.blob)
    if (row.data !== null) {
      this.#verify(id, objectKind.blob, row.data, row.size)
      yield row.data
      return
    }
    const fd = this.#openFile(id)
    try {
      const hash = this.#hasher.stream()
      for (;;) {
        // A fresh buffer each time: the reader may keep the piece.
        const piece = Buffer.allocUnsafe(pieceBytes)
        const length = readSync(fd, piece, 0, pieceBytes, null)
        if (length === 0) break
        hash.update(piece.subarray(0, length))
        yield piece.subarray(0, length)
      }
      if (hash.digest().toString('hex') !== id) throw corrupt(id, objectKind.blob, this.#filePath(id))
    } finally {
      closeSync(fd)
    }
  }

  /** Size of a blob in bytes. */
  size(id: BlobId): number {
    return this.#row(id, objectKind.blob, false).size
  }

  /** The hash of an object of that kind. */
  hashOf(kind: ObjectKind, bytes: Uint8Array): Buffer {
    if (kind === objectKind.blob) return this.#hasher.hash(bytes)
    return this.#hasher.keyed(kind === objectKind.directory ? treeKeys.directory : treeKeys.chunk, bytes)
  }

  #row(id: Hash, kind: ObjectKind, withData = true): Row {
    if (!/^[0-9a-f]{64}$/.test(id))
      throw new StoreError('bad_argument', `${JSON.stringify(id)} is not an id: 64 lowercase hex digits are`, {})
    const columns = withData ? 'kind, size, data' : 'kind, size'
    const row = this.#database.prepare<Row>(`SELECT ${columns} FROM object WHERE hash = ?`).get(Buffer.from(id, 'hex'))
    if (row === undefined) throw new StoreError('not_found', `there is no ${kindNames[kind]} ${id}`, { hash: id })
    if (row.kind !== kind)
      throw new StoreError('not_found', `${id} is a ${kindNames[row.kind]}, not a ${kindNames[kind]}`, { hash: id })
    return row
  }

  #verify(id: Hash, kind: ObjectKind, bytes: Buffer, size: number): void {
    if (bytes.length === size && this.hashOf(kind, bytes).toString('hex') === id) return
    throw corrupt(id, kind, bytes.length > this.#inlineLimit ? this.#filePath(id) : this.#database.file)
  }

  #filePath(id: BlobId): string {
    return join(this.#blobs, id.slice(0, 2), id.slice(2))
  }

  #openFile(id: BlobId): number {
    const path = this.#filePath(id)
    try {
      return openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW)
    } catch (error) {
      throw new StoreError('corrupt', `blob ${id} cannot be read: ${messageOf(error)}`, {
        hash: id,
        path,
        cause: error,
        hint: restoreHint,
      })
    }
  }

  #fileIsRight(id: BlobId, size: number): boolean {
    try {
      const fd = openSync(this.#filePath(id), constants.O_RDONLY | constants.O_NOFOLLOW)
      try {
        if (fstatSync(fd).size !== size) return false
        const hash = this.#hasher.stream()
        const piece = Buffer.allocUnsafe(pieceBytes)
        for (let length = readSync(fd, piece); length > 0; length = readSync(fd, piece))
          hash.update(piece.subarray(0, length))
        return hash.digest().toString('hex') === id
      } finally {
        closeSync(fd)
      }
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ELOOP', 'EIO')) return false
      throw error
    }
  }

  /** Puts a written file in its place, its bytes durable; the folder is still to be synced. Gives the folder. */
  #placeFile(id: BlobId, temporary: { readonly path: string; readonly fd: number }, size: number): string {
    const folder = join(this.#blobs, id.slice(0, 2))
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    // The same bytes are there already: not written twice, but a damaged file is replaced.
    if (this.#fileIsRight(id, size)) rmSync(temporary.path)
    else {
      fsyncSync(temporary.fd)
      renameSync(temporary.path, this.#filePath(id))
    }
    return folder
  }

  /** The blob files that are there, by id. */
  *files(): Generator<{ readonly id: string; readonly path: string }, void, undefined> {
    for (const shard of readdirSync(this.#blobs)) {
      for (const rest of readdirSync(join(this.#blobs, shard)))
        yield { id: shard + rest, path: join(this.#blobs, shard, rest) }
    }
  }
}

const restoreHint = 'restore the store from a backup, or put the same bytes in again: that mends the object'

const corrupt = (id: Hash, kind: ObjectKind, where: string): StoreError =>
  new StoreError('corrupt', `${kindNames[kind]} ${id} is damaged: its bytes in ${where} do not have that hash`, {
    hash: id,
    path: where,
    hint: restoreHint,
  })

/** Reads up to `limit` bytes from the file's position. */
export function readAll(fd: number, limit: number): Buffer {
  const bytes = Buffer.allocUnsafe(limit)
  let filled = 0
  while (filled < limit) {
    const length = readSync(fd, bytes, filled, limit - filled, null)
    if (length === 0) break
    filled += length
  }
  return bytes.subarray(0, filled)
}

type WriterParts = {
  readonly hasher: Hasher
  readonly inlineLimit: number
  readonly temporary: () => string
  readonly place: (id: BlobId, temporary: { readonly path: string; readonly fd: number }, size: number) => string
}

/** A blob that arrives in pieces. `finish` makes its bytes durable; `abandon` drops what is unfinished, and is harmless after. */
export class BlobWriter {
  readonly #parts: WriterParts
  readonly #hash
  #memory: Buffer[] = []
  #size = 0
  #file: { readonly path: string; readonly fd: number } | undefined

  constructor(parts: WriterParts) {
    this.#parts = parts
    this.#hash = parts.hasher.stream()
  }

  get size(): number {
    return this.#size
  }

  write(bytes: Uint8Array): void {
    this.#hash.update(bytes)
    this.#size += bytes.length
    if (this.#file === undefined && this.#size <= this.#parts.inlineLimit) {
      this.#memory.push(Buffer.from(bytes))
      return
    }
    if (this.#file === undefined) {
      const path = this.#parts.temporary()
      this.#file = { path, fd: openSync(path, 'wx', 0o600) }
      for (const piece of this.#memory) writeAll(this.#file.fd, piece)
      this.#memory = []
    }
    writeAll(this.#file.fd, bytes)
  }

  finish(): PendingBlob {
    const id = this.#hash.digest().toString('hex')
    const file = this.#file
    if (file === undefined) return { id, size: this.#size, data: Buffer.concat(this.#memory), folder: null }
    const folder = this.#parts.place(id, file, this.#size)
    closeSync(file.fd)
    this.#file = undefined
    return { id, size: this.#size, data: null, folder }
  }

  abandon(): void {
    if (this.#file === undefined) return
    closeSync(this.#file.fd)
    rmSync(this.#file.path, { force: true })
    this.#file = undefined
  }
}

/** Writes all bytes, however many calls that takes. */
export function writeAll(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at)
}
