import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { MicroVmError } from '../errors.ts'
import type { MicroVmHost } from '../spec.ts'

/** The SDK makes sockets 50 bytes further down, and a socket's path has room for 107. */
const HOME_BYTES = 55

/** Sixteen hex digits for a folder: no two VMs share them. */
export const keyOf = (stateDir: string): string => createHash('sha256').update(stateDir).digest('hex').slice(0, 16)

/**
 * Where the SDK keeps what it knows of one VM while that runs: `msb` in the VM's own folder, or, where that path is too long
 * for a socket, `m/<key>` in the cache. It needs a file system with extended attributes, which a tmpfs of older kernels is
 * not. Nothing in it outlives a run: the disk is ours.
 *
 * @throws MicroVmError `bad_spec` when both paths are too long.
 */
export function homeOf(stateDir: string, host: Pick<MicroVmHost, 'cacheDir'>): string {
  const places = [join(stateDir, 'msb'), join(host.cacheDir, 'm', keyOf(stateDir))]
  const fits = places.find((path) => Buffer.byteLength(path) <= HOME_BYTES)
  if (fits !== undefined) return fits
  throw new MicroVmError(
    'bad_spec',
    `neither ${places.join(' nor ')} has at most ${HOME_BYTES} bytes, which the sockets of microsandbox need; use a shorter cacheDir`,
  )
}
