import { createHash } from 'node:crypto'
import type { BackendName, MicroVmSpec } from './spec.ts'

/** Raised when a disk of an older version cannot be used any more. */
const DISK_FORMAT = 1

/**
 * What decides whether a disk can be used again: the image, the bootstrap commands, the backend, the version of this
 * format. Environment, secrets, `allow`, processors, memory and mounts may change over one disk.
 *
 * @returns 64 hex digits.
 */
export function fingerprint(spec: Pick<MicroVmSpec, 'image' | 'bootstrap'>, backend: BackendName = 'qemu'): string {
  const packages = [...new Set(spec.image.packages)].toSorted()
  const canonical = JSON.stringify([DISK_FORMAT, backend, spec.image.ref, packages, spec.bootstrap])
  return createHash('sha256').update(canonical).digest('hex')
}
