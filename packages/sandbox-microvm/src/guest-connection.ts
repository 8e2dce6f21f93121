import type { Duplex } from 'node:stream'
import { messageOf } from '@reve/base'
import { MicroVmError } from './errors.ts'
import { type ChannelIo, createExecution, type Execution, type GuestCommand, type GuestWork } from './execution.ts'
import {
  createFrameDecoder,
  encodeFrame,
  execPayload,
  GUEST_CHANNELS,
  type GuestFrame,
  mountPayload,
  PROTOCOL_VERSION,
  timePayload,
  toGuest,
} from './frames.ts'
import { createNetworkEnd, type NetworkEnd, networkPlan } from './guest-network.ts'
import type { GuestNetwork } from './network.ts'
import type { ExecResult } from './spec.ts'

/** How long a guest may take for a request that takes it milliseconds. */
const ANSWER_MS = 60_000
/** Input waits while so much is under way: what the guest does not read stays with whoever gives it. */
const FULL_BYTES = 1024 * 1024
/** A guest that makes us answer and reads no answers is not served any more: each frame costs us more than its bytes. */
const UNREAD_FRAMES = 64 * 1024
/** A source of many small pieces is no reason to take the guest for one that does not read. */
const FULL_FRAMES = UNREAD_FRAMES / 4

/** The host's end of the channel to a guest agent. */
export type GuestConnection = {
  /** Resolves when the agent has said that it serves. */
  readonly ready: Promise<void>
  /** Mounts the disk and makes it the root; commands, shares and the network come after it. */
  root(): Promise<void>
  exec(command: GuestCommand): Promise<ExecResult>
  /** Copies between a file of the guest and the streams of `work`; `order` is what guest/file.c is to do. */
  file(order: readonly (string | Uint8Array)[], work: GuestWork): Promise<ExecResult>
  /** Sets up a network by its plan; nobody serves it yet. */
  setUpNetwork(plan: Uint8Array): Promise<void>
  /**
   * Sets up the guest's network, unless it was there when the guest was saved, and serves it from then on; installs the
   * network's authority, if it has one.
   */
  openNetwork(network: GuestNetwork, options?: { readonly isSetUp: boolean }): Promise<void>
  /** Makes the guest's programs trust an authority, a PEM. */
  trust(certificate: string): Promise<void>
  mount(tag: string, path: string, readonly: boolean): Promise<void>
  setTime(ms: number): Promise<void>
  seed(bytes: Uint8Array): Promise<void>
  ping(): Promise<void>
  /** Asks for a clean power off; the end is seen at the VM's process. */
  shutdown(): void
  /** Ends every request with `error`; nothing is sent or read any more. */
  fail(error: MicroVmError): void
}

/**
 * Speaks with the agent over `stream`. A guest that breaks the protocol, or a stream that ends, fails the connection once:
 * every open request is rejected with the reason, and `onLost` is told.
 */
