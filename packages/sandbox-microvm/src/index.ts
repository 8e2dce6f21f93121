/**
 * Commands in a real virtual machine: start, exec, cancel, a shared workspace, no network. It knows nothing of agents.
 *
 * @packageDocumentation
 */
export { MicroVmError } from './errors.ts'
export type { MicroVmErrorCode } from './errors.ts'
export { fingerprint } from './fingerprint.ts'
export { hostPackages } from './host-packages.ts'
export type { Machine, MissingProgram } from './host-packages.ts'
export { HOST_PROGRAMS } from './host-process.ts'
export type { HostProgram } from './host-process.ts'
export type { After } from './leases.ts'
export { createMicroVm } from './microvm.ts'
export type { MicroVm, MicroVmOptions } from './microvm.ts'
export { checkPolicy, parsePolicy, policyToSpec, SandboxPolicySchema } from './policy.ts'
export type { CheckedPolicy, SandboxPolicy } from './policy.ts'
export { probeBackends } from './probe.ts'
export type { BackendReport } from './probe.ts'
export { prepareImage, prepareKernel } from './qemu/prepare.ts'
export type { PrepareOptions } from './qemu/prepare.ts'
export type { Image } from './qemu/image.ts'
export type { Kernel } from './qemu/kernel.ts'
export type {
  Accelerator,
  BackendName,
  Egress,
  ExecRequest,
  ExecResult,
  ImageSpec,
  Lease,
  MicroVmEvent,
  MicroVmHost,
  MicroVmSpec,
  MicroVmStage,
  MicroVmStatus,
  ShareMount,
} from './spec.ts'
