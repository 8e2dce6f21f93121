import { isIPv6 } from 'node:net'

const loopback = ['localhost', '127.0.0.1', '[::1]']

type Served = { readonly host: string; readonly allowedHosts?: readonly string[] }

/**
 * Whether a request's `Host` names this server. A web page that makes a browser resolve its own name to a local address
 * (DNS rebinding) sends its own name here, and is refused.
 */
export function allowedHost(header: string | undefined, served: Served): boolean {
  return header !== undefined && names(served).has(hostName(header))
}

/** Whether a request's `Origin`, if it has one, is a page of this very server. */
export function allowedOrigin(header: string | undefined, served: Served): boolean {
  if (header === undefined) return true
  return URL.canParse(header) && names(served).has(new URL(header).hostname.toLowerCase())
}

const names = ({ host, allowedHosts = [] }: Served): ReadonlySet<string> =>
  new Set([...loopback, host, ...allowedHosts].map((name) => (isIPv6(name) ? `[${name}]` : name).toLowerCase()))

/** `Name:80` → `name`; an IPv6 address keeps its brackets. */
const hostName = (header: string): string => header.toLowerCase().replace(/:\d*$/, '')
