import { didYouMean, ReveError } from '@reve/base'
import { createHash } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { homedir, userInfo } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { resolveUser } from './host-user.ts'

/** A variable or flag of kc is wrong; the message names it. */
export class ConfigurationError extends ReveError<'bad_configuration'> {
  override readonly name = 'ConfigurationError'
}

/** Every variable that kc reads, for `kc help env`. */
export const variables = {
  KC_ROOT: 'the data directory: it is the computer (default: kc in the data folder of your user)',
  KC_HOST: 'address that kc serve listens on (default 127.0.0.1)',
  KC_PORT: 'port that kc serve listens on (default 7333; 0 lets the system choose)',
  KC_ALLOWED_HOSTS: 'host names, separated by commas, under which clients may call beside localhost',
  KC_DRAIN_SECONDS: 'seconds that calls in flight may take to end at shutdown (default 10)',
  KC_MIN_FREE_GB: 'an action is refused when the data disk has less than this free (default 0)',
  KC_ACTION_USER: "user that local actions run as, never the server's (needs root)",
  KC_WORK_DIR:
    'folder for the slots and caches of actions (default: in KC_ROOT; with KC_ACTION_USER a folder below /var/tmp)',
  KC_GIT_IDENTITY: 'committer of exports, "Name <email>" (default: kc <kc@localhost>)',
  KC_GIT_CREDENTIALS:
    'file of what git may show to other sides, open to nobody else: lines such as https://user:password@host or ssh://host /path/of/key',
  KC_SEAT_TOKEN: 'token of the first seat, at least 32 characters: kc serve creates or re-keys it',
  KC_SEAT_NAME: 'name of that seat (default operator)',
} as const

export type Configuration = {
  readonly root: string
  readonly host: string
  readonly port: number
  readonly allowedHosts: readonly string[]
  readonly drainMs: number
  readonly minFreeBytes: number
  readonly actionUser: { readonly uid: number; readonly gid: number; readonly name: string } | undefined
  readonly workDir: string
  readonly identity: { readonly name: string; readonly email: string }
  readonly gitCredentials: string | undefined
  readonly firstSeat: { readonly name: string; readonly token: string } | undefined
}

export type Flags = {
  readonly root?: string | undefined
  readonly host?: string | undefined
  readonly port?: string | undefined
}

/** The data directory: `--root`, else `KC_ROOT`, else a folder of the user's. */
export function rootOf(env: NodeJS.ProcessEnv, flag: string | undefined): string {
  const named = flag ?? (env['KC_ROOT'] || undefined)
  if (named !== undefined) return resolve(named)
  const data = env['XDG_DATA_HOME']
  return join(data !== undefined && isAbsolute(data) ? data : join(homedir(), '.local', 'share'), 'kc')
}

/**
 * The whole configuration of `kc serve`, from flags and environment.
 *
 * @throws ConfigurationError naming the variable or flag, what it holds, and what it takes.
 */
export function configuration(env: NodeJS.ProcessEnv, flags: Flags): Configuration {
  const value = (name: keyof typeof variables): string | undefined => env[name] || undefined
  const number = (name: keyof typeof variables, fallback: number, most: number): number =>
    numberOf(name, value(name), fallback, most, /^\d+(\.\d+)?$/)
  const token = value('KC_SEAT_TOKEN')
  const credentials = value('KC_GIT_CREDENTIALS')
  const root = rootOf(env, flags.root)
  const user = actionUser(value('KC_ACTION_USER'))
  return {
    root,
    host: flags.host ?? value('KC_HOST') ?? '127.0.0.1',
    port: numberOf(
      flags.port === undefined ? 'KC_PORT' : '--port',
      flags.port ?? value('KC_PORT'),
      7333,
      65_535,
      /^\d+$/,
    ),
    allowedHosts: hostNames(value('KC_ALLOWED_HOSTS') ?? ''),
    drainMs: number('KC_DRAIN_SECONDS', 10, 86_400) * 1000,
    minFreeBytes: number('KC_MIN_FREE_GB', 0, 1_000_000) * 1e9,
    actionUser: user,
    workDir: resolve(value('KC_WORK_DIR') ?? (user === undefined ? root : sharedWorkDir(root))),
    identity: identity(value('KC_GIT_IDENTITY')),
    gitCredentials: credentials === undefined ? undefined : resolve(credentials),
    firstSeat: token === undefined ? undefined : { name: value('KC_SEAT_NAME') ?? 'operator', token },
  }
}

/** A sentence for each variable that looks like one of kc's and is none: it has no effect, which must not go unnoticed. */
export const strayVariables = (env: NodeJS.ProcessEnv): readonly string[] =>
  Object.keys(env)
    .filter((name) => name.startsWith('KC_') && !Object.hasOwn(variables, name))
    .map((name) => `${name} is no variable of kc and has no effect${didYouMean(name, Object.keys(variables))}`)

function numberOf(name: string, given: string | undefined, fallback: number, most: number, form: RegExp): number {
  if (given === undefined) return fallback
  const parsed = Number(given)
  if (form.test(given) && parsed <= most) return parsed
  throw new ConfigurationError(
    'bad_configuration',
    `${name} is ${JSON.stringify(given)}; it takes a ${form.test('1.5') ? '' : 'whole '}number from 0 to ${most}`,
  )
}

/** Names as they stand in a `Host` header, without the port: anything else would never match, and nobody would know why. */
function hostNames(list: string): readonly string[] {
  const names = list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')
  const wrong = names.find((name) => !isIPv6(name) && !/^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])$/.test(name))
  if (wrong === undefined) return names
  throw new ConfigurationError(
    'bad_configuration',
    `KC_ALLOWED_HOSTS holds ${JSON.stringify(wrong)}; it takes names such as kc.example, without scheme and port`,
  )
}

/** KC_ROOT is closed to everybody but its owner, so another user's actions need a place elsewhere: the same one at each start. */
const sharedWorkDir = (root: string): string =>
  `/var/tmp/kc-${createHash('sha256').update(root).digest('hex').slice(0, 16)}`

function actionUser(name: string | undefined): Configuration['actionUser'] {
  if (name === undefined) return undefined
  const user = resolveUser(name)
  if (user === undefined)
    throw new ConfigurationError(
      'bad_configuration',
      `KC_ACTION_USER is ${JSON.stringify(name)}; there is no such user on this machine`,
    )
  if (userInfo().uid !== 0)
    throw new ConfigurationError(
      'bad_configuration',
      'KC_ACTION_USER needs kc to run as root; leave it out to run actions as this user',
    )
  if (user.uid === 0)
    throw new ConfigurationError(
      'bad_configuration',
      'KC_ACTION_USER is root, which would contain nothing; name another user',
    )
  return user
}

function identity(text: string | undefined): Configuration['identity'] {
  if (text === undefined) return { name: 'kc', email: 'kc@localhost' }
  const [, name, email] = /^([^<>\n]{1,200}) <([^<>\s]{1,200})>$/.exec(text) ?? []
  if (name === undefined || email === undefined) {
    throw new ConfigurationError(
      'bad_configuration',
      `KC_GIT_IDENTITY is ${JSON.stringify(text)}; it takes "Name <email>"`,
    )
  }
  return { name, email }
}
