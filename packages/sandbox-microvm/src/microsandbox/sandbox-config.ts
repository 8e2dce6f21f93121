import type {
  ImageBuilder,
  MountBuilder,
  NetworkBuilder,
  NetworkPolicy as PolicyFactory,
  Sandbox as SandboxClass,
  SandboxBuilder,
} from 'microsandbox'

/** Where connections may go. A rule that denies stands before the one that it takes something away from. */
export type EgressRule =
  | { readonly kind: 'name' | 'below'; readonly name: string; readonly ports: readonly number[] }
  | { readonly kind: 'address'; readonly address: string; readonly ports: readonly number[] }
  | { readonly kind: 'not'; readonly name: string }

/** A secret as the SDK keeps it: everything but its value. `variable` names it there, and nowhere else. */
export type SecretEntry = {
  readonly variable: string
  readonly placeholder: string
  readonly names: readonly string[]
  readonly patterns: readonly string[]
  readonly inBody: boolean
  readonly inQuery: boolean
}

/** What a guest may reach; without one it has no network card. */
export type NetworkConfig = {
  readonly rules: readonly EgressRule[]
  readonly secrets: readonly SecretEntry[]
  /** Ports at which TLS is opened for the hosts of secrets. */
  readonly interceptedPorts: readonly number[]
  /** Hosts whose TLS passes untouched. */
  readonly bypass: readonly string[]
}

/** All that the SDK is told about one VM, as a plain value: it is made in one process and used in another. */
export type SandboxConfig = {
  readonly name: string
  /** A qcow2 disk with an ext4 root file system, which the guest writes to. */
  readonly disk: string
  readonly cpus: number
  readonly memoryMiB: number
  readonly mounts: readonly { readonly host: string; readonly guest: string; readonly readonly: boolean }[]
  /** A socket of the host that the guest reaches as a port of its own. */
  readonly channel: { readonly socket: string; readonly port: number }
  readonly network?: NetworkConfig
}

/** The SDK leaves the types of its inner builders out where it hands them over. */
type Image = InstanceType<typeof ImageBuilder>
type Mount = InstanceType<typeof MountBuilder>
type Network = InstanceType<typeof NetworkBuilder>

/** The parts of the SDK that are used. */
export type Sdk = { readonly Sandbox: typeof SandboxClass; readonly NetworkPolicy: typeof PolicyFactory }

/** What is stored instead of a value: the SDK keeps what it is given here in clear text. */
export const DUMMY = 'not-the-value'

/** A bind has a quota of 4 GiB unless told otherwise; this one is never reached. */
const NO_QUOTA_MIB = 1 << 24

/**
 * The builder of `config`, complete. `build()` on it shows the whole configuration and needs no KVM; `create()` boots.
 * Modes and links of a mounted folder are real on the host (`relaxed` and `mirror`). Nothing is pulled, nothing ends by itself,
 * and nothing of the environment is fixed here: each command brings its own.
 */
export function buildSandbox(sdk: Sdk, config: SandboxConfig): SandboxBuilder {
  const builder = sdk.Sandbox.builder(config.name)
    .imageWith((image: Image) => image.disk(config.disk).fstype('ext4'))
    .pullPolicy('never')
    .cpus(config.cpus)
    .memory(config.memoryMiB)
    .workdir('/')
    .hostname('reve')
    .vsock(config.channel.socket, config.channel.port)
    .disableMetricsSample()
    .detached(false)
    .replace()
  for (const { host, guest, readonly } of config.mounts)
    builder.volume(guest, (mount: Mount) => {
      mount.bind(host).nosuid().nodev().statVirtualization('relaxed').hostPermissions('mirror')
      return readonly ? mount.readonly() : mount.quota(NO_QUOTA_MIB)
    })
  const { network } = config
  return network === undefined ? builder.disableNetwork() : withNetwork(sdk, builder, network)
}

function withNetwork(sdk: Sdk, builder: SandboxBuilder, network: NetworkConfig): SandboxBuilder {
  const policy = sdk.NetworkPolicy.builder().defaultDeny()
  for (const rule of network.rules)
    policy.egress((at) => {
      switch (rule.kind) {
        case 'name':
          return at
            .tcp()
            .ports([...rule.ports])
            .allowDomain(rule.name)
        case 'below':
          return at
            .tcp()
            .ports([...rule.ports])
            .allowDomainSuffix(rule.name)
        case 'address':
          return at
            .tcp()
            .ports([...rule.ports])
            .allow((to) => to.ip(rule.address))
        case 'not':
          return at.denyDomain(rule.name)
      }
    })
  return builder.network((net: Network) => {
    net.policy(policy).dns((dns) => dns.rebindProtection(true))
    if (network.secrets.length === 0) return net
    net.tls((tls) => {
      for (const host of network.bypass) tls.bypass(host)
      return tls
        .interceptedPorts([...network.interceptedPorts])
        .verifyUpstream(true)
        .blockQuic(true)
    })
    for (const entry of network.secrets)
      net.secret((secret) => {
        secret.env(entry.variable).value(DUMMY).placeholder(entry.placeholder)
        for (const name of entry.names) secret.allowHost(name)
        for (const pattern of entry.patterns) secret.allowHostPattern(pattern)
        return secret
          .requireTlsIdentity(true)
          .injectHeaders(true)
          .injectBasicAuth(true)
          .injectQuery(entry.inQuery)
          .injectBody(entry.inBody)
      })
    return net.onSecretViolation((action) => action.blockAndLog())
  })
}
