import { isUtf8 } from 'node:buffer'
import type { TextMerger } from './merge-text.ts'
import { objectKind, type Objects } from './objects.ts'
import type { ByteName } from './names.ts'
import { childPath, maxDepth } from './path.ts'
import type { DirEntry } from './tree-encoding.ts'
import { tooDeep, type Trees } from './trees.ts'
import type { BlobId, StorePath, Target, TreeId } from './types.ts'

/**
 * Why a path cannot be merged. `content`: both changed the text alike in place but not alike; `binary`: both changed bytes that
 * are no text; `add_add`: both made it, differently; `modify_delete`: one changed it, the other removed it; `mode`: both
 * made it, one executable; `kind`: it became two different kinds of thing; `file_directory`: a file on one side is a
 * directory on the other; `symlink`, `gitlink`: both changed where it points.
 */
export type ConflictKind =
  | 'content'
  | 'binary'
  | 'add_add'
  | 'modify_delete'
  | 'mode'
  | 'kind'
  | 'file_directory'
  | 'symlink'
  | 'gitlink'

export type MergeConflict = {
  readonly path: StorePath
  readonly kind: ConflictKind
  /** What each side has there; null for nothing. */
  readonly base: Target | null
  readonly ours: Target | null
  readonly theirs: Target | null
  /** The text with conflict markers, where texts were merged: a help for whoever resolves it. */
  readonly marked?: BlobId
  readonly note?: string
}

export type TreeMerge =
  | {
      readonly kind: 'clean'
      readonly tree: TreeId
      /** Files whose two changes were merged line by line. */ readonly merged: readonly StorePath[]
    }
  | { readonly kind: 'conflicts'; readonly conflicts: readonly MergeConflict[]; readonly merged: readonly StorePath[] }

/** Three directories under one path; undefined where a side has none. */
type Three<T> = { readonly base: T | undefined; readonly ours: T | undefined; readonly theirs: T | undefined }

type Parts = { readonly trees: Trees; readonly objects: Objects; readonly mergeText: TextMerger }

const same = (a: Target | undefined, b: Target | undefined): boolean => a?.kind === b?.kind && a?.id === b?.id

const isFile = (target: Target | undefined): boolean => target?.kind === 'file' || target?.kind === 'executable'

const find = (entries: ReadonlyMap<ByteName, DirEntry>, name: ByteName): Target | undefined => {
  const entry = entries.get(name)
  return entry === undefined ? undefined : { kind: entry.kind, id: entry.id }
}

/**
 * Merges trees path by path: a side that did not change a path takes the other's. Nothing is inferred about renames. What both
 * sides have alike, or one left alone, is not opened: the cost is that of the two differences.
 */
export async function mergeTrees(parts: Parts, base: TreeId, ours: TreeId, theirs: TreeId): Promise<TreeMerge> {
  const merge = new Merge(parts)
  const tree = await merge.directory({ base, ours, theirs }, '', 0)
  if (merge.conflicts.length > 0) return { kind: 'conflicts', conflicts: merge.conflicts, merged: merge.merged }
  return { kind: 'clean', tree: tree ?? parts.trees.emptyTree, merged: merge.merged }
}

class Merge {
  readonly conflicts: MergeConflict[] = []
  readonly merged: StorePath[] = []
  readonly #parts: Parts

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** The merged directory; undefined when there is none. */
  async directory(three: Three<TreeId>, path: StorePath, depth: number): Promise<TreeId | undefined> {
    const { base, ours, theirs } = three
    if (ours === theirs || theirs === base) return ours
    if (ours === base) return theirs
    if (depth > maxDepth) throw tooDeep(path)
    const sides = [base, ours, theirs].map(
      (id) => new Map(id === undefined ? [] : this.#parts.trees.directory(id).map((entry) => [entry.name, entry])),
    )
    const [
      inBase = new Map<ByteName, DirEntry>(),
      inOurs = new Map<ByteName, DirEntry>(),
      inTheirs = new Map<ByteName, DirEntry>(),
    ] = sides
    const names = [...new Set([...inBase.keys(), ...inOurs.keys(), ...inTheirs.keys()])].sort()
    const entries: DirEntry[] = []
    for (const name of names) {
      const target = await this.#path(
        { base: find(inBase, name), ours: find(inOurs, name), theirs: find(inTheirs, name) },
        childPath(path, name),
        depth,
      )
      if (target !== undefined) entries.push({ name, ...target })
    }
    // A directory that the merge emptied goes, as when its last file is removed; one that a side keeps empty on purpose stays.
    const keptEmpty = (ours !== undefined && inOurs.size === 0) || (theirs !== undefined && inTheirs.size === 0)
    if (entries.length === 0 && !keptEmpty) return undefined
    return this.#parts.trees.writeDirectory(entries)
  }

