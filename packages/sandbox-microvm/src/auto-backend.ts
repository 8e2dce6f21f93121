import type { Backend, BackendContext, BackendFactory } from './backend.ts'
import { MicroVmError } from './errors.ts'
import { microsandboxBackend } from './microsandbox/backend.ts'
import { probeMicrosandbox, whyNoMicrosandbox } from './microsandbox/probe.ts'
import { qemuBackend } from './qemu/backend.ts'
import type { BackendName } from './spec.ts'

/** The backend of that name; `auto` is microsandbox where that boots, else QEMU. */
export function backendOf(name: 'auto' | BackendName): BackendFactory {
  switch (name) {
    case 'qemu':
      return qemuBackend
    case 'microsandbox':
      return (context) => sure(microsandboxBackend(context))
    case 'auto':
      return (context) => chosen(context)
    default:
      return name satisfies never
  }
}

/** Refuses before anything is made where it cannot boot at all; a boot that fails says so itself. */
function sure(backend: Backend): Backend {
  return {
    ...backend,
    cleanUp: async (signal) => {
      const why = await whyNoMicrosandbox()
      if (why !== undefined)
        throw new MicroVmError(
          'backend_unavailable',
          `backend "microsandbox" does not run here: ${why}. Set backend = "auto" or "qemu" in sandbox.lua`,
        )
      return backend.cleanUp(signal)
    },
  }
}

/** Which one it is turns out when the VM is first needed: `cleanUp` is what a start asks for first. */
function chosen(context: BackendContext): Backend {
  let backend: Backend = qemuBackend(context)
  let others: readonly Backend[] = []
  const choose = async (signal: AbortSignal | undefined): Promise<void> => {
    if (others.length > 0) return
    const { progress } = context
    const { ok } = await probeMicrosandbox(context.host, { progress, ...(signal === undefined ? {} : { signal }) })
    if (!ok) return
    others = [backend]
    backend = microsandboxBackend(context)
  }
  return {
    get name() {
      return backend.name
    },
    cleanUp: async (signal) => {
      await choose(signal)
      for (const each of [backend, ...others]) await each.cleanUp(signal)
    },
    findDisk: (fingerprint) => backend.findDisk(fingerprint),
    createDisk: (fingerprint, signal) => backend.createDisk(fingerprint, signal),
    keepDisk: async (disk) => {
      await backend.keepDisk(disk)
      for (const other of others) await other.removeDisks()
    },
    discardDisk: (disk) => backend.discardDisk(disk),
    removeDisks: async () => {
      await choose(undefined)
      for (const each of [backend, ...others]) await each.removeDisks()
    },
    boot: (disk, signal, onEnd) => backend.boot(disk, signal, onEnd),
  }
}
