import { didYouMean } from '@reve/base'
import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'
import { checkRevision } from './names.ts'

/** Ids by full reference name. */
export type RefMap = ReadonlyMap<string, string>

/** References below the given prefixes. */
export async function listRefs(git: GitSession, dir: string, prefixes: readonly string[]): Promise<RefMap> {
  const lines = await git.text(dir, ['for-each-ref', '--format=%(objectname) %(refname)', ...prefixes])
  return new Map(
    lines
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => {
        const space = line.indexOf(' ')
        return [line.slice(space + 1), line.slice(0, space)]
      }),
  )
}

/** Commit id behind a reference or id, or undefined if there is none in the clone. */
export async function commitOf(git: GitSession, dir: string, revision: string): Promise<string | undefined> {
  const answer = await git.ask(dir, ['rev-parse', '--verify', '--quiet', '--end-of-options', `${revision}^{commit}`])
  return answer.code === 0 ? answer.stdout.toString('utf8').trim() : undefined
}

/** Id of the tree of a commit. */
export async function treeOf(git: GitSession, dir: string, commit: string): Promise<string> {
  return git.text(dir, ['rev-parse', '--verify', '--quiet', '--end-of-options', `${commit}^{tree}`])
}

/** True if `ancestor` is `commit`, or one of its ancestors. */
export async function isAncestor(git: GitSession, dir: string, ancestor: string, commit: string): Promise<boolean> {
  return (await git.ask(dir, ['merge-base', '--is-ancestor', ancestor, commit])).code === 0
}

/** Prefixes under which a short name is looked for: what came from the remote, or what stands in the clone. */
export type Scope = 'remote' | 'clone'
const prefixesOf = {
  remote: ['refs/remotes/origin/', 'refs/tags/'],
  clone: ['refs/heads/', 'refs/remotes/origin/', 'refs/tags/'],
} as const

/**
 * Finds what a caller names: a branch, a tag, a full reference or a commit id, in this order.
 *
 * @throws GitError `bad_ref`, with a spelling hint.
 */
export async function findCommit(
  git: GitSession,
  dir: string,
  named: string,
  scope: Scope,
): Promise<{ readonly commit: string; readonly ref: string }> {
  checkRevision(named)
  const refs = await listRefs(git, dir, ['refs/heads', 'refs/remotes/origin', 'refs/tags', 'refs/imported'])
  for (const candidate of candidatesOf(named, scope)) {
    if (!refs.has(candidate)) continue
    const commit = await commitOf(git, dir, candidate)
    if (commit === undefined) throw new GitError('bad_ref', `${named} is no commit: it names a tree or a file`)
    return { commit, ref: publicName(candidate) }
  }
  if (/^[0-9a-f]{40}(?:[0-9a-f]{24})?$/.test(named)) {
    const commit = await commitOf(git, dir, named)
    if (commit !== undefined) return { commit, ref: commit }
  }
  const known = [...refs.keys()].map((ref) => ref.replace(/^refs\/(?:heads|tags|remotes\/origin)\//, ''))
  throw new GitError(
    'bad_ref',
    `there is no branch, tag, reference or commit ${JSON.stringify(named)}${didYouMean(named, known)}`,
  )
}

function candidatesOf(named: string, scope: Scope): readonly string[] {
  const short = prefixesOf[scope].map((prefix) => `${prefix}${named}`)
  if (!named.startsWith('refs/')) return short
  if (named.startsWith('refs/heads/')) {
    const branch = named.slice('refs/heads/'.length)
    return scope === 'remote' ? [`refs/remotes/origin/${branch}`] : [named, `refs/remotes/origin/${branch}`]
  }
  return named.startsWith('refs/tags/') ? [named] : [importedName(named), ...short]
}

/** Where a reference that is neither a branch nor a tag (`refs/pull/1/head`) is kept in the clone. */
export function importedName(ref: string): string {
  return `refs/imported/${ref.slice('refs/'.length)}`
}

/** The remote's name of what a reference of the clone mirrors. */
function publicName(ref: string): string {
  if (ref.startsWith('refs/remotes/origin/')) return `refs/heads/${ref.slice('refs/remotes/origin/'.length)}`
  return ref.startsWith('refs/imported/') ? `refs/${ref.slice('refs/imported/'.length)}` : ref
}
