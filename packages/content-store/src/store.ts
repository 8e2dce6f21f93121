import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type Lock, LockFileError, LockHeldError, tryAcquireLock } from '@reve/base'
import { backup, type BackupOptions, type BackupReport } from './backup.ts'
import { Branches } from './branches.ts'
import { Capture, type CaptureOptions, type CaptureReport } from './capture.ts'
import { Database, makeRoot, refuseUnsafeFilesystem, type SqlDatabase } from './database.ts'
import { StoreError } from './errors.ts'
import { type FsActions, fsActions } from './fs.ts'
import { fsck, type FsckOptions, type FsckReport } from './fsck.ts'
import { findGarbage, type Garbage, type GarbageOptions } from './garbage.ts'
import { chooseHasher, type Hasher } from './hasher.ts'
import { failed, Layout, type LayoutOptions, type LayoutReport } from './layout.ts'
import { gitMerger } from './merge-text.ts'
import { objectKind, Objects } from './objects.ts'
import { splitPath } from './path.ts'
import { type StoreStats, storeStats } from './stats.ts'
import { putBlobFile, putBlobStream } from './blob-input.ts'
import { Refs } from './refs.ts'
import { Snapshots } from './snapshots.ts'
import { diffTrees } from './tree-diff.ts'
import { Trees } from './trees.ts'
import { update, type UpdateOptions, type UpdateReport } from './update.ts'
import type { BlobId, Edit, StorePath, Target, TreeChange, TreeEntry, TreeId, Walked } from './types.ts'

export type OpenOptions = {
  /** Milliseconds since 1970, for histories (default `Date.now`). */
  readonly now?: (() => number) | undefined
  /** Make the store when the folder holds none (default true). With false such a folder is refused as `not_a_store`. */
  readonly create?: boolean | undefined
  /** Largest blob that is kept in the database, in bytes (default 65,536, at most 16 MiB). */
  readonly inlineLimit?: number | undefined
  /** `take` (default) holds `lockPath(root)` until close, so that a store has one owner; `caller`: the caller holds it already. */
  readonly lock?: 'take' | 'caller' | undefined
  /** Accept a root on a network or shared file system, where a database can be damaged. */
  readonly allowNetworkFilesystem?: boolean | undefined
  /** Path of the git program that merges texts (default: `git` in the usual places). */
  readonly git?: string | undefined
}

/** A row beyond this is slow to read and to write. */
const maxInlineLimit = 16 << 20

/** The file whose lock makes a process the owner of the store at `root`. */
export const lockPath = (root: string): string => join(root, 'kc.lock')

/** A store of blobs, trees and refs in one folder. Everything but layout, capture, merge, search and fsck is synchronous. */
export interface Store extends AsyncDisposable {
  readonly root: string
  /** Which BLAKE3 runs: `native`, `wasm` or `js`. */
  readonly hasher: Hasher['name']

  /**
   * Brings an owner's tables in `kc.db` to its newest version: each text of SQL is one step, run once, in order. Name the
   * tables after the namespace. @throws StoreError `newer_format`.
   */
  registerSchema(namespace: string, migrations: readonly string[]): void
  /**
   * Runs `fn` in one durable transaction (BEGIN IMMEDIATE, synchronous=FULL); store calls inside belong to it. A nested call joins
   * the outer one, and is undone alone when it throws. `fn` must not wait.
   */
  transaction<T>(fn: (database: SqlDatabase) => T): T

