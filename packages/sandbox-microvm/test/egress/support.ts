import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect as connectSocket, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { decode, encode, type Packet } from 'dns-packet'
import { createAuthority } from '../../src/egress/authority.ts'
import type { EgressEvent } from '../../src/egress/events.ts'
import { createGateway, type GatewayParts } from '../../src/egress/gateway.ts'
import { parseHostRule, type HostRule } from '../../src/egress/host-rule.ts'
import type { GuestNetwork } from '../../src/network.ts'

/** An authority of the tests' own, for servers on loopback. */
export const testAuthority = createAuthority({ name: 'test authority', now: Date.now, randomBytes })

/** An address of the public Internet that stands for the tests' servers; nothing is sent to it. */
export const PUBLIC = '93.184.215.14'

const closers: (() => unknown)[] = []

/** Ends whatever a test left open. */
export async function closeAll(): Promise<void> {
  for (const close of closers.splice(0).toReversed()) await close()
}

export const onClose = (close: () => unknown): void => void closers.push(close)

/** Listens on loopback; the port. */
export async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onClose(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

export const rule = (text: string): HostRule => {
  const parsed = parseHostRule(text)
  if (!parsed.ok) throw new Error(parsed.problem.message)
  return parsed.rule
}

export type Bench = {
  readonly gateway: GuestNetwork
  readonly events: EgressEvent[]
  /** Addresses and ports that were connected to. */
  readonly dialled: string[]
  /** A port on loopback that is, to the guest, `name` at `port`. `at` binds a given listener. */
  readonly guest: (name: string, port: number, at?: Server) => Promise<number>
  /** Events of a type, in order. */
  readonly of: <T extends EgressEvent['type']>(type: T) => Extract<EgressEvent, { type: T }>[]
}

/**
 * A gateway whose names all lead to one public address, which leads to `server` on loopback whatever the port: what is
 * refused on the way is refused for real.
 */
export function bench(
  allow: readonly string[],
  server: number,
  parts: Partial<Omit<GatewayParts, 'allow'>> = {},
): Bench {
  const events: EgressEvent[] = []
  const dialled: string[] = []
  const gateway = createGateway({
    allow: allow.map(rule),
    resolve: () => Promise.resolve([PUBLIC]),
    connect: async ({ address, port }) => {
      dialled.push(`${address}:${port}`)
      const socket = connectSocket({ host: '127.0.0.1', port: server, allowHalfOpen: true, noDelay: true })
      await once(socket, 'connect')
      return socket
    },
    onEvent: (event) => events.push(event),
    ca: [testAuthority.certificate],
    ...parts,
  })
  onClose(() => gateway.close())
  return {
    gateway,
    events,
    dialled,
    guest: async (name, port, at = createServer({ allowHalfOpen: true, noDelay: true })) => {
      const address = (await ask(gateway, name)).answers?.map((answer) => (answer.type === 'A' ? answer.data : ''))[0]
      at.on('connection', (socket: Socket) => gateway.connect({ address: address ?? name, port }, socket))
      return at.listening ? (at.address() as AddressInfo).port : listen(at)
    },
    of: (type) => events.filter((event): event is Extract<EgressEvent, { type: typeof type }> => event.type === type),
  }
}

/** One question to the gateway's DNS. */
export async function ask(
  gateway: GuestNetwork,
  name: string,
  type: 'A' | 'AAAA' | 'TXT' | 'PTR' = 'A',
): Promise<Packet> {
  const answer = await gateway.dns(encode({ type: 'query', id: 7, flags: 0x01_00, questions: [{ type, name }] }))
  if (answer === undefined) throw new Error('no answer')
  return decode(Buffer.from(answer))
}

/** A connection of a guest's program. */
export async function dialGuest(port: number): Promise<Socket> {
  const socket = connectSocket({ host: '127.0.0.1', port, allowHalfOpen: true })
  socket.on('error', () => socket.destroy())
  await once(socket, 'connect')
  onClose(() => socket.destroy())
  return socket
}

/** Everything that a stream gives until it closes, an error included. */
export async function drain(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  if (!socket.closed && !socket.readableEnded)
    await new Promise<void>((resolve) => {
      socket.on('end', resolve).on('close', () => resolve())
    })
  return Buffer.concat(chunks)
}

/** Waits until something is so. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5))
}
