/** Why an attempt was refused. */
export type DenialReason =
  /** The name is not in `allow`. */
  | 'not_listed'
  /** The name or the address is listed, but not with this port. */
  | 'port'
  /** A bare address that is not in `allow`. */
  | 'address'
  /** A listed name leads to a private or otherwise special address that is not listed itself. */
  | 'private_address'
  /** Another protocol than TCP and DNS. */
  | 'protocol'
  /** TLS that names another host, or none. */
  | 'server_name'
  /** An HTTP request for another host, or a `CONNECT`. */
  | 'host_header'
  /** The first bytes are cut short, too long, or not what the port is for. */
  | 'malformed'
  /** Too many connections, names or requests at once. */
  | 'limit'

/** What happens at the edge. No payload, no secret value and no text of a peer stands in one. */
export type EgressEvent =
  | {
      readonly type: 'denied'
      readonly reason: DenialReason
      readonly protocol: 'dns' | 'tcp' | 'udp' | 'tls' | 'http'
      /** Name or address. */
      readonly host: string
      readonly port?: number
      /** The host that TLS or HTTP named instead. */
      readonly asked?: string
      /** The line to add to `allow` in sandbox.lua, if a line could let it through. */
      readonly line?: string
    }
  | { readonly type: 'connected'; readonly host: string; readonly port: number; readonly address: string }
  | {
      readonly type: 'closed'
      readonly host: string
      readonly port: number
      /** Bytes from the guest and to the guest. */
      readonly sent: number
      readonly received: number
    }
  /** A listed host that could not be reached. `code` is the system's. */
  | {
      readonly type: 'unreachable'
      readonly host: string
      readonly port: number
      readonly reason: 'unresolved' | 'refused' | 'timeout'
      readonly code?: string
    }
  | {
      readonly type: 'tls_failed'
      readonly host: string
      readonly port: number
      /** Where: the guest does not accept us, or the server cannot be verified. */
      readonly side: 'guest' | 'server'
      readonly code?: string
    }
  | {
      readonly type: 'secret_used' | 'secret_missing' | 'secret_unusable'
      readonly name: string
      readonly host: string
    }
  /** A placeholder went out as it is: the secret is not for this host, or the request is not encrypted. */
  | {
      readonly type: 'secret_withheld'
      readonly name: string
      readonly host: string
      readonly reason: 'other_host' | 'plain_http'
    }
  /** Events that were left out because there were too many. */
  | { readonly type: 'suppressed'; readonly count: number }

const SAME_AGAIN_MS = 10_000
const WINDOW_MS = 1000
const MOST_IN_WINDOW = 50
const MOST_KEYS = 512

/**
 * Lets events through at a bounded rate: the same refusal once in 10 s, at most 50 events a second of traffic and 50 of the
 * rest; what was left out is counted and told with the next one.
 */
export function limitEvents(onEvent: (event: EgressEvent) => void, now: () => number): (event: EgressEvent) => void {
  const recent = new Map<string, number>()
  const windows = { traffic: { start: 0, count: 0 }, rest: { start: 0, count: 0 } }
  let left = 0
  return (event) => {
    const time = now()
    const traffic = event.type === 'connected' || event.type === 'closed'
    if (!traffic) {
      const key = JSON.stringify(event)
      const last = recent.get(key)
      if (last !== undefined && time - last < SAME_AGAIN_MS && time >= last) return
      if (recent.size >= MOST_KEYS) recent.clear()
      recent.set(key, time)
    }
    const window = traffic ? windows.traffic : windows.rest
    if (time - window.start >= WINDOW_MS || time < window.start) {
      window.start = time
      window.count = 0
    }
    if (window.count >= MOST_IN_WINDOW) {
      left += 1
      return
    }
    window.count += 1
    if (left > 0) {
      const count = left
      left = 0
      onEvent({ type: 'suppressed', count })
    }
    onEvent(event)
  }
}

/** One event as a line for people, plain text. */
export function egressText(event: EgressEvent): string {
  switch (event.type) {
    case 'denied': {
      const place = event.port === undefined ? event.host : `${event.host}:${event.port}`
      return `blocked ${event.protocol} to ${place}: ${denialText(event)}${event.line === undefined ? '' : `; to let it through, add ${event.line} to allow in sandbox.lua`}`
    }
    case 'connected':
      return `connected to ${event.host}:${event.port} (${event.address})`
    case 'closed':
      return `closed ${event.host}:${event.port}: ${event.sent} bytes out, ${event.received} bytes in`
    case 'unreachable':
      return `${event.host}:${event.port} cannot be reached: ${event.reason}${codeText(event.code)}`
    case 'tls_failed':
      return event.side === 'server'
        ? `the certificate of ${event.host}:${event.port} cannot be verified or TLS failed${codeText(event.code)}`
        : `TLS with the guest for ${event.host}:${event.port} failed${codeText(event.code)}: does that program trust the sandbox's authority?`
    case 'secret_used':
      return `secret ${event.name} was put in for ${event.host}`
    case 'secret_missing':
      return `secret ${event.name} is not set on the host: the request to ${event.host} failed`
    case 'secret_unusable':
      return `secret ${event.name} has characters that no header can carry: the request to ${event.host} failed`
    case 'secret_withheld':
      return event.reason === 'other_host'
        ? `the placeholder of secret ${event.name} went to ${event.host}, which is not one of its hosts, as it is`
        : `the placeholder of secret ${event.name} went to ${event.host} over plain HTTP, as it is: use https`
    case 'suppressed':
      return `${event.count} network events were left out`
  }
}

const codeText = (code: string | undefined): string => (code === undefined ? '' : ` (${code})`)

function denialText(event: Extract<EgressEvent, { type: 'denied' }>): string {
  const asked = event.asked === undefined ? 'no host' : event.asked
  switch (event.reason) {
    case 'not_listed':
      return 'the name is not listed'
    case 'port':
      return 'the port is not listed'
    case 'address':
      return 'the address is not listed'
    case 'private_address':
      return 'the name leads to an address that is not public'
    case 'protocol':
      return 'only TCP and DNS are let through'
    case 'server_name':
      return `TLS names ${asked} there`
    case 'host_header':
      return `the request names ${asked} there`
    case 'malformed':
      return 'what was sent is malformed'
    case 'limit':
      return 'too many at once'
  }
}
