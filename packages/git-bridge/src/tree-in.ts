import { encodePath, StoreError, type Store, type TreeEntry } from '@reve/content-store'
import { isUtf8 } from 'node:buffer'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { importBlobs, type ImportedBlob } from './blobs-in.ts'
import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'
import { encodeTree, isDirectory, maxDepth, objectId, parseTree, type GitEntry, type Oid } from './git-object.ts'
import { Notes } from './notes.ts'
import type { ObjectMap } from './object-map.ts'
import { ObjectReader } from './object-reader.ts'
import { treeOf } from './refs.ts'

/** Largest tree object that is read, in bytes: some 5 million names in one folder. */
const maxTreeBytes = 256 * 1024 * 1024
/** Names that are put into the store in one transaction, and a little more: a folder goes in whole. */
const batchNames = 1_000

/** A git tree in the store: how many levels it has, and what there is to say about what is in it. */
type Done = { readonly id: string; readonly height: number; readonly notes: Notes }

/** What a commit needs: the folders that are new here, each once however often it occurs, and their files. */
type Found = {
  readonly folders: ReadonlyMap<Oid, readonly GitEntry[]>
  readonly blobs: readonly Oid[]
  /** Folders that were imported before. */
  readonly done: Map<Oid, Done>
}

/**
 * Reads the tree of a commit into the store, as a stream: never more than a batch of contents is held, nothing is checked out, and what
 * was imported before is not read again.
 *
 * @throws GitError `unsupported_tree` for what no tree of the store may hold, `io`, `cancelled`.
 */
export async function importTree(
  git: GitSession,
  dir: string,
  commit: string,
  store: Store,
  map: ObjectMap,
  notes: Notes,
): Promise<string> {
  const root = await treeOf(git, dir, commit)
  const reader = new ObjectReader(git, dir)
  const found = await findFolders(reader, root, map)
  const blobs = await importBlobs(git, reader, found.blobs, store, map)
  await reader.end()
  const building = build(root, found, blobs, store, map)
  for (;;) {
    const step = store.transaction(() => advance(building))
    if (step.done === true) {
      notes.addBelow('', step.value.notes)
      return step.value.id
    }
    // Other work of this process has its turn.
    await nextTurn()
    git.checkSignal()
  }
}

function advance<T>(steps: Generator<number, T, undefined>): IteratorResult<number, T> {
  let names = 0
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step
    names += step.value
    if (names >= batchNames) return step
  }
}

async function findFolders(reader: ObjectReader, root: Oid, map: ObjectMap): Promise<Found> {
  const folders = new Map<Oid, readonly GitEntry[]>()
  const blobs = new Set<Oid>()
  const done = new Map<Oid, Done>()
  const isNew = (oid: Oid): boolean => {
    if (folders.has(oid) || done.has(oid)) return false
    const known = map.byOid(oid)
    if (known !== undefined) done.set(oid, { id: known.id, height: known.height, notes: new Notes() })
    return known === undefined
  }
  let level: readonly Oid[] = isNew(root) ? [root] : []
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxDepth) throw tooDeep()
    const next = new Set<Oid>()
    await reader.each('tree', level, async (oid, size, bytes) => {
      if (size > maxTreeBytes)
        throw new GitError(
          'unsupported_tree',
          `the commit holds a folder of ${size} bytes of names, which is too large`,
        )
      const raw = await bytes.exactly(size)
      const entries = parseTree(raw)
      folders.set(oid, entries)
      for (const entry of entries) {
        if (isDirectory(entry)) next.add(entry.oid)
        else if (kindOf(entry, shownName(entry)) !== 'gitlink') blobs.add(entry.oid)
      }
    })
    level = [...next].filter(isNew)
  }
  return { folders, blobs: [...blobs], done }
}

const tooDeep = (): GitError =>
  new GitError('unsupported_tree', `the commit has folders in folders more than ${maxDepth} deep`)

type Frame = { readonly oid: Oid; readonly path: string; readonly entries: readonly GitEntry[]; at: number }

