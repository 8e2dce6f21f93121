import type { GuestCommand } from './execution.ts'
import type { SecretRule } from './egress/secrets.ts'
import type { MicroVmError } from './errors.ts'
import type { FileRead, FileWrite } from './guest-files.ts'
import type { GuestNetwork } from './network.ts'
import type { Progress } from './progress.ts'
import type { Accelerator, BackendName, ExecResult, MicroVmHost, MicroVmSpec } from './spec.ts'

/** A disk of one VM: a root file system that it writes to. The name is the backend's own. */
export type Disk = { readonly name: string }

/** A VM that runs and serves. */
export type RunningVm = {
  readonly accelerator?: Accelerator
  readonly pid?: number
  /** What its image sets for every command, below the spec's and the request's own. */
  readonly env?: Readonly<Record<string, string>>
  /** Packages of the spec that its image was made without; they are installed on a new disk. */
  readonly missing?: readonly string[]
  /** What its disk takes on the host. */
  diskBytes(): Promise<number>
  exec(command: GuestCommand): Promise<ExecResult>
  readFile(read: FileRead): Promise<void>
  writeFile(write: FileWrite): Promise<void>
  /** Powers it off; bounded in time; never rejects. */
  stop(): Promise<void>
}

/** What a backend works with. */
export type BackendContext = {
  readonly spec: MicroVmSpec
  readonly host: MicroVmHost
  readonly progress: Progress
  /** What the guest may reach, made when it is needed; none: nothing. */
  readonly network?: () => Promise<GuestNetwork | undefined>
  /** For a backend that has a network of its own and is given none; ours has them already. */
  readonly secrets?: readonly SecretRule[]
  readonly now: () => number
  readonly randomBytes: (length: number) => Uint8Array
}

/**
 * What differs from one way to run a VM to another. Everything else (leases, idle stop, ownership, fingerprint, bootstrap)
 * is shared and calls these from one owner at a time, holding the lock on the spec's `stateDir`.
 */
export type Backend = {
  readonly name: BackendName
  /** Removes what a killed owner left. It is what a start asks for first. */
  cleanUp(signal?: AbortSignal): Promise<void>
  /** The disk that was kept under `fingerprint`, if it is still usable. */
  findDisk(fingerprint: string): Promise<Disk | undefined>
  /** A new disk, not yet kept: a crash now leaves nothing that `findDisk` would find. */
  createDisk(fingerprint: string, signal: AbortSignal): Promise<Disk>
  /** Keeps a new disk as the only one. */
  keepDisk(disk: Disk): Promise<void>
  discardDisk(disk: Disk): Promise<void>
  removeDisks(): Promise<void>
  /** Boots with `disk`, mounts the shares, sets the clock, opens the network. `onEnd` is called once when the VM ends by itself. */
  boot(disk: Disk, signal: AbortSignal, onEnd: (error: MicroVmError) => void): Promise<RunningVm>
}

/** Makes a backend for one VM. */
export type BackendFactory = (context: BackendContext) => Backend
