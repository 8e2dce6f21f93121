import { once } from 'node:events'
import { chownSync, closeSync, constants, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { join } from 'node:path'
import { ActionError } from './errors.ts'
import { startHostProcess } from './host-process.ts'
import type { ActionUser, Slot } from './slot.ts'

/** Both ends of an output pipe: ours to read, the other to be inherited by the command and then closed here. */
export type OutputPipe = { readonly reader: Socket; readonly writerFd: number }

/** Names of the two pipes in a slot's `out` folder. */
const names = ['stdout.pipe', 'stderr.pipe'] as const

/**
 * Makes the pipes of a run. They are FIFOs, because Node's own `pipe` is a socket, and a socket cannot be opened again as
 * `/dev/stdout` (`echo >/dev/stderr` in a script would fail).
 *
 * @throws ActionError `setup_failed`.
 */
export async function makeOutputPipes(
  slot: Slot,
  user: ActionUser | undefined,
): Promise<readonly [OutputPipe, OutputPipe]> {
  const child = startHostProcess('pipes', {
    file: 'mkfifo',
    args: ['-m', '600', '--', ...names],
    cwd: slot.out,
    env: { PATH: '/usr/bin:/bin' },
    stdio: 'ignore',
    detached: false,
    user: undefined,
  })
  const [code]: unknown[] = await once(child, 'exit').catch((error: unknown) => {
    throw new ActionError('setup_failed', 'mkfifo could not be started', { cause: error })
  })
  if (code !== 0) throw new ActionError('setup_failed', `mkfifo failed with code ${String(code)} in ${slot.out}`)
  const open = (name: string): OutputPipe => {
    const path = join(slot.out, name)
    // The action may open the pipe that it already holds through /dev/stdout: that takes the permission of its inode.
    if (user !== undefined) chownSync(path, user.uid, user.gid)
    const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const writerFd = openSync(path, constants.O_WRONLY)
      return { reader: new Socket({ fd: readFd, readable: true, writable: false }), writerFd }
    } catch (error) {
      closeSync(readFd)
      throw error
    }
  }
  return [open(names[0]), open(names[1])]
}
