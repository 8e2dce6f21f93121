import type { Database } from './database.ts'
import { StoreError } from './errors.ts'
import { editText } from './edit-text.ts'
import { objectKind, type Objects } from './objects.ts'
import { encodeName, encodePath, joinNames, splitPath } from './path.ts'
import type { Refs } from './refs.ts'
import { globTree, type GlobOptions, type GlobResult } from './glob.ts'
import { grepTree, type GrepOptions, type GrepResult } from './grep.ts'
import { isBinary, sniffType, type TextView, viewText, type ViewOptions } from './text-view.ts'
import { type DiffOptions, type DiffResult, unifiedDiff } from './tree-text-diff.ts'
import type { Trees } from './trees.ts'
import type { BlobId, EntryKind, Hash, StorePath, Target, TreeId } from './types.ts'

/** What `fs.read` found. */
export type ReadResult =
  | ({
      readonly kind: 'text'
      readonly path: StorePath
      readonly id: BlobId
      readonly bytes: number
      readonly executable: boolean
    } & TextView)
  | {
      readonly kind: 'binary'
      readonly path: StorePath
      readonly id: BlobId
      readonly bytes: number
      readonly type: string | undefined
    }
  | { readonly kind: 'symlink'; readonly path: StorePath; readonly id: BlobId; readonly target: string }
  | { readonly kind: 'gitlink'; readonly path: StorePath; readonly id: Hash }

/** What a blob holds, as `fs.output` shows it. */
export type OutputResult =
  | ({ readonly kind: 'text'; readonly id: BlobId; readonly bytes: number } & TextView)
  | { readonly kind: 'binary'; readonly id: BlobId; readonly bytes: number; readonly type: string | undefined }

/** One name in a listing. */
export type ListEntry = {
  readonly name: string
  readonly path: StorePath
  readonly kind: EntryKind
  readonly id: Hash
  /** Bytes of a file; null for anything else. */
  readonly size: number | null
  /** Where a symbolic link points. */
  readonly target?: string
}

export type ListResult = { readonly path: StorePath; readonly tree: TreeId; readonly entries: readonly ListEntry[] }

/** A changed tree, and the file that changed in it. */
export type WriteResult = {
  readonly tree: TreeId
  readonly path: StorePath
  readonly id: BlobId
  readonly bytes: number
  readonly created: boolean
}

export type EditResult = {
  readonly tree: TreeId
  readonly path: StorePath
  readonly id: BlobId
  readonly bytes: number
  /** Lines of the old file on which the replaced texts started. */
  readonly lines: readonly number[]
}

export type RemoveResult = {
  readonly tree: TreeId
  readonly path: StorePath
  readonly kind: EntryKind
  /** Files, links and gitlinks that went. */ readonly removed: number
}

/**
 * The nine actions on files, on trees as values: what "changes" a tree gives the id of a new one. `tree` is a tree id or a
 * ref's name; a ref is read, never moved. Those that change are synchronous, so that they can stand in a `transaction`.
 */
