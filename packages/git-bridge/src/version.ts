import { GitError } from './errors.ts'
import type { GitSession } from './git.ts'

/** The oldest git that does what is asked of it here: it syncs what it writes, and names what it refuses. */
const oldest = [2, 37] as const

/** @throws GitError `git_missing` when git is not there, or too old. */
export async function checkVersion(git: GitSession): Promise<void> {
  const text = await git.text(undefined, ['version'])
  const [, major = '0', minor = '0'] = /(\d+)\.(\d+)/.exec(text) ?? []
  const found = [Number(major), Number(minor)] as const
  if (found[0] > oldest[0] || (found[0] === oldest[0] && found[1] >= oldest[1])) return
  throw new GitError('git_missing', `${text} is too old`, { hint: `git ${oldest.join('.')} or newer is needed` })
}
