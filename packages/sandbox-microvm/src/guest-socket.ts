import { Duplex } from 'node:stream'
import { ByteQueue } from './byte-queue.ts'
import { MicroVmError } from './errors.ts'
import { type ChannelIo, GRANT_BYTES } from './execution.ts'
import { creditPayload, type ChannelFrame, toGuest, WINDOW_BYTES } from './frames.ts'
import { PIECE_BYTES } from './input.ts'

/** How a guest's connection is told that it is over. */
type Ended = { readonly error: Error | null | undefined; readonly callback: (error?: Error | null) => void }

/**
 * One connection of a guest's program, as a stream: what is read is what the program sends, what is written goes to it.
 * At most a window is held for whoever reads, and writing waits until the program has taken what came before. Destroying
 * it before both directions have ended resets the program's socket, as closing a socket does that still has data to come.
 */
export class GuestSocket extends Duplex {
  readonly #io: ChannelIo
  readonly #onOver: () => void
  /** What the program sent and nobody has read yet. */
  readonly #received = new ByteQueue()
  #isWanted = false
  #mayReceive = WINDOW_BYTES
  #toGrant = 0
  #theyEnded = false
  #maySend = WINDOW_BYTES
  #unsent: { readonly bytes: Uint8Array; readonly callback: (error?: Error | null) => void } | undefined
  #weEnded = false
  #isOver = false

  /** `onOver` is called once, when no frame of this connection means anything any more. */
  constructor(io: ChannelIo, onOver: () => void) {
    // A reader is given one piece at a time; all else waits in one queue, however small the guest's pieces are.
    super({ allowHalfOpen: true, readableHighWaterMark: 1, writableHighWaterMark: PIECE_BYTES })
    this.#io = io
    this.#onOver = onOver
    // Whoever took the stream over hears of an error by a listener of his own; without one it must not end the process.
    this.on('error', () => undefined)
  }

  /** Takes one frame of its channel; throws `guest_lost` when the guest may not send it. */
  handle(frame: ChannelFrame): void {
    switch (frame.type) {
      case 'stdout':
        return this.#receive(frame.bytes)
      case 'end':
        if (this.#theyEnded) throw brokenBy('ended a connection twice')
        this.#theyEnded = true
        if (this.#received.length === 0) this.push(null)
        return this.#overIfEnded()
      case 'reset':
        this.#over()
        this.destroy(reset())
        return
      case 'credit':
        this.#maySend += frame.bytes
        if (this.#maySend > WINDOW_BYTES) throw brokenBy('granted more than it was sent')
        return this.#send()
      case 'started':
      case 'stderr':
      case 'exit':
      case 'error':
      case 'pong':
      case 'done':
      case 'open':
      case 'dns':
      case 'denied':
        throw brokenBy(`sent a ${frame.type} frame on a connection`)
      default:
        return frame satisfies never
    }
  }

  /** The guest is gone. */
  lose(error: MicroVmError): void {
    this.#over()
    this.destroy(error)
  }

  #receive(bytes: Uint8Array): void {
    this.#mayReceive -= bytes.length
    if (this.#mayReceive < 0) throw brokenBy('sent more on a connection than was granted')
    if (this.#theyEnded) throw brokenBy('sent on a connection that it had ended')
    // Nobody reads any more: the program learns it as from any socket that was closed.
    if (this.destroyed) return this.#reset()
    this.#received.append(bytes)
    if (this.#isWanted) this._read()
  }

  override _read(): void {
    if (this.#received.length === 0) {
      if (this.#theyEnded) this.push(null)
      else this.#isWanted = true
      return
    }
    this.#isWanted = false
    const bytes = this.#received.take()
    this.#grant(bytes.length)
    this.push(bytes)
  }

  #grant(length: number): void {
    this.#toGrant += length
    if (this.#toGrant < GRANT_BYTES || this.#theyEnded) return
    this.#mayReceive += this.#toGrant
    this.#io.send(toGuest.credit, creditPayload(this.#toGrant))
    this.#toGrant = 0
  }

  override _write(bytes: Uint8Array, _encoding: string, callback: (error?: Error | null) => void): void {
    this.#unsent = { bytes, callback }
    this.#send()
  }

  #send(): void {
    this.#io.whenRoom(() => {
      const unsent = this.#unsent
      if (unsent === undefined || this.#isOver) return
      const piece = unsent.bytes.subarray(0, Math.min(this.#maySend, PIECE_BYTES))
      if (piece.length > 0) {
        this.#maySend -= piece.length
        this.#io.send(toGuest.stdin, piece)
      }
      const bytes = unsent.bytes.subarray(piece.length)
      this.#unsent = bytes.length === 0 ? undefined : { bytes, callback: unsent.callback }
      if (bytes.length === 0) unsent.callback()
      else if (this.#maySend > 0) this.#send()
    })
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#weEnded = true
    if (!this.#isOver) this.#io.send(toGuest.stdinEnd)
    this.#overIfEnded()
    callback()
  }

  override _destroy(error: Ended['error'], callback: Ended['callback']): void {
    const unsent = this.#unsent
    this.#unsent = undefined
    // After our own end the program may still read what it got: it is reset only if it sends more.
    if (!this.#weEnded || error) this.#reset()
    unsent?.callback(error ?? reset())
    callback(error)
  }

  #reset(): void {
    if (this.#isOver) return
    this.#io.send(toGuest.reset)
    this.#over()
  }

  #overIfEnded(): void {
    if (this.#theyEnded && this.#weEnded) this.#over()
  }

  #over(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#onOver()
  }
}

const reset = (): Error => Object.assign(new Error('the guest closed the connection'), { code: 'ECONNRESET' })

const brokenBy = (what: string): MicroVmError =>
  new MicroVmError('guest_lost', `the guest ${what}; the VM is stopped, the next command starts it again`)
