import type { Store } from '@reve/content-store'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { ByteReader } from './byte-reader.ts'
import { encodeCommit, type CommitText } from './commit.ts'
import { GitError } from './errors.ts'
import { GitIds } from './git-ids.ts'
import { emptyTreeOid, encodeTree, isDirectory, objectId, type Oid } from './git-object.ts'
import { failed, lastLines, type GitSession } from './git.ts'
import type { Notes } from './notes.ts'
import type { ObjectMap } from './object-map.ts'
import { PackWriter } from './pack.ts'

/** Pairs that are kept in one transaction. */
const batchPairs = 1_000

/** Objects that a clone does not have: blobs by git's name with the store's, and folders of the store. */
type Missing = { readonly blobs: Map<Oid, string>; readonly folders: Map<Oid, string> }

/** A tree of the store that is to become a commit's. */
export class Outgoing {
  readonly #git: GitSession
  readonly #dir: string
  readonly #store: Store
  readonly #map: ObjectMap
  readonly #ids: GitIds
  readonly #tree: string

  constructor(git: GitSession, dir: string, store: Store, map: ObjectMap, tree: string) {
    this.#git = git
    this.#dir = dir
    this.#store = store
    this.#map = map
    this.#ids = new GitIds(git, store, map)
    this.#tree = tree
  }

  /** The git tree that it will be; nothing is written for that. */
  async gitTree(notes: Notes): Promise<Oid> {
    const folder = await this.#ids.folder(this.#tree)
    notes.addBelow('', folder.notes)
    return folder.oid
  }

  /**
   * Writes the commit and what the clone lacks of its tree, as one pack: all of it is there, or nothing.
   *
   * @returns the commit. @throws GitError `io`, `cancelled`.
   */
  async commit(text: CommitText): Promise<Oid> {
    const missing = await this.#missing(text.tree)
    const commit = encodeCommit(text)
    await this.#writePack(missing, commit)
    const id = objectId('commit', commit)
    await this.#checkWhole(id)
    for (let at = 0; at < this.#ids.found.length; at += batchPairs) {
      this.#store.transaction(() => {
        for (const pair of this.#ids.found.slice(at, at + batchPairs)) this.#map.put(pair)
      })
      // Other work of this process has its turn.
      await nextTurn()
    }
    return id
  }

  /** From the root down, a level at a time; below what the clone has nothing is looked at. */
  async #missing(root: Oid): Promise<Missing> {
    const missing: Missing = { blobs: new Map(), folders: new Map() }
    let folders = new Map([[root, this.#tree]])
    let blobs = new Map<Oid, string>()
    await using known = new Presence(this.#git, this.#dir)
    while (folders.size + blobs.size > 0) {
      const absent = await known.absent([...folders.keys(), ...blobs.keys()])
      const nextFolders = new Map<Oid, string>()
      const nextBlobs = new Map<Oid, string>()
      for (const [oid, id] of blobs) if (absent.has(oid)) missing.blobs.set(oid, id)
      for (const [oid, id] of folders) {
        // git knows the empty tree without having it, and misses it in a check.
        if (!absent.has(oid) && oid !== emptyTreeOid) continue
        missing.folders.set(oid, id)
        for (const child of await this.#ids.children(id)) {
          if (isDirectory(child)) {
            if (!missing.folders.has(child.oid)) nextFolders.set(child.oid, child.id)
          } else if (child.mode !== '160000' && !missing.blobs.has(child.oid)) nextBlobs.set(child.oid, child.id)
        }
      }
      folders = nextFolders
      blobs = nextBlobs
    }
    return missing
  }

  async #writePack({ blobs, folders }: Missing, commit: Buffer): Promise<void> {
    const args = ['index-pack', '--stdin']
    const call = this.#git.stream(this.#dir, args)
    call.stdout.resume()
    const total = blobs.size + folders.size + 1
    const pack = new PackWriter((bytes) => call.write(bytes), total)
    let done = 0
    const wrote = (): void => {
      done += 1
      if (done % 500 === 0 || done === total) this.#git.report({ stage: 'writing', done, total })
      this.#git.checkSignal()
    }
    for (const id of blobs.values()) {
      await pack.object('blob', this.#store.blobSize(id), this.#store.readBlobPieces(id))
      wrote()
    }
    for (const id of folders.values()) {
      const tree = encodeTree(await this.#ids.children(id))
      await pack.object('tree', tree.length, [tree])
      wrote()
    }
    await pack.object('commit', commit.length, [commit])
    wrote()
    await pack.end()
    call.stdin.end()
    const { code, stderr } = await call.ended
    if (code !== 0) throw failed(args, { code, stderr })
  }

  /** What a pack does not hold must be in the clone, to the last file: another side may have sent a tree without its content. */
  async #checkWhole(commit: Oid): Promise<void> {
    const answer = await this.#git.ask(this.#dir, ['rev-list', '--objects', '--quiet', commit, '--not', '--all'])
    if (answer.code !== 0)
      throw new GitError('io', `the clone lacks objects that it should have: ${lastLines(answer.stderr)}`, {
        hint: 'import the repository under another name, and export there',
      })
  }
}

/** Tells which objects a clone has. */
class Presence implements AsyncDisposable {
  readonly #call
  readonly #reader: ByteReader

  constructor(git: GitSession, dir: string) {
    this.#call = git.stream(dir, ['cat-file', '--batch-check=%(objectname)'])
    this.#reader = new ByteReader(this.#call.stdout)
  }

  async absent(oids: readonly Oid[]): Promise<ReadonlySet<Oid>> {
    const absent = new Set<Oid>()
    for (let at = 0; at < oids.length; at += questions) {
      const some = oids.slice(at, at + questions)
      this.#call.stdin.write(`${some.join('\n')}\n`)
      for (const oid of some) {
        const line = (await this.#reader.until(0x0a))?.toString('latin1') ?? ''
        if (line === `${oid} missing`) absent.add(oid)
        else if (line !== oid) throw new GitError('io', `git cannot tell whether it has ${oid}: ${line}`)
      }
    }
    return absent
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#call.stdin.end()
    this.#call.stdout.resume()
    // Whoever asked was told.
    await this.#call.ended.catch(() => undefined)
  }
}

/** Objects that are asked for at once: their answers fit into a pipe. */
const questions = 500
