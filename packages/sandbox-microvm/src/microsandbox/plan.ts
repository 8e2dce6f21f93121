import { MicroVmError } from '../errors.ts'
import { DEFAULT_PORTS, type HostRule, parseHostRule } from '../egress/host-rule.ts'
import type { SecretRule } from '../egress/secrets.ts'
import type { MicroVmSpec } from '../spec.ts'
import type { EgressRule, NetworkConfig, SandboxConfig, SecretEntry } from './sandbox-config.ts'

/** What a VM's configuration is made of besides its spec: places on the host. */
export type Places = { readonly disk: string; readonly socket: string; readonly port: number; readonly agent: string }

/** Where the guest finds its agent. */
export const AGENT_FOLDER = '/.reve'

/** The name of the one VM in a home of its own. */
export const VM_NAME = 'vm'

/**
 * What the SDK is to be told for `spec`. Everything is looked at here: the SDK's native part ends the whole process for
 * some values that make no sense.
 *
 * @throws MicroVmError `bad_spec` for what this backend cannot keep.
 */
export function configOf(spec: MicroVmSpec, secrets: readonly SecretRule[], places: Places): SandboxConfig {
  const network = networkOf(spec, secrets)
  return {
    name: VM_NAME,
    disk: places.disk,
    cpus: spec.cpus,
    memoryMiB: spec.memoryMiB,
    mounts: [
      ...spec.mounts.map(({ host, guest, readonly = false }) => ({ host, guest, readonly })),
      { host: places.agent, guest: AGENT_FOLDER, readonly: true },
    ],
    channel: { socket: places.socket, port: places.port },
    ...(network === undefined ? {} : { network }),
  }
}

function networkOf(spec: MicroVmSpec, secrets: readonly SecretRule[]): NetworkConfig | undefined {
  switch (spec.egress.kind) {
    case 'none':
      return undefined
    case 'open':
      throw bad(spec, 'egress "open" is not carried by the microsandbox backend')
    case 'list':
      return listed(spec, spec.egress.hosts, secrets)
    default:
      return spec.egress satisfies never
  }
}

function listed(
  spec: MicroVmSpec,
  hosts: readonly string[],
  secrets: readonly SecretRule[],
): NetworkConfig | undefined {
  if (hosts.length === 0) return undefined
  const rules = hosts.map((text): HostRule => {
    const parsed = parseHostRule(text)
    if (!parsed.ok) throw bad(spec, `the host "${text}" ${parsed.problem.message}`)
    return parsed.rule
  })
  const entries = secrets.map((secret, index) => secretEntry(spec, secret, index))
  const named = new Set(rules.flatMap((rule) => (rule.kind === 'name' ? [rule.name] : [])))
  const order: Readonly<Record<HostRule['kind'], number>> = { address: 0, name: 1, below: 2, range: 3 }
  const isSecret = (name: string): boolean =>
    entries.some(
      ({ names, patterns }) => names.includes(name) || patterns.some((pattern) => name.endsWith(pattern.slice(1))),
    )
  /** Whether a secret is for some host that is below `name`. */
  const holdsSecret = (name: string): boolean =>
    isSecret(`x.${name}`) ||
    entries.some(({ names, patterns }) =>
      [...names, ...patterns.map((pattern) => pattern.slice(2))].some((host) => host.endsWith(`.${name}`)),
    )
  const intercepted = new Set([443])
  const bypass: string[] = []
  for (const rule of rules) {
    if (rule.kind !== 'name' && rule.kind !== 'below') continue
    const secret = rule.kind === 'name' ? isSecret(rule.name) : holdsSecret(rule.name)
    if (!secret) bypass.push(rule.kind === 'name' ? rule.name : `*.${rule.name}`)
    else if (rule.port !== undefined && rule.port !== 80) intercepted.add(rule.port)
  }
  return {
    rules: rules.toSorted((a, b) => order[a.kind] - order[b.kind]).flatMap((rule) => egressRules(spec, rule, named)),
    secrets: entries,
    interceptedPorts: [...intercepted],
    bypass: [...new Set(bypass)],
  }
}

/** The SDK's suffix means the domain itself too; here `*.example.com` does not. */
function egressRules(spec: MicroVmSpec, rule: HostRule, named: ReadonlySet<string>): readonly EgressRule[] {
  const ports = rule.port === undefined ? DEFAULT_PORTS : [rule.port]
  switch (rule.kind) {
    case 'name':
      return [{ kind: 'name', name: rule.name, ports }]
    case 'below':
      return [
        ...(named.has(rule.name) ? [] : [{ kind: 'not' as const, name: rule.name }]),
        { kind: 'below', name: rule.name, ports },
      ]
    case 'address':
      return [{ kind: 'address', address: rule.address, ports }]
    case 'range':
      throw bad(
        spec,
        `the range "${rule.address}/${rule.prefix}" is not carried by the microsandbox backend: list the addresses, or set backend = "qemu"`,
      )
    default:
      return rule satisfies never
  }
}

/** The SDK's name for the secret that was given as the one at `index`. */
export const variableOf = (index: number): string => `REVE_SECRET_${index}`
/** The variable of the driver's environment that holds its value. */
export const sourceOf = (index: number): string => `REVE_SOURCE_${index}`

function secretEntry(spec: MicroVmSpec, secret: SecretRule, index: number): SecretEntry {
  const names: string[] = []
  const patterns: string[] = []
  for (const host of secret.hosts) {
    const parsed = parseHostRule(host)
    if (!parsed.ok) throw bad(spec, `the host "${host}" of ${secret.name} ${parsed.problem.message}`)
    if (parsed.rule.kind === 'name') names.push(parsed.rule.name)
    else if (parsed.rule.kind === 'below') patterns.push(`*.${parsed.rule.name}`)
    else throw bad(spec, `the host "${host}" of ${secret.name} must be a name: only a name has a certificate`)
  }
  if (names.length + patterns.length === 0) throw bad(spec, `the secret ${secret.name} is for no host`)
  if (!/^[\x21-\x7e]{6,256}$/.test(secret.placeholder))
    throw bad(spec, `the placeholder of ${secret.name} must have 6 to 256 characters of ASCII, no space`)
  return {
    variable: variableOf(index),
    placeholder: secret.placeholder,
    names,
    patterns,
    inBody: secret.inBody ?? false,
    inQuery: secret.inQuery ?? false,
  }
}

const bad = (spec: MicroVmSpec, text: string): MicroVmError =>
  new MicroVmError('bad_spec', `the VM "${spec.name}" cannot be made: ${text}`)
