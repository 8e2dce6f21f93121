import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

/** Ends a connection as hard as it can: with a reset where it is a socket. */
export function reset(stream: Duplex): void {
  if (stream instanceof Socket) stream.resetAndDestroy()
  else stream.destroy()
}

/** What one end did not finish ends the other one too, so that nobody takes a part for the whole. The function undoes it. */
export function tieTogether(a: Duplex, b: Duplex): () => void {
  const follow = (one: Duplex, other: Duplex): (() => void) => {
    const closed = (): void => {
      if (!one.readableEnded || !one.writableFinished) reset(other)
    }
    one.on('error', () => one.destroy())
    one.on('close', closed)
    return () => one.off('close', closed)
  }
  const undo = [follow(a, b), follow(b, a)]
  return () => {
    for (const one of undo) one()
  }
}

/** Passes bytes in both directions as they are, with back-pressure and half closes. */
export function relay(a: Duplex, b: Duplex): void {
  tieTogether(a, b)
  a.pipe(b)
  b.pipe(a)
}
