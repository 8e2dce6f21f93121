import { type Confined, isReveError } from '@reve/base'

/** A file that fits what is typed. `path` is relative to the workspace. */
export type FileMatch = { readonly path: string }

const atOnce = 8
const mostFiles = 400_000
const deepest = 64
const skipped: ReadonlySet<string> = new Set(['node_modules', '__pycache__'])

/**
 * The files of a workspace by name, for completion. It is filled in the background: a question is answered at once from what is known
 * so far. Hidden names are left out, links are not followed.
 */
export class FileIndex {
  readonly #workspace: Confined
  readonly #changed: () => void
  #paths: readonly string[] = []
  #lower: readonly string[] = []
  #scan: Promise<void> | undefined
  #again = false
  #stopped = false
  /** The last question and what fitted it: a longer one fits only among those. */
  #last: { readonly query: string; readonly paths: readonly string[]; readonly found: readonly number[] } | undefined

  /** @param changed called when there is more to show. */
  constructor(workspace: Confined, changed: () => void) {
    this.#workspace = workspace
    this.#changed = changed
  }

  get scanning(): boolean {
    return this.#scan !== undefined
  }

  get size(): number {
    return this.#paths.length
  }

  /** Looks again; one that asks while it looks gets another look after it. */
  refresh(): void {
    if (this.#stopped) return
    if (this.#scan !== undefined) {
      this.#again = true
      return
    }
    this.#scan = this.#walk().finally(() => {
      this.#scan = undefined
      this.#changed()
      if (!this.#again) return
      this.#again = false
      this.refresh()
    })
  }

  /** Resolves when it does not look any more. */
  async settled(): Promise<void> {
    while (this.#scan !== undefined) await this.#scan
  }

  stop(): void {
    this.#stopped = true
    this.#again = false
  }

  /** Paths that fit, the best first: the name begins with it, the name has it, the path has it, its letters are there in order. */
  find(query: string, most: number): readonly FileMatch[] {
    const wanted = query.toLowerCase()
    if (wanted === '') return this.#paths.slice(0, most).map((path) => ({ path }))
    const last = this.#last
    const within =
      last !== undefined && last.paths === this.#paths && wanted.startsWith(last.query) ? last.found : undefined
    const found: number[] = []
    const ranked: { readonly index: number; readonly rank: number }[] = []
    const look = (index: number): void => {
      const rank = rankOf(this.#lower[index] ?? '', wanted)
      if (rank < 0) return
      found.push(index)
      ranked.push({ index, rank })
    }
    if (within === undefined) for (let index = 0; index < this.#lower.length; index++) look(index)
    else for (const index of within) look(index)
    this.#last = { query: wanted, paths: this.#paths, found }
    return best(ranked, most, (index) => (this.#paths[index] ?? '').length).map((index) => ({
      path: this.#paths[index] ?? '',
    }))
  }

  async #walk(): Promise<void> {
    const folders = new Map<string, { readonly files: readonly string[]; readonly folders: readonly string[] }>()
    let waiting: readonly string[] = ['']
    const counted = { files: 0 }
    // What is there to be seen while the first look lasts.
    const first = this.#paths.length === 0
    for (let depth = 0; waiting.length > 0 && depth < deepest && counted.files < mostFiles; depth++) {
      const next: string[] = []
      const queue = waiting.values()
      const work = async (): Promise<void> => {
        for (const folder of queue) {
          if (this.#stopped) return
          const entries = await this.#list(folder)
          const names = entries.filter(({ name }) => !name.startsWith('.') && !skipped.has(name))
          const found = {
            files: names
              .filter(({ kind }) => kind === 'file')
              .map(({ name }) => name)
              .sort(compare),
            folders: names
              .filter(({ kind }) => kind === 'folder')
              .map(({ name }) => name)
              .sort(compare),
          }
          folders.set(folder, found)
          counted.files += found.files.length
          for (const name of found.folders) next.push(folder + name + '/')
        }
      }
      await Promise.all(Array.from({ length: atOnce }, work))
      waiting = next
      if (first && waiting.length > 0) this.#take(folders)
    }
    if (!this.#stopped) this.#take(folders)
  }

  #take(
    folders: ReadonlyMap<string, { readonly files: readonly string[]; readonly folders: readonly string[] }>,
  ): void {
    const paths: string[] = []
    const open: string[] = ['']
    for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
      const found = folders.get(folder)
      for (const name of found?.files ?? []) if (paths.length < mostFiles) paths.push(folder + name)
      for (const name of found?.folders.toReversed() ?? []) open.push(folder + name + '/')
    }
    this.#paths = paths
    this.#lower = paths.map((path) => path.toLowerCase())
    this.#changed()
  }

  async #list(folder: string): ReturnType<Confined['list']> {
    try {
      return await this.#workspace.list(folder === '' ? '.' : folder.slice(0, -1))
    } catch (error) {
      // It went away, or became a link, while we looked.
      if (isReveError(error)) return []
      throw error
    }
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

function rankOf(path: string, wanted: string): number {
  const at = path.indexOf(wanted)
  if (at < 0) return isSubsequence(path, wanted) ? 4 : -1
  const name = path.lastIndexOf('/') + 1
  if (path.startsWith(wanted, name)) return path.length === name + wanted.length ? 0 : 1
  return path.indexOf(wanted, name) >= 0 ? 2 : 3
}

function isSubsequence(path: string, wanted: string): boolean {
  let from = 0
  for (let index = 0; index < wanted.length; index++) {
    const found = path.indexOf(wanted[index] ?? '', from)
    if (found < 0) return false
    from = found + 1
  }
  return true
}

/** The first `most` by rank, then length, then order; not a sort of all of them. */
function best(
  ranked: readonly { readonly index: number; readonly rank: number }[],
  most: number,
  length: (index: number) => number,
): readonly number[] {
  const out: number[] = []
  for (let rank = 0; rank <= 4 && out.length < most; rank++) {
    const same = ranked.filter((match) => match.rank === rank)
    // Of very many, the first ones are as good as any.
    const few = same.slice(0, 2000).toSorted((a, b) => length(a.index) - length(b.index) || a.index - b.index)
    out.push(...few.slice(0, most - out.length).map(({ index }) => index))
  }
  return out
}
