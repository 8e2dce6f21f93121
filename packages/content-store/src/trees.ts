import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import type { ByteName } from './names.ts'
import { type ObjectKind, objectKind, type Objects } from './objects.ts'
import { childPath, encodeName, joinNames, maxDepth, splitPath } from './path.ts'
import { decodeDirectory, encodeDirectory, type EncodedDirectory } from './tree-chunks.ts'
import { canonicalEntries, decodeNode, type DirEntry } from './tree-encoding.ts'
import type { Edit, Hash, StorePath, Target, TreeEntry, TreeId, Walked } from './types.ts'

/** Entries of decoded directories that stay in memory. */
const cachedEntries = 400_000

/** Directories as values. */
export class Trees {
  readonly #database: Database
  readonly #objects: Objects
  readonly #cache = new Map<TreeId, readonly DirEntry[]>()
  #cached = 0
  readonly emptyTree: TreeId

  constructor(database: Database, objects: Objects) {
    this.#database = database
    this.#objects = objects
    this.emptyTree = database.transaction(() => this.writeDirectory([]))
  }

  has(id: TreeId): boolean {
    return this.#objects.has(id, objectKind.directory)
  }

  /** The entries of a directory, in order. */
  directory(id: TreeId): readonly DirEntry[] {
    const known = this.#cache.get(id)
    if (known !== undefined) {
      // Last used, last dropped.
      this.#cache.delete(id)
      this.#cache.set(id, known)
      return known
    }
    const entries = this.#decode(id)
    this.#cache.set(id, entries)
    this.#cached += entries.length + 1
    for (const [old, dropped] of this.#cache) {
      if (this.#cached <= cachedEntries || old === id) break
      this.#cache.delete(old)
      this.#cached -= dropped.length + 1
    }
    return entries
  }

  #decode(id: TreeId): readonly DirEntry[] {
    return named(id, () =>
      decodeDirectory(this.#objects.read(id, objectKind.directory), (chunk) =>
        this.#objects.read(chunk, objectKind.chunk),
      ),
    )
  }

  /** The objects that make up a directory; the entries are checked and in order. */
  encode(entries: readonly DirEntry[]): EncodedDirectory {
    return encodeDirectory(entries, (kind, data) => this.#objects.hashOf(kind, data))
  }

  /** Stores what `encode` made. */
  putEncoded(directory: EncodedDirectory): TreeId {
    for (const row of directory.rows) this.#objects.putRow(row.kind, row.hash, row.data)
    return directory.id
  }

  /** Stores a directory whose entries are checked, in order and present. */
  writeDirectory(entries: readonly DirEntry[]): TreeId {
    return this.putEncoded(this.encode(entries))
  }

  /**
   * Reads a stored directory, or a node of one, anew; tells each object that it names and that is not there.
   *
   * @throws StoreError `corrupt`, also when it is not the one encoding of its entries.
   */
  check(id: TreeId, kind: ObjectKind, missing: (child: Hash, message: string) => void): void {
    if (kind === objectKind.blob) return
    const node = named(id, () => decodeNode(this.#objects.read(id, kind)))
    const gone = 'chunks' in node ? node.chunks.filter((chunk) => !this.#objects.has(chunk.id, objectKind.chunk)) : []
    for (const chunk of gone) missing(chunk.id, `tree ${id}: there is no tree chunk ${chunk.id}`)
    if (kind === objectKind.directory && gone.length === 0 && this.encode(this.#decode(id)).id !== id) {
      throw new StoreError('corrupt', `tree ${id} is not cut into chunks as the format says`, { hash: id })
    }
    if ('chunks' in node) return
    for (const entry of node.entries) {
      try {
        this.checkTarget(entry, encodeName(entry.name))
      } catch (error) {
        if (!(error instanceof StoreError)) throw error
        missing(entry.id, `tree ${id}: ${error.message}`)
      }
    }
  }

  put(entries: readonly TreeEntry[]): TreeId {
    const sorted = canonicalEntries(
      entries.map((entry) => ({ name: Buffer.from(entry.name).toString('latin1'), kind: entry.kind, id: entry.id })),
    )
    return this.#database.transaction(() => {
      for (const entry of sorted) this.checkTarget(entry, encodeName(entry.name))
      return this.writeDirectory(sorted)
    })
  }

  /** Refuses an entry whose object is not there: a tree never names what the store does not have. */
  checkTarget(target: Target, path: StorePath): void {
    if (target.kind === 'gitlink') return
    const kind = target.kind === 'directory' ? objectKind.directory : objectKind.blob
    if (!this.#objects.has(target.id, kind)) {
      throw new StoreError(
        'not_found',
        `${path}: there is no ${kind === objectKind.directory ? 'tree' : 'blob'} ${target.id}`,
        { path, hash: target.id },
      )
    }
  }

  read(id: TreeId): readonly TreeEntry[] {
    return this.directory(id).map((entry) => ({
      name: Buffer.from(entry.name, 'latin1'),
      kind: entry.kind,
      id: entry.id,
    }))
  }

  /** What stands at a path, or undefined. */
  lookup(tree: TreeId, names: readonly ByteName[]): Target | undefined {
    let here: Target = { kind: 'directory', id: tree }
    for (const name of names) {
      if (here.kind !== 'directory') return undefined
      const entry = find(this.directory(here.id), name)
      if (entry === undefined) return undefined
      here = entry
    }
    return { kind: here.kind, id: here.id }
  }

  /** Everything below a path, parents before children, in the order of bytes. */
  *walk(tree: TreeId, path: StorePath = ''): Generator<Walked, void, undefined> {
    const start = this.lookup(tree, splitPath(path))
    if (start === undefined) throw new StoreError('not_found', `there is nothing at ${JSON.stringify(path)}`, { path })
    const root = joinNames(splitPath(path))
    if (start.kind !== 'directory') {
      yield { path: root, kind: start.kind, id: start.id }
      return
    }
    const stack: { readonly path: StorePath; readonly entries: readonly DirEntry[]; at: number }[] = [
      { path: root, entries: this.directory(start.id), at: 0 },
    ]
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const entry = top.entries[top.at++]
      if (entry === undefined) {
        stack.pop()
        continue
      }
      const here = childPath(top.path, entry.name)
      yield { path: here, kind: entry.kind, id: entry.id }
      if (entry.kind === 'directory') {
        if (stack.length >= maxDepth) throw tooDeep(here)
        stack.push({ path: here, entries: this.directory(entry.id), at: 0 })
      }
    }
  }

  /** Applies edits in their order; parents that a removal leaves empty go too. */
  edit(tree: TreeId, edits: readonly Edit[]): TreeId {
    const root = new Draft(this, tree)
    return this.#database.transaction(() => {
      for (const edit of edits) {
        const names = splitPath(edit.path)
        if (names.length === 0)
          throw new StoreError('bad_path', 'the root of a tree cannot be set or removed', { path: edit.path })
        if ('set' in edit) {
          const [entry] = canonicalEntries([{ ...edit.set, name: names.at(-1) ?? '' }])
          if (entry !== undefined) this.checkTarget(entry, edit.path)
          root.set(names, edit.set, edit.path)
        } else root.remove(names, edit.path)
      }
      return root.write()
    })
  }
}