  async #path(three: Three<Target>, path: StorePath, depth: number): Promise<Target | undefined> {
    const { base, ours, theirs } = three
    if (same(ours, theirs) || same(base, theirs)) return ours
    if (same(base, ours)) return theirs
    // Files and directories are merged apart: a directory that one side emptied can make room for the file of the other.
    const directories = pick(three, (target) => (target.kind === 'directory' ? target.id : undefined))
    const leaves = pick(three, (target) => (target.kind === 'directory' ? undefined : target))
    const before = this.conflicts.length
    const directory = await this.directory(directories, path, depth + 1)
    // A conflict inside is resolved to something or nothing later: until then the directory is in the way of a file.
    const inTheWay = directory !== undefined || this.conflicts.length > before
    const leaf = await this.#leaf(leaves, path)
    const leafConflict = this.conflicts.at(-1)?.path === path
    if (!inTheWay) return leaf
    if (leaf === undefined && !leafConflict)
      return directory === undefined ? undefined : { kind: 'directory', id: directory }
    if (leafConflict) this.conflicts.pop()
    this.conflicts.push(conflict(path, 'file_directory', three))
    return undefined
  }

  async #leaf(three: Three<Target>, path: StorePath): Promise<Target | undefined> {
    const { base, ours, theirs } = three
    if (same(ours, theirs) || same(base, theirs)) return ours
    if (same(base, ours)) return theirs
    const refuse = (kind: ConflictKind, more: { readonly marked?: BlobId; readonly note?: string } = {}): undefined => {
      this.conflicts.push({ ...conflict(path, kind, three), ...more })
      return undefined
    }
    if (ours === undefined || theirs === undefined) return refuse('modify_delete')
    if (isFile(ours) && isFile(theirs)) {
      const kind = mergeMode(isFile(base) ? base : undefined, ours, theirs)
      const earlier = isFile(base) ? base?.id : undefined
      if (ours.id === theirs.id) return kind === undefined ? refuse('mode') : { kind, id: ours.id }
      // The mode cannot be in conflict when there was a file before.
      if (ours.id === earlier) return { kind: kind ?? theirs.kind, id: theirs.id }
      if (theirs.id === earlier) return { kind: kind ?? ours.kind, id: ours.id }
      return this.#texts(earlier, ours.id, theirs.id, kind ?? ours.kind, path, refuse)
    }
    if (ours.kind !== theirs.kind) return refuse('kind')
    if (base === undefined) return refuse('add_add')
    return refuse(ours.kind === 'symlink' ? 'symlink' : 'gitlink')
  }

  async #texts(
    base: BlobId | undefined,
    ours: BlobId,
    theirs: BlobId,
    kind: Target['kind'],
    path: StorePath,
    refuse: (kind: ConflictKind, more?: { readonly marked?: BlobId; readonly note?: string }) => undefined,
  ): Promise<Target | undefined> {
    const { objects, mergeText } = this.#parts
    const inConflict = base === undefined ? 'add_add' : 'content'
    for (const id of [base, ours, theirs]) {
      if (id !== undefined && objects.size(id) > mergeText.maxBytes)
        return refuse(inConflict, { note: 'a side is too large to be merged by lines' })
    }
    const texts = [base, ours, theirs].map((id) =>
      id === undefined ? Buffer.alloc(0) : objects.read(id, objectKind.blob),
    )
    const [b = Buffer.alloc(0), o = Buffer.alloc(0), t = Buffer.alloc(0)] = texts
    if (texts.some((text) => text.includes(0) || !isUtf8(text)))
      return refuse(base === undefined ? 'add_add' : 'binary')
    const result = await mergeText.run(b, o, t)
    switch (result.kind) {
      case 'clean':
        // Two files that were made apart are one only when they are equal.
        if (base === undefined) return refuse('add_add', { marked: objects.putBlob(result.bytes) })
        this.merged.push(path)
        return { kind, id: objects.putBlob(result.bytes) }
      case 'conflict':
        return refuse(inConflict, { marked: objects.putBlob(result.bytes) })
      case 'unavailable':
        return refuse(inConflict, { note: result.why })
    }
  }
}

const pick = <T>(three: Three<Target>, part: (target: Target) => T | undefined): Three<T> => ({
  base: three.base && part(three.base),
  ours: three.ours && part(three.ours),
  theirs: three.theirs && part(three.theirs),
})

const conflict = (path: StorePath, kind: ConflictKind, three: Three<Target>): MergeConflict => ({
  path,
  kind,
  base: three.base ?? null,
  ours: three.ours ?? null,
  theirs: three.theirs ?? null,
})

/** The executable bit, three ways; undefined when both made the file and differ. */
function mergeMode(base: Target | undefined, ours: Target, theirs: Target): Target['kind'] | undefined {
  if (ours.kind === theirs.kind) return ours.kind
  if (base === undefined) return undefined
  return base.kind === ours.kind ? theirs.kind : ours.kind
}
