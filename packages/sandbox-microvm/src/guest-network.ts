import { MicroVmError } from './errors.ts'
import type { ChannelIo } from './execution.ts'
import { type ChannelFrame, type GuestFrame, networkPayload, toGuest } from './frames.ts'
import { GuestSocket } from './guest-socket.ts'
import type { GuestNetwork } from './network.ts'

/** Both ends of the guest's link: addresses that are kept for examples, so that they clash with nothing a guest sets up. */
const LINK = { guest: '192.0.2.2', gateway: '192.0.2.1', prefix: 30 }
const DNS_PORT = 53
/** Connections that may be open at once, those that are closing included. The agent itself holds half of that. */
const MAX_SOCKETS = 512
/** Names that may be asked for at once; more are not answered, and asked again by whoever needs them. */
const MAX_QUERIES = 64
const MAX_QUERY_BYTES = 4096
/** What a datagram carries. */
const MAX_ANSWER_BYTES = 65_507
/** The agent listens on no more. */
const MAX_PORTS = 63

/** The host's end of a guest's network: it turns frames into streams for a `GuestNetwork` and back. */
export type NetworkEnd = {
  /** Takes one frame that is about the network; throws `guest_lost` when the guest may not send it. */
  handle(frame: ChannelFrame): void
  /** The guest is gone: every connection is destroyed. */
  fail(error: MicroVmError): void
}

/** What the agent is told to set up for `network`. */
export function networkPlan(network: GuestNetwork): Uint8Array {
  const ports = [...new Set([DNS_PORT, ...network.ports])]
  if (ports.length > MAX_PORTS + 1 || ports.some((port) => !Number.isInteger(port) || port < 1 || port > 65_535))
    throw new MicroVmError(
      'bad_spec',
      `a guest's network takes at most ${MAX_PORTS} ports, each from 1 to 65535, not ${network.ports.length} like these; list fewer different ports in sandbox.lua`,
    )
  return networkPayload({ ...LINK, ports })
}

/** Serves the guest's programs with `network`. `io` gives the way to the guest for a channel of its own. */
export function createNetworkEnd(network: GuestNetwork, io: (channel: number) => ChannelIo): NetworkEnd {
  /** Connections whose frames still mean something. */
  const open = new Map<number, GuestSocket>()
  /** Those that still hold memory: a stream may be read after its connection has ended. */
  const alive = new Set<GuestSocket>()
  let last = 0
  let queries = 0

  const accept = ({ channel, address, port }: Extract<GuestFrame, { type: 'open' }>): void => {
    if (channel <= last) throw new MicroVmError('guest_lost', 'the guest opened a connection twice; the VM is stopped')
    last = channel
    const way = io(channel)
    if (Math.max(alive.size, open.size) >= MAX_SOCKETS) return way.send(toGuest.reset)
    const socket = new GuestSocket(way, () => open.delete(channel))
    open.set(channel, socket)
    alive.add(socket)
    socket.once('close', () => alive.delete(socket))
    if (port === DNS_PORT) return answerStream(socket, network)
    try {
      return network.connect({ address, port }, socket)
    } catch (error) {
      socket.destroy(error instanceof Error ? error : new Error('the connection failed'))
      return undefined
    }
  }

  const answer = async ({ channel, returnTo, query }: Extract<GuestFrame, { type: 'dns' }>): Promise<void> => {
    if (queries >= MAX_QUERIES || query.length > MAX_QUERY_BYTES) return
    queries += 1
    const to = Uint8Array.from(returnTo)
    try {
      const message = await network.dns(Uint8Array.from(query))
      if (message !== undefined && message.length <= MAX_ANSWER_BYTES)
        io(channel).send(toGuest.dns, Buffer.concat([to, message]))
    } finally {
      queries -= 1
    }
  }

  return {
    handle: (frame) => {
      switch (frame.type) {
        case 'open':
          return accept(frame)
        case 'dns':
          // A resolver that fails is one that does not answer: the guest's own gives up after a while.
          answer(frame).catch(() => undefined)
          return undefined
        case 'denied':
          return network.denied({ protocol: frame.protocol, address: frame.address, port: frame.port })
        default: {
          // What was on its way when we closed is for nobody.
          const socket = open.get(frame.channel)
          if (socket !== undefined) return socket.handle(frame)
          if (frame.channel <= last) return undefined
          throw new MicroVmError(
            'guest_lost',
            'the guest spoke on a connection that it had not opened; the VM is stopped',
          )
        }
      }
    },
    fail: (error) => {
      for (const socket of alive) socket.lose(error)
      open.clear()
    },
  }
}

/** DNS over TCP: each message has its length before it. One is answered after the other. */
function answerStream(guest: GuestSocket, network: GuestNetwork): void {
  let pending = Buffer.alloc(0)
  let ended = false
  let busy = false
  const next = (): void => {
    if (busy || guest.destroyed) return
    const length = pending.length < 2 ? undefined : pending.readUInt16BE(0)
    if (length !== undefined && length > MAX_QUERY_BYTES) {
      guest.destroy()
      return
    }
    if (length === undefined || pending.length < 2 + length) {
      if (ended) guest.end()
      else guest.resume()
      return
    }
    const query = Uint8Array.from(pending.subarray(2, 2 + length))
    pending = Buffer.from(pending.subarray(2 + length))
    busy = true
    guest.pause()
    network.dns(query).then(
      (message) => {
        busy = false
        if (message === undefined || message.length > 0xffff) return void guest.destroy()
        const head = Buffer.alloc(2)
        head.writeUInt16BE(message.length)
        guest.write(Buffer.concat([head, message]), next)
        return undefined
      },
      () => void guest.destroy(),
    )
  }
  guest.on('data', (chunk: Uint8Array) => {
    pending = Buffer.concat([pending, chunk])
    next()
  })
  guest.on('end', () => {
    ended = true
    next()
  })
}
