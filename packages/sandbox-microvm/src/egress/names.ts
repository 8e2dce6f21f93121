import { hash } from 'node:crypto'

/** 198.18.0.0/15, reserved for benchmarks: no guest has another use for it. */
const BASE = 0xc6_12_00_00
const SPACE = 1 << 17
/** A wildcard lets a guest ask for names without end. */
const MOST_NAMES = 16_384

/** Names of a guest and the addresses that stand for them. */
export type SyntheticNames = {
  /** The address of a name, always the same one; undefined when there are too many names. */
  addressOf(name: string): string | undefined
  nameOf(address: string): string | undefined
}

/** An empty table. A name's address comes from its hash, so that a guest's cached answers outlive a restart of its network. */
export function createSyntheticNames(most = MOST_NAMES): SyntheticNames {
  const addresses = new Map<string, string>()
  const names = new Map<string, string>()
  return {
    addressOf: (name) => {
      const known = addresses.get(name)
      if (known !== undefined) return known
      if (addresses.size >= most) return undefined
      let slot = Number.parseInt(hash('sha256', name, 'hex').slice(0, 8), 16) % SPACE
      // The first and the last address are left out: some programs take them for a network or a broadcast.
      while (slot === 0 || slot === SPACE - 1 || names.has(spell(slot))) slot = (slot + 1) % SPACE
      const address = spell(slot)
      addresses.set(name, address)
      names.set(address, name)
      return address
    },
    nameOf: (address) => names.get(address),
  }
}

const spell = (slot: number): string => {
  const value = BASE + slot
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.')
}
