import { isIPv4, isIPv6 } from 'node:net'
import { domainToASCII } from 'node:url'

/**
 * One entry of `allow`. Without `port` a name is reachable at 443 and 80.
 *
 * `name` that host · `below` every host under it, at any depth, and not itself · `address` that address, also without a
 * name, also a private one · `range` addresses that listed names may resolve to although they are not public.
 */
export type HostRule =
  | { readonly kind: 'name'; readonly name: string; readonly port?: number }
  | { readonly kind: 'below'; readonly name: string; readonly port?: number }
  | { readonly kind: 'address'; readonly address: string; readonly port?: number }
  | { readonly kind: 'range'; readonly address: string; readonly prefix: number; readonly port?: number }

/** What is wrong with an entry; the message says what to write instead. */
export type HostRuleProblem = {
  readonly code: 'empty' | 'scheme' | 'path' | 'port' | 'wildcard' | 'name' | 'address'
  readonly message: string
}

/** A rule, or why the text is none. */
export type ParsedHostRule =
  | { readonly ok: true; readonly rule: HostRule }
  | { readonly ok: false; readonly problem: HostRuleProblem }

/** The ports of a rule that names none. */
export const DEFAULT_PORTS: readonly number[] = [443, 80]

/** A host name in lower case, dots between labels, none at the end. */
const HOST_NAME = /^(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/
/** What resolvers and URL parsers may take for an address in another spelling: `2130706433`, `0x7f.1`. */
const NUMERIC_END = /(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$/

const no = (code: HostRuleProblem['code'], message: string): ParsedHostRule => ({
  ok: false,
  problem: { code, message },
})

/**
 * Reads one entry of `allow`: `github.com`, `example.com:8443`, `*.example.com`, `*.example.com:8443`, `10.0.0.5:5432`,
 * `[fd00::5]:5432`, `10.0.0.0/8`, `[fd00::/8]:443`. Names in other scripts become ASCII.
 */
export function parseHostRule(text: string): ParsedHostRule {
  if (text === '') return no('empty', 'must not be empty')
  if (text.includes('://')) return no('scheme', 'must be a host such as "github.com", without a scheme')

  const bracketed = /^\[([^\]]*)\](?::(.*))?$/.exec(text)
  const colon = text.lastIndexOf(':')
  const [host, portText] =
    bracketed !== null
      ? [bracketed[1] ?? '', bracketed[2]]
      : colon === -1 || isIPv6(text.replace(/\/.*$/, ''))
        ? [text, undefined]
        : [text.slice(0, colon), text.slice(colon + 1)]

  if (portText !== undefined && !(/^[1-9][0-9]{0,4}$/.test(portText) && Number(portText) <= 65_535))
    return no('port', 'the port must be a whole number from 1 to 65535, such as "example.com:8443"')
  const port = portText === undefined ? {} : { port: Number(portText) }

  const slash = host.indexOf('/')
  if (slash !== -1) {
    const address = host.slice(0, slash)
    const family = familyOf(address)
    if (family === undefined) return no('path', 'must be a host such as "github.com", without a path')
    const prefix = /^[0-9]{1,3}$/.test(host.slice(slash + 1)) ? Number(host.slice(slash + 1)) : Number.NaN
    const longest = family === 'ipv4' ? 32 : 128
    return prefix >= 1 && prefix <= longest
      ? { ok: true, rule: { kind: 'range', address: address.toLowerCase(), prefix, ...port } }
      : no('address', `the length of the range must be from 1 to ${longest}, such as "10.0.0.0/8"`)
  }
  if (familyOf(host) !== undefined) return { ok: true, rule: { kind: 'address', address: host.toLowerCase(), ...port } }
  if (bracketed !== null) return no('address', 'only an IPv6 address stands in brackets, such as "[fd00::5]:5432"')

  const below = host.startsWith('*.')
  const written = (below ? host.slice(2) : host).replace(/\.$/, '')
  if (written.includes('*')) return no('wildcard', 'a wildcard stands only in front: "*.example.com"')
  const name = /^[\x20-\x7e]*$/.test(written) ? written.toLowerCase() : domainToASCII(written)
  if (NUMERIC_END.test(name)) return no('address', 'an address is written in full, such as "10.0.0.5:5432"')
  if (!HOST_NAME.test(name))
    return no('name', 'must be a host such as "github.com", "example.com:8443" or "*.example.com"')
  if (below && !name.includes('.')) return no('wildcard', `"*.${name}" is too wide: name the domain, "*.example.com"`)
  return { ok: true, rule: { kind: below ? 'below' : 'name', name, ...port } }
}

/** A rule as it is written in `allow`. */
export function hostRuleText(rule: HostRule): string {
  const host = hostText(rule)
  if (rule.port === undefined) return host
  return host.includes(':') ? `[${host}]:${rule.port}` : `${host}:${rule.port}`
}

function hostText(rule: HostRule): string {
  switch (rule.kind) {
    case 'name':
      return rule.name
    case 'below':
      return `*.${rule.name}`
    case 'address':
      return rule.address
    case 'range':
      return `${rule.address}/${rule.prefix}`
  }
}

/** The family of an address in its usual spelling; undefined for anything else (a zone index too). */
export const familyOf = (address: string): 'ipv4' | 'ipv6' | undefined =>
  isIPv4(address) ? 'ipv4' : isIPv6(address) && !address.includes('%') ? 'ipv6' : undefined
