import { Duplex } from 'node:stream'
import { type FirstBytes, judgeFirstBytes } from './first-bytes.ts'

/** Bytes from the guest and to the guest. */
export type Traffic = { readonly sent: number; readonly received: number }

/** The guest's end of a connection. */
export type GuestStream = {
  /** Half closes pass in both directions; destroying it before both sides ended resets the guest's end. */
  readonly stream: Duplex
  /**
   * Looks at the first bytes, which stay in front of the stream; to be called before anyone reads it. Waits `silentMs` for the
   * first one and `wholeMs` for the rest, and holds at most 32 KiB and what one read brings.
   */
  readonly look: (wait: { readonly silentMs: number; readonly wholeMs: number }) => Promise<FirstBytes>
}

/** Watches `guest`: counted, and destroyed when nothing moved for `idleMs`. `onClose` is called once. */
export function watchGuest(guest: Duplex, idleMs: number, onClose: (traffic: Traffic) => void): GuestStream {
  let sent = 0
  let received = 0
  let ended = false
  let looking: ((state: 'data' | 'end' | 'close') => void) | undefined
  let held: Buffer = Buffer.alloc(0)
  let drained: (() => void) | undefined

  const idle = setTimeout(() => stream.destroy(), idleMs)
  idle.unref()

  const stream = new Duplex({
    allowHalfOpen: true,
    read: () => {
      guest.resume()
    },
    write: (chunk: Uint8Array, _encoding, done) => {
      received += chunk.length
      idle.refresh()
      if (guest.destroyed || guest.write(chunk)) done()
      else drained = done
    },
    final: (done) => {
      if (guest.destroyed) done()
      else guest.end(() => done())
    },
    destroy: (error, done) => {
      clearTimeout(idle)
      guest.destroy()
      looking?.('close')
      onClose({ sent, received })
      done(error)
    },
  })
  const goOn = (): void => {
    const done = drained
    drained = undefined
    done?.()
  }

  guest.pause()
  guest.on('data', (chunk: Buffer) => {
    sent += chunk.length
    idle.refresh()
    if (looking !== undefined) {
      held = held.length === 0 ? chunk : Buffer.concat([held, chunk])
      looking('data')
    } else if (!stream.push(chunk)) guest.pause()
  })
  guest.on('end', () => {
    ended = true
    if (looking === undefined) stream.push(null)
    else looking('end')
  })
  guest.on('drain', goOn)
  guest.on('close', () => {
    goOn()
    // After both sides ended it closes by itself.
    if (!guest.readableEnded || !guest.writableFinished) stream.destroy()
  })
  // Its close follows and says all there is to say; so does ours.
  guest.on('error', () => stream.destroy())
  stream.on('error', () => guest.destroy())

  return {
    stream,
    look: (wait) =>
      new Promise((resolve) => {
        let need = 1
        const done = (found: FirstBytes): void => {
          clearTimeout(timer)
          looking = undefined
          resolve(found)
          if (stream.destroyed) return
          guest.pause()
          if (held.length > 0) stream.push(held)
          held = Buffer.alloc(0)
          if (ended) stream.push(null)
        }
        let timer = setTimeout(() => done({ kind: 'silent' }), wait.silentMs)
        looking = (state) => {
          if (state === 'close') {
            done({ kind: 'ended' })
            return
          }
          if (need === 1 && held.length > 0) {
            clearTimeout(timer)
            timer = setTimeout(() => done({ kind: 'malformed' }), wait.wholeMs)
          }
          if (state === 'data' && held.length < need) return
          const found = judgeFirstBytes(held, state === 'end')
          if (found.kind === 'more') need = found.need
          else done(found)
        }
        if (stream.destroyed) looking('close')
        else guest.resume()
      }),
  }
}
