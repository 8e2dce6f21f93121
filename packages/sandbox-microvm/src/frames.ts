import { MicroVmError } from './errors.ts'

/**
 * What the host and the guest agent say to each other; the guest's side is guest/agent.h. A frame is `u32 length | u8 type
 * | u32 channel | payload`, little-endian. The guest is hostile: it may send any bytes at all.
 */
export const PROTOCOL_VERSION = 2
/** Bytes of output or input that one side may send on a channel before the other grants more. */
export const WINDOW_BYTES = 256 * 1024
/** The largest payload that the agent accepts. */
export const MAX_TO_GUEST = 1024 * 1024
/** Channels with this bit are opened by the guest, in rising order: connections of its programs. The others are ours. */
export const GUEST_CHANNELS = 0x8000_0000
/** The largest payload that the agent ever sends. */
const MAX_FROM_GUEST = 32 * 1024
const HEADER_BYTES = 9

/** Types of frames to the guest. */
export const toGuest = {
  exec: 1,
  stdin: 2,
  stdinEnd: 3,
  kill: 4,
  credit: 5,
  ping: 6,
  setTime: 7,
  mount: 8,
  seed: 9,
  shutdown: 10,
  file: 11,
  signal: 12,
  resize: 13,
  root: 14,
  network: 15,
  dns: 16,
  reset: 17,
  trust: 18,
} as const

/** A frame of the guest, read and checked. */
export type GuestFrame =
  | { readonly type: 'ready'; readonly version: number }
  | { readonly type: 'started'; readonly channel: number }
  /** Of a connection, `stdout` is what the guest's program sends. */
  | { readonly type: 'stdout' | 'stderr'; readonly channel: number; readonly bytes: Uint8Array }
  | {
      readonly type: 'exit'
      readonly channel: number
      readonly code: number
      readonly signal: number
      /** The kill reached it before its own end. */
      readonly killed: boolean
      readonly left: readonly string[]
    }
  | { readonly type: 'error'; readonly channel: number; readonly text: string }
  | { readonly type: 'credit'; readonly channel: number; readonly bytes: number }
  | { readonly type: 'pong' | 'done' | 'end' | 'reset'; readonly channel: number }
  | { readonly type: 'open'; readonly channel: number; readonly address: string; readonly port: number }
  /** `returnTo` goes back with the answer as it is. */
  | { readonly type: 'dns'; readonly channel: number; readonly returnTo: Uint8Array; readonly query: Uint8Array }
  | {
      readonly type: 'denied'
      readonly channel: number
      readonly protocol: 'tcp' | 'udp'
      readonly address: string
      readonly port: number
    }

/** A frame that is about one channel. */
export type ChannelFrame = Exclude<GuestFrame, { type: 'ready' }>

const broken = (what: string): MicroVmError =>
  new MicroVmError(
    'guest_lost',
    `the guest broke the protocol: ${what}; the VM is stopped, the next command starts it again`,
  )

/** One frame's bytes. */
export function encodeFrame(type: number, channel: number, payload: Uint8Array = new Uint8Array()): Uint8Array {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length)
  frame.writeUInt32LE(payload.length, 0)
  frame.writeUInt8(type, 4)
  frame.writeUInt32LE(channel, 5)
  frame.set(payload, HEADER_BYTES)
  return frame
}

const text = new TextDecoder('utf-8')
/** Who asked for a name, and whom: the guest's own business. */
const RETURN_BYTES = 10
const protocols: ReadonlyMap<number, 'tcp' | 'udp'> = new Map([
  [6, 'tcp'],
  [17, 'udp'],
])
const readAddress = (bytes: Uint8Array, at: number): string => bytes.subarray(at, at + 4).join('.')

