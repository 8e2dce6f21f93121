/** Something about an import or export that the caller should know. Nothing was left out in silence. */
export type NoteKind =
  | 'empty_repository'
  | 'gitlink'
  | 'lfs_pointer'
  | 'name_not_utf8'
  | 'mode_normalised'
  | 'tree_normalised'
  | 'empty_directory_dropped'
  | 'branch_moved_aside'
  | 'branch_blocked'
  | 'start_point_ignored'

/** One kind of note: how often it applies, and at which paths or branches (at most 50, `\xHH` for bytes that are not UTF-8). */
export type Note = {
  readonly kind: NoteKind
  readonly message: string
  readonly count: number
  readonly where: readonly string[]
}

const messages = {
  empty_repository: 'The repository has no commit: the tree is empty.',
  gitlink: 'Submodules stay as entries that name a commit; their content is not imported.',
  lfs_pointer: 'These files are Git LFS pointers; the content that they stand for is not imported.',
  name_not_utf8: 'These names are not UTF-8; their bytes are kept, and shown as \\xHH.',
  mode_normalised: 'These files have an outdated mode; an export writes 100644 or 100755, so its tree has another id.',
  tree_normalised: 'These folders were written in a way that git itself would not; an export of them has another id.',
  empty_directory_dropped: 'Git has no empty directories: these are left out.',
  branch_moved_aside: 'The branch of the clone had commits that the remote does not have; they are kept.',
  branch_blocked: 'These branches of the remote cannot stand beside a branch of the clone.',
  start_point_ignored: 'The branch exists and is continued: start_point was not used.',
} as const satisfies Readonly<Record<NoteKind, string>>

const shown = 50

/** Gathers notes by kind. */
export class Notes {
  readonly #found = new Map<NoteKind, { count: number; where: string[] }>()

  get empty(): boolean {
    return this.#found.size === 0
  }

  add(kind: NoteKind, where?: string): void {
    this.#add(kind, 1, where === undefined ? [] : [where])
  }

  /** Adds what was found in a folder that stands at `path` (`''`: here). */
  addBelow(path: string, notes: Notes): void {
    for (const [kind, { count, where }] of notes.#found) {
      this.#add(kind, count, path === '' ? where : where.map((inner) => (inner === '' ? path : `${path}/${inner}`)))
    }
  }

  #add(kind: NoteKind, count: number, where: readonly string[]): void {
    const entry = this.#found.get(kind) ?? { count: 0, where: [] }
    this.#found.set(kind, entry)
    // A folder that stands in itself many times over can hold more than can be counted.
    entry.count = Math.min(entry.count + count, Number.MAX_SAFE_INTEGER)
    entry.where.push(...where.slice(0, shown - entry.where.length))
  }

  list(): readonly Note[] {
    return [...this.#found].map(([kind, { count, where }]) => ({
      kind,
      message: messages[kind],
      count,
      where: where.map((path) => (path === '' ? '.' : path)),
    }))
  }
}
