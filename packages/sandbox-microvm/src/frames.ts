import { MicroVmError } from './errors.ts'

/**
 * What the host and the guest agent say to each other; the guest's side is guest/agent.h. A frame is `u32 length | u8 type
 * | u32 channel | payload`, little-endian. The guest is hostile: it may send any bytes at all.
 */
export const PROTOCOL_VERSION = 1
/** Bytes of output or input that one side may send on a channel before the other grants more. */
export const WINDOW_BYTES = 256 * 1024
/** The largest payload that the agent accepts. */
export const MAX_TO_GUEST = 1024 * 1024
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
} as const

/** A frame of the guest, read and checked. */
export type GuestFrame =
  | { readonly type: 'ready'; readonly version: number }
  | { readonly type: 'started'; readonly channel: number }
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
  | { readonly type: 'pong' | 'done'; readonly channel: number }

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

const strings = (values: readonly string[]): readonly Uint8Array[] =>
  values.flatMap((value) => {
    const bytes = Buffer.from(value)
    return [u32(bytes.length), bytes]
  })

/** Payload of an exec frame: argument vector, environment as `NAME=value`, working directory. */
export function execPayload(argv: readonly string[], env: Readonly<Record<string, string>>, cwd: string): Uint8Array {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  return Buffer.concat([
    u32(argv.length),
    ...strings(argv),
    u32(variables.length),
    ...strings(variables),
    ...strings([cwd]),
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
