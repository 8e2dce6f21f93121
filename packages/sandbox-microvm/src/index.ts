/**
 * Commands in a real virtual machine: start, exec, cancel, files, a shared workspace, a network of what is listed. It knows nothing of agents.
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
export type { GuestNetwork } from './network.ts'
export { type EgressEvent, egressText } from './egress/events.ts'
export type { SecretRule } from './egress/secrets.ts'
export { checkPolicy, parsePolicy, policyToSpec, SandboxPolicySchema } from './policy.ts'
export { policyNetwork, type PolicyNetworkParts, policySecrets } from './policy-network.ts'
export type { CheckedPolicy, SandboxPolicy } from './policy.ts'
export { probeBackends } from './probe.ts'
export type { BackendReport } from './probe.ts'
export type { ImageLimits } from './images/layers.ts'
export { listImages, removeImage } from './images/store.ts'
export type { CachedImage } from './images/store.ts'
export { prepareImage, prepareKernel } from './qemu/prepare.ts'
export type { PrepareImageOptions, PrepareOptions } from './qemu/prepare.ts'
export type { Image } from './qemu/image.ts'
export type { Kernel } from './qemu/kernel.ts'
export type {
  Accelerator,
  BackendName,
  ByteSource,
  Egress,
  ExecHandle,
  ExecRequest,
  ExecResult,
  GuestPath,
  ImageSpec,
  Lease,
  MicroVmEvent,
  MicroVmHost,
  MicroVmMetrics,
  MicroVmSpec,
  MicroVmStage,
  MicroVmStatus,
  ReadFileOptions,
  ShareMount,
  Signal,
  TerminalSize,
  WriteFileOptions,
} from './spec.ts'
