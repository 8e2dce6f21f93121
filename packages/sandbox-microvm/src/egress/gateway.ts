import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import type { GuestNetwork } from '../network.ts'
import { createAllowList } from './allow-list.ts'
import { createAuthority } from './authority.ts'
import { type Connect, connectTcp, createDialler, type Dialled, type Resolve, resolveName } from './dial.ts'
import { answerDns } from './dns.ts'
import { type EgressEvent, limitEvents } from './events.ts'
import type { FirstBytes } from './first-bytes.ts'
import { type GuestStream, watchGuest } from './guest-stream.ts'
import { familyOf, type HostRule, hostRuleText } from './host-rule.ts'
import { createHttpEdge } from './http-edge.ts'
import { UpstreamFailure } from './http-line.ts'
import { createSyntheticNames } from './names.ts'
import { relay, tieTogether } from './relay.ts'
import { createSecrets, type SecretRule } from './secrets.ts'
import { acceptTls, createTlsClient } from './tls.ts'

/** How much a guest may have at once, and how long things may take. Times in milliseconds. */
export type GatewayLimits = {
  /** Connections of the guest that are open or being opened; default 512. */
  readonly connections: number
  /** Name, connection and TLS of a server together; default 15 s. */
  readonly dialMs: number
  /** Without a byte in either direction; default 30 minutes. */
  readonly idleMs: number
  /** For the first bytes of a client, and of a TLS handshake with it; default 15 s. */
  readonly helloMs: number
  /** On other ports than 443 and 80: silence after which the server is let speak first; default 300 ms. */
  readonly serverFirstMs: number
}

/** What a gateway is made of. */
export type GatewayParts = {
  readonly allow: readonly HostRule[]
  readonly secrets?: readonly SecretRule[]
  /** Default: the system's resolver. */
  readonly resolve?: Resolve
  /** Default: TCP. */
  readonly connect?: Connect
  /** Milliseconds since 1970; default the system's clock. */
  readonly now?: () => number
  /** Default: the system's source. */
  readonly randomBytes?: (length: number) => Uint8Array
  /** At a bounded rate; never a secret's value, never payload. */
  readonly onEvent?: (event: EgressEvent) => void
  /** PEM of authorities that servers may have besides those that the system trusts. */
  readonly ca?: readonly string[]
  readonly limits?: Partial<GatewayLimits>
}

const DEFAULT_LIMITS: GatewayLimits = {
  connections: 512,
  dialMs: 15_000,
  idleMs: 30 * 60_000,
  helloMs: 15_000,
  serverFirstMs: 300,
}

/** A fatal alert, "unrecognized name" (RFC 6066 3): what a client reports better than a reset. */
const UNRECOGNISED_NAME = Uint8Array.of(0x15, 3, 3, 0, 2, 2, 112)

/**
 * The host's edge of one guest's network: names exist when they are listed, connections go to listed names and ports only,
 * resolved here, and real secrets are put into HTTPS to their hosts.
 *
 * @throws MicroVmError `bad_spec` for a secret whose placeholder or host is none.
 */
