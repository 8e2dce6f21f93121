import type { Store } from '@reve/content-store'
import type { CommitText } from './commit.ts'
import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'
import { Notes } from './notes.ts'
import type { ObjectMap } from './object-map.ts'
import { commitOf, findCommit, treeOf } from './refs.ts'
import type { ExportResult } from './requests.ts'
import { Outgoing } from './tree-out.ts'

/** What is exported: a tree of a store. */
type Content = { readonly store: Store; readonly map: ObjectMap; readonly tree: string }
/** Where to: a branch of the clone, and where it starts if it is new. */
type Target = { readonly branch: string; readonly startPoint: string | undefined }

/** Writes a tree as one commit on a branch; where the parent has the same tree, the branch only comes to stand there. */
export async function exportTree(
  git: GitSession,
  dir: string,
  { store, map, tree }: Content,
  { branch, startPoint }: Target,
  text: Omit<CommitText, 'tree' | 'parent'>,
): Promise<ExportResult> {
  const notes = new Notes()
  const { at, parent } = await baseOf(git, dir, branch, startPoint, notes)
  const outgoing = new Outgoing(git, dir, store, map, tree)
  const gitTree = await outgoing.gitTree(notes)
  const unchanged = parent !== undefined && (await treeOf(git, dir, parent)) === gitTree
  const commit = unchanged ? parent : await outgoing.commit({ ...text, tree: gitTree, parent })
  await moveBranch(git, dir, branch, commit, at)
  return { commit, branch, parent: parent ?? null, gitTree, unchanged, notes: notes.list() }
}

/** Where the branch stands (undefined: nowhere yet), and the commit that the new one follows (undefined: it is the first). */
async function baseOf(
  git: GitSession,
  dir: string,
  branch: string,
  startPoint: string | undefined,
  notes: Notes,
): Promise<{ readonly at: string | undefined; readonly parent: string | undefined }> {
  const start = startPoint === undefined ? undefined : await findCommit(git, dir, startPoint, 'clone')
  const at = await commitOf(git, dir, `refs/heads/${branch}`)
  if (at !== undefined) {
    if (start !== undefined && start.commit !== at) notes.add('start_point_ignored', branch)
    return { at, parent: at }
  }
  return { at, parent: start?.commit ?? (await commitOf(git, dir, 'HEAD')) }
}

async function moveBranch(
  git: GitSession,
  dir: string,
  branch: string,
  to: string,
  from: string | undefined,
): Promise<void> {
  if (to === from) return
  const answer = await git.ask(dir, ['update-ref', `refs/heads/${branch}`, to, from ?? '0'.repeat(to.length)])
  if (answer.code === 0) return
  if (/cannot lock ref .* exists;? cannot create|exists/.test(answer.stderr)) {
    throw new GitError(
      'bad_name',
      `the branch ${branch} cannot exist beside another one of the clone: one would be the folder of the other`,
    )
  }
  throw new GitError('io', `the branch ${branch} could not be moved: ${answer.stderr.slice(0, 500)}`)
}
