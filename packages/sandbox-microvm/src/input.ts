import { Readable } from 'node:stream'
import { MicroVmError } from './errors.ts'
import type { ChannelIo } from './execution.ts'
import { toGuest, WINDOW_BYTES } from './frames.ts'
import type { ByteSource } from './spec.ts'

/** Input travels in pieces, so that a large one does not hold other channels up. */
export const PIECE_BYTES = 32 * 1024

/** The input of one command on its way to the guest. */
export type Input = {
  begin(): void
  /** The guest has taken so much; throws `guest_lost` when that is more than it was sent. */
  grant(bytes: number): void
  /** The command is over: nothing more is sent, and the source is closed. */
  stop(): void
}

/** Sends what `source` gives, as far as the guest grants, and never reads ahead more than one chunk. */
export function createInput(
  source: Uint8Array | ByteSource,
  io: ChannelIo,
  onFailure: (cause: unknown) => void,
): Input {
  const iterator = source instanceof Uint8Array ? undefined : source[Symbol.asyncIterator]()
  let chunk = source instanceof Uint8Array ? source : new Uint8Array()
  let credit = WINDOW_BYTES
  let state: 'idle' | 'reading' | 'waiting' | 'over' = 'idle'

  const stop = (): void => {
    if (state === 'over') return
    state = 'over'
    // An iterator is only closed once its read has come to an end, which a pipe that stays open never gives.
    if (source instanceof Readable) source.destroy()
    // Its own failure at closing comes too late to change anything.
    else iterator?.return?.().catch(() => undefined)
  }

  const finish = (): void => {
    state = 'over'
    io.send(toGuest.stdinEnd)
  }

  const read = async (from: AsyncIterator<Uint8Array>): Promise<void> => {
    state = 'reading'
    try {
      const next = await from.next()
      if (!reading()) return
      if (next.done === true) return finish()
      // A source is the caller's own, and its types may promise too much.
      if (!(next.value instanceof Uint8Array)) throw new TypeError('a source of input gives Uint8Arrays')
      chunk = next.value
      state = 'idle'
      feed()
    } catch (error) {
      if (!reading()) return
      stop()
      onFailure(error)
    }
  }
  const reading = (): boolean => state === 'reading'

  const feed = (): void => {
    if (state !== 'idle') return
    if (chunk.length === 0) {
      if (iterator === undefined) finish()
      else void read(iterator)
      return
    }
    if (credit === 0) return
    state = 'waiting'
    io.whenRoom(() => {
      if (state !== 'waiting') return
      state = 'idle'
      const piece = chunk.subarray(0, Math.min(credit, PIECE_BYTES))
      chunk = chunk.subarray(piece.length)
      credit -= piece.length
      io.send(toGuest.stdin, piece)
      feed()
    })
  }

  return {
    begin: feed,
    grant: (bytes) => {
      credit += bytes
      if (credit > WINDOW_BYTES)
        throw new MicroVmError('guest_lost', 'the guest granted more input than it was sent; the VM is stopped')
      feed()
    },
    stop,
  }
}
