import { sanitiseLine } from '@reve/base'
import { stat } from 'node:fs/promises'
import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'
import type { Source } from './names.ts'
import { transportError } from './transport-error.ts'

/** What a push did. `remote` is the name or address that was pushed to. */
export type PushResult = {
  readonly branch: string
  readonly commit: string
  readonly remote: string
  readonly outcome: 'created' | 'updated' | 'up_to_date'
}

/** What to do about a rejection, by the words in which git or the other side gives its reason. */
const explanations: readonly (readonly [RegExp, string])[] = [
  [
    /fetch first|non-fast-forward|stale info/,
    "the remote's branch has commits that this one does not: import the repository again and export onto it, or export to another branch",
  ],
  [
    /currently checked out/,
    'the other repository has this branch checked out: push another branch, or to a bare repository',
  ],
  [/hook declined|pre-receive|protected branch/i, 'a rule of the other side refused it: push another branch'],
  [/shallow/, 'one of the two repositories has a history that is cut off'],
  [/already exists|directory file conflict|cannot lock ref/, 'a branch of the other side is in the way of this name'],
]

/**
 * A local target runs its own hooks as the user of this process, so only a repository of that user is pushed to.
 *
 * @throws GitError `not_found`, `bad_argument`.
 */
export async function checkTarget(target: Source, ownUid: number | undefined): Promise<void> {
  if (target.kind !== 'path' || ownUid === undefined) return
  let uid: number
  try {
    uid = (await stat(target.path)).uid
  } catch (error) {
    throw new GitError('not_found', 'there is no repository at the path to push to', { cause: error })
  }
  if (uid !== ownUid)
    throw new GitError(
      'bad_argument',
      'the repository to push to belongs to another user of this host, whose hooks are not run',
      { hint: 'push to it by ssh or https' },
    )
}

/** Pushes one branch, without force. */
export async function pushBranch(
  git: GitSession,
  dir: string,
  branch: string,
  commit: string,
  remote: string,
): Promise<PushResult> {
  const answer = await git.askGuarded(dir, [
    'push',
    '--porcelain',
    '--progress',
    '--no-follow-tags',
    '--',
    remote,
    `refs/heads/${branch}:refs/heads/${branch}`,
  ])
  const line = answer.stdout
    .toString('utf8')
    .split('\n')
    .map((text) => /^([ +\-*=!])\t([^\t]*)\t(.*)$/.exec(text))
    .find((match) => match !== null)
  if (line === undefined || line === null) throw transportError(answer, git.answered)
  const [, flag = '', , said = ''] = line
  const summary = git.redact(said)
  const done = (outcome: PushResult['outcome']): PushResult => ({ branch, commit, remote, outcome })
  switch (flag) {
    case '*':
      return done('created')
    case '=':
      return done('up_to_date')
    case '!':
      throw rejected(branch, summary, answer.stderr)
    default:
      return done('updated')
  }
}

/** The error for a push that was cut off: the other side may have taken it before. */
export function pushCancelled(branch: string, cause: GitError): GitError {
  return new GitError('cancelled', `the push of ${branch} was cancelled, and may have arrived`, {
    cause,
    hint: 'push it again: what has arrived is said to be up to date',
  })
}

function rejected(branch: string, summary: string, stderr: string): GitError {
  const said = stderr
    .split('\n')
    .filter((line) => line.startsWith('remote: ') && line.trim() !== 'remote:')
    .map((line) => line.slice('remote: '.length).trim())
    .join('; ')
  const hint = explanations.find(([pattern]) => pattern.test(`${summary} ${stderr}`))?.[1]
  const reason = sanitiseLine(said === '' ? summary : `${summary}; the other side says: ${said}`, 1_000)
  return new GitError(
    'push_rejected',
    `the push of ${branch} was rejected: ${reason}`,
    hint === undefined ? {} : { hint },
  )
}
