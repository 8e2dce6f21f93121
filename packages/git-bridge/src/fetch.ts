import { GitError } from './errors.ts'
import { failed, lastLines, type GitAnswer, type GitSession } from './git.ts'
import { importedName, isAncestor, listRefs, type RefMap } from './refs.ts'

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
export async function initClone(git: GitSession, dir: string, source: string): Promise<void> {
  await git.text(undefined, ['init', '--quiet', '--bare', '--template=', '--initial-branch=main', dir])
  await git.text(dir, ['config', 'remote.origin.url', source])
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
  wanted: string | undefined,
): Promise<{ readonly head: RemoteHead; readonly notes: readonly BranchNote[] }> {
  const head = await remoteHead(git, dir)
  const before = await listRefs(git, dir, [heads, remotes])
  const extra = wanted !== undefined && wanted.startsWith('refs/') && !/^refs\/(?:heads|tags)\//.test(wanted)
  const answer = await git.ask(dir, [
    'fetch',
    '--quiet',
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
  if (answer.code !== 0) throw transportError(answer)
  if (
    /shallow roots are not allowed/.test(answer.stderr) ||
    (await git.text(dir, ['rev-parse', '--is-shallow-repository'])) === 'true'
  )
    throw shallow()
  const branch = wanted ?? (head.kind === 'branch' ? head.branch : undefined)
  const notes = await followRemote(git, dir, before, branch?.replace(/^refs\/heads\//, ''))
  switch (head.kind) {
    case 'branch':
      await git.text(dir, ['symbolic-ref', 'HEAD', `${heads}${head.branch}`])
      break
    case 'detached':
      await git.text(dir, ['update-ref', '--no-deref', 'HEAD', head.commit])
      break
    case 'none':
      break
    default:
      head satisfies never
  }
  return { head, notes }
}

async function remoteHead(git: GitSession, dir: string): Promise<RemoteHead> {
  const answer = await git.ask(dir, ['ls-remote', '--symref', 'origin', 'HEAD'])
  if (answer.code !== 0) throw transportError(answer)
  const lines = answer.stdout.toString('utf8').split('\n')
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

function shallow(): GitError {
  return new GitError('shallow', 'the source is a shallow repository: its history is cut off', {
    hint: 'complete it with git fetch --unshallow, or import from where it came from',
  })
}

/** The typed error for a fetch, clone or push that could not talk to the other side. */
export function transportError(answer: GitAnswer): GitError {
  const said = lastLines(answer.stderr)
  const has = (pattern: RegExp): boolean => pattern.test(answer.stderr)
  if (has(/shallow update not allowed|source repository is shallow/)) return shallow()
  if (
    has(
      /could not read (?:Username|Password)|Authentication failed|terminal prompts disabled|Permission denied \(|Host key verification failed|HTTP 40[13]|error: 40[13]/i,
    )
  ) {
    return new GitError('auth_failed', `the other side wants a credential that this computer does not have: ${said}`)
  }
  if (has(/dubious ownership|unsafe repository/)) {
    return new GitError('bad_argument', `the repository belongs to another user of this host: ${said}`)
  }
  if (has(/couldn't find remote ref/)) return new GitError('bad_ref', said)
  if (
    has(
      /does not appear to be a git repository|does not exist|repository .* not found|not a git repository|No such file or directory/i,
    )
  ) {
    return new GitError('not_found', `there is no repository: ${said}`)
  }
  if (
    has(
      /Could not resolve host|Failed to connect|Connection (?:refused|timed out|reset)|unable to (?:access|connect)|timed out|Network is unreachable/i,
    )
  ) {
    return new GitError('unreachable', `the other side does not answer: ${said}`)
  }
  return answer.code === null ? failed(['fetch'], answer) : new GitError('clone_failed', `git could not fetch: ${said}`)
}
