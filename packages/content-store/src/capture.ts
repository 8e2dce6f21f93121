import { closeSync, constants, fstatSync, lstatSync, openSync, readlinkSync, readSync, type BigIntStats } from 'node:fs'
import type { Database } from './database.ts'
import { hasCode, StoreError } from './errors.ts'
import { type HostDir, Pace } from './host-dir.ts'
import { IgnoreRules } from './ignore-rules.ts'
import { failed, type IndexEntry, indexEntry, type LayoutIndex, openRoot } from './layout.ts'
import { type ByteName, isDotGit, nameFault } from './names.ts'
import { objectKind, type Objects, type PendingBlob, pieceBytes, readAll } from './objects.ts'
import { childPath, encodePath, maxDepth, splitPath } from './path.ts'
import type { DirEntry } from './tree-encoding.ts'
import type { EncodedDirectory } from './tree-chunks.ts'
import { find, tooDeep, type Trees } from './trees.ts'
import type { StorePath, TreeId } from './types.ts'

export type CaptureOptions = {
  /** The tree that the folder was laid out from: gitlinks, excluded directories and tracked files are known from it. */
  readonly base?: TreeId | undefined
  /** From the `layout` or `capture` of the same folder: files whose stat data did not change are not read. */
  readonly index?: LayoutIndex | undefined
  /** Lines in the syntax of `.gitignore`, for the root: what matches and is not in the base is left out. */
  readonly ignore?: readonly string[] | undefined
  /** Directories that are not looked at: a name for any depth (`target`), or a path with a slash from the root (`web/dist`, `./out`). What the base has there stays. */
  readonly exclude?: readonly string[] | undefined
  /** Whether `.gitignore` files count: ignored files that the base does not have are left out (default false). */
  readonly gitignore?: boolean | undefined
  /** Refuse a larger file, in bytes. */
  readonly maxFileBytes?: number | undefined
  /** Leave a larger file out, in bytes: it is in `skipped`. */
  readonly leaveOutLarger?: number | undefined
  readonly signal?: AbortSignal | undefined
  /** Called now and then with the files seen so far. */
  readonly onProgress?: ((seen: { readonly files: number; readonly bytes: number }) => void) | undefined
}

/** Why something is not in the captured tree. */
export type SkipReason = 'too_large' | 'dotgit' | 'bad_name' | 'fifo' | 'socket' | 'device' | 'gitlink_content'

export type CaptureReport = {
  readonly tree: TreeId
  /** What could not be part of a tree. */
  readonly skipped: readonly { readonly path: StorePath; readonly why: SkipReason }[]
  /** Symbolic links that lead out of the folder: kept as they are. `target` is shown like a path, `\xHH` for odd bytes. */
  readonly links: readonly { readonly path: StorePath; readonly target: string }[]
  /** Excluded directories that were there. */
  readonly excluded: readonly StorePath[]
  /** Files that changed while they were read: the tree holds what was read. */
  readonly unstable: readonly StorePath[]
  readonly files: number
  /** Files whose bytes were read; the others were known from the index. */
  readonly read: number
  /** Bytes read. */
  readonly bytes: number
  readonly index: LayoutIndex
}

/** Most that waits in memory before it is written. */
const flushBytes = 8 << 20
const flushObjects = 2000

/** Largest `.gitignore` that is read. */
const maxIgnoreBytes = 1 << 20

type Place = {
  readonly host: HostDir
  readonly bytePath: string
  readonly path: StorePath
  readonly depth: number
  readonly base: readonly DirEntry[]
  readonly rules: IgnoreRules
  readonly trackedOnly: boolean
}

/** Reads a folder into a tree. No link is followed, nothing but regular files is opened. */
export class Capture {
  readonly #database: Database
  readonly #trees: Trees
  readonly #objects: Objects
  readonly #options: CaptureOptions
  readonly #pace: Pace
  readonly #excludeNames = new Set<ByteName>()
  readonly #excludePaths = new Set<string>()
  readonly #skipped: { readonly path: StorePath; readonly why: SkipReason }[] = []
  readonly #links: { readonly path: StorePath; readonly target: string }[] = []
  readonly #excluded: StorePath[] = []
  readonly #unstable: StorePath[] = []
  readonly #index = new Map<string, IndexEntry>()
  #blobs: PendingBlob[] = []
  #directories: EncodedDirectory[] = []
  #waiting = 0
  #files = 0
  #read = 0
  #bytes = 0

