import { join } from 'node:path'
import { credentialHelper } from './credential-channel.ts'
import type { GitCredential } from './credentials.ts'
import { GitError } from './errors.ts'
import type { Source } from './names.ts'

/** `knownHosts`: file of host keys, default that of this process's user. `agent`: socket of a key agent, default none. `program`: default `ssh`. */
export type SshOptions = { readonly knownHosts?: string; readonly agent?: string; readonly program?: string }

/** `caFile`: certificates that count beside none but those in it. `proxy`: address of a proxy, without credentials. */
export type HttpOptions = { readonly caFile?: string; readonly proxy?: string }

/** Another side that a verb talks to, and how. */
export type Remote = {
  readonly source: Source
  readonly credential: GitCredential | undefined
  readonly ssh: SshOptions
  readonly http: HttpOptions
}

/** Where git and its helpers (ssh) are looked for. */
const searchPath = '/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin'

/** Settings of every call: nothing that a repository or a user's configuration says may start a program. */
export const settings: readonly string[] = [
  'core.fsmonitor=false',
  'core.hooksPath=/dev/null',
  'core.askPass=',
  'core.attributesFile=/dev/null',
  'core.fsync=committed',
  'core.quotePath=false',
  'credential.helper=',
  'fetch.recurseSubmodules=false',
  'gc.auto=0',
  'http.lowSpeedLimit=1000',
  'http.lowSpeedTime=60',
  'log.showSignature=false',
  'maintenance.auto=false',
  'protocol.ext.allow=never',
  'push.gpgSign=false',
  'push.recurseSubmodules=no',
  'submodule.recurse=false',
  'transfer.credentialsInUrl=die',
]

/** The helper that asks this process, for a call that may need a login. */
export const helperSetting = `credential.helper=${credentialHelper}`

/**
 * What serves a repository of this host. Its own configuration counts there, and a partial clone may name a program to get its missing
 * objects with: no transport is allowed to it.
 */
export const localUploadPack = '--upload-pack=GIT_ALLOW_PROTOCOL=none git-upload-pack'

/** The whole environment of a call. */
export function environmentOf(scratch: string, remote: Remote | undefined): Readonly<Record<string, string>> {
  return {
    PATH: searchPath,
    HOME: scratch,
    LC_ALL: 'C',
    GIT_ATTR_NOSYSTEM: '1',
    GIT_ALLOW_PROTOCOL: remote === undefined ? 'none' : protocolsOf(remote.source),
    GIT_CONFIG_GLOBAL: join(scratch, 'config'),
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_DEFAULT_REF_FORMAT: 'files',
    GIT_NO_LAZY_FETCH: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_OPTIONAL_LOCKS: '0',
    GIT_SSH_COMMAND: `${quoted(remote?.ssh.program ?? 'ssh')} -F ${quoted(join(scratch, 'ssh'))}`,
    GIT_SSH_VARIANT: 'ssh',
    GIT_TERMINAL_PROMPT: '0',
  }
}

/** The one transport of an address: a server cannot send git to another; from http to https it may. */
function protocolsOf(source: Source): string {
  if (source.kind === 'path') return 'file'
  return source.scheme === 'http' ? 'http:https' : source.scheme
}

/** git's own configuration file. @param safe repositories that git may read although another user owns them. */
export function configText(safe: readonly string[], remote: Remote | undefined): string {
  const { caFile, proxy } = remote?.http ?? {}
  return [
    '[safe]',
    ...safe.map((path) => `directory = ${configValue(path)}`),
    '[http]',
    ...(caFile === undefined ? [] : [`sslCAInfo = ${configValue(caFile)}`]),
    ...(proxy === undefined ? [] : [`proxy = ${configValue(proxy)}`]),
    '',
  ].join('\n')
}

/** ssh's own configuration file: only the named key or agent, only known hosts, and nobody is asked anything. */
export function sshConfigText(remote: Remote | undefined): string {
  const { knownHosts, agent } = remote?.ssh ?? {}
  const keyFile = remote?.credential?.scheme === 'ssh' ? remote.credential.keyFile : undefined
  return [
    'BatchMode yes',
    'StrictHostKeyChecking yes',
    'UpdateHostKeys no',
    'ConnectTimeout 30',
    'ServerAliveInterval 15',
    'ServerAliveCountMax 4',
    'ControlPath none',
    'ForwardAgent no',
    'ForwardX11 no',
    'PermitLocalCommand no',
    `IdentityAgent ${agent === undefined ? 'none' : sshPath(agent)}`,
    `IdentityFile ${keyFile === undefined ? 'none' : sshPath(keyFile)}`,
    `IdentitiesOnly ${agent === undefined ? 'yes' : 'no'}`,
    ...(knownHosts === undefined ? [] : [`UserKnownHostsFile ${sshPath(knownHosts)}`]),
    '',
  ].join('\n')
}

/** A path in ssh's configuration, where `%` and `${` mean something else. */
function sshPath(path: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  if (!path.startsWith('/') || path.includes('${') || /["\\\u0000-\u001f\u007f]/.test(path))
    throw new GitError(
      'bad_argument',
      'a path for ssh is absolute, without quotes, backslashes, "${" and control characters',
    )
  return `"${path.replaceAll('%', '%%')}"`
}

function configValue(path: string): string {
  return `"${path.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`
}

/** A word for the shell. */
const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`
