import { describe, expect, test } from 'vitest'
import type { SecretRule } from '../src/egress/secrets.ts'
import { type MicroVmSpec, MicroVmError } from '../src/index.ts'
import { configOf } from '../src/microsandbox/plan.ts'
import { buildSandbox } from '../src/microsandbox/sandbox-config.ts'
import { findSdk } from '../src/microsandbox/sdk.ts'

const found = findSdk()
if (!found.ok) console.warn(`what the SDK makes of a configuration is not tried: ${found.why}`)
const sdk = found.ok ? await import('microsandbox') : undefined

const base: MicroVmSpec = {
  name: 'test',
  stateDir: '/agent/.reve/vm',
  image: { ref: 'debian:trixie-slim', packages: [] },
  cpus: 3,
  memoryMiB: 768,
  diskMiB: 4096,
  mounts: [
    { host: '/agent/workspace', guest: '/workspace' },
    { host: '/docs', guest: '/docs', readonly: true },
  ],
  workdir: '/workspace',
  env: { MODE: 'test' },
  egress: { kind: 'none' },
  bootstrap: [],
  idleStopMs: 30_000,
}
const places = {
  disk: '/agent/.reve/vm/disk.qcow2',
  socket: '/run/x/agent',
  port: 7333,
  agent: '/agent/.reve/vm/msb/agent',
}
const secret = (over: Partial<SecretRule> = {}): SecretRule => ({
  name: 'TOKEN_SOURCE',
  placeholder: 'reve-token',
  value: () => 'the-real-value',
  hosts: ['api.example.com'],
  ...over,
})

/** All that the SDK would do, as it says itself: no VM, no KVM, no file. */
async function built(hosts?: readonly string[], secrets: readonly SecretRule[] = []) {
  const spec: MicroVmSpec = hosts === undefined ? base : { ...base, egress: { kind: 'list', hosts } }
  if (sdk === undefined) throw new Error('there is no SDK here')
  const config = await buildSandbox(sdk, configOf(spec, secrets, places)).build()
  return JSON.parse(JSON.stringify(config))
}

type Rule = {
  readonly direction: string
  readonly destination: object
  readonly protocols: readonly string[]
  readonly ports: readonly { readonly start: number; readonly end: number }[]
  readonly action: string
}

/** The rules in a line each. */
async function rules(hosts: readonly string[]): Promise<readonly string[]> {
  const all: readonly Rule[] = (await built(hosts)).network.policy.rules
  return all.map(({ direction, destination, protocols, ports, action }) => {
    for (const { start, end } of ports) expect(end).toBe(start)
    return `${direction} ${JSON.stringify(destination)} ${protocols.join()} ${ports.map(({ start }) => start).join()} ${action}`
  })
}

const refused = (hosts: readonly string[], secrets: readonly SecretRule[] = []): string => {
  try {
    configOf({ ...base, egress: { kind: 'list', hosts } }, secrets, places)
  } catch (error) {
    if (error instanceof MicroVmError) return `${error.code} ${error.message}`
    throw error
  }
  return 'taken'
}

describe.skipIf(sdk === undefined)('the machine', () => {
  test('has the processors, the memory and the disk of the spec; nothing is pulled and nothing ends by itself', async () => {
    const config = await built()
    expect(config).toMatchObject({
      image: { DiskImage: { path: places.disk, format: 'Qcow2', fstype: 'ext4' } },
      resources: { cpus: 3, memoryMib: 768 },
      pullPolicy: 'Never',
      lifecycle: { ephemeral: false, maxDurationSecs: null, idleTimeoutSecs: null },
      env: [],
    })
  })

  test('has the mounts of the spec, with real modes and links, and the agent to read; none is a way to a device', async () => {
    const { mounts } = await built()
    const mount = (host: string, guest: string, readonly: boolean) => ({
      type: 'Bind',
      host,
      guest,
      options: { readonly, noexec: false, nosuid: true, nodev: true },
      statVirtualization: 'relaxed',
      hostPermissions: 'mirror',
      followRootSymlinks: false,
      quotaMib: readonly ? null : 16_777_216,
    })
    expect(mounts).toHaveLength(3)
    expect(mounts).toEqual(
      expect.arrayContaining([
        mount('/agent/workspace', '/workspace', false),
        mount('/docs', '/docs', true),
        mount(places.agent, '/.reve', true),
      ]),
    )
  })
})

