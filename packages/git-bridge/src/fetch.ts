import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'
import { textOf, type Source } from './names.ts'
import { commitOf, importedName, isAncestor, listRefs, type RefMap } from './refs.ts'
import { localUploadPack } from './surroundings.ts'
import { shallow, transportError } from './transport-error.ts'

/** What a remote's HEAD is. */
export type RemoteHead =
  | { readonly kind: 'branch'; readonly branch: string }
  | { readonly kind: 'detached'; readonly commit: string }
  | { readonly kind: 'none' }

/** Something about the branches of the clone that a fetch had to decide. */
export type BranchNote = {
  readonly kind: 'branch_moved_aside' | 'branch_blocked'
  readonly branch: string
  readonly detail: string
}

const remotes = 'refs/remotes/origin/'
const heads = 'refs/heads/'
/** Where a commit of the clone is kept when its branch has to follow the remote. */
const kept = 'refs/kept/'
/** Where the commit of a detached remote HEAD is kept. */
const detachedHead = 'refs/imported/HEAD'

/** Makes an empty bare repository that knows where it comes from. */
export async function initClone(git: GitSession, dir: string, source: Source): Promise<void> {
  const form = ['--bare', '--template=', '--object-format=sha1', '--initial-branch=main']
  await git.text(undefined, ['init', '--quiet', ...form, dir])
  await git.text(dir, ['config', 'remote.origin.url', textOf(source)])
  await git.text(dir, ['config', 'remote.origin.fetch', `+${heads}*:${remotes}*`])
}

/** The source that a clone was made from. */
export async function sourceOf(git: GitSession, dir: string): Promise<string> {
  return git.text(dir, ['config', '--get', 'remote.origin.url'])
}

/**
 * Brings the remote's branches and tags into the clone: `refs/remotes/origin/*` mirrors them, `refs/heads/*` follows
 * where it has nothing of its own.
 *
 * @param wanted the branch, tag or reference that the caller asked for: its branch is made to stand where the remote's does.
 */
