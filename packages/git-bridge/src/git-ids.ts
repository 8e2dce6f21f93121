import { encodePath, type Store } from '@reve/content-store'
import { isUtf8 } from 'node:buffer'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'
import {
  emptyTreeOid,
  encodeTree,
  isLfsPointer,
  lfsPointerLimit,
  maxDepth,
  objectHash,
  objectId,
  type GitEntry,
  type Oid,
} from './git-object.ts'
import { Notes } from './notes.ts'
import type { ObjectMap, Pair } from './object-map.ts'

/** Work between two turns of other work, in bytes that are hashed; a lookup counts as some. */
const turnBytes = 2 * 1024 * 1024
const lookupBytes = 4 * 1024

/** A folder of the store as git has it. `plain`: the same thing in both directions, with nothing to say about it. */
type Folder = { readonly oid: Oid; readonly height: number; readonly plain: boolean; readonly notes: Notes }

/** One thing in a git tree, and what it is in the store. */
export type Child = GitEntry & { readonly id: string }

/** Which git objects the blobs and trees of the store are. What is known is not read again; what is found out is in `found`. */
export class GitIds {
  readonly #git: GitSession
  readonly #store: Store
  readonly #map: ObjectMap
  readonly #blobs = new Map<string, { readonly oid: Oid; readonly plain: boolean }>()
  readonly #folders = new Map<string, Folder>()
  readonly #found: Pair[] = []
  #work = 0

  constructor(git: GitSession, store: Store, map: ObjectMap) {
    this.#git = git
    this.#store = store
    this.#map = map
  }

  /** Pairs that the map does not have yet. */
  get found(): readonly Pair[] {
    return this.#found
  }

  /** The git tree of a folder. */
  async folder(id: string, depth = 1): Promise<Folder> {
    const seen = this.#folders.get(id)
    if (seen !== undefined) return seen
    const folder = this.#known(id) ?? (await this.#made(id, depth))
    this.#folders.set(id, folder)
    return folder
  }

  #known(id: string): Folder | undefined {
    if (id === this.#store.emptyTree) return { oid: emptyTreeOid, height: 1, plain: true, notes: new Notes() }
    const pair = this.#map.byId(id)
    return pair === undefined ? undefined : { oid: pair.oid, height: pair.height, plain: true, notes: new Notes() }
  }

  async #made(id: string, depth: number): Promise<Folder> {
    const { entries, height, plain, notes } = await this.#look(id, depth)
    const oid = objectId('tree', encodeTree(entries))
    if (plain) this.#found.push({ oid, id, height })
    return { oid, height, plain, notes }
  }

  /** What the git tree of a folder names. */
  async children(id: string): Promise<readonly Child[]> {
    return (await this.#look(id, 1)).entries
  }

  async #look(id: string, depth: number): Promise<Omit<Folder, 'oid'> & { readonly entries: readonly Child[] }> {
    if (depth > maxDepth)
      throw new GitError('unsupported_tree', `the tree has folders in folders more than ${maxDepth} deep`)
    const entries: Child[] = []
    const notes = new Notes()
    let plain = true
    let height = 1
    for (const entry of this.#store.readTree(id)) {
      const name = Buffer.from(entry.name).toString('latin1')
      plain &&= isUtf8(entry.name)
      switch (entry.kind) {
        case 'directory': {
          const child = await this.folder(entry.id, depth + 1)
          const shown = encodePath(entry.name)
          notes.addBelow(shown, child.notes)
          // One that holds nothing but such folders goes with them.
          if (entry.id === this.#store.emptyTree) notes.add('empty_directory_dropped', shown)
          plain &&= child.plain && child.oid !== emptyTreeOid
          height = Math.max(height, child.height + 1)
          if (child.oid !== emptyTreeOid) entries.push({ mode: '40000', name, oid: child.oid, id: entry.id })
          break
        }
        case 'gitlink':
          if (entry.id.length !== emptyTreeOid.length)
            throw new GitError(
              'unsupported_tree',
              `${encodePath(entry.name)} is a submodule at a commit with a SHA-256 id, which no repository with SHA-1 ids can name`,
            )
          plain = false
          entries.push({ mode: '160000', name, oid: entry.id, id: entry.id })
          break
        case 'file':
        case 'executable':
        case 'symlink': {
          const blob = await this.#blob(entry.id)
          plain &&= blob.plain
          entries.push({ mode: modes[entry.kind], name, oid: blob.oid, id: entry.id })
          break
        }
        default:
          throw new GitError('unsupported_tree', `a kind that git does not hold: ${String(entry.kind satisfies never)}`)
      }
    }
    return { entries, height, plain, notes }
  }

  async #blob(id: string): Promise<{ readonly oid: Oid; readonly plain: boolean }> {
    const seen = this.#blobs.get(id)
    if (seen !== undefined) return seen
    const pair = this.#map.byId(id)
    await this.#worked(lookupBytes)
    const blob = pair === undefined ? await this.#hashed(id) : { oid: pair.oid, plain: true }
    this.#blobs.set(id, blob)
    return blob
  }

  async #hashed(id: string): Promise<{ readonly oid: Oid; readonly plain: boolean }> {
    const size = this.#store.blobSize(id)
    const hash = objectHash('blob', size)
    let plain = true
    for (const piece of this.#store.readBlobPieces(id)) {
      hash.update(piece)
      if (size < lfsPointerLimit) plain = !isLfsPointer(piece)
      await this.#worked(piece.length)
    }
    const oid = hash.digest('hex')
    if (plain) this.#found.push({ oid, id, height: 0 })
    return { oid, plain }
  }

  /** Lets other work of this process have its turn now and then. */
  async #worked(bytes: number): Promise<void> {
    this.#work += bytes
    if (this.#work < turnBytes) return
    this.#work = 0
    await nextTurn()
    this.#git.checkSignal()
  }
}

const modes = { file: '100644', executable: '100755', symlink: '120000' } as const