describe.skipIf(sdk === undefined)('the network', () => {
  test('is none without a listed host, whatever the secrets', async () => {
    expect((await built()).network.enabled).toBe(false)
    expect((await built([], [secret()])).network.enabled).toBe(false)
  })

  test('denies everything but what is listed, both ways', async () => {
    const { network } = await built(['github.com'])
    expect(network).toMatchObject({
      enabled: true,
      ports: [],
      policy: { defaultEgress: 'deny', defaultIngress: 'deny' },
      dns: { rebindProtection: true },
      tls: { enabled: false },
      secrets: { secrets: [] },
      trustHostCas: false,
    })
  })

  test('has a rule for each host: names, ports, wildcards without the domain itself, addresses', async () => {
    expect(await rules(['b.example.com:8443', '*.example.com', 'github.com', '10.0.0.5:5432'])).toEqual([
      'egress {"cidr":"10.0.0.5/32"} tcp 5432 allow',
      'egress {"domain":"b.example.com"} tcp 8443 allow',
      'egress {"domain":"github.com"} tcp 443,80 allow',
      'egress {"domain":"example.com"}   deny',
      'egress {"domainSuffix":"example.com"} tcp 443,80 allow',
    ])
  })

  test('does not deny a domain that is listed beside its wildcard', async () => {
    expect(await rules(['*.example.com:8443', 'example.com'])).toEqual([
      'egress {"domain":"example.com"} tcp 443,80 allow',
      'egress {"domainSuffix":"example.com"} tcp 8443 allow',
    ])
  })

  test('refuses what it could not keep, and says what to do', () => {
    expect(refused(['10.0.0.0/8'])).toMatch(/^bad_spec .*"10\.0\.0\.0\/8".*backend = "qemu"/)
    expect(refused(['https://github.com'])).toMatch(/^bad_spec .*without a scheme/)
    expect(() => configOf({ ...base, egress: { kind: 'open' } }, [], places)).toThrow('egress "open"')
  })
})

describe.skipIf(sdk === undefined)('secrets', () => {
  test('are known to the SDK by everything but their value', async () => {
    const config = await built(['api.example.com', 'github.com'], [secret(), secret({ placeholder: 'reve-other' })])
    const { secrets, onViolation } = config.network.secrets
    expect(onViolation).toBe('block-and-log')
    expect(secrets).toEqual([
      {
        envVar: 'REVE_SECRET_0',
        value: 'not-the-value',
        placeholder: 'reve-token',
        allowedHosts: [{ exact: 'api.example.com' }],
        injection: { headers: true, basicAuth: true, queryParams: false, body: false },
        requireTlsIdentity: true,
      },
      expect.objectContaining({ envVar: 'REVE_SECRET_1', placeholder: 'reve-other' }),
    ])
    expect(JSON.stringify(config)).not.toContain('the-real-value')
  })

  test('go into body and query only when they are asked to', async () => {
    const { network } = await built(['api.example.com'], [secret({ inBody: true, inQuery: true })])
    expect(network.secrets.secrets[0].injection).toEqual({
      headers: true,
      basicAuth: true,
      queryParams: true,
      body: true,
    })
  })

  test('open TLS for their own hosts, at their ports; that of other hosts passes', async () => {
    const tls = async (hosts: readonly string[], own: readonly string[]) => {
      const { tls: all } = (await built(hosts, [secret({ hosts: own })])).network
      return [all.enabled, all.verifyUpstream, all.interceptedPorts, all.bypass]
    }
    expect(await tls(['api.example.com:8443', 'github.com', '*.pages.dev'], ['api.example.com'])).toEqual([
      true,
      true,
      [443, 8443],
      ['github.com', '*.pages.dev'],
    ])
    // A wildcard that a secret's host is under cannot pass as a whole.
    expect(await tls(['*.example.com', 'github.com'], ['api.example.com'])).toEqual([true, true, [443], ['github.com']])
    expect(await tls(['api.example.com', 'example.com'], ['*.example.com'])).toEqual([
      true,
      true,
      [443],
      ['example.com'],
    ])
    expect(await tls(['*.a.example.com'], ['*.example.com'])).toEqual([true, true, [443], []])
  })

  test('that would end the process in the SDK are refused before', () => {
    expect(refused(['a.example'], [secret({ hosts: [] })])).toMatch(/^bad_spec .*TOKEN_SOURCE is for no host/)
    expect(refused(['a.example'], [secret({ placeholder: '' })])).toMatch(/^bad_spec .*placeholder of TOKEN_SOURCE/)
    expect(refused(['a.example'], [secret({ hosts: ['10.0.0.5'] })])).toMatch(/^bad_spec .*must be a name/)
    expect(refused(['a.example'], [secret({ hosts: ['not a host'] })])).toMatch(/^bad_spec /)
    expect(refused(['a.example'], [secret()])).toBe('taken')
  })
})
