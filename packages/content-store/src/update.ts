import { lstatSync, rmdirSync, unlinkSync } from 'node:fs'
import { StoreError, hasCode } from './errors.ts'
import { type HostDir, Pace } from './host-dir.ts'
import { failed, Layout, openRoot } from './layout.ts'
import type { ByteName } from './names.ts'
import type { Objects } from './objects.ts'
import { joinNames, splitPath } from './path.ts'
import { diffTrees } from './tree-diff.ts'
import type { Trees } from './trees.ts'
import type { Edit, StorePath, Target, TreeId } from './types.ts'

export type UpdateOptions = { readonly signal?: AbortSignal | undefined }

export type UpdateReport = {
  /** Paths that were written: new ones and those with another content. */
  readonly written: number
  /** Paths that were removed, those that were written anew apart. */
  readonly removed: number
  /** What stands where something has to go, and is not what the tree before says: it was left, and so is what it stands for. */
  readonly inTheWay: readonly StorePath[]
}

/**
 * Makes a folder that holds the tree `from` hold the tree `to`: only what differs is touched, no link is followed, and what is in
 * neither tree (ignored files, say) stays. A failure leaves a mixture; the same call, with what is there then, goes on from it.
 */
export async function update(
  { trees, objects }: { readonly trees: Trees; readonly objects: Objects },
  dir: string,
  { from, to, signal }: { readonly from: TreeId; readonly to: TreeId } & UpdateOptions,
): Promise<UpdateReport> {
  const changes = [...diffTrees(trees, from, to)]
  const pace = new Pace(signal)
  const inTheWay: StorePath[] = []
  let removed = 0
  const root = openRoot(dir)
  try {
    // The deepest first, so that what a removal empties can go as well.
    for (const { path, before, after } of changes.toReversed()) {
      await pace.step()
      if (before === null) continue
      const names = splitPath(path)
      const isDirectory = isFolder(before)
      const gone = remove(root, names, isDirectory, path)
      if (!gone && !isDirectory) inTheWay.push(path)
      if (gone && after === null) removed += 1
      prune(root, names.slice(0, -1), (parent) => trees.lookup(to, splitPath(parent))?.kind === 'directory')
    }
    const edits: Edit[] = []
    for (const { path, after } of changes) {
      if (after === null || inTheWay.includes(path)) continue
      await pace.step()
      if (isFree(root, splitPath(path), isFolder(after))) edits.push({ path, set: after })
      else inTheWay.push(path)
    }
    const fresh = trees.edit(trees.emptyTree, edits)
    await new Layout(trees, objects, { allowExisting: true, signal }).run(fresh, dir)
    return { written: edits.length, removed, inTheWay }
  } finally {
    root.close()
  }
}

/** A commit of another repository stands on disk as a folder. */
const isFolder = ({ kind }: Target): boolean => kind === 'directory' || kind === 'gitlink'

/** Runs `use` on the folder of a path, reached without following a link; undefined where there is none. */
function within<T>(root: HostDir, names: readonly ByteName[], use: (folder: HostDir) => T): T | undefined {
  const opened: HostDir[] = []
  try {
    let folder = root
    for (const name of names) {
      folder = folder.directory(name)
      opened.push(folder)
    }
    return use(folder)
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR', 'ELOOP')) return undefined
    throw error
  } finally {
    for (const folder of opened.toReversed()) folder.close()
  }
}

/** Takes a file, a link or an empty folder away. True when nothing is there any more. */
function remove(root: HostDir, names: readonly ByteName[], isDirectory: boolean, path: StorePath): boolean {
  const name = names.at(-1)
  if (name === undefined) return false
  const gone = within(root, names.slice(0, -1), (folder) => {
    try {
      const at = folder.child(name)
      if (lstatSync(at).isDirectory()) {
        if (!isDirectory) return false
        rmdirSync(at)
      } else unlinkSync(at)
      return true
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return true
      if (hasCode(error, 'ENOTEMPTY', 'EEXIST')) return false
      throw failed(path, error)
    }
  })
  return gone ?? true
}

/** Takes folders away, from the deepest on, that are empty now and that the tree does not have. */
function prune(root: HostDir, names: readonly ByteName[], stays: (parent: StorePath) => boolean): void {
  for (let depth = names.length; depth > 0; depth--) {
    const parent = joinNames(names.slice(0, depth))
    if (stays(parent) || !remove(root, names.slice(0, depth), true, parent)) return
  }
}

/** Whether something may be made at a path: nothing is there, and nothing but folders is on the way. */
function isFree(root: HostDir, names: readonly ByteName[], isDirectory: boolean): boolean {
  const opened: HostDir[] = []
  try {
    let folder = root
    for (const [at, name] of names.entries()) {
      const found = lstatSync(folder.child(name), { throwIfNoEntry: false })
      if (found === undefined) return true
      if (at === names.length - 1) return isDirectory && found.isDirectory()
      if (!found.isDirectory()) return false
      folder = folder.directory(name)
      opened.push(folder)
    }
    return false
  } catch (error) {
    if (hasCode(error, 'ENOTDIR', 'ELOOP')) return false
    if (error instanceof StoreError) throw error
    throw failed(joinNames(names), error)
  } finally {
    for (const folder of opened.toReversed()) folder.close()
  }
}
