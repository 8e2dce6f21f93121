import type { Duplex } from 'node:stream'

/** QEMU's own control channel, as far as it is used: a quit that writes the disk out. */
export type Qmp = { quit(): void }

/** The first thing that QEMU wants to hear. What it answers is of no use here, so it is read and dropped. */
export function connectQmp(stream: Duplex): Qmp {
  const send = (execute: string): void => {
    if (!stream.destroyed) stream.write(`${JSON.stringify({ execute })}\n`)
  }
  stream.on('error', () => stream.destroy())
  stream.resume()
  send('qmp_capabilities')
  return { quit: () => send('quit') }
}
