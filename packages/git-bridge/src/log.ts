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

const format = ['%H', '%P', '%an', '%ae', '%aI', '%cn', '%ce', '%cI', '%s'].join('%x00')
const width = 9

/** The newest commits: of one commit's history, or of all branches of the clone. */
export async function readLog(
  git: GitSession,
  dir: string,
  count: number,
  from: string | undefined,
): Promise<readonly Commit[]> {
  const heads = await listRefs(git, dir, ['refs/heads'])
  if (from === undefined && heads.size === 0) return []
  const args = [
    'log',
    '-z',
    `--format=tformat:${format}`,
    '--encoding=UTF-8',
    '--no-decorate',
    '--date-order',
    `--max-count=${count}`,
  ]
  const start = from === undefined ? ['--branches'] : ['--end-of-options', from]
  const answer = await git.ask(dir, [...args, ...start, '--'])
  if (answer.code !== 0) throw failed(['log'], answer)
  const branches = Map.groupBy(heads.keys(), (ref) => heads.get(ref) ?? '')
  const fields = answer.stdout.toString('utf8').split('\0')
  const commits: Commit[] = []
  for (let at = 0; at + width <= fields.length; at += width) {
    const [commit = '', parents = '', an = '', ae = '', aI = '', cn = '', ce = '', cI = '', subject = ''] =
      fields.slice(at, at + width)
    commits.push({
      commit,
      parents: parents === '' ? [] : parents.split(' '),
      author: { name: an, email: ae, date: aI },
      committer: { name: cn, email: ce, date: cI },
      branches: (branches.get(commit) ?? []).map((ref) => ref.slice('refs/heads/'.length)),
      subject,
    })
  }
  return commits
}
