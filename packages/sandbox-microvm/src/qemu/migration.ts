import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { MicroVmError } from '../errors.ts'
import type { Qmp } from './qmp.ts'

/**
 * Stops a machine and gives the state of its devices. Its memory is in its file, whole, when QEMU has ended.
 *
 * @param path where a socket may be made for that
 */
export async function saveState(control: Qmp, path: string): Promise<Uint8Array> {
  const server = createServer()
  const { promise: state, resolve, reject } = Promise.withResolvers<Uint8Array>()
  // When the saving itself fails, that says more.
  state.catch(() => undefined)
  server.once('connection', (socket: Socket) => {
    server.close()
    buffer(socket).then(resolve, reject)
  })
  server.listen(path)
  await once(server, 'listening')
  try {
    await control.execute('stop')
    const ended = await begin(control, 'migrate', path)
    await ended()
    return await state
  } finally {
    server.close()
  }
}

/**
 * Lets a machine that `qemu` saved go on from where it stood.
 *
 * @param path where QEMU may make a socket for that
 */
export async function restoreState(
  control: Qmp,
  saved: { readonly qemu: string; readonly state: Uint8Array },
  path: string,
): Promise<void> {
  const version = await control.version
  if (version !== saved.qemu)
    throw new MicroVmError('boot_failed', `QEMU ${saved.qemu} saved the machine, and this is ${version}`)
  const ended = await begin(control, 'migrate-incoming', path)
  const socket = connect(path)
  // What is wrong with the state is told by QEMU itself, or by its end.
  socket.on('error', () => socket.destroy())
  socket.end(saved.state)
  await ended()
  await rm(path, { force: true })
  await control.execute('cont')
}

/** The state has only what is not in the memory's file already; how it ended is told by an event. */
const CAPABILITIES = { capabilities: ['x-ignore-shared', 'events'].map((capability) => ({ capability, state: true })) }
const ENDS: readonly unknown[] = ['completed', 'failed', 'cancelled']

/** Has QEMU begin; what comes back waits for the end. */
async function begin(
  control: Qmp,
  command: 'migrate' | 'migrate-incoming',
  path: string,
): Promise<() => Promise<void>> {
  const end = control.event('MIGRATION', (data) => ENDS.includes(statusOf(data)))
  await control.execute('migrate-set-capabilities', CAPABILITIES)
  await control.execute(command, { uri: `unix:${path}` })
  return async () => {
    if (statusOf(await end) === 'completed') return
    throw new MicroVmError('boot_failed', `a saved machine could not be ${command === 'migrate' ? 'written' : 'read'}`)
  }
}

const statusOf = (data: unknown): unknown =>
  typeof data === 'object' && data !== null && 'status' in data ? data.status : undefined
