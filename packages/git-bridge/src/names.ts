import { GitError } from './errors.ts'

/**
 * True if git takes `ref` as a full reference name (`refs/heads/main`): the rules of git-check-ref-format, in one place and
 * without starting git.
 */
export function isRefName(ref: string): boolean {
  if (ref === '' || ref === '@' || !ref.isWellFormed()) return false
  // eslint-disable-next-line no-control-regex -- control characters are what is looked for
  if (/[\u0000-\u0020\u007f~^:?*[\\]/.test(ref)) return false
  if (ref.includes('..') || ref.includes('@{') || ref.endsWith('.')) return false
  return ref.split('/').every((part) => part !== '' && !part.startsWith('.') && !part.endsWith('.lock'))
}

/**
 * Checks a branch name as a caller gives it.
 *
 * @throws GitError `bad_name`.
 */
export function checkBranch(branch: string): string {
  const bad =
    branch.startsWith('-') || branch.startsWith('refs/') || branch === 'HEAD' || !isRefName(`refs/heads/${branch}`)
  if (bad)
    throw new GitError('bad_name', `${JSON.stringify(branch)} is not a branch name`, {
      hint: 'give it without refs/heads/, such as main or feature/login',
    })
  return branch
}

/**
 * Checks a branch, tag, full reference or commit id that a caller names.
 *
 * @throws GitError `bad_ref`.
 */
export function checkRevision(ref: string): string {
  if (ref.startsWith('-') || !isRefName(ref.includes('/') ? ref : `refs/heads/${ref}`)) {
    throw new GitError('bad_ref', `${JSON.stringify(ref)} is not a branch, tag, full reference or commit id`)
  }
  return ref
}

/**
 * Checks the name of a clone: it becomes a folder and a ref.
 *
 * @throws GitError `bad_name`.
 */
export function checkRepoName(name: string): string {
  const good =
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/.test(name) &&
    !name.includes('..') &&
    !/\.(?:git|lock|)$/i.test(name) &&
    !/^[0-9a-f]{64}$/.test(name)
  if (!good) {
    throw new GitError(
      'bad_name',
      `${JSON.stringify(name)} cannot be the name of a repository: use 1 to 100 letters, digits, ".", "_" and "-", starting with a letter or digit, not ending in ".", ".git" or ".lock"`,
    )
  }
  return name
}

/** Where a repository is: a path of this host, or an address. */
export type Source =
  | { readonly kind: 'path'; readonly path: string }
  | { readonly kind: 'address'; readonly address: string }

const schemes = ['http:', 'https:', 'ssh:', 'git:', 'file:']

/**
 * Reads a source or push target: an absolute path, an address (http, https, ssh, git, file), or `host:path` as ssh takes it.
 *
 * @throws GitError `bad_argument`: user information that may be a secret, other transports, relative paths. The message does not
 *   repeat the value.
 */
export function parseSource(src: string): Source {
  const refuse = (why: string, hint?: string): never => {
    throw new GitError('bad_argument', `the address of the repository ${why}`, hint === undefined ? {} : { hint })
  }
  // eslint-disable-next-line no-control-regex -- control characters are what is looked for
  if (src === '' || src.startsWith('-') || /[\u0000-\u001f\u007f]/.test(src) || !src.isWellFormed())
    refuse('is empty, starts with "-" or has a control character')
  if (src.startsWith('/')) return { kind: 'path', path: src }
  if (/^[A-Za-z0-9+.-]*::/.test(src))
    refuse('uses a remote helper, which is not allowed', 'use http, https, ssh, git or file, or an absolute path')
  if (!src.includes('://')) {
    const scp = /^(?:(?<user>[^@:/\s]+)@)?(?<host>(?!-)[^@:/\s]+):(?<path>.+)$/.exec(src)
    if (scp === null)
      return refuse('is neither an absolute path nor an address', 'a path of this host has to be absolute')
    return { kind: 'address', address: src }
  }
  if (!URL.canParse(src)) refuse('is not a valid URL')
  const url = new URL(src)
  if (!schemes.includes(url.protocol))
    refuse(
      `uses ${url.protocol.slice(0, -1)}, which is not allowed`,
      'use http, https, ssh, git or file, or an absolute path',
    )
  const secretive = url.password !== '' || (url.username !== '' && url.protocol !== 'ssh:')
  if (secretive)
    refuse('carries a user name or password', 'the computer holds the credentials: give the address without them')
  if (url.hostname.startsWith('-')) refuse('has a host that starts with "-"')
  if (url.protocol === 'file:') return { kind: 'path', path: decodeURIComponent(url.pathname) }
  return { kind: 'address', address: src }
}

/** The text that git is given for a source. */
export function textOf(source: Source): string {
  switch (source.kind) {
    case 'path':
      return source.path
    case 'address':
      return source.address
    default:
      return source satisfies never
  }
}
