import { BlockList } from 'node:net'
import { familyOf } from './host-rule.ts'

/** IPv4 that is not the public Internet: IANA's special-purpose registry, multicast, reserved, and a cloud's metadata outside of it. */
const SPECIAL_V4: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['168.63.129.16', 32],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
]

/** Inside of 2000::/3, what is no ordinary host or carries an IPv4 address: protocol assignments with Teredo, documentation, 6to4. */
const SPECIAL_V6: readonly (readonly [string, number])[] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
]

const specialV4 = new BlockList()
for (const [address, prefix] of SPECIAL_V4) specialV4.addSubnet(address, prefix, 'ipv4')
const specialV6 = new BlockList()
for (const [address, prefix] of SPECIAL_V6) specialV6.addSubnet(address, prefix, 'ipv6')
const globalV6 = new BlockList()
globalV6.addSubnet('2000::', 3, 'ipv6')

/**
 * Whether an address is an ordinary one of the public Internet. Of IPv6 only 2000::/3 can be: loopback, link-local, unique
 * local, multicast, IPv4-mapped and NAT64 lie outside of it. What is no address is not public.
 */
export function isPublicAddress(address: string): boolean {
  switch (familyOf(address)) {
    case 'ipv4':
      return !specialV4.check(address, 'ipv4')
    case 'ipv6':
      return globalV6.check(address, 'ipv6') && !specialV6.check(address, 'ipv6')
    case undefined:
      return false
  }
}
