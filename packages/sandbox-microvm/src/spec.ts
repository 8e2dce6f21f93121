/** A folder of the host that the guest sees live, both ways. */
export type ShareMount = {
  /** Absolute path of an existing folder on the host. */
  readonly host: string
  /** Absolute path in the guest; made when it is not there. */
  readonly guest: string
  readonly readonly?: boolean
}

/** What a guest may reach: nothing, the listed hosts, or everything. */
export type Egress =
  | { readonly kind: 'none' }
  | { readonly kind: 'list'; readonly hosts: readonly string[] }
  | { readonly kind: 'open' }

/** The root file system: a reference and the Debian packages that it holds besides the base system. */
export type ImageSpec = {
  /** `debian:trixie-slim` or `debootstrap:<suite>`. */
  readonly ref: string
  readonly packages: readonly string[]
}

/** One VM, as a plain value. */
export type MicroVmSpec = {
  /** Letters, digits, `_` and `-`; shown in messages and in the list of processes. */
  readonly name: string
  /** Folder of this VM on the host (made 0700): its writable disk, its fingerprint, its owner's lock. */
  readonly stateDir: string
  /** Where the fingerprint is kept; default `<stateDir>/fingerprint`. Removing that file makes the next start build a new disk. */
  readonly fingerprintFile?: string
  readonly image: ImageSpec
  readonly cpus: number
  readonly memoryMiB: number
  readonly diskMiB: number
  readonly mounts: readonly ShareMount[]
  /** Working directory of commands in the guest; made when it is not there. */
  readonly workdir: string
  /** Environment of every command, above the defaults; not a part of the fingerprint. */
  readonly env: Readonly<Record<string, string>>
  /** This version carries `none`; of `list` nothing is let through, and a notice says so; `open` is refused. */
  readonly egress: Egress
  /** Shell commands that run once on a new disk, in order; a failing one fails the start and leaves no disk. */
  readonly bootstrap: readonly string[]
  /** Milliseconds from the last release to the stop; the disk stays. */
  readonly idleStopMs: number
}

/** Stages that take time, in the order in which they happen. */
export type MicroVmStage = 'kernel' | 'image' | 'accelerator' | 'boot' | 'mount' | 'bootstrap' | 'ready' | 'stopped'

/** What happens, for whoever shows progress. `label` and `text` are one line of plain text. */
export type MicroVmEvent =
  | {
      readonly type: 'stage'
      readonly stage: MicroVmStage
      /** `progress` comes between start and end with a label that says how far it is. */
      readonly state: 'start' | 'progress' | 'done' | 'failed'
      readonly label: string
      /** Milliseconds that it took, at the end. */
      readonly ms?: number
    }
  | { readonly type: 'notice'; readonly text: string }

/** What the surroundings give; this package reads no environment variable. */
export type MicroVmHost = {
  /** Rebuildable things: kernels, images, what was found out about this machine. */
  readonly cacheDir: string
  /** Sockets; a short path (at most 60 bytes), made 0700. */
  readonly runtimeDir: string
  readonly onEvent?: (event: MicroVmEvent) => void
  /** Folders in which programs are looked for; default: the usual ones. */
  readonly searchPath?: readonly string[]
  /** Environment of the programs that download packages (a proxy, say); default empty. Nothing of it reaches a guest. */
  readonly programEnv?: Readonly<Record<string, string>>
}

/** One command. Nothing of it reaches a program of the host. */
export type ExecRequest = {
  /** Program and arguments; no shell is in between. */
  readonly argv: readonly string[]
  /** Default: the spec's `workdir`. */
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /** Default: an empty stdin. */
  readonly stdin?: Uint8Array | string
  /** 1 to 2147483647; default none. */
  readonly timeoutMs?: number
  /** Kills the command and all that it started; the result says `cancelled`. */
  readonly signal?: AbortSignal
  readonly onOutput?: (stream: 'stdout' | 'stderr', chunk: Uint8Array) => void
  /** Bytes of each stream that the result keeps (default 8 MiB); the rest is counted, never held. */
  readonly maxOutputBytes?: number
}

/** How a command ended. A non-zero exit is data, never an error. */
export type ExecResult = {
  /** The program's own code, 128 + signal when one killed it, 130 when cancelled, 124 when timed out. */
  readonly exitCode: number
  /** The signal that killed the program, if one did. */
  readonly signal?: number
  readonly cancelled: boolean
  readonly timedOut: boolean
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  /** All bytes that the stream carried, kept or not. */
  readonly stdoutBytes: number
  readonly stderrBytes: number
  /** Names of the processes that were killed with it by a cancel or a timeout. */
  readonly leftRunning: readonly string[]
  readonly durationMs: number
}

/** What drives the VM. */
export type BackendName = 'qemu' | 'microsandbox'

/** How the guest's processor is made: by the hardware, or emulated. */
export type Accelerator = 'kvm' | 'tcg'

/** Where a VM stands. */
export type MicroVmStatus = {
  readonly state: 'stopped' | 'starting' | 'running' | 'stopping'
  readonly backend: BackendName
  readonly accelerator?: Accelerator
  /** Process id of the VM on the host. */
  readonly pid?: number
}

/** Keeps a VM running until it is released. */
export type Lease = { release(): void; [Symbol.asyncDispose](): Promise<void> }
