import type { Store, TreeChange } from '@reve/content-store'

/** A path that differs between two trees. `mode`: the same content, executable or not. */
export type Change = { readonly path: string; readonly change: 'added' | 'changed' | 'removed' | 'mode' }

/** Paths that differ from `before` to `after`, in the order of names. Costs the difference. A directory is named only where it is empty and new, or was and is gone. */
export function changesBetween(store: Store, before: string, after: string): readonly Change[] {
  const changes: Change[] = []
  for (const difference of store.diffTrees(before, after)) {
    if (isDirectoryOnBothSides(store, before, after, difference)) continue
    changes.push({ path: difference.path, change: kindOf(difference) })
  }
  return changes
}

/** A directory that lost all its content, or had none and has some: what is in it is named instead. */
function isDirectoryOnBothSides(store: Store, before: string, after: string, { path, ...sides }: TreeChange): boolean {
  if ((sides.before ?? sides.after)?.kind !== 'directory') return false
  return [before, after].every((tree) => store.lookup(tree, path)?.kind === 'directory')
}

function kindOf({ before, after }: TreeChange): Change['change'] {
  if (before === null) return 'added'
  if (after === null) return 'removed'
  return before.id === after.id && before.kind !== 'symlink' && after.kind !== 'symlink' ? 'mode' : 'changed'
}
