import {
  closeSync,
  constants,
  fchownSync,
  fstatSync,
  futimesSync,
  lchownSync,
  mkdirSync,
  openSync,
  symlinkSync,
  type BigIntStats,
} from 'node:fs'
import { messageOf } from '@reve/base'
import { hasCode, StoreError } from './errors.ts'
import { HostDir, Pace } from './host-dir.ts'
import type { ByteName } from './names.ts'
import { objectKind, type Objects, writeAll } from './objects.ts'
import { childPath, maxDepth } from './path.ts'
import type { DirEntry } from './tree-encoding.ts'
import { tooDeep, type Trees } from './trees.ts'
import type { BlobId, StorePath, TreeId } from './types.ts'

/** What a file looked like when its blob was known. */
export type IndexEntry = {
  readonly ino: bigint
  readonly size: bigint
  readonly ctimeNs: bigint
  readonly mode: bigint
  readonly id: BlobId
}

/**
 * What `capture` may trust instead of reading a file again: by the path's bytes (latin1). An entry counts only when the file
 * changed last before `trustBefore`, because within one tick of the file system's clock a second change cannot be seen.
 */
export type LayoutIndex = { readonly entries: ReadonlyMap<string, IndexEntry>; readonly trustBefore: bigint }

export type LayoutOptions = {
  /** Owner of everything that is made (needs root). */
  readonly owner?: { readonly uid: number; readonly gid: number } | undefined
  /** Modification time of all files, in milliseconds since 1970; default: the time at which they are written. */
  readonly mtimeMs?: number | undefined
  /** Lay out into a folder that is not empty: its directories are entered, anything else in the way is refused. */
  readonly allowExisting?: boolean | undefined
  readonly signal?: AbortSignal | undefined
}

export type LayoutReport = {
  readonly files: number
  readonly directories: number
  readonly symlinks: number
  /** Bytes of files written. */
  readonly bytes: number
  /** Commits of other repositories: laid out as empty directories. */
  readonly gitlinks: readonly StorePath[]
  readonly index: LayoutIndex
}

/** What of a stat goes into the index. */
export const indexEntry = (stat: BigIntStats, id: BlobId): IndexEntry => ({
  ino: stat.ino,
  size: stat.size,
  ctimeNs: stat.ctimeNs,
  mode: stat.mode,
  id,
})

/** Writes trees into folders. */
export class Layout {
  readonly #trees: Trees
  readonly #objects: Objects
  readonly #options: LayoutOptions
  readonly #pace: Pace
  readonly #index = new Map<string, IndexEntry>()
  readonly #gitlinks: StorePath[] = []
  #newest = 0n
  #files = 0
  #directories = 0
  #symlinks = 0
  #bytes = 0

  constructor(trees: Trees, objects: Objects, options: LayoutOptions) {
    this.#trees = trees
    this.#objects = objects
    this.#options = options
    this.#pace = new Pace(options.signal)
  }

  async run(tree: TreeId, dir: string): Promise<LayoutReport> {
    this.#options.signal?.throwIfAborted()
    try {
      mkdirSync(dir, { mode: 0o755 })
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw failed(dir, error)
    }
    const root = openRoot(dir)
    try {
      if (this.#options.allowExisting !== true && root.names().length > 0) {
        throw new StoreError('exists', `${dir} is not empty: a tree is laid out into an empty folder`, { path: dir })
      }
      this.#own(root.fd)
      await this.#directory(root, tree, '', '', 0)
    } finally {
      root.close()
    }
    return {
      files: this.#files,
      directories: this.#directories,
      symlinks: this.#symlinks,
      bytes: this.#bytes,
      gitlinks: this.#gitlinks,
      index: { entries: this.#index, trustBefore: this.#newest },
    }
  }

  async #directory(host: HostDir, tree: TreeId, bytePath: string, path: StorePath, depth: number): Promise<void> {
    if (depth > maxDepth) throw tooDeep(path)
    const entries = this.#trees.directory(tree)
    for (const entry of entries) {
      await this.#pace.step()
      const below = bytePath === '' ? entry.name : `${bytePath}/${entry.name}`
      const shown = childPath(path, entry.name)
      try {
        switch (entry.kind) {
          case 'file':
          case 'executable':
            this.#file(host, entry, below)
            break
          case 'symlink':
            this.#symlink(host, entry, shown)
            break
          case 'gitlink':
            this.#makeDirectory(host, entry.name).close()
            this.#gitlinks.push(shown)
            break
          case 'directory': {
            const child = this.#makeDirectory(host, entry.name)
            try {
              this.#directories += 1
              await this.#directory(child, entry.id, below, shown, depth + 1)
            } finally {
              child.close()
            }
            break
          }
          default:
            entry.kind satisfies never
        }
      } catch (error) {
        throw hasCode(error, 'EEXIST', 'ELOOP', 'ENOTDIR')
          ? this.#inTheWay(entries, entry, shown, error)
          : failed(shown, error)
      }
    }
  }

