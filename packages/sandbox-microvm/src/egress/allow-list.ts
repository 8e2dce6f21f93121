import { BlockList } from 'node:net'
import { isPublicAddress } from './addresses.ts'
import { DEFAULT_PORTS, familyOf, type HostRule } from './host-rule.ts'

/** The rules, ready to be asked. Names are in lower case, without a dot at the end. */
export type AllowList = {
  /** Every port of a name or an address, rising. */
  readonly ports: readonly number[]
  /** The ports at which a name is reachable; empty: the name is not listed. */
  portsOf(name: string): readonly number[]
  /** Whether an address itself is listed with that port, so that it is reachable without a name. */
  reaches(address: string, port: number): boolean
  /** Whether a listed name may lead to this address: a public one, or one that is listed itself or by its range. */
  mayLeadTo(address: string, port: number): boolean
}

/** Compiles rules; the order does not matter. */
export function createAllowList(rules: readonly HostRule[]): AllowList {
  const exact = new Map<string, Set<number>>()
  const below = new Map<string, Set<number>>()
  const unlocked: { readonly list: BlockList; readonly port: number | undefined }[] = []
  const raw: { readonly list: BlockList; readonly ports: readonly number[] }[] = []
  const all = new Set<number>()

  for (const rule of rules) {
    const ports = rule.port === undefined ? DEFAULT_PORTS : [rule.port]
    switch (rule.kind) {
      case 'name':
      case 'below': {
        const map = rule.kind === 'name' ? exact : below
        map.set(rule.name, new Set([...(map.get(rule.name) ?? []), ...ports]))
        for (const port of ports) all.add(port)
        break
      }
      case 'address': {
        const list = new BlockList()
        list.addAddress(rule.address, familyOf(rule.address) ?? 'ipv4')
        raw.push({ list, ports })
        unlocked.push({ list, port: rule.port })
        for (const port of ports) all.add(port)
        break
      }
      case 'range': {
        const list = new BlockList()
        list.addSubnet(rule.address, rule.prefix, familyOf(rule.address) ?? 'ipv4')
        unlocked.push({ list, port: rule.port })
        break
      }
      default:
        rule satisfies never
    }
  }

  const holds = (list: BlockList, address: string): boolean => {
    const family = familyOf(address)
    return family !== undefined && list.check(address, family)
  }

  return {
    ports: [...all].toSorted((a, b) => a - b),
    portsOf: (name) => {
      const found = new Set(exact.get(name))
      for (let dot = name.indexOf('.'); dot !== -1; dot = name.indexOf('.', dot + 1))
        for (const port of below.get(name.slice(dot + 1)) ?? []) found.add(port)
      return [...found]
    },
    reaches: (address, port) => raw.some((rule) => rule.ports.includes(port) && holds(rule.list, address)),
    mayLeadTo: (address, port) =>
      isPublicAddress(address) ||
      unlocked.some((rule) => (rule.port === undefined || rule.port === port) && holds(rule.list, address)),
  }
}