/** Puts the folders into the store, inner ones first; yields the names in each. No recursion: a commit decides how deep it is. */
function* build(
  root: Oid,
  { folders, done }: Found,
  blobs: ReadonlyMap<Oid, ImportedBlob>,
  store: Store,
  map: ObjectMap,
): Generator<number, Done, undefined> {
  const open = (oid: Oid, path: string): Frame => ({ oid, path, entries: folders.get(oid) ?? [], at: 0 })
  const stack: Frame[] = done.has(root) ? [] : [open(root, '')]
  for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
    const entry = top.entries[top.at]
    if (entry === undefined) {
      done.set(top.oid, putFolder(top, done, blobs, store, map))
      stack.pop()
      yield top.entries.length + 1
      continue
    }
    top.at += 1
    if (!isDirectory(entry) || done.has(entry.oid)) continue
    if (stack.length > maxDepth) throw tooDeep()
    stack.push(open(entry.oid, `${top.path}${shownName(entry)}/`))
  }
  const whole = done.get(root)
  if (whole === undefined) throw new GitError('io', 'the tree of the commit was not read')
  return whole
}

function putFolder(
  { oid, path, entries }: Frame,
  done: ReadonlyMap<Oid, Done>,
  blobs: ReadonlyMap<Oid, ImportedBlob>,
  store: Store,
  map: ObjectMap,
): Done {
  const notes = new Notes()
  const kept: TreeEntry[] = []
  let height = 1
  for (const entry of entries) {
    const shown = shownName(entry)
    const name = Buffer.from(entry.name, 'latin1')
    if (!isUtf8(name)) notes.add('name_not_utf8', shown)
    if (isDirectory(entry)) {
      const child = done.get(entry.oid)
      if (child === undefined) throw new GitError('io', `the folder ${path}${shown} was not read`)
      notes.addBelow(shown, child.notes)
      height = Math.max(height, child.height + 1)
      // One that holds nothing but such folders goes with them.
      if (child.id === store.emptyTree && child.notes.empty) notes.add('empty_directory_dropped', shown)
      if (child.id !== store.emptyTree) kept.push({ name, kind: 'directory', id: child.id })
      continue
    }
    const kind = kindOf(entry, `${path}${shown}`)
    if (kind === 'gitlink') {
      notes.add('gitlink', shown)
      kept.push({ name, kind, id: entry.oid })
      continue
    }
    if (!exactModes.has(entry.mode)) notes.add('mode_normalised', shown)
    const blob = blobs.get(entry.oid)
    if (blob === undefined) throw new GitError('io', `the content of ${path}${shown} was not read`)
    if (blob.pointer) notes.add('lfs_pointer', shown)
    kept.push({ name, kind, id: blob.id })
  }
  if (height > maxDepth) throw tooDeep()
  if (objectId('tree', encodeTree(entries)) !== oid) notes.add('tree_normalised', '')
  const id = put(store, kept, path)
  if (notes.empty) map.put({ oid, id, height })
  return { id, height, notes }
}

function put(store: Store, entries: readonly TreeEntry[], path: string): string {
  try {
    return store.putTree(entries)
  } catch (error) {
    if (!(error instanceof StoreError) || (error.code !== 'bad_name' && error.code !== 'bad_argument')) throw error
    const where = path === '' ? 'the root' : path
    throw new GitError('unsupported_tree', `${where} of the commit holds what no tree may hold: ${error.message}`, {
      cause: error,
    })
  }
}

const shownName = ({ name }: GitEntry): string => encodePath(Buffer.from(name, 'latin1'))

const exactModes: ReadonlySet<string> = new Set(['100644', '100755', '120000'])

/** What an entry is. Old repositories have other bits of permission than git writes today. */
function kindOf({ mode }: GitEntry, where: string): 'file' | 'executable' | 'symlink' | 'gitlink' {
  if (mode === '120000') return 'symlink'
  if (mode === '160000') return 'gitlink'
  if (/^100[0-7]{3}$/.test(mode)) return (Number.parseInt(mode, 8) & 0o100) === 0 ? 'file' : 'executable'
  throw new GitError('unsupported_tree', `${where} has the mode ${mode}, which is not one that trees hold`)
}