export type FsActions = {
  /** A file as numbered lines. @throws StoreError `not_found`, `is_a_directory`, `bad_path`. */
  read(tree: string, path: StorePath, options?: ViewOptions): Promise<ReadResult>
  /** A stored blob (an action's output) as numbered lines. @throws StoreError `not_found`. */
  output(blob: BlobId, options?: ViewOptions): Promise<OutputResult>
  /** The names in a directory. @throws StoreError `not_found`, `not_a_directory`. */
  list(tree: string, path?: StorePath): Promise<ListResult>
  /** Paths that match a pattern (`**`, `*`, `?`, `[…]`, `{a,b}`; dot files too). @throws StoreError `bad_pattern`. */
  glob(tree: string, pattern: string, options?: GlobOptions): Promise<GlobResult>
  /** Lines that match a regular expression (RE2 syntax, time linear in the text). @throws StoreError `bad_pattern`, `not_found`. */
  grep(tree: string, pattern: string, options?: GrepOptions): Promise<GrepResult>
  /** A file with this content; parents are made, an existing file keeps its mode unless `executable` is given. @throws StoreError `is_a_directory`, `not_a_directory`, `not_a_file`, `bad_path`. */
  write(
    tree: string,
    path: StorePath,
    content: string | Uint8Array,
    options?: { readonly executable?: boolean | undefined },
  ): WriteResult
  /** Replaces one exact text of a file, or all with `replaceAll`. @throws StoreError `no_match`, `ambiguous`, `not_found`. */
  edit(
    tree: string,
    path: StorePath,
    old: string,
    replacement: string,
    options?: { readonly replaceAll?: boolean | undefined },
  ): EditResult
  /** Without this path; parents that become empty go too. @throws StoreError `not_found`. */
  remove(tree: string, path: StorePath): RemoveResult
  /** What differs from `a` to `b`, with unified text. */
  diff(a: string, b: string, options?: DiffOptions): Promise<DiffResult>
  /** The tree with nothing in it. */
  empty(): { readonly tree: TreeId }
}

type Parts = { readonly database: Database; readonly objects: Objects; readonly trees: Trees; readonly refs: Refs }

