import { dirname, join } from 'node:path'
import { describeIssues, type Described, didYouMean } from '@reve/base'
import * as v from 'valibot'
import { hostRuleText, parseHostRule } from './egress/host-rule.ts'
import { MicroVmError } from './errors.ts'
import { imageProblem } from './images/reference.ts'
import { gitCredentialEnv } from './git-credentials.ts'
import type { MicroVmSpec } from './spec.ts'
import { toolchainCommands } from './toolchain.ts'

/** The seed's set of tools. */
const DEFAULT_PACKAGES = [
  'ca-certificates',
  'curl',
  'git',
  'gh',
  'build-essential',
  'jq',
  'unzip',
  'ripgrep',
  'fd-find',
  'file',
  'less',
]

/** The one mount and the working directory, in every sandbox. */
const WORKDIR = '/workspace'
const IDLE_STOP_MS = 30_000

/** Hints for fields that people try, from other sandboxes and other versions. */
const KNOWN_WRONG: Readonly<Record<string, string>> = {
  value: "a secret's value never stands in a file: name the environment variable that holds it as `source`",
  hosts: 'the list of reachable hosts is called `allow`',
}

/** Lua has one empty table for lists and for maps. */
const emptyTo = (empty: unknown) => v.transform((input: unknown): unknown => (isEmptyTable(input) ? empty : input))
const isEmptyTable = (input: unknown): boolean =>
  typeof input === 'object' && input !== null && Object.keys(input).length === 0

const list = <T extends v.GenericSchema>(item: T) => v.pipe(v.unknown(), emptyTo([]), v.array(item, 'must be a list'))

/** An object that reports every unknown key, each with a hint. */
function exact<T extends v.ObjectEntries>(entries: T) {
  const known = Object.keys(entries)
  return v.pipe(
    v.unknown(),
    emptyTo({}),
    v.looseObject(entries, 'must be a table of named fields'),
    v.rawCheck(({ dataset, addIssue }) => {
      const input: unknown = dataset.value
      if (typeof input !== 'object' || input === null) return
      for (const [key, value] of Object.entries(input)) {
        if (known.includes(key)) continue
        const hint = KNOWN_WRONG[key] ?? didYouMean(key, known).trim()
        addIssue({
          message: `unknown field${hint === '' ? `; known are ${known.join(', ')}` : `${hint.startsWith('(') ? ' ' : ': '}${hint}`}`,
          // The value may be a secret: no message is made from it.
          input: null,
          path: [{ type: 'object', origin: 'value', input: Object.fromEntries([[key, value]]), key, value: null }],
        })
      }
    }),
    v.transform((input): v.InferOutput<v.ObjectSchema<T, undefined>> => input),
  )
}

const text = v.pipe(v.string('must be a string'), v.nonEmpty('must not be empty'))
const whole = (from: number, to: number, unit = '') => {
  const message = `must be a whole number from ${from} to ${to}${unit}`
  return v.pipe(
    v.number(message),
    v.check((value) => Number.isInteger(value) && value >= from && value <= to, message),
  )
}

const hostMessage = 'must be a host name such as "github.com": no scheme, path, port or wildcard'
const hostName = v.pipe(
  v.string(hostMessage),
  v.transform((name) => name.toLowerCase()),
  v.maxLength(253, hostMessage),
  v.regex(/^(?=.*[a-z])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, hostMessage),
)
/** `github.com`, `example.com:8443`, `*.example.com`, `10.0.0.5:5432`, `10.0.0.0/8`; as it comes out, each has one spelling. */
const reachable = v.pipe(
  v.string('must be a host such as "github.com"'),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const parsed = parseHostRule(dataset.value)
    if (parsed.ok) return hostRuleText(parsed.rule)
    addIssue({ message: parsed.problem.message })
    return NEVER
  }),
)
const placeholderText = v.pipe(
  v.string('must be a string'),
  v.regex(/^[\x21-\x7e]{6,256}$/, 'must have 6 to 256 characters of ASCII, no space'),
)
const sortedHosts = v.transform((names: string[]): readonly string[] => [...new Set(names)].toSorted())
const variable = v.pipe(
  v.string('must be a string'),
  v.regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'must be the name of an environment variable'),
)
const packageName = v.pipe(
  v.string('must be a string'),
  v.regex(/^[a-z0-9][a-z0-9+.-]+$/, 'must be the name of a Debian package'),
)
const toolName = v.pipe(
  v.string('must be a string'),
  v.regex(/^[A-Za-z0-9][A-Za-z0-9._:@/+-]*$/, 'must be a tool of mise such as "node@lts"'),
)
const npmName = v.pipe(
  v.string('must be a string'),
  v.regex(
    /^(@[a-z0-9._~-]+\/)?[a-z0-9][a-z0-9._~-]*(@[A-Za-z0-9._+-]+)?$/,
    'must be an npm package such as "typescript@5"',
  ),
)
const vmLabel = v.pipe(
  v.string('must be a string'),
  v.regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/, 'must have 1 to 63 letters, digits, _ and -'),
)
const size = whole(1024, 1 << 24, ' (MiB)')
const image = v.pipe(
  v.string('must be a string'),
  v.rawCheck(({ dataset, addIssue }) => {
    const problem = dataset.typed ? imageProblem(dataset.value) : undefined
    if (problem !== undefined) addIssue({ message: problem })
  }),
)

