import type { Duplex } from 'node:stream'

/** What the host does for a guest's network. Everything that comes in is hostile. */
export interface GuestNetwork {
  /** TCP ports at which a guest may try to reach anything. */
  readonly ports: readonly number[]
  /** One DNS message (no length prefix), answered; undefined: no answer. */
  dns(query: Uint8Array): Promise<Uint8Array | undefined>
  /**
   * The guest connected to `address` (the synthetic one that a DNS answer gave, or whatever else) and `port`. Takes over the
   * guest's end as a duplex stream (its writes go to the guest) and destroys it when done; a refused attempt destroys it at
   * once with a reset.
   */
  connect(target: { readonly address: string; readonly port: number }, guest: Duplex): void
  /** The guest's kernel refused this by itself. */
  denied(attempt: { readonly protocol: 'tcp' | 'udp'; readonly address: string; readonly port: number }): void
  /** PEM of the authority that the guest has to trust, when there are secrets. */
  readonly certificate?: string
  close(): Promise<void>
}
