import { GitError } from './errors.ts'

/**
 * True if git takes `ref` as a full reference name (`refs/heads/main`): the rules of git-check-ref-format, in one place and
 * without starting git.
 */
export function isRefName(ref: string): boolean {
  if (ref === '' || ref === '@' || !ref.isWellFormed()) return false
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
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

/**
 * Where a repository is: a path of this host, or an address. `host` is lower case, with the port where it is not the scheme's
 * own.
 */
export type Source =
  | { readonly kind: 'path'; readonly path: string }
  | {
      readonly kind: 'address'
      readonly scheme: 'http' | 'https' | 'ssh' | 'git'
      readonly host: string
      readonly address: string
    }

// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const controls = /[\u0000-\u001f\u007f]/

function refuse(why: string, hint?: string): never {
  throw new GitError('bad_argument', `the address of the repository ${why}`, hint === undefined ? {} : { hint })
}

/**
 * Reads a source or push target: an absolute path, an address (http, https, ssh, git, file), or `host:path` as ssh takes it.
 *
 * @throws GitError `bad_argument`: user information that may be a secret, other transports, relative paths. The message does not
 *   repeat the value.
 */
export function parseSource(src: string): Source {
  if (src === '' || src.startsWith('-') || controls.test(src) || !src.isWellFormed())
    refuse('is empty, starts with "-" or has a control character')
  if (src.startsWith('/')) return { kind: 'path', path: src }
  if (/^[A-Za-z0-9+.-]*::/.test(src))
    refuse('uses a remote helper, which is not allowed', 'use http, https, ssh, git or file, or an absolute path')
  return src.includes('://') ? parseUrl(src) : parseShort(src)
}

/** `user@host:path`, as ssh takes it. */
function parseShort(src: string): Source {
  const { user = '', host, path } = /^(?:(?<user>[^@:/\s]+)@)?(?<host>[^@:/\s]+):(?<path>.+)$/.exec(src)?.groups ?? {}
  if (host === undefined || path === undefined)
    return refuse('is neither an absolute path nor an address', 'a path of this host has to be absolute')
  if ([user, host, path].some((part) => part.startsWith('-'))) refuse('has a part that starts with "-"')
  return { kind: 'address', scheme: 'ssh', host: host.toLowerCase(), address: src }
}

function parseUrl(src: string): Source {
  if (!URL.canParse(src)) refuse('is not a valid URL')
  const url = new URL(src)
  const plain = unescaped(src)
  // git takes the escapes of an address back before it uses it.
  if (plain === undefined || controls.test(plain)) return refuse('has an escape that no address needs')
  if (url.search !== '' || url.hash !== '') refuse('has a "?" or a "#"', 'give the address as git clone takes it')
  if (url.password !== '' || (url.username !== '' && url.protocol !== 'ssh:'))
    refuse('carries a user name or password', 'the computer holds the credentials: give the address without them')
  if ([url.username, url.hostname].some((part) => unescaped(part)?.startsWith('-') !== false))
    refuse('has a user or a host that starts with "-"')
  if (url.protocol !== 'file:' && url.hostname === '') refuse('names no host')
  switch (url.protocol) {
    case 'http:':
      return { kind: 'address', scheme: 'http', host: url.host, address: src }
    case 'https:':
      return { kind: 'address', scheme: 'https', host: url.host, address: src }
    case 'ssh:':
      return { kind: 'address', scheme: 'ssh', host: sshHost(url), address: src }
    case 'git:':
      return { kind: 'address', scheme: 'git', host: url.host.toLowerCase(), address: src }
    case 'file:':
      if (url.hostname !== '') refuse('names a file of another host')
      return { kind: 'path', path: unescaped(url.pathname) ?? refuse('has a broken escape') }
    default:
      return refuse(
        `uses ${url.protocol.slice(0, -1)}, which is not allowed`,
        'use http, https, ssh, git or file, or an absolute path',
      )
  }
}

/** Host and port of an ssh address; URL knows the port of no scheme but those of the web. */
export function sshHost(url: URL): string {
  return url.host.toLowerCase().replace(/:22$/, '')
}

function unescaped(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch (error) {
    if (error instanceof URIError) return undefined
    throw error
  }
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