  /** Stores bytes. Durable when it returns (inside a transaction: with it). */
  putBlob(bytes: Uint8Array): BlobId
  /** Stores a regular file's bytes, in pieces. @throws StoreError `not_found`, `not_a_file`. */
  putBlobFile(path: string): Promise<BlobId>
  /** Stores what a stream gives. */
  putBlobStream(stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<BlobId>
  /** All bytes of a blob up to 1 GiB; the hash is verified. @throws StoreError `not_found`, `corrupt`, `too_large`. */
  readBlob(id: BlobId): Buffer
  /** The bytes of a blob of any size, in pieces; a damaged blob throws `corrupt` at the end at the latest. */
  readBlobPieces(id: BlobId): Iterable<Buffer>
  hasBlob(id: BlobId): boolean
  /** Bytes. @throws StoreError `not_found`. */
  blobSize(id: BlobId): number

  readonly emptyTree: TreeId
  /** Stores one directory; order does not matter. @throws StoreError `bad_name`, `bad_argument` (twice the same name, wrong id), `not_found` (a child). */
  putTree(entries: readonly TreeEntry[]): TreeId
  /** The entries of one directory in the order of their bytes. @throws StoreError `not_found`, `corrupt`. */
  readTree(id: TreeId): readonly TreeEntry[]
  hasTree(id: TreeId): boolean
  /**
   * Applies edits in order and gives the new tree. Parents that a removal leaves empty are removed too; setting a path
   * replaces whatever stood there. @throws StoreError `bad_path`, `not_found`, `not_a_directory`.
   */
  editTree(tree: TreeId, edits: readonly Edit[]): TreeId
  /** What stands at a path (`''`: the tree itself), or undefined. No link is followed. */
  lookup(tree: TreeId, path: StorePath): Target | undefined
  /** Everything below a path, parents first, in the order of bytes. @throws StoreError `not_found`. */
  walk(tree: TreeId, path?: StorePath): Iterable<Walked>
  /** Paths that differ from `a` to `b`; equal subtrees are not opened. Directories count where they are empty. */
  diffTrees(a: TreeId, b: TreeId): Iterable<TreeChange>

  readonly refs: Refs
  readonly branches: Branches
  readonly snapshots: Snapshots
  readonly fs: FsActions

  /**
   * Writes a tree into a new or empty folder. Nothing is written over, or through a link; a failure leaves what was written so
   * far. @throws StoreError `exists` (also for two names that the disk takes for one), `corrupt`, `io`, `not_found`.
   */
  layout(tree: TreeId, dir: string, options?: LayoutOptions): Promise<LayoutReport>
  /**
   * Makes a folder that holds one tree hold another: only what differs is touched, no link is followed, and what neither tree
   * has stays. @throws StoreError `not_found`, `corrupt`, `io`, `exists` for what is put in the way meanwhile.
   */
  update(dir: string, change: { readonly from: TreeId; readonly to: TreeId } & UpdateOptions): Promise<UpdateReport>
  /** Reads a folder into a tree. @throws StoreError `io` naming what cannot be read, `too_large`, `not_found`. */
  capture(dir: string, options?: CaptureOptions): Promise<CaptureReport>
  /** Checks everything that is stored. */
  fsck(options?: FsckOptions): Promise<FsckReport>
  /** How much there is. */
  stats(): StoreStats
  /** What nothing names any more; a dry run, nothing is removed. @throws StoreError `corrupt`, `not_found`. */
  garbage(options?: GarbageOptions): Promise<Garbage>
  /**
   * Copies the store, while it is in use, into a new folder or over an earlier backup. @throws StoreError `exists` for a folder
   * that holds something else, `io`.
   */
  backup(dir: string, options?: BackupOptions): Promise<BackupReport>
  /** Gives up the store and its lock. Harmless when done twice. */
  close(): void
}

/**
 * Opens the store in `root`, making it (0700) if need be.
 *
 * @throws StoreError `locked` by another owner, `not_a_store`, `newer_format`, `corrupt`, `unsupported_filesystem`, `io`.
 */
export async function openStore(root: string, options: OpenOptions = {}): Promise<Store> {
  const hasher = await chooseHasher()
  const inlineLimit = options.inlineLimit ?? 65_536
  if (!(inlineLimit >= 0 && inlineLimit <= maxInlineLimit)) {
    throw new StoreError('bad_argument', `inlineLimit is ${inlineLimit}; it is 0 to ${maxInlineLimit} bytes`)
  }
  try {
    return open(root, options, hasher, inlineLimit)
  } catch (error) {
    throw failed(root, error)
  }
}

function open(root: string, options: OpenOptions, hasher: Hasher, inlineLimit: number): Store {
  const create = options.create ?? true
  if (create) makeRoot(root)
  else if (!existsSync(join(root, 'kc.db'))) {
    throw new StoreError('not_a_store', `${root} holds no store: there is no kc.db`, { path: root })
  }
  if (options.allowNetworkFilesystem !== true) refuseUnsafeFilesystem(root)
  const lock = options.lock === 'caller' ? undefined : take(root)
  try {
    const database = Database.open(root, create)
    const objects = new Objects({ database, hasher, root, inlineLimit })
    return assemble({ root, database, objects, hasher, lock, now: options.now ?? Date.now, git: options.git })
  } catch (error) {
    lock?.release()
    throw error
  }
}

function take(root: string): Lock {
  try {
    return tryAcquireLock(lockPath(root))
  } catch (error) {
    if (error instanceof LockFileError) throw new StoreError('io', error.message, { cause: error, path: root })
    if (!(error instanceof LockHeldError)) throw error
    throw new StoreError(
      'locked',
      `the store in ${root} is open in ${error.pid === undefined ? 'another process' : `process ${error.pid}`}`,
      {
        cause: error,
        path: root,
        ...(error.pid === undefined ? {} : { pid: error.pid }),
      },
    )
  }
}

function assemble(parts: {
  readonly root: string
  readonly database: Database
  readonly objects: Objects
  readonly hasher: Hasher
  readonly lock: Lock | undefined
  readonly now: () => number
  readonly git: string | undefined
}): Store {
  const { root, database, objects, now } = parts
  const trees = new Trees(database, objects)
  const refs = new Refs(database, trees, now)
  const mergeText = gitMerger({ temporaryFolder: objects.temporaryFolder, git: parts.git })
  let open = true
  const close = (): void => {
    if (!open) return
    open = false
    database.close()
    parts.lock?.release()
  }
  return {
    root,
    hasher: parts.hasher.name,
    registerSchema: (namespace, migrations) => database.migrate(namespace, migrations),
    transaction: (fn) => database.transaction(() => fn(database)),
    putBlob: (bytes) => objects.putBlob(bytes),
    putBlobFile: (path) => putBlobFile(objects, path),
    putBlobStream: (stream) => putBlobStream(objects, stream),
    readBlob: (id) => objects.read(id, objectKind.blob),
    readBlobPieces: (id) => objects.pieces(id),
    hasBlob: (id) => objects.has(id, objectKind.blob),
    blobSize: (id) => objects.size(id),
    emptyTree: trees.emptyTree,
    putTree: (entries) => trees.put(entries),
    readTree: (id) => trees.read(id),
    hasTree: (id) => trees.has(id),
    editTree: (tree, edits) => trees.edit(tree, edits),
    lookup: (tree, path) => trees.lookup(tree, splitPath(path)),
    walk: (tree, path) => trees.walk(tree, path),
    diffTrees: (a, b) => diffTrees(trees, a, b),
    refs,
    branches: new Branches({ database, objects, trees, refs, mergeText }),
    snapshots: new Snapshots(database, refs, now),
    fs: fsActions({ database, objects, trees, refs }),
    layout: (tree, dir, layoutOptions) => new Layout(trees, objects, layoutOptions ?? {}).run(tree, dir),
    capture: (dir, captureOptions) =>
      new Capture({ database, trees, objects }, captureOptions ?? {}).run(dir, BigInt(Math.trunc(now())) * 1_000_000n),
    update: (dir, change) => update({ trees, objects }, dir, change),
    stats: () => storeStats(database),
    garbage: (garbageOptions) => findGarbage({ database, objects, emptyTree: trees.emptyTree }, garbageOptions),
    backup: (dir, backupOptions) => backup({ database, objects, root }, dir, backupOptions),
    fsck: (fsckOptions) => fsck({ database, objects, trees }, fsckOptions),
    close,
    [Symbol.asyncDispose]: async () => close(),
  }
}