export function connectGuest(
  stream: Duplex,
  onLost: (error: MicroVmError) => void,
  now: () => number,
): GuestConnection {
  const executions = new Map<number, Execution>()
  const requests = new Map<number, { readonly settle: (error?: MicroVmError) => void }>()
  const decode = createFrameDecoder()
  const ready = Promise.withResolvers<void>()
  // A start that ended for another reason has nobody waiting here.
  ready.promise.catch(() => undefined)
  const waitForRoom: (() => void)[] = []
  let network: NetworkEnd | undefined
  let unread = 0
  let nextChannel = 1
  let lost: MicroVmError | undefined
  let isReady = false

  const fail = (error: MicroVmError): void => {
    if (lost !== undefined) return
    lost = error
    ready.reject(error)
    for (const execution of executions.values()) execution.fail(error)
    executions.clear()
    for (const request of requests.values()) request.settle(error)
    requests.clear()
    network?.fail(error)
    waitForRoom.length = 0
    stream.destroy()
    onLost(error)
  }

  const written = (): void => {
    unread -= 1
    if (unread < FULL_FRAMES && waitForRoom.length > 0) makeRoom()
  }
  const send = (type: number, channel: number, payload?: Uint8Array): void => {
    if (lost !== undefined) return
    unread += 1
    stream.write(encodeFrame(type, channel, payload), written)
  }

  const whenRoom = (callback: () => void): void => {
    if (stream.writableLength < FULL_BYTES && unread < FULL_FRAMES) callback()
    else waitForRoom.push(callback)
  }
  const makeRoom = (): void => {
    for (const callback of waitForRoom.splice(0)) whenRoom(callback)
  }
  stream.on('drain', makeRoom)
  const way = (channel: number): ChannelIo => ({
    send: (type, payload) => send(type, channel, payload),
    whenRoom,
  })

  const begin = (work: GuestWork, type: number, payload: Uint8Array): Promise<ExecResult> => {
    if (lost !== undefined) return Promise.reject(lost)
    const channel = nextChannel++
    const execution = createExecution(work, { ...way(channel), fail, now })
    executions.set(channel, execution)
    execution.begin(type, payload)
    return execution.result
  }

  const handle = (frame: GuestFrame): void => {
    if (frame.type === 'ready') {
      if (isReady) throw new MicroVmError('guest_lost', 'the guest said twice that it is ready; the VM is stopped')
      if (frame.version !== PROTOCOL_VERSION)
        throw new MicroVmError(
          'guest_lost',
          `the guest agent speaks protocol ${frame.version}, this program ${PROTOCOL_VERSION}`,
        )
      isReady = true
      ready.resolve()
      return
    }
    if (frame.channel >= GUEST_CHANNELS || frame.type === 'dns' || frame.type === 'denied') {
      if (network === undefined)
        throw new MicroVmError('guest_lost', 'the guest spoke of a network that it does not have; the VM is stopped')
      network.handle(frame)
      return
    }
    const execution = executions.get(frame.channel)
    if (execution !== undefined) {
      if (execution.handle(frame) === 'ended') executions.delete(frame.channel)
      return
    }
    const request = requests.get(frame.channel)
    if (request === undefined || (frame.type !== 'done' && frame.type !== 'pong' && frame.type !== 'error'))
      throw new MicroVmError(
        'guest_lost',
        `the guest sent a ${frame.type} frame that nobody waits for; the VM is stopped`,
      )
    requests.delete(frame.channel)
    request.settle(
      frame.type === 'error' ? new MicroVmError('boot_failed', `the guest could not: ${frame.text}`) : undefined,
    )
  }

  stream.on('data', (chunk: Uint8Array) => {
    try {
      for (const frame of decode(chunk)) if (lost === undefined) handle(frame)
      if (unread > UNREAD_FRAMES)
        throw new MicroVmError('guest_lost', 'the guest does not read what it is sent; the VM is stopped')
    } catch (error) {
      fail(
        error instanceof MicroVmError
          ? error
          : new MicroVmError('guest_lost', `reading from the guest failed: ${messageOf(error)}`, { cause: error }),
      )
    }
  })
  stream.on('error', (error) =>
    fail(new MicroVmError('guest_lost', `the channel to the guest broke: ${messageOf(error)}`, { cause: error })),
  )
  stream.on('close', () => fail(new MicroVmError('guest_lost', 'the VM ended; the next command starts it again')))

  const request = async (type: number, payload?: Uint8Array): Promise<void> => {
    if (lost !== undefined) throw lost
    const channel = nextChannel++
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const timer = setTimeout(
      () => fail(new MicroVmError('guest_lost', `the guest did not answer within ${ANSWER_MS / 1000} s`)),
      ANSWER_MS,
    )
    requests.set(channel, { settle: (error) => (error === undefined ? resolve() : reject(error)) })
    send(type, channel, payload)
    try {
      await promise
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    ready: ready.promise,
    root: () => request(toGuest.root),
    exec: (command) => begin(command, toGuest.exec, execPayload(command.argv, command.env, command.cwd, command.pty)),
    file: (order, work) => begin(work, toGuest.file, execPayload(order)),
    setUpNetwork: (plan) => request(toGuest.network, plan),
    openNetwork: async (served, { isSetUp } = { isSetUp: false }) => {
      if (network !== undefined) throw new MicroVmError('bad_spec', 'the guest has its network already')
      const plan = networkPlan(served)
      network = createNetworkEnd(served, way)
      if (!isSetUp) await request(toGuest.network, plan)
      if (served.certificate !== undefined) await request(toGuest.trust, Buffer.from(served.certificate))
    },
    trust: (certificate) => request(toGuest.trust, Buffer.from(certificate)),
    mount: (tag, path, readonly) => request(toGuest.mount, mountPayload(tag, path, readonly)),
    setTime: (ms) => request(toGuest.setTime, timePayload(ms)),
    seed: (bytes) => request(toGuest.seed, bytes),
    ping: () => request(toGuest.ping),
    shutdown: () => send(toGuest.shutdown, 0),
    fail,
  }
}
