import { failed, type GitSession } from './git.ts'
import { listRefs } from './refs.ts'

/** One commit. Times are ISO 8601 with the zone of their author; texts are as they were written (not safe for a terminal). */
export type Commit = {
  readonly commit: string
  readonly parents: readonly string[]
  readonly author: { readonly name: string; readonly email: string; readonly date: string }
  readonly committer: { readonly name: string; readonly email: string; readonly date: string }
  /** Branches of the clone that stand at this commit. */
  readonly branches: readonly string[]
  readonly subject: string
}

const format = ['%H', '%P', '%an', '%ae', '%aI', '%cn', '%ce', '%cI', '%D', '%s'].join('%x00')

/** The newest commits: of one commit's history, or of all branches of the clone. */
export async function readLog(
  git: GitSession,
  dir: string,
  count: number,
  from: string | undefined,
): Promise<readonly Commit[]> {
  if (from === undefined && (await listRefs(git, dir, ['refs/heads'])).size === 0) return []
  const args = [
    'log',
    '-z',
    `--format=tformat:${format}`,
    '--encoding=UTF-8',
    '--decorate=full',
    '--decorate-refs=refs/heads/*',
    '--date-order',
    `--max-count=${count}`,
  ]
  const answer = await git.ask(dir, [
    ...args,
    ...(from === undefined ? ['--branches'] : ['--end-of-options', from]),
    '--',
  ])
  if (answer.code !== 0) throw failed(['log'], answer)
  const fields = answer.stdout.toString('utf8').split('\0')
  const commits: Commit[] = []
  for (let at = 0; at + 10 <= fields.length; at += 10) {
    const [commit = '', parents = '', an = '', ae = '', aI = '', cn = '', ce = '', cI = '', refs = '', subject = ''] =
      fields.slice(at, at + 10)
    commits.push({
      commit,
      parents: parents === '' ? [] : parents.split(' '),
      author: { name: an, email: ae, date: aI },
      committer: { name: cn, email: ce, date: cI },
      branches: [...refs.matchAll(/refs\/heads\/([^,]+)/g)].map((match) => match[1] ?? ''),
      subject,
    })
  }
  return commits
}
