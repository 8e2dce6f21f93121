import { messageOf } from '@reve/base'
import { Minimatch } from 'minimatch'
import { StoreError } from './errors.ts'
import { Pace } from './host-dir.ts'
import type { Trees } from './trees.ts'
import type { EntryKind, StorePath, TreeId } from './types.ts'

export type GlobOptions = {
  /** Most paths (default 1000). */
  readonly limit?: number | undefined
  readonly signal?: AbortSignal | undefined
}

export type GlobResult = {
  /** Matching paths in the order of bytes: files, links, gitlinks, and directories where the pattern ends in `/`. */
  readonly matches: readonly { readonly path: StorePath; readonly kind: EntryKind }[]
  /** All that match; more than are shown when the limit cut the list. */
  readonly total: number
}

/** Longest pattern that is taken. */
const maxPattern = 4096

/** Paths of a tree that match a pattern, as a shell would read it: without a slash it means names in the root, `**` any depth. */
export async function globTree(
  trees: Trees,
  tree: TreeId,
  pattern: string,
  options: GlobOptions = {},
): Promise<GlobResult> {
  const limit = options.limit ?? 1000
  const wanted = pattern.replace(/^\.\//, '')
  const directories = wanted.endsWith('/')
  const matcher = compile(directories ? wanted.slice(0, -1) : wanted)
  const pace = new Pace(options.signal)
  const matches: GlobResult['matches'][number][] = []
  let total = 0
  for (const { path, kind } of trees.walk(tree)) {
    await pace.step(0.2)
    if ((kind === 'directory') !== directories || !matcher.match(path)) continue
    total += 1
    if (matches.length < limit) matches.push({ path, kind })
  }
  return { matches, total }
}

function compile(pattern: string): Minimatch {
  const bad = (why: string): StoreError =>
    new StoreError('bad_pattern', `the pattern ${JSON.stringify(pattern.slice(0, 80))} ${why}`)
  if (pattern === '') throw bad('is empty')
  if (pattern.length > maxPattern) throw bad(`is longer than ${maxPattern} characters`)
  if (pattern.startsWith('/')) throw bad('starts with a slash: paths start at the root of the tree, without one')
  try {
    return new Minimatch(pattern, {
      nonegate: true,
      nocomment: true,
      dot: true,
      braceExpandMax: 1000,
      platform: 'linux',
    })
  } catch (error) {
    throw bad(`is no glob: ${messageOf(error)}`)
  }
}
