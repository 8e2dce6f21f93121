import { messageOf } from '@reve/base'
import { MicroVmError } from './errors.ts'
import { requireHost } from './host-packages.ts'
import { probeMicrosandbox } from './microsandbox/probe.ts'
import { createProgress, type Progress } from './progress.ts'
import { proveAccelerator } from './qemu/accelerator.ts'
import { prepareKernel } from './qemu/prepare.ts'
import type { Accelerator, BackendName, MicroVmHost } from './spec.ts'

/** Whether a backend boots here. */
export type BackendReport = {
  readonly backend: BackendName
  readonly ok: boolean
  readonly accelerator?: Accelerator
  /** Why it does or does not. */
  readonly reason: string
}

/**
 * Tries each backend by a real boot (no image is needed), unless the machine itself says that it cannot; what was found out
 * is remembered for this host until it boots again. The first that is `ok` is what `backend = "auto"` takes. Never throws for
 * a backend that does not work.
 */
export async function probeBackends(
  host: MicroVmHost,
  options: { readonly signal?: AbortSignal } = {},
): Promise<readonly BackendReport[]> {
  const progress = createProgress(host.onEvent, () => performance.now())
  const around = { progress, ...options }
  const { ok, reason } = await probeMicrosandbox(host, around)
  return [
    { backend: 'microsandbox', ok, ...(ok ? { accelerator: 'kvm' as const } : {}), reason },
    await probeQemu(host, around),
  ]
}

async function probeQemu(
  host: MicroVmHost,
  around: { readonly progress: Progress; readonly signal?: AbortSignal },
): Promise<BackendReport> {
  try {
    requireHost(host, 'run')
    const kernel = await prepareKernel(host, around)
    const { accelerator, reason } = await proveAccelerator({
      ...around,
      host,
      kernel,
      now: () => performance.now(),
    })
    return { backend: 'qemu', ok: true, accelerator, reason }
  } catch (error) {
    if (!(error instanceof MicroVmError) || error.code === 'aborted') throw error
    return { backend: 'qemu', ok: false, reason: messageOf(error) }
  }
}