/** The actions over a store's parts. */
export function fsActions(parts: Parts): FsActions {
  const { database, objects, trees, refs } = parts

  const open = (
    tree: string,
    path: StorePath,
  ): { readonly tree: TreeId; readonly path: StorePath; readonly found: Target | undefined } => {
    const names = splitPath(path)
    const id = refs.resolve(tree)
    return { tree: id, path: joinNames(names), found: trees.lookup(id, names) }
  }

  const file = (
    tree: string,
    path: StorePath,
  ): {
    readonly tree: TreeId
    readonly path: StorePath
    readonly found: Target & { readonly kind: 'file' | 'executable' }
  } => {
    const place = open(tree, path)
    const { found } = place
    if (found === undefined) throw missing(place.path)
    if (found.kind === 'directory')
      throw new StoreError('is_a_directory', `${place.path || '.'} is a directory`, { path: place.path })
    if (found.kind === 'file' || found.kind === 'executable')
      return { ...place, found: { kind: found.kind, id: found.id } }
    throw notAFile(place.path, found.kind)
  }

  const read: FsActions['read'] = async (tree, path, options) => {
    const place = open(tree, path)
    const { found } = place
    if (found === undefined) throw missing(place.path)
    const { id } = found
    switch (found.kind) {
      case 'directory':
        throw new StoreError('is_a_directory', `${place.path || '.'} is a directory`, {
          path: place.path,
          hint: 'list it instead',
        })
      case 'gitlink':
        return { kind: 'gitlink', path: place.path, id }
      case 'symlink':
        return { kind: 'symlink', path: place.path, id, target: encodePath(objects.read(id, objectKind.blob)) }
      case 'file':
      case 'executable': {
        const shown = show(id, options)
        return shown.kind === 'text'
          ? { ...shown, path: place.path, executable: found.kind === 'executable' }
          : { ...shown, path: place.path }
      }
    }
  }

  const show = (id: BlobId, options: ViewOptions | undefined): OutputResult => {
    const bytes = objects.read(id, objectKind.blob)
    if (isBinary(bytes)) return { kind: 'binary', id, bytes: bytes.length, type: sniffType(bytes) }
    return { kind: 'text', id, bytes: bytes.length, ...viewText(bytes, options) }
  }

  const list: FsActions['list'] = async (tree, path = '') => {
    const place = open(tree, path)
    const { found } = place
    if (found === undefined) throw missing(place.path)
    if (found.kind !== 'directory')
      throw new StoreError('not_a_directory', `${place.path} is a ${found.kind}, not a directory`, { path: place.path })
    const entries = trees.directory(found.id).map((entry): ListEntry => {
      const name = encodeName(entry.name)
      const isFile = entry.kind === 'file' || entry.kind === 'executable'
      return {
        name,
        path: place.path === '' ? name : `${place.path}/${name}`,
        kind: entry.kind,
        id: entry.id,
        size: isFile ? objects.size(entry.id) : null,
        ...(entry.kind === 'symlink' ? { target: encodePath(objects.read(entry.id, objectKind.blob)) } : {}),
      }
    })
    return { path: place.path, tree: found.id, entries }
  }

  const write: FsActions['write'] = (tree, path, content, options = {}) => {
    if (typeof content === 'string' && !content.isWellFormed())
      throw new StoreError('bad_argument', `${path}: the content holds half of a surrogate pair`, { path })
    const bytes = typeof content === 'string' ? Buffer.from(content) : content
    return database.transaction(() => {
      const place = open(tree, path)
      const { found } = place
      if (place.path === '' || found?.kind === 'directory')
        throw new StoreError('is_a_directory', `${place.path || '.'} is a directory`, { path: place.path })
      if (found !== undefined && found.kind !== 'file' && found.kind !== 'executable')
        throw notAFile(place.path, found.kind)
      const id = objects.putBlob(bytes)
      const executable = options.executable ?? found?.kind === 'executable'
      const next = trees.edit(place.tree, [{ path: place.path, set: { kind: executable ? 'executable' : 'file', id } }])
      return { tree: next, path: place.path, id, bytes: bytes.length, created: found === undefined }
    })
  }

  const edit: FsActions['edit'] = (tree, path, old, replacement, options = {}) =>
    database.transaction(() => {
      const place = file(tree, path)
      const edited = editText(
        place.path,
        objects.read(place.found.id, objectKind.blob),
        old,
        replacement,
        options.replaceAll ?? false,
      )
      const id = objects.putBlob(edited.bytes)
      const next = trees.edit(place.tree, [{ path: place.path, set: { kind: place.found.kind, id } }])
      return { tree: next, path: place.path, id, bytes: edited.bytes.length, lines: edited.lines }
    })

  const remove: FsActions['remove'] = (tree, path) =>
    database.transaction(() => {
      const place = open(tree, path)
      const { found } = place
      if (place.path === '')
        throw new StoreError('bad_path', 'the root of a tree cannot be removed', {
          path: '',
          hint: 'the empty tree has its own action',
        })
      if (found === undefined) throw missing(place.path)
      let removed = 1
      if (found.kind === 'directory') {
        removed = 0
        for (const entry of trees.walk(found.id)) if (entry.kind !== 'directory') removed += 1
      }
      return {
        tree: trees.edit(place.tree, [{ path: place.path, remove: true }]),
        path: place.path,
        kind: found.kind,
        removed,
      }
    })

  return {
    read,
    output: async (blob, options) => show(blob, options),
    list,
    glob: async (tree, pattern, options) => globTree(trees, refs.resolve(tree), pattern, options),
    grep: async (tree, pattern, options) => grepTree({ trees, objects }, refs.resolve(tree), pattern, options),
    write,
    edit,
    remove,
    diff: async (a, b, options) => unifiedDiff({ trees, objects }, refs.resolve(a), refs.resolve(b), options),
    empty: () => ({ tree: trees.emptyTree }),
  }
}

const missing = (path: StorePath): StoreError =>
  new StoreError('not_found', `there is nothing at ${JSON.stringify(path)}`, {
    path,
    hint: 'list its directory to see what is there',
  })

const notAFile = (path: StorePath, kind: EntryKind): StoreError =>
  kind === 'symlink'
    ? new StoreError('not_a_file', `${path} is a symbolic link: links are not followed`, {
        path,
        hint: 'work on its target, or remove the link first',
      })
    : new StoreError('not_a_file', `${path} is a ${kind}, not a file`, { path })
