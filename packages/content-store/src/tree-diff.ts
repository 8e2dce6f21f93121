import { childPath, maxDepth } from './path.ts'
import type { DirEntry } from './tree-encoding.ts'
import { tooDeep, type Trees } from './trees.ts'
import type { StorePath, Target, TreeChange, TreeId } from './types.ts'

const target = (entry: DirEntry): Target => ({ kind: entry.kind, id: entry.id })

/**
 * The paths that two trees do not have alike, in the order of their names. Costs the difference: what has one id on both
 * sides is not opened.
 */
export function* diffTrees(trees: Trees, a: TreeId, b: TreeId): Generator<TreeChange, void, undefined> {
  if (a !== b) yield* diffDirectories(trees, a, b, '', 0)
}

function* diffDirectories(
  trees: Trees,
  a: TreeId | undefined,
  b: TreeId | undefined,
  path: StorePath,
  depth: number,
): Generator<TreeChange, void, undefined> {
  if (depth > maxDepth) throw tooDeep(path)
  const left = a === undefined ? [] : trees.directory(a)
  const right = b === undefined ? [] : trees.directory(b)
  // A directory is its contents, so it counts by itself only where it has none.
  const emptyBefore = a !== undefined && left.length === 0 && path !== ''
  const emptyAfter = b !== undefined && right.length === 0 && path !== ''
  if (emptyBefore !== emptyAfter) {
    const directory: Target = { kind: 'directory', id: trees.emptyTree }
    yield { path, before: emptyBefore ? directory : null, after: emptyAfter ? directory : null }
  }
  for (let i = 0, j = 0; i < left.length || j < right.length;) {
    const l = left[i]
    const r = right[j]
    const here = l !== undefined && (r === undefined || l.name <= r.name) ? l : undefined
    const there = r !== undefined && (l === undefined || r.name <= l.name) ? r : undefined
    if (here !== undefined) i += 1
    if (there !== undefined) j += 1
    if (here?.kind === there?.kind && here?.id === there?.id) continue
    const name = here?.name ?? there?.name ?? ''
    const below = childPath(path, name)
    const before = here === undefined || here.kind === 'directory' ? null : target(here)
    const after = there === undefined || there.kind === 'directory' ? null : target(there)
    if (before !== null || after !== null) yield { path: below, before, after }
    const from = here?.kind === 'directory' ? here.id : undefined
    const to = there?.kind === 'directory' ? there.id : undefined
    if (from !== undefined || to !== undefined) yield* diffDirectories(trees, from, to, below, depth + 1)
  }
}