  #file(host: HostDir, entry: DirEntry, bytePath: string): void {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
    const fd = openSync(host.child(entry.name), flags, entry.kind === 'executable' ? 0o755 : 0o644)
    try {
      for (const piece of this.#objects.pieces(entry.id)) {
        writeAll(fd, piece)
        this.#bytes += piece.length
      }
      this.#own(fd)
      const { mtimeMs } = this.#options
      if (mtimeMs !== undefined) futimesSync(fd, mtimeMs / 1000, mtimeMs / 1000)
      const stat = fstatSync(fd, { bigint: true })
      this.#index.set(bytePath, indexEntry(stat, entry.id))
      if (stat.ctimeNs > this.#newest) this.#newest = stat.ctimeNs
      this.#files += 1
    } finally {
      closeSync(fd)
    }
  }

  #symlink(host: HostDir, entry: DirEntry, path: StorePath): void {
    const target = this.#objects.read(entry.id, objectKind.blob)
    if (target.length === 0 || target.includes(0)) {
      throw new StoreError(
        'bad_path',
        `${path}: no system makes a symbolic link whose target is ${target.length === 0 ? 'empty' : 'broken by a NUL byte'}`,
        { path },
      )
    }
    symlinkSync(target, host.child(entry.name))
    const { owner } = this.#options
    if (owner !== undefined) lchownSync(host.child(entry.name), owner.uid, owner.gid)
    this.#symlinks += 1
  }

  #makeDirectory(host: HostDir, name: ByteName): HostDir {
    try {
      mkdirSync(host.child(name), { mode: 0o755 })
    } catch (error) {
      if (!(hasCode(error, 'EEXIST') && this.#options.allowExisting === true)) throw error
    }
    const directory = host.directory(name)
    this.#own(directory.fd)
    return directory
  }

  #own(fd: number): void {
    const { owner } = this.#options
    if (owner !== undefined) fchownSync(fd, owner.uid, owner.gid)
  }

  /** Something has the name already: another name of the tree that this disk takes for the same, or a thing not of the tree. */
  #inTheWay(entries: readonly DirEntry[], entry: DirEntry, path: StorePath, cause: unknown): StoreError {
    const folded = fold(entry.name)
    const twin = entries.find((other) => other.name < entry.name && fold(other.name) === folded)
    if (twin !== undefined) {
      const other = childPath(path.split('/').slice(0, -1).join('/'), twin.name)
      return new StoreError(
        'exists',
        `${path} and ${other} are one name on this file system, which folds case or Unicode forms`,
        {
          path,
          cause,
          hint: 'rename one of them, or lay the tree out on a file system that tells them apart',
        },
      )
    }
    return new StoreError(
      'exists',
      `${path} cannot be laid out: something has that name already, and nothing is written over or through it`,
      { path, cause },
    )
  }
}

const fold = (name: ByteName): string =>
  Buffer.from(name, 'latin1').toString('utf8').normalize('NFC').toLowerCase().normalize('NFC')

/** Opens the folder that a caller named. */
export function openRoot(dir: string): HostDir {
  try {
    return HostDir.open(dir)
  } catch (error) {
    if (hasCode(error, 'ENOENT'))
      throw new StoreError('not_found', `there is no folder ${dir}`, { path: dir, cause: error })
    if (hasCode(error, 'ENOTDIR', 'ELOOP'))
      throw new StoreError('not_a_directory', `${dir} is a link or no folder`, { path: dir, cause: error })
    throw failed(dir, error)
  }
}

/** A failed system call as ours, naming the path. */
export const failed = (path: StorePath, error: unknown): unknown =>
  error instanceof Error && 'syscall' in error
    ? new StoreError('io', `${path}: ${messageOf(error)}`, { path, cause: error })
    : error
