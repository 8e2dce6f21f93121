import type { EgressEvent } from './egress/events.ts'
import { type HostRule, parseHostRule } from './egress/host-rule.ts'
import type { SecretRule } from './egress/secrets.ts'
import type { GuestNetwork } from './network.ts'
import { placeholderOf, type SandboxPolicy } from './policy.ts'

/** What the surroundings give to the network of a policy. */
export type PolicyNetworkParts = {
  /** The value of the host's variable that a secret names as its `source`; asked each time it is used. */
  readonly secret: (source: string) => string | undefined
  /** What happens at the edge, at a bounded rate; no payload and no value stands in it. */
  readonly onEvent?: (event: EgressEvent) => void
  /** PEM of authorities that servers may have besides those that the system trusts. */
  readonly ca?: readonly string[]
}

/** The secrets of a policy, for the edge of the guest's network. */
export function policySecrets(policy: SandboxPolicy, secret: PolicyNetworkParts['secret']): readonly SecretRule[] {
  return policy.secrets.map((one) => ({
    name: one.source,
    placeholder: placeholderOf(one),
    value: () => secret(one.source),
    hosts: one.hosts,
    inBody: one.body,
    inQuery: one.query,
  }))
}

/**
 * The network of a policy: what `allow` lists and nothing else, with real secrets put into HTTPS to their hosts. It is the
 * caller's to close. Undefined when nothing is listed.
 */
export async function policyNetwork(
  policy: SandboxPolicy,
  parts: PolicyNetworkParts,
): Promise<GuestNetwork | undefined> {
  if (policy.allow.length === 0) return undefined
  // Loaded when a VM with a network starts, not with the program.
  const { createGateway } = await import('./egress/gateway.ts')
  return createGateway({
    allow: policy.allow.flatMap((text): readonly HostRule[] => {
      const parsed = parseHostRule(text)
      return parsed.ok ? [parsed.rule] : []
    }),
    secrets: policySecrets(policy, parts.secret),
    ...(parts.onEvent !== undefined && { onEvent: parts.onEvent }),
    ...(parts.ca !== undefined && { ca: parts.ca }),
  })
}
