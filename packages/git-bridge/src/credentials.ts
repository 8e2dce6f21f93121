import { open } from 'node:fs/promises'
import { messageOf } from '@reve/base'
import { GitError } from './errors.ts'
import { sshHost, type Source } from './names.ts'

/** What is shown to one host. `host` is as in an address: lower case, with the port where it is not the scheme's own. */
export type GitCredential =
  | { readonly scheme: 'http' | 'https'; readonly host: string; readonly username: string; readonly password: string }
  | { readonly scheme: 'ssh'; readonly host: string; readonly keyFile: string }

/**
 * Reads credentials: one a line, `https://user:password@host` as git itself stores them (parts escaped with `%HH`), or
 * `ssh://host /path/of/the/private/key`. Empty lines and lines that start with `#` are left out.
 *
 * @param where what the text is called in an error.
 * @throws GitError `bad_credentials` naming the line, never what it says.
 */
export function parseGitCredentials(text: string, where = 'the git credentials'): readonly GitCredential[] {
  return text.split('\n').flatMap((line, index) => {
    const entry = line.trim()
    return entry === '' || entry.startsWith('#') ? [] : [parseEntry(entry, `line ${index + 1} of ${where}`)]
  })
}

/**
 * The credentials in a file that others cannot read.
 *
 * @throws GitError `bad_credentials`.
 */
export async function readGitCredentials(path: string): Promise<readonly GitCredential[]> {
  const { mode, text } = await readWithMode(path)
  // A command that a seat runs as another user must not find it.
  if ((mode & 0o007) !== 0) {
    throw new GitError('bad_credentials', `${path} is open to every user of this host`, { hint: `chmod 600 ${path}` })
  }
  return parseGitCredentials(text, path)
}

async function readWithMode(path: string): Promise<{ readonly mode: number; readonly text: string }> {
  try {
    const file = await open(path)
    try {
      return { mode: (await file.stat()).mode, text: await file.readFile('utf8') }
    } finally {
      await file.close()
    }
  } catch (error) {
    throw new GitError('bad_credentials', `the git credentials cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

const form = 'https://user:password@host, with %HH for special characters, or ssh://host /path/of/the/private/key'

function parseEntry(entry: string, where: string): GitCredential {
  const refuse = (why: string): never => {
    throw new GitError('bad_credentials', `${where} ${why}`, { hint: `a line is ${form}` })
  }
  const [address = '', ...rest] = entry.split(/\s+/)
  if (!URL.canParse(address)) return refuse('is not an address')
  const url = new URL(address)
  if ((url.pathname !== '' && url.pathname !== '/') || url.search !== '' || url.hash !== '')
    return refuse('names more than a host: a credential counts for a whole host')
  if (url.host === '') return refuse('names no host')
  switch (url.protocol) {
    case 'http:':
    case 'https:': {
      if (rest.length > 0) return refuse('has more than an address')
      const [username, password] = [url.username, url.password].map(
        (part) => decoded(part) ?? refuse('has a broken %HH'),
      )
      if (username === undefined || username === '' || password === undefined || password === '')
        return refuse('lacks a user name or a password')
      return { scheme: url.protocol === 'http:' ? 'http' : 'https', host: url.host, username, password }
    }
    case 'ssh:': {
      const keyFile = entry.slice(address.length).trim()
      if (url.password !== '') return refuse('has a password: ssh takes the file of a key')
      if (!keyFile.startsWith('/')) return refuse('names no key file, which has to be an absolute path')
      return { scheme: 'ssh', host: sshHost(url), keyFile }
    }
    default:
      return refuse('is for neither http, https nor ssh')
  }
}

/** A part of an address with its escapes taken back, or undefined where they are broken or hold what no header can. */
function decoded(part: string): string | undefined {
  try {
    const text = decodeURIComponent(part)
    // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
    return /[\u0000-\u001f\u007f]/.test(text) ? undefined : text
  } catch (error) {
    if (error instanceof URIError) return undefined
    throw error
  }
}

/** The first credential for the host of a source; never one of another scheme or port. */
export function credentialFor(source: Source, credentials: readonly GitCredential[]): GitCredential | undefined {
  if (source.kind === 'path') return undefined
  return credentials.find(({ scheme, host }) => scheme === source.scheme && host === source.host)
}

/** What must not be seen of a credential, in the forms in which the other side may repeat it. */
export function secretsOf(credential: GitCredential | undefined): readonly string[] {
  if (credential === undefined || credential.scheme === 'ssh') return []
  const { username, password } = credential
  const basic = Buffer.from(`${username}:${password}`)
  return [...new Set([password, encodeURIComponent(password), basic.toString('base64'), basic.toString('base64url')])]
}
