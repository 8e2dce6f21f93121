import { encodePath, StoreError, type Store, type TreeEntry } from '@reve/content-store'
import { isUtf8 } from 'node:buffer'
import { Readable } from 'node:stream'
import { ByteReader } from './byte-reader.ts'
import { GitError } from './errors.ts'
import { failed, type GitSession } from './git.ts'
import type { Notes } from './notes.ts'

/** Bytes of small blobs that are put into the store in one transaction. */
const batchBytes = 4 * 1024 * 1024
/** Blobs in one transaction at most. */
const batchCount = 1_000
/** A blob of this size or more is streamed into the store by itself. */
const streamedBytes = 4 * 1024 * 1024

type Kind = 'file' | 'executable' | 'symlink' | 'gitlink'
type Leaf = { readonly kind: Kind; readonly oid: string }
type Folder = { readonly folders: Map<string, Folder>; readonly leaves: Map<string, Leaf> }

/**
 * Reads the tree of a commit into the store, as a stream: never more than a batch of contents is held, and nothing is checked out.
 *
 * @throws GitError `unsupported_tree` for names that no tree may hold, `io`.
 */
export async function importTree(
  git: GitSession,
  dir: string,
  commit: string,
  store: Store,
  notes: Notes,
): Promise<string> {
  const { root, wanted } = await readListing(git, dir, commit, notes)
  const { ids, pointers } = await importBlobs(git, dir, [...wanted.keys()], store)
  for (const oid of pointers) for (const path of wanted.get(oid) ?? []) notes.add('lfs_pointer', path)
  return store.transaction(() => putFolder(store, root, ids))
}

const newFolder = (): Folder => ({ folders: new Map(), leaves: new Map() })

/** All paths of the commit, as nested folders with names as bytes (latin1 strings), and the blobs that they need. */
async function readListing(
  git: GitSession,
  dir: string,
  commit: string,
  notes: Notes,
): Promise<{ readonly root: Folder; readonly wanted: Map<string, string[]> }> {
  const args = ['ls-tree', '-r', '-z', '--full-tree', commit]
  const call = git.stream(dir, args)
  call.stdin.end()
  const reader = new ByteReader(call.stdout)
  const root = newFolder()
  const wanted = new Map<string, string[]>()
  for (let record = await reader.until(0); record !== undefined; record = await reader.until(0)) {
    const tab = record.indexOf(0x09)
    const [mode = '', , oid = ''] = record.toString('latin1', 0, tab).split(' ')
    const path = record.subarray(tab + 1)
    const shown = encodePath(path)
    const kind = kindOf(mode, shown)
    if (mode === '100664') notes.add('mode_normalised', shown)
    if (!isUtf8(path)) notes.add('name_not_utf8', shown)
    if (kind === 'gitlink') {
      if (oid.length !== 40)
        throw new GitError(
          'unsupported_tree',
          `${shown}: the submodule's commit has a SHA-256 id, which trees do not hold`,
        )
      notes.add('gitlink', shown)
    } else {
      const known = wanted.get(oid)
      if (known === undefined) wanted.set(oid, [shown])
      else known.push(shown)
    }
    place(root, path.toString('latin1'), { kind, oid })
  }
  const { code, stderr } = await call.ended
  if (code !== 0) throw failed(args, { code, stderr })
  return { root, wanted }
}

function kindOf(mode: string, shown: string): Kind {
  switch (mode) {
    case '100644':
    case '100664':
      return 'file'
    case '100755':
      return 'executable'
    case '120000':
      return 'symlink'
    case '160000':
      return 'gitlink'
    default:
      throw new GitError('unsupported_tree', `${shown} has the mode ${mode}, which is not one that trees hold`)
  }
}

function place(root: Folder, path: string, leaf: Leaf): void {
  let folder = root
  const names = path.split('/')
  const last = names.pop() ?? ''
  for (const name of names) {
    let next = folder.folders.get(name)
    if (next === undefined) {
      next = newFolder()
      folder.folders.set(name, next)
    }
    folder = next
  }
  if (folder.leaves.has(last))
    throw new GitError('unsupported_tree', `${encodePath(Buffer.from(path, 'latin1'))} stands twice in the commit`)
  folder.leaves.set(last, leaf)
}

/** Puts the blobs into the store. */
async function importBlobs(
  git: GitSession,
  dir: string,
  oids: readonly string[],
  store: Store,
): Promise<{ readonly ids: ReadonlyMap<string, string>; readonly pointers: readonly string[] }> {
  const ids = new Map<string, string>()
  const pointers: string[] = []
  if (oids.length === 0) return { ids, pointers }
  const args = ['cat-file', '--batch', '--buffer']
  const call = git.stream(dir, args)
  const feed = Readable.from(lines(oids))
  feed.pipe(call.stdin)
  const reader = new ByteReader(call.stdout)
  let batch: { readonly oid: string; readonly bytes: Buffer }[] = []
  let held = 0
  const flush = (): void => {
    store.transaction(() => {
      for (const { oid, bytes } of batch) ids.set(oid, store.putBlob(bytes))
    })
    batch = []
    held = 0
  }
  for (const oid of oids) {
    const header = (await reader.until(0x0a))?.toString('latin1') ?? ''
    const [got, type, length] = header.split(' ')
    if (got !== oid || type !== 'blob') throw new GitError('io', `git cannot read the object ${oid}: ${header}`)
    const size = Number(length)
    if (size >= streamedBytes) {
      ids.set(oid, await store.putBlobStream(reader.pieces(size)))
    } else {
      const bytes = await reader.exactly(size)
      if (isLfsPointer(bytes)) pointers.push(oid)
      batch.push({ oid, bytes })
      held += size
    }
    await reader.exactly(1)
    if (held >= batchBytes || batch.length >= batchCount) flush()
  }
  flush()
  const { code, stderr } = await call.ended
  if (code !== 0) throw failed(args, { code, stderr })
  return { ids, pointers }
}

function* lines(oids: readonly string[]): Generator<string> {
  for (let at = 0; at < oids.length; at += 500) yield `${oids.slice(at, at + 500).join('\n')}\n`
}

const lfsVersion = Buffer.from('version https://git-lfs.github.com/spec/v1\n')
function isLfsPointer(bytes: Buffer): boolean {
  return bytes.length < 1024 && bytes.subarray(0, lfsVersion.length).equals(lfsVersion)
}

function putFolder(store: Store, folder: Folder, ids: ReadonlyMap<string, string>, path = ''): string {
  const entries: TreeEntry[] = []
  for (const [name, child] of folder.folders) {
    entries.push({
      name: Buffer.from(name, 'latin1'),
      kind: 'directory',
      id: putFolder(store, child, ids, `${path}${name}/`),
    })
  }
  for (const [name, { kind, oid }] of folder.leaves) {
    entries.push({ name: Buffer.from(name, 'latin1'), kind, id: kind === 'gitlink' ? oid : (ids.get(oid) ?? '') })
  }
  try {
    return store.putTree(entries)
  } catch (error) {
    if (!(error instanceof StoreError) || (error.code !== 'bad_name' && error.code !== 'bad_argument')) throw error
    const where = path === '' ? 'the root' : encodePath(Buffer.from(path, 'latin1'))
    throw new GitError('unsupported_tree', `${where} of the commit holds what no tree may hold: ${error.message}`, {
      cause: error,
    })
  }
}