function readFrame(type: number, channel: number, payload: Buffer): GuestFrame {
  switch (type) {
    case 64:
      if (payload.length !== 4) throw broken('a ready frame of the wrong length')
      return { type: 'ready', version: payload.readUInt32LE(0) }
    case 65:
      if (payload.length !== 4) throw broken('a started frame of the wrong length')
      return { type: 'started', channel }
    case 66:
      return { type: 'stdout', channel, bytes: payload }
    case 67:
      return { type: 'stderr', channel, bytes: payload }
    case 68: {
      if (payload.length < 9) throw broken('an exit frame that is too short')
      const left = text.decode(payload.subarray(9)).split('\0').slice(0, -1)
      return {
        type: 'exit',
        channel,
        code: payload.readInt32LE(0),
        signal: payload.readUInt32LE(4),
        killed: payload.readUInt8(8) === 1,
        left,
      }
    }
    case 69:
      return { type: 'error', channel, text: text.decode(payload) }
    case 70:
      return { type: 'pong', channel }
    case 71:
      if (payload.length !== 4) throw broken('a credit frame of the wrong length')
      return { type: 'credit', channel, bytes: payload.readUInt32LE(0) }
    case 72:
      return { type: 'done', channel }
    case 73:
      if (payload.length !== 6) throw broken('an open frame of the wrong length')
      return { type: 'open', channel, address: readAddress(payload, 0), port: payload.readUInt16LE(4) }
    case 74:
      return { type: 'end', channel }
    case 75:
      return { type: 'reset', channel }
    case 76:
      if (payload.length < RETURN_BYTES) throw broken('a DNS frame that is too short')
      return {
        type: 'dns',
        channel,
        returnTo: payload.subarray(0, RETURN_BYTES),
        query: payload.subarray(RETURN_BYTES),
      }
    case 77: {
      const protocol = protocols.get(payload[0] ?? 0)
      if (payload.length !== 7 || protocol === undefined) throw broken('a denied frame that makes no sense')
      return { type: 'denied', channel, protocol, address: readAddress(payload, 1), port: payload.readUInt16LE(5) }
    }
    default:
      throw broken(`a frame of the unknown type ${type}`)
  }
}

/** Cuts a stream of bytes into frames. It never holds more than one frame besides the chunk that it is given. */
export function createFrameDecoder(): (chunk: Uint8Array) => readonly GuestFrame[] {
  let pending = Buffer.alloc(0)
  return (chunk) => {
    const bytes =
      pending.length === 0 ? Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length) : Buffer.concat([pending, chunk])
    const frames: GuestFrame[] = []
    let at = 0
    while (bytes.length - at >= HEADER_BYTES) {
      const length = bytes.readUInt32LE(at)
      if (length > MAX_FROM_GUEST) throw broken(`a frame of ${length} bytes`)
      if (bytes.length - at < HEADER_BYTES + length) break
      const payload = bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length)
      frames.push(readFrame(bytes.readUInt8(at + 4), bytes.readUInt32LE(at + 5), payload))
      at += HEADER_BYTES + length
    }
    pending = Buffer.from(bytes.subarray(at))
    return frames
  }
}

const u32 = (value: number): Uint8Array => {
  const bytes = Buffer.allocUnsafe(4)
  bytes.writeUInt32LE(value)
  return bytes
}

const u16 = (...values: readonly number[]): Uint8Array => {
  const bytes = Buffer.allocUnsafe(2 * values.length)
  values.forEach((value, index) => bytes.writeUInt16LE(value, 2 * index))
  return bytes
}

const strings = (values: readonly (string | Uint8Array)[]): readonly Uint8Array[] =>
  values.flatMap((value) => {
    const bytes = typeof value === 'string' ? Buffer.from(value) : value
    return [u32(bytes.length), bytes]
  })

/**
 * Payload of an exec or file frame: argument vector, environment as `NAME=value`, working directory, and the size of a
 * terminal, if the program gets one.
 */
export function execPayload(
  argv: readonly (string | Uint8Array)[],
  env: Readonly<Record<string, string>> = {},
  cwd = '/',
  size: { readonly cols: number; readonly rows: number } = { cols: 0, rows: 0 },
): Uint8Array {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  return Buffer.concat([
    u32(argv.length),
    ...strings(argv),
    u32(variables.length),
    ...strings(variables),
    ...strings([cwd]),
    u16(size.cols, size.rows),
  ])
}

/** Payload of a credit frame. */
export const creditPayload = (bytes: number): Uint8Array => u32(bytes)

/** Payload of a mount frame. */
export const mountPayload = (tag: string, path: string, readonly: boolean): Uint8Array =>
  Buffer.concat([Buffer.from(`${tag}\0${path}\0`), Buffer.from([readonly ? 1 : 0])])

/** Payload of a frame that sets the clock, from milliseconds since 1970. */
export function timePayload(ms: number): Uint8Array {
  const bytes = Buffer.alloc(12)
  bytes.writeBigUInt64LE(BigInt(Math.floor(ms / 1000)), 0)
  bytes.writeUInt32LE(Math.floor(ms % 1000) * 1_000_000, 8)
  return bytes
}

/** Payload of a signal frame. */
export const signalPayload = (signal: number): Uint8Array => u32(signal)

/** Payload of a resize frame. */
export const sizePayload = (cols: number, rows: number): Uint8Array => u16(cols, rows)

/** Payload of a network frame: both ends of the link, as IPv4 addresses, and the ports on which the gateway listens. */
export const networkPayload = (link: {
  readonly guest: string
  readonly gateway: string
  readonly prefix: number
  readonly ports: readonly number[]
}): Uint8Array =>
  Buffer.concat([
    Buffer.from([...link.guest.split('.'), ...link.gateway.split('.'), link.prefix].map(Number)),
    u16(...link.ports),
  ])
