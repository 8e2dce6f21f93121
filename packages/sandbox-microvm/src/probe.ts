import { messageOf } from '@reve/base'
import { MicroVmError } from './errors.ts'
import { requireHost } from './host-packages.ts'
import { createProgress } from './progress.ts'
import { proveAccelerator } from './qemu/accelerator.ts'
import { prepareKernel } from './qemu/prepare.ts'
import type { Accelerator, BackendName, MicroVmHost } from './spec.ts'

/** What this version says to whoever asks for the other backend. */
export const ONLY_QEMU = 'this version carries the qemu backend only; set backend = "qemu" or "auto"'

/** Whether a backend boots here. */
export type BackendReport = {
  readonly backend: BackendName
  readonly ok: boolean
  readonly accelerator?: Accelerator
  /** Why it does or does not. */
  readonly reason: string
}

/**
 * Tries each backend by a real boot of the guest's kernel (no image is needed); what was found out is remembered for this
 * host until it boots again. Never throws for a backend that does not work.
 */
export async function probeBackends(
  host: MicroVmHost,
  options: { readonly signal?: AbortSignal } = {},
): Promise<readonly BackendReport[]> {
  return [{ backend: 'microsandbox', ok: false, reason: ONLY_QEMU }, await probeQemu(host, options.signal)]
}

async function probeQemu(host: MicroVmHost, signal: AbortSignal | undefined): Promise<BackendReport> {
  const now = (): number => performance.now()
  const progress = createProgress(host.onEvent, now)
  const aborting = signal === undefined ? {} : { signal }
  try {
    requireHost(host)
    const kernel = await prepareKernel(host, { progress, ...aborting })
    const { accelerator, reason } = await proveAccelerator({ host, kernel, progress, now, ...aborting })
    return { backend: 'qemu', ok: true, accelerator, reason }
  } catch (error) {
    if (!(error instanceof MicroVmError) || error.code === 'aborted') throw error
    return { backend: 'qemu', ok: false, reason: messageOf(error) }
  }
}
