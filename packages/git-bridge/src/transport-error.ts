import { GitError } from './errors.ts'
import { failed, lastLines, type GitAnswer } from './git.ts'

/** The error for a source whose history is cut off. */
export function shallow(): GitError {
  return new GitError('shallow', 'the source is a shallow repository: its history is cut off', {
    hint: 'complete it with git fetch --unshallow, or import from where it came from',
  })
}

type Known = {
  readonly pattern: RegExp
  readonly error: (said: string, answered: boolean) => GitError
}

/** What git and its helpers say when the other side cannot be talked to; the first that fits counts. */
const known: readonly Known[] = [
  {
    pattern: /shallow update not allowed|source repository is shallow|shallow roots are not allowed/,
    error: shallow,
  },
  {
    pattern:
      /mismatched algorithms|does not support this repository's hash|unsupported (?:object|hash) (?:format|algorithm)|unknown repository extension/i,
    error: (said) =>
      new GitError(
        'unsupported_format',
        `the repository names its objects by SHA-256, or has a format that is not known here: ${said}`,
        {
          hint: 'only repositories with SHA-1 ids can be imported and pushed to',
        },
      ),
  },
  {
    pattern: /empty filename in tree entry|malformed mode in tree entry|too-short tree|truncated|null sha1/,
    error: (said) => new GitError('unsupported_tree', `a commit of the repository is broken: ${said}`),
  },
  {
    pattern: /Host key verification failed|No \S+ host key is known/i,
    error: (said) =>
      new GitError('auth_failed', `the host key of the other side is not known: ${said}`, {
        hint: 'connect once by hand as the user of this process, or name a file of known hosts',
      }),
  },
  {
    pattern: /SSL certificate|certificate verif|self[- ]signed certificate/i,
    error: (said) =>
      new GitError('unreachable', `the certificate of the other side is not trusted: ${said}`, {
        hint: 'name the file of the authority that signed it',
      }),
  },
  {
    pattern:
      /could not read (?:Username|Password)|Authentication failed|terminal prompts disabled|Permission denied \(|HTTP (?:Basic: Access denied|40[13])|error: 40[13]/i,
    error: (said, answered) =>
      answered
        ? new GitError('auth_failed', `the other side does not take the credential of this computer: ${said}`, {
            hint: 'it may have expired, or not be allowed to do this',
          })
        : new GitError('auth_failed', `the other side wants a credential that this computer does not have: ${said}`),
  },
  {
    pattern: /dubious ownership|unsafe repository/,
    error: (said) => new GitError('bad_argument', `the repository belongs to another user of this host: ${said}`),
  },
  { pattern: /couldn't find remote ref/, error: (said) => new GitError('bad_ref', said) },
  {
    pattern:
      /does not appear to be a git repository|does not exist|repository .* not found|not a git repository|No such file or directory/i,
    error: (said) => new GitError('not_found', `there is no repository: ${said}`),
  },
  {
    pattern:
      /Could not resolve|Failed to connect|Connection (?:refused|timed out|reset|closed)|unable to (?:access|connect)|timed out|Network is unreachable|No route to host|remote end hung up|early EOF/i,
    error: (said) => new GitError('unreachable', `the other side does not answer, or not to the end: ${said}`),
  },
]

/**
 * The typed error for a fetch or push that could not talk to the other side.
 *
 * @param answered whether the other side was shown a credential.
 */
export function transportError(answer: GitAnswer, answered: boolean): GitError {
  const said = lastLines(answer.stderr)
  const found = known.find(({ pattern }) => pattern.test(answer.stderr))
  if (found !== undefined) return found.error(said, answered)
  return answer.code === null
    ? failed(['call'], answer)
    : new GitError('clone_failed', `git could not talk to the other side: ${said}`)
}