const Secret = exact({
  env: variable,
  source: variable,
  hosts: v.pipe(list(hostName), v.minLength(1, 'at least one host is required'), sortedHosts),
  placeholder: v.optional(placeholderText),
  /** Put in not only in headers, but also in bodies, and in the path and query of requests. */
  body: v.optional(v.boolean('must be true or false'), false),
  query: v.optional(v.boolean('must be true or false'), false),
})

const DEFAULT_DISK = 16_384

/** The value of `sandbox{}` in sandbox.lua. An unknown field is an error: a misspelt one would open or close something unsaid. */
export const SandboxPolicySchema = v.pipe(
  exact({
    image: v.optional(image, 'debian:trixie-slim'),
    cpus: v.optional(whole(1, 64), 2),
    memory: v.optional(whole(128, 1 << 20, ' (MiB)'), 2048),
    /** In place of the one that the agent's folder gives it. */
    name: v.optional(vmLabel),
    /** Also called `disk`. */
    root_disk: v.optional(size),
    disk: v.optional(size),
    /** What there is no choice about may be said. */
    workdir: v.optional(v.literal(WORKDIR, 'must be "/workspace": a relative path means the same inside and outside')),
    mount_workspace: v.optional(v.literal(true, 'must be true: the workspace is where the agent works')),
    provision: v.optional(v.boolean('must be true or false'), true),
    packages: v.optional(list(packageName), DEFAULT_PACKAGES),
    /** Tools of mise, packages of npm: installed on a new disk before `bootstrap`, over what `allow` lists. */
    mise: v.optional(list(toolName), []),
    npm: v.optional(list(npmName), []),
    bootstrap: v.optional(list(text), []),
    allow: v.optional(v.pipe(list(reachable), sortedHosts), []),
    env: v.optional(
      v.pipe(
        v.unknown(),
        emptyTo({}),
        v.record(variable, v.string('must be a string'), 'must be a table of names and strings'),
      ),
      {},
    ),
    secrets: v.optional(list(Secret), []),
    backend: v.optional(
      v.picklist(['auto', 'microsandbox', 'qemu'], 'must be "auto", "microsandbox" or "qemu"'),
      'auto',
    ),
  }),
  v.check(
    ({ disk, root_disk }) => disk === undefined || root_disk === undefined,
    '`disk` and `root_disk` are the same: give one',
  ),
  v.transform(({ root_disk, disk, workdir: _workdir, mount_workspace: _mount, ...policy }) => ({
    ...policy,
    disk: root_disk ?? disk ?? DEFAULT_DISK,
  })),
)

/** A sandbox's policy, checked and with its defaults. Sizes in MiB. */
export type SandboxPolicy = v.InferOutput<typeof SandboxPolicySchema>

/** A policy, or every problem with its place as a JSON pointer without the leading slash. */
export type CheckedPolicy =
  | { readonly ok: true; readonly policy: SandboxPolicy }
  | { readonly ok: false; readonly problems: readonly Described[] }

/** Checks a plain value, as it comes out of sandbox.lua. */
export function checkPolicy(value: unknown): CheckedPolicy {
  const result = v.safeParse(SandboxPolicySchema, value)
  return result.success ? { ok: true, policy: result.output } : { ok: false, problems: describeIssues(result.issues) }
}

/**
 * The same as an exception.
 *
 * @throws MicroVmError `bad_spec` that lists every problem as `secrets/0/hosts: at least one host is required`.
 */
export function parsePolicy(value: unknown): SandboxPolicy {
  const checked = checkPolicy(value)
  if (checked.ok) return checked.policy
  const lines = checked.problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`))
  throw new MicroVmError('bad_spec', `the sandbox policy is not valid: ${lines.join('; ')}`)
}

/** What stands in the guest for a secret that has no placeholder of its own. */
export const placeholderOf = ({ env, placeholder }: SandboxPolicy['secrets'][number]): string =>
  placeholder ?? `reve-${env.toLowerCase().replaceAll('_', '-')}`

/**
 * The VM of a policy: `workspace` is its one mount. A secret is a placeholder in the guest's environment; its real value
 * never enters the VM, see {@link policyNetwork}.
 */
export function policyToSpec(
  policy: SandboxPolicy,
  place: {
    readonly name: string
    readonly stateDir: string
    readonly workspace: string
    readonly fingerprintFile?: string
  },
): MicroVmSpec {
  const placeholders = policy.secrets.map((secret) => [secret.env, placeholderOf(secret)] as const)
  return {
    name: policy.name ?? place.name,
    stateDir: place.stateDir,
    fingerprintFile: place.fingerprintFile ?? join(dirname(place.stateDir), 'sandbox-fingerprint'),
    image: { ref: policy.image, packages: policy.provision ? policy.packages : [] },
    cpus: policy.cpus,
    memoryMiB: policy.memory,
    diskMiB: policy.disk,
    mounts: [{ host: place.workspace, guest: WORKDIR }],
    workdir: WORKDIR,
    env: { ...gitCredentialEnv(policy.secrets), ...policy.env, ...Object.fromEntries(placeholders) },
    egress: policy.allow.length === 0 ? { kind: 'none' } : { kind: 'list', hosts: policy.allow },
    bootstrap: [...(policy.provision ? toolchainCommands(policy.mise, policy.npm) : []), ...policy.bootstrap],
    idleStopMs: IDLE_STOP_MS,
  }
}
