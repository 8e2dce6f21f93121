import type { Agent } from 'node:http'
import type { Duplex } from 'node:stream'
import type { EgressEvent } from './events.ts'
import type { HostSecrets } from './secrets.ts'

/** A connection on which a guest speaks HTTP/1 with one host. */
export type HttpSide = {
  readonly name: string
  readonly port: number
  /** Whether the bytes are decrypted TLS: only then real values go out. */
  readonly secure: boolean
  readonly secrets: HostSecrets
  /** A connection to the host, verified where it is secure. What it throws is an UpstreamFailure. */
  readonly open: () => Promise<Duplex>
  readonly report: (event: EgressEvent) => void
}

/** The host cannot be had; the guest is told by status and text. */
export class UpstreamFailure extends Error {
  override readonly name = 'UpstreamFailure'
  readonly status: 502 | 504
  constructor(status: 502 | 504, message: string) {
    super(message)
    this.status = status
  }
}

/** Such a connection while it is served. */
export type Line = {
  readonly side: HttpSide
  readonly stream: Duplex
  /** Holds its one connection to the host. */
  readonly agent: Agent
  /** Requests that are under way or wait: on this connection, and on all. */
  active: number
  readonly all: { active: number }
  /** Ends when the request before has left the connection to the host: one goes out at a time. */
  turn: Promise<void>
}

/** Of an answer; requests have half of it. */
export const MOST_HEAD_BYTES = 65_536
/** A body of a known length up to this one is held whole where something is replaced in it, so that its new length is known. */
export const MOST_HELD_BYTES = 262_144

/** Tells that a request was refused. `asked` is text of the guest. */
export const deny = (side: HttpSide, reason: 'host_header' | 'malformed' | 'limit', asked?: string): void => {
  const shown = asked !== undefined && /^[\x21-\x7e]{1,300}$/.test(asked) ? { asked } : {}
  side.report({ type: 'denied', reason, protocol: 'http', host: side.name, port: side.port, ...shown })
}