/** Names the tree whose bytes a decoder refused. */
function named<T>(id: TreeId, decode: () => T): T {
  try {
    return decode()
  } catch (error) {
    if (!(error instanceof StoreError && error.code === 'corrupt' && error.details.hash === undefined)) throw error
    throw new StoreError('corrupt', `tree ${id}: ${error.message}`, { hash: id, cause: error })
  }
}

export const tooDeep = (path: StorePath): StoreError =>
  new StoreError('too_large', `${path.slice(0, 80)}… is nested more than ${maxDepth} deep`, { path })

/** The entry of a name, by halving. */
export function find(entries: readonly DirEntry[], name: ByteName): DirEntry | undefined {
  let low = 0
  let high = entries.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const entry = entries[middle]
    if (entry === undefined) return undefined
    if (entry.name === name) return entry
    if (entry.name < name) low = middle + 1
    else high = middle
  }
  return undefined
}

/** A directory that is being changed: only what an edit touches is opened. */
class Draft {
  readonly #trees: Trees
  readonly #id: TreeId
  #entries: Map<ByteName, Target | Draft> | undefined

  constructor(trees: Trees, id: TreeId) {
    this.#trees = trees
    this.#id = id
  }

  open(): Map<ByteName, Target | Draft> {
    this.#entries ??= new Map(
      this.#trees.directory(this.#id).map((entry) => [entry.name, { kind: entry.kind, id: entry.id }]),
    )
    return this.#entries
  }

  child(name: ByteName): Draft | 'missing' | 'other' {
    const found = this.open().get(name)
    if (found === undefined) return 'missing'
    if (found instanceof Draft) return found
    if (found.kind !== 'directory') return 'other'
    const child = new Draft(this.#trees, found.id)
    this.open().set(name, child)
    return child
  }

  set(names: readonly ByteName[], target: Target, path: StorePath): void {
    const parents: Draft[] = [this]
    for (const [depth, name] of names.slice(0, -1).entries()) {
      const child = parents.at(-1)?.child(name)
      if (child === 'other') throw notADirectory(names.slice(0, depth + 1), path)
      const next = child instanceof Draft ? child : new Draft(this.#trees, this.#trees.emptyTree)
      parents.at(-1)?.open().set(name, next)
      parents.push(next)
    }
    parents
      .at(-1)
      ?.open()
      .set(names.at(-1) ?? '', { kind: target.kind, id: target.id })
  }

  remove(names: readonly ByteName[], path: StorePath): void {
    const parents: Draft[] = [this]
    for (const name of names.slice(0, -1)) {
      const child = parents.at(-1)?.child(name)
      if (!(child instanceof Draft))
        throw new StoreError('not_found', `there is nothing at ${JSON.stringify(path)} to remove`, { path })
      parents.push(child)
    }
    if (
      parents
        .at(-1)
        ?.open()
        .delete(names.at(-1) ?? '') !== true
    ) {
      throw new StoreError('not_found', `there is nothing at ${JSON.stringify(path)} to remove`, { path })
    }
    for (let depth = parents.length - 1; depth > 0 && parents[depth]?.open().size === 0; depth--) {
      parents[depth - 1]?.open().delete(names[depth - 1] ?? '')
    }
  }

  write(): TreeId {
    if (this.#entries === undefined) return this.#id
    const entries: DirEntry[] = []
    for (const [name, what] of this.#entries) {
      entries.push(
        what instanceof Draft ? { name, kind: 'directory', id: what.write() } : { name, kind: what.kind, id: what.id },
      )
    }
    entries.sort((a, b) => (a.name < b.name ? -1 : 1))
    return this.#trees.writeDirectory(entries)
  }
}

const notADirectory = (names: readonly ByteName[], path: StorePath): StoreError =>
  new StoreError(
    'not_a_directory',
    `${JSON.stringify(path)} cannot be made: ${JSON.stringify(joinNames(names))} is not a directory`,
    { path: joinNames(names) },
  )
