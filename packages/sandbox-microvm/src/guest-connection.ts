import type { Duplex } from 'node:stream'
import { messageOf } from '@reve/base'
import { MicroVmError } from './errors.ts'
import { createExecution, type Execution, type GuestCommand } from './execution.ts'
import {
  createFrameDecoder,
  encodeFrame,
  type GuestFrame,
  mountPayload,
  PROTOCOL_VERSION,
  timePayload,
  toGuest,
} from './frames.ts'
import type { ExecResult } from './spec.ts'

/** How long a guest may take for a request that takes it milliseconds. */
const ANSWER_MS = 60_000

/** The host's end of the channel to a guest agent. */
export type GuestConnection = {
  /** Resolves when the agent has said that it serves. */
  readonly ready: Promise<void>
  exec(command: GuestCommand): Promise<ExecResult>
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
    stream.destroy()
    onLost(error)
  }

  const send = (type: number, channel: number, payload?: Uint8Array): void => {
    if (lost === undefined) stream.write(encodeFrame(type, channel, payload))
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
    exec: (command) => {
      if (lost !== undefined) return Promise.reject(lost)
      const channel = nextChannel++
      const execution = createExecution(command, { send: (type, payload) => send(type, channel, payload), fail, now })
      executions.set(channel, execution)
      execution.begin()
      return execution.result
    },
    mount: (tag, path, readonly) => request(toGuest.mount, mountPayload(tag, path, readonly)),
    setTime: (ms) => request(toGuest.setTime, timePayload(ms)),
    seed: (bytes) => request(toGuest.seed, bytes),
    ping: () => request(toGuest.ping),
    shutdown: () => send(toGuest.shutdown, 0),
    fail,
  }
}