export function createGateway(parts: GatewayParts): GuestNetwork {
  const limits = { ...DEFAULT_LIMITS, ...parts.limits }
  const now = parts.now ?? Date.now
  const report = limitEvents(parts.onEvent ?? (() => undefined), now)
  const allow = createAllowList(parts.allow)
  const names = createSyntheticNames()
  const secrets = createSecrets(parts.secrets ?? [])
  const authority =
    (parts.secrets ?? []).length === 0
      ? undefined
      : createAuthority({ name: 'reve sandbox authority', now, randomBytes: parts.randomBytes ?? randomBytes })
  const dialler = createDialler({
    allow,
    resolve: parts.resolve ?? resolveName,
    connect: parts.connect ?? connectTcp,
    now,
    timeoutMs: limits.dialMs,
  })
  const http = createHttpEdge()
  const startTls = createTlsClient(parts.ca ?? [], limits.dialMs)
  const open = new Set<Duplex>()
  let closed = false

  /** A connection, or undefined and an event. */
  const dial = async (host: string, port: number, attempt: Promise<Dialled>): Promise<Dialled> => {
    const dialled = await attempt
    if (dialled.ok) report({ type: 'connected', host, port, address: dialled.address })
    else if (dialled.reason === 'private_address')
      report({ type: 'denied', reason: 'private_address', protocol: 'tcp', host, port })
    else
      report({
        type: 'unreachable',
        host,
        port,
        reason: dialled.reason,
        ...codeIn(dialled),
      })
    return dialled
  }

  const serveAddress = async (stream: Duplex, address: string, port: number): Promise<void> => {
    const dialled = await dial(address, port, dialler.toAddress(address, port))
    if (dialled.ok) relay(stream, dialled.socket)
    else stream.destroy()
  }

  const serveHttp = (stream: Duplex, name: string, port: number, secure: boolean): void => {
    http.serve(stream, {
      name,
      port,
      secure,
      secrets: secrets.forHost(name),
      report,
      open: async () => {
        const dialled = await dial(name, port, dialler.toName(name, port))
        if (!dialled.ok)
          throw new UpstreamFailure(dialled.reason === 'timeout' ? 504 : 502, failureText(name, port, dialled.reason))
        if (!secure) return dialled.socket
        const started = await startTls(dialled.socket, name)
        if (started.ok) return started.socket
        report({
          type: 'tls_failed',
          host: name,
          port,
          side: 'server',
          ...codeIn(started),
        })
        throw new UpstreamFailure(
          502,
          `TLS with ${name}:${port} failed (${started.code ?? 'no reason'}); nothing was sent`,
        )
      },
    })
  }

  /** Whether a connection to that name may start so; else it is ended, with an event. */
  const judge = (stream: Duplex, name: string, port: number, first: FirstBytes): boolean => {
    const denied = { type: 'denied', host: name, port } as const
    switch (first.kind) {
      case 'tls':
        if (first.serverName === name) return true
        report({
          ...denied,
          reason: 'server_name',
          protocol: 'tls',
          ...(first.serverName === undefined ? {} : { asked: first.serverName }),
        })
        stream.end(UNRECOGNISED_NAME, () => stream.destroy())
        return false
      case 'http':
        return true
      case 'other':
        return port !== 80 || refuse(stream, { ...denied, reason: 'malformed', protocol: 'http' })
      case 'malformed':
        return refuse(stream, { ...denied, reason: 'malformed', protocol: 'tcp' })
      case 'silent':
        return refuse(stream, { ...denied, reason: 'malformed', protocol: 'tcp' })
      case 'ended':
        stream.destroy()
        return false
    }
  }

  const serveName = async (guest: GuestStream, name: string, port: number): Promise<void> => {
    const clientFirst = port === 443 || port === 80
    const wait = { silentMs: clientFirst ? limits.helloMs : limits.serverFirstMs, wholeMs: limits.helloMs }
    const first = await guest.look(wait)
    if (first.kind === 'silent' && !clientFirst) await serverFirst(guest, name, port)
    else await clientSpoke(guest.stream, name, port, first)
  }

  const clientSpoke = async (stream: Duplex, name: string, port: number, first: FirstBytes): Promise<void> => {
    if (!judge(stream, name, port, first)) return
    if (first.kind === 'http') serveHttp(stream, name, port, false)
    else if (first.kind === 'tls' && authority !== undefined && secrets.forHost(name).any) {
      const accepted = await acceptTls(stream, authority.contextFor(name), limits.helloMs)
      if (accepted.ok) serveHttp(accepted.socket, name, port, true)
      else report({ type: 'tls_failed', host: name, port, side: 'guest', ...codeIn(accepted) })
    } else {
      const dialled = await dial(name, port, dialler.toName(name, port))
      if (dialled.ok) relay(stream, dialled.socket)
      else stream.destroy()
    }
  }

  /**
   * The server may speak; what the client then says first is looked at all the same. A client that was only slow is served as
   * if it had not been.
   */
  const serverFirst = async ({ stream, look }: GuestStream, name: string, port: number): Promise<void> => {
    const dialled = await dial(name, port, dialler.toName(name, port))
    if (!dialled.ok) {
      stream.destroy()
      return
    }
    const { socket } = dialled
    let spoke = false
    const speaks = (): void => {
      spoke = true
    }
    const untie = tieTogether(stream, socket)
    socket.once('data', speaks)
    socket.once('end', speaks)
    socket.pipe(stream)
    const first = await look({ silentMs: limits.idleMs, wholeMs: limits.helloMs })
    if (first.kind === 'ended' && !stream.destroyed) socket.end()
    else if (!spoke && (first.kind === 'http' || first.kind === 'tls')) {
      untie()
      socket.unpipe(stream)
      socket.destroy()
      await clientSpoke(stream, name, port, first)
    } else if (first.kind === 'http')
      refuse(stream, { type: 'denied', reason: 'malformed', protocol: 'http', host: name, port })
    else if (judge(stream, name, port, first)) stream.pipe(socket)
  }

  const refuse = (stream: Duplex, event: EgressEvent): false => {
    report(event)
    stream.destroy()
    return false
  }

  const refused = (guest: Duplex): void => {
    guest.on('error', () => undefined)
    guest.destroy()
  }

  return {
    ports: allow.ports,
    ...(authority === undefined ? {} : { certificate: authority.certificate }),
    dns: (query) => Promise.resolve(closed ? undefined : answerDns(query, { allow, names, report })),
    connect: ({ address, port }, guest) => {
      const name = names.nameOf(address)
      const host = name ?? (familyOf(address) === undefined ? 'an address that is none' : address)
      if (closed || guest.destroyed) {
        refused(guest)
        return
      }
      const listed = name === undefined ? allow.reaches(address, port) : allow.portsOf(name).includes(port)
      if (!listed || open.size >= limits.connections) {
        const reason = listed ? 'limit' : name === undefined ? 'address' : 'port'
        report({ type: 'denied', reason, protocol: 'tcp', host, port, ...(listed ? {} : lineFor(host, port)) })
        refused(guest)
        return
      }
      const watched = watchGuest(guest, limits.idleMs, (traffic) => {
        open.delete(watched.stream)
        report({ type: 'closed', host, port, ...traffic })
      })
      open.add(watched.stream)
      const served = name === undefined ? serveAddress(watched.stream, address, port) : serveName(watched, name, port)
      served.catch((error: unknown) => watched.stream.destroy(error instanceof Error ? error : undefined))
    },
    denied: ({ protocol, address, port }) => {
      const name = names.nameOf(address)
      const host = name ?? (familyOf(address) === undefined ? 'an address that is none' : address)
      if (protocol === 'udp') report({ type: 'denied', reason: 'protocol', protocol, host, port })
      else
        report({
          type: 'denied',
          reason: name === undefined ? 'address' : 'port',
          protocol,
          host,
          port,
          ...lineFor(host, port),
        })
    },
    close: async () => {
      closed = true
      dialler.close()
      const streams = [...open]
      await Promise.all(
        streams.map(
          (stream) =>
            new Promise((resolve) => {
              stream.once('close', resolve)
              stream.destroy()
            }),
        ),
      )
    },
  }
}

const codeIn = ({ code }: { readonly code?: string }): { readonly code?: string } =>
  code === undefined ? {} : { code }

/** The line of `allow` that names a host and a port; none for what no line can name. */
function lineFor(host: string, port: number): { readonly line?: string } {
  const family = familyOf(host)
  const isDefault = family === undefined && (port === 443 || port === 80)
  if (family === undefined && host.includes(' ')) return {}
  return { line: `"${hostRuleText({ kind: 'name', name: host, ...(isDefault ? {} : { port }) })}",` }
}

const failureText = (name: string, port: number, reason: Extract<Dialled, { ok: false }>['reason']): string => {
  switch (reason) {
    case 'unresolved':
      return `the name ${name} cannot be resolved on the host`
    case 'private_address':
      return `${name} leads to an address that is not public; list that address or its range in allow to reach it`
    case 'refused':
      return `${name}:${port} cannot be reached from the host`
    case 'timeout':
      return `${name}:${port} did not answer in time`
  }
}