export async function fetchAll(
  git: GitSession,
  dir: string,
  source: Source,
  wanted: string | undefined,
): Promise<{ readonly head: RemoteHead; readonly notes: readonly BranchNote[] }> {
  const server = source.kind === 'path' ? [localUploadPack] : []
  const head = await remoteHead(git, dir, source, server)
  const before = await listRefs(git, dir, [heads, remotes])
  const extra = wanted !== undefined && wanted.startsWith('refs/') && !/^refs\/(?:heads|tags)\//.test(wanted)
  const answer = await git.askGuarded(dir, [
    'fetch',
    // Quiet, it would not say how far it is.
    '--progress',
    ...server,
    '--prune',
    '--no-tags',
    '--force',
    '--no-write-fetch-head',
    '--no-recurse-submodules',
    'origin',
    `+${heads}*:${remotes}*`,
    '+refs/tags/*:refs/tags/*',
    ...(head.kind === 'detached' ? [`+HEAD:${detachedHead}`] : []),
    ...(extra ? [`+${wanted}:${importedName(wanted)}`] : []),
  ])
  if (answer.code !== 0) throw transportError(answer, git.answered)
  if (/shallow roots are not allowed/.test(answer.stderr) || existsSync(join(dir, 'shallow'))) throw shallow()
  const branch = wanted ?? (head.kind === 'branch' ? head.branch : undefined)
  const notes = await followRemote(git, dir, before, branch?.replace(/^refs\/heads\//, ''))
  return { head, notes }
}

/**
 * Makes what was imported the clone's current commit, which is where a new branch starts: its branch, or the commit itself where it
 * is not the tip of one.
 */
export async function setCurrent(
  git: GitSession,
  dir: string,
  found: { readonly commit: string; readonly ref: string },
): Promise<void> {
  const isBranch = found.ref.startsWith(heads) && (await commitOf(git, dir, found.ref)) === found.commit
  const now = (await readFile(join(dir, 'HEAD'), 'utf8')).trim()
  if (now === (isBranch ? `ref: ${found.ref}` : found.commit)) return
  await git.text(
    dir,
    isBranch ? ['symbolic-ref', 'HEAD', found.ref] : ['update-ref', '--no-deref', 'HEAD', found.commit],
  )
}

async function remoteHead(
  git: GitSession,
  dir: string,
  source: Source,
  server: readonly string[],
): Promise<RemoteHead> {
  const args = ['ls-remote', '--symref', ...server, 'origin', 'HEAD']
  const answer = await git.askGuarded(dir, args)
  if (answer.code !== 0) throw transportError(answer, git.answered)
  const lines = answer.stdout.toString('utf8').split('\n')
  if (answer.stdout.length === 0 && source.kind === 'address') {
    // To git any web page is a list of references, and one without any: an error page must not empty the clone.
    const traced = await git.askGuarded(dir, args, { GIT_TRACE_PACKET: '1' })
    if (!/ packet: /.test(traced.stderr)) throw new GitError('not_found', 'the server answers, but not as git does')
  }
  const branch = lines
    .map((line) => /^ref: refs\/heads\/(.+)\tHEAD$/.exec(line)?.[1])
    .find((found) => found !== undefined)
  if (branch !== undefined) return { kind: 'branch', branch }
  const commit = lines.map((line) => /^([0-9a-f]{40,64})\tHEAD$/.exec(line)?.[1]).find((found) => found !== undefined)
  return commit === undefined ? { kind: 'none' } : { kind: 'detached', commit }
}

/**
 * Moves the clone's branches after a fetch. One that only mirrored the remote's follows it (also away); one with commits of its
 * own is fast-forwarded or left; the wanted one is set to the remote's, its own commits being kept under `refs/kept/`.
 */
async function followRemote(
  git: GitSession,
  dir: string,
  before: RefMap,
  wanted: string | undefined,
): Promise<readonly BranchNote[]> {
  const after = await listRefs(git, dir, [remotes])
  const notes: BranchNote[] = []
  const local = new Map([...before].filter(([ref]) => ref.startsWith(heads)))
  const removals: string[] = []
  for (const [ref, id] of local) {
    const mirror = `${remotes}${ref.slice(heads.length)}`
    if (after.has(mirror) || before.get(mirror) !== id) continue
    removals.push(`delete ${ref} ${id}\n`)
    local.delete(ref)
  }
  const moves: string[] = []
  for (const [mirror, id] of after) {
    const branch = mirror.slice(remotes.length)
    const ref = `${heads}${branch}`
    const mine = local.get(ref)
    if (mine === id) continue
    if (mine === undefined) {
      const blocker = blockerOf(ref, local)
      if (blocker === undefined) moves.push(`create ${ref} ${id}\n`)
      else
        notes.push({
          kind: 'branch_blocked',
          branch,
          detail: `the clone has the branch ${blocker.slice(heads.length)}, so ${branch} cannot exist beside it`,
        })
    } else if (mine === before.get(mirror) || (await isAncestor(git, dir, mine, id))) {
      moves.push(`update ${ref} ${id} ${mine}\n`)
    } else if (branch === wanted && !(await isAncestor(git, dir, id, mine))) {
      moves.push(`update ${kept}${branch}/${mine} ${mine}\n`, `update ${ref} ${id} ${mine}\n`)
      notes.push({
        kind: 'branch_moved_aside',
        branch,
        detail: `the clone's commit ${mine} is not in the remote's branch; it is kept as ${kept}${branch}/${mine}`,
      })
    }
  }
  for (const commands of [removals, moves]) {
    if (commands.length > 0) await git.text(dir, ['update-ref', '--stdin'], commands.join(''))
  }
  return notes
}

/** A branch that cannot exist beside `ref` because one of them would be the other's folder. */
function blockerOf(ref: string, local: ReadonlyMap<string, string>): string | undefined {
  const parts = ref.split('/')
  for (let depth = 3; depth < parts.length; depth += 1) {
    const parent = parts.slice(0, depth).join('/')
    if (local.has(parent)) return parent
  }
  return [...local.keys()].find((other) => other.startsWith(`${ref}/`))
}
