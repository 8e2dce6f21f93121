import type { BackendFactory } from './backend.ts'
import { checkSpec } from './check-spec.ts'
import type { SecretRule } from './egress/secrets.ts'
import type { After } from './leases.ts'
import type { GuestNetwork } from './network.ts'
import { OwnedVm } from './owned-vm.ts'
import type {
  BackendName,
  ByteSource,
  ExecHandle,
  ExecRequest,
  ExecResult,
  GuestPath,
  Lease,
  MicroVmHost,
  MicroVmMetrics,
  MicroVmSpec,
  MicroVmStatus,
  ReadFileOptions,
  WriteFileOptions,
} from './spec.ts'

/** A virtual machine that is started when a command needs it and stopped when none does. */
export interface MicroVm extends AsyncDisposable {
  /**
   * Boots it if it does not run; concurrent callers share one boot, and aborting one of them leaves the others theirs.
   *
   * @throws MicroVmError with every code but `stopped`.
   */
  start(options?: { readonly signal?: AbortSignal }): Promise<void>
  /** Runs a command, and starts the VM for it if needed. A non-zero exit is data. */
  exec(request: ExecRequest): Promise<ExecResult>
  /** The same, with a handle that writes to it, resizes its terminal and sends it signals while it runs. */
  spawn(request: Omit<ExecRequest, 'stdin'>): ExecHandle
  /**
   * A file of the guest, read as fast as the stream is; cancelling it ends the reading. Starts the VM if needed.
   *
   * @throws MicroVmError `bad_spec`. The stream fails with `not_found`, `not_a_file`, `not_permitted`, `file_failed`, and as
   * `exec` does.
   */
  readFile(path: GuestPath, options?: ReadFileOptions): ReadableStream<Uint8Array>
  /**
   * Writes a file of the guest; its folder must be there. Starts the VM if needed.
   *
   * @throws MicroVmError `not_found`, `not_a_file`, `not_permitted`, `no_space`, `file_failed`, `input_failed`, `aborted`, and
   * as `exec` does.
   */
  writeFile(path: GuestPath, source: Uint8Array | string | ByteSource, options?: WriteFileOptions): Promise<void>
  /** Keeps it running until released; `idleStopMs` after the last release it stops, its disk stays. */
  acquire(): Promise<Lease>
  /** Powers it off; commands that still run end with `stopped`. Does nothing when it does not run. */
  stop(): Promise<void>
  /** Stops it and deletes its disk. */
  remove(): Promise<void>
  status(): MicroVmStatus
  /** What it uses now; undefined when it does not run. Starts nothing and keeps nothing running. */
  metrics(): Promise<MicroVmMetrics | undefined>
}

/** How a VM is made; what is not given is the system's own. */
export type MicroVmOptions = {
  readonly backend?: 'auto' | BackendName
  /** What a guest whose spec says `egress: list` may reach, or how it is made at the first start; it is the caller's to close. */
  readonly network?: GuestNetwork | (() => Promise<GuestNetwork | undefined>)
  /** Its secrets, for a backend that has a network of its own when none is given. */
  readonly secrets?: readonly SecretRule[]
  /** Milliseconds since 1970. */
  readonly now?: () => number
  readonly randomBytes?: (length: number) => Uint8Array
  readonly after?: After
  /** In place of QEMU, for tests of what is shared by all backends. */
  readonly factory?: BackendFactory
}

/**
 * One VM by its spec. Nothing is started and nothing is touched before the first `start`, `exec` or `acquire`.
 *
 * @throws MicroVmError `bad_spec` with everything that is wrong.
 */
export function createMicroVm(spec: MicroVmSpec, host: MicroVmHost, options: MicroVmOptions = {}): MicroVm {
  checkSpec(spec, host)
  return new OwnedVm(spec, host, options)
}