  constructor(
    parts: { readonly database: Database; readonly trees: Trees; readonly objects: Objects },
    options: CaptureOptions,
  ) {
    this.#database = parts.database
    this.#trees = parts.trees
    this.#objects = parts.objects
    this.#options = options
    this.#pace = new Pace(options.signal)
    for (const line of options.exclude ?? []) {
      const names = splitPath(line)
      if (names.length === 0)
        throw new StoreError('bad_argument', 'the whole folder cannot be excluded from its capture')
      if (names.length === 1 && !line.slice(0, -1).includes('/')) this.#excludeNames.add(names[0] ?? '')
      else this.#excludePaths.add(names.join('/'))
    }
  }

  /** @param startedNs the wall clock, in nanoseconds, before anything was read. */
  async run(dir: string, startedNs: bigint): Promise<CaptureReport> {
    const { base, ignore, signal } = this.#options
    signal?.throwIfAborted()
    const host = openRoot(dir)
    let rows
    try {
      const lines = ignore === undefined ? '' : Buffer.from(ignore.join('\n'), 'utf8').toString('latin1')
      rows = await this.#directory({
        host,
        bytePath: '',
        path: '',
        depth: 0,
        base: base === undefined ? [] : this.#trees.directory(base),
        rules: IgnoreRules.none.with('', lines),
        trackedOnly: false,
      })
    } finally {
      host.close()
    }
    const root = this.#keep(rows.entries, base)
    this.#flush()
    // Clocks of kernel and process differ by a tick: what changed in the last moments is read again next time.
    const index: LayoutIndex = { entries: this.#index, trustBefore: startedNs - 50_000_000n }
    this.#objects.vouchFor(index)
    return {
      tree: root,
      skipped: this.#skipped,
      links: this.#links,
      excluded: this.#excluded,
      unstable: this.#unstable,
      files: this.#files,
      read: this.#read,
      bytes: this.#bytes,
      index,
    }
  }

  /** The entries of a directory, and whether anything in it was left out on purpose. */
  async #directory(place: Place): Promise<{ readonly entries: readonly DirEntry[]; readonly filtered: boolean }> {
    if (place.depth > maxDepth) throw tooDeep(place.path)
    const names = attempt(place.path || '.', () => place.host.names())
    const rules =
      this.#options.gitignore === true && names.includes('.gitignore') ? this.#withGitignore(place) : place.rules
    const entries: DirEntry[] = []
    let filtered = false
    const here = { ...place, rules }
    for (const name of names) {
      await this.#pace.step()
      const entry = await this.#entry(here, name)
      if (entry === 'filtered') filtered = true
      else if (entry !== undefined) entries.push(entry)
    }
    const seen = new Set(names)
    for (const entry of place.base) {
      // Excluded is not deleted: the base's directory stays though the folder has none.
      if (!seen.has(entry.name) && entry.kind === 'directory' && this.#isExcluded(entry.name, below(place, entry.name)))
        entries.push(entry)
    }
    entries.sort((a, b) => (a.name < b.name ? -1 : 1))
    return { entries, filtered }
  }

  async #entry(place: Place, name: ByteName): Promise<DirEntry | 'filtered' | undefined> {
    const path = childPath(place.path, name)
    const bytePath = below(place, name)
    const before = find(place.base, name)
    const stat = attempt(path, () => lstatSync(place.host.child(name), { bigint: true, throwIfNoEntry: false }))
    // Gone since the directory was read.
    if (stat === undefined) return undefined
    if (stat.isDirectory() && this.#isExcluded(name, bytePath)) {
      this.#excluded.push(path)
      return before ?? 'filtered'
    }
    if (nameFault(name) !== undefined) {
      this.#skipped.push({ path, why: isDotGit(name) ? 'dotgit' : 'bad_name' })
      return 'filtered'
    }
    const ignored = place.trackedOnly || place.rules.ignores(bytePath, stat.isDirectory())
    if (ignored && before === undefined) return 'filtered'
    if (stat.isDirectory()) return this.#subdirectory(place, name, before, ignored)
    if (stat.isSymbolicLink()) return this.#symlink(place, name, path)
    if (stat.isFile()) return this.#file(place, name, path, bytePath, stat)
    this.#skipped.push({ path, why: stat.isFIFO() ? 'fifo' : stat.isSocket() ? 'socket' : 'device' })
    return 'filtered'
  }

  async #subdirectory(
    place: Place,
    name: ByteName,
    before: DirEntry | undefined,
    ignored: boolean,
  ): Promise<DirEntry | 'filtered' | undefined> {
    const path = childPath(place.path, name)
    const bytePath = below(place, name)
    const host = attempt(path, () => place.host.directory(name))
    try {
      if (before?.kind === 'gitlink') {
        if (attempt(path, () => host.names()).length > 0) this.#skipped.push({ path, why: 'gitlink_content' })
        return before
      }
      const baseTree = before?.kind === 'directory' ? before.id : undefined
      const inner = await this.#directory({
        host,
        bytePath,
        path,
        depth: place.depth + 1,
        base: baseTree === undefined ? [] : this.#trees.directory(baseTree),
        rules: ignored ? place.rules : place.rules.inside(bytePath),
        trackedOnly: ignored,
      })
      // A directory that only holds what is left out would come back empty: it is left out as well.
      if (inner.entries.length === 0 && inner.filtered && baseTree === undefined) return 'filtered'
      return { name, kind: 'directory', id: this.#keep(inner.entries, baseTree) }
    } finally {
      host.close()
    }
  }

  #symlink(place: Place, name: ByteName, path: StorePath): DirEntry {
    const target = attempt(path, () => readlinkSync(place.host.child(name), 'buffer'))
    if (leadsOut(target.toString('latin1'), place.depth)) this.#links.push({ path, target: encodePath(target) })
    const hash = this.#objects.hashOf(objectKind.blob, target)
    const id = hash.toString('hex')
    this.#addBlob({ id, size: target.length, data: target, folder: null })
    return { name, kind: 'symlink', id }
  }

  #file(place: Place, name: ByteName, path: StorePath, bytePath: string, stat: BigIntStats): DirEntry | undefined {
    const { maxFileBytes, leaveOutLarger, index } = this.#options
    if (leaveOutLarger !== undefined && stat.size > leaveOutLarger) {
      this.#skipped.push({ path, why: 'too_large' })
      return undefined
    }
    if (maxFileBytes !== undefined && stat.size > maxFileBytes) {
      throw new StoreError(
        'too_large',
        `${path} has ${stat.size} bytes, more than the ${maxFileBytes} that are taken`,
        { path },
      )
    }
    this.#files += 1
    const known = index?.entries.get(bytePath)
    if (
      known !== undefined &&
      index !== undefined &&
      isSame(known, stat, index.trustBefore) &&
      (this.#objects.vouchesFor(index) || this.#objects.has(known.id, objectKind.blob))
    ) {
      this.#index.set(bytePath, known)
      return { name, kind: kindOf(stat), id: known.id }
    }
    // What changes while it is read is read once more; the id always names the bytes that were stored.
    const first = attempt(path, () => this.#readFile(place.host, name))
    const result = first?.stable === false ? attempt(path, () => this.#readFile(place.host, name)) : first
    if (result === undefined) return undefined
    if (result.stable) this.#index.set(bytePath, indexEntry(result.stat, result.blob.id))
    else this.#unstable.push(path)
    this.#read += 1
    this.#bytes += result.blob.size
    this.#addBlob(result.blob)
    this.#options.onProgress?.({ files: this.#files, bytes: this.#bytes })
    return { name, kind: kindOf(result.stat), id: result.blob.id }
  }

  #readFile(
    host: HostDir,
    name: ByteName,
  ): { readonly blob: PendingBlob; readonly stat: BigIntStats; readonly stable: boolean } | undefined {
    let fd: number
    try {
      // Not blocking: the file may have become a fifo meanwhile.
      fd = openSync(host.child(name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ELOOP')) return undefined
      throw error
    }
    const writer = this.#objects.blobWriter()
    try {
      const stat = fstatSync(fd, { bigint: true })
      if (!stat.isFile()) return undefined
      if (stat.size <= this.#objects.inlineLimit) writer.write(readAll(fd, Number(stat.size)))
      const piece = Buffer.allocUnsafe(stat.size <= this.#objects.inlineLimit ? 4096 : pieceBytes)
      for (let length = readSync(fd, piece); length > 0; length = readSync(fd, piece))
        writer.write(piece.subarray(0, length))
      const after = fstatSync(fd, { bigint: true })
      const stable = after.size === stat.size && after.ctimeNs === stat.ctimeNs && BigInt(writer.size) === after.size
      return { blob: writer.finish(), stat: after, stable }
    } finally {
      writer.abandon()
      closeSync(fd)
    }
  }

  #withGitignore(place: Place): IgnoreRules {
    let fd: number
    try {
      fd = openSync(place.host.child('.gitignore'), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    } catch (error) {
      // git does not follow a link here either.
      if (hasCode(error, 'ENOENT', 'ELOOP', 'ENXIO')) return place.rules
      throw failed(childPath(place.path, '.gitignore'), error)
    }
    try {
      const stat = fstatSync(fd)
      if (!stat.isFile() || stat.size > maxIgnoreBytes) return place.rules
      return place.rules.with(place.bytePath, readAll(fd, stat.size).toString('latin1'))
    } finally {
      closeSync(fd)
    }
  }

  #isExcluded(name: ByteName, bytePath: string): boolean {
    return this.#excludeNames.has(name) || this.#excludePaths.has(bytePath)
  }

  #addBlob(blob: PendingBlob): void {
    this.#blobs.push(blob)
    this.#grow(blob.data?.length ?? 0)
  }

  /** Notes a directory for writing, unless the base has the very same one. */
  #keep(entries: readonly DirEntry[], base: TreeId | undefined): TreeId {
    const directory = this.#trees.encode(entries)
    if (directory.id === base) return directory.id
    this.#directories.push(directory)
    this.#grow(directory.rows.reduce((sum, row) => sum + row.data.length, 0))
    return directory.id
  }

  #grow(bytes: number): void {
    this.#waiting += bytes
    if (this.#waiting > flushBytes || this.#blobs.length + this.#directories.length > flushObjects) this.#flush()
  }

  #flush(): void {
    this.#database.transaction(() => {
      this.#objects.putPending(this.#blobs)
      for (const directory of this.#directories) this.#trees.putEncoded(directory)
    })
    this.#blobs = []
    this.#directories = []
    this.#waiting = 0
  }
}

const below = (place: Place, name: ByteName): string => (place.bytePath === '' ? name : `${place.bytePath}/${name}`)

const kindOf = (stat: BigIntStats): 'file' | 'executable' => ((stat.mode & 0o100n) === 0n ? 'file' : 'executable')

const isSame = (known: IndexEntry, stat: BigIntStats, trustBefore: bigint): boolean =>
  known.ino === stat.ino &&
  known.size === stat.size &&
  known.ctimeNs === stat.ctimeNs &&
  known.mode === stat.mode &&
  known.ctimeNs < trustBefore

function attempt<T>(path: StorePath, call: () => T): T {
  try {
    return call()
  } catch (error) {
    throw failed(path, error)
  }
}

/** Whether a link in a directory so deep leads out of the folder, as far as its text tells. */
function leadsOut(target: string, depth: number): boolean {
  if (target.startsWith('/')) return true
  let level = depth
  for (const name of target.split('/')) {
    if (name === '..') level -= 1
    else if (name !== '' && name !== '.') level += 1
    if (level < 0) return true
  }
  return false
}
