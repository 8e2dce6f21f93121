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
  /**
   * `debian:<suite>[-slim]`, `debootstrap:<suite>`, `[registry/]name[:tag|@sha256:...]`, `oci-archive:/path.tar[:tag]`,
   * `docker-archive:/path.tar[:name]`, `oci:/folder[:tag]`, `tar:/root.tar`, `dir:/root`.
   */
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
  /** `list` needs a network (`MicroVmOptions.network`), without which a notice says that nothing is let through; `open` is refused. */
  readonly egress: Egress
  /** Shell commands that run once on a new disk, in order; a failing one fails the start and leaves no disk. */
  readonly bootstrap: readonly string[]
  /** Milliseconds from the last release to the stop; the disk stays. */
  readonly idleStopMs: number
}

/**
 * Stages that take time, in the order in which they happen. A VM is restored from a template, which is made at the first
 * start, or it is booted.
 */
export type MicroVmStage =
  | 'kernel'
  | 'image'
  | 'accelerator'
  | 'template'
  | 'restore'
  | 'boot'
  | 'mount'
  | 'bootstrap'
  | 'ready'
  | 'stopped'

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
  /**
   * Whether VMs go on from a saved booted machine, which is kept in the cache (about 100 MB for each size of a VM), instead of
   * booting; default true.
   */
  readonly warmStart?: boolean
  /** Folders in which programs are looked for; default: the usual ones. */
  readonly searchPath?: readonly string[]
  /** Environment of the programs that download packages (a proxy, say); default empty. Nothing of it reaches a guest. */
  readonly programEnv?: Readonly<Record<string, string>>
  /** What images are pulled with; default: Node's own. Another one brings a proxy, or an authority of its own. */
  readonly fetch?: typeof globalThis.fetch
  /** Name and password for the registry of an image (`ghcr.io`), if there are any. */
  readonly registryCredentials?: (
    registry: string,
  ) => { readonly username: string; readonly password: string } | undefined
}

/** Bytes that come by and by; a `ReadableStream` and a `Readable` are such. */
export type ByteSource = AsyncIterable<Uint8Array>

/** Size of a terminal in characters, each 1 to 65535. */
export type TerminalSize = { readonly cols: number; readonly rows: number }

/** One command. Nothing of it reaches a program of the host. */
export type ExecRequest = {
  /** Program and arguments; no shell is in between. */
  readonly argv: readonly string[]
  /** Default: the spec's `workdir`. */
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /**
   * Default: an empty stdin. A source is read as fast as the program reads; a failing one kills the command, which then
   * ends with `input_failed`. It is closed when the command ends first; what it still had is for nobody.
   */
  readonly stdin?: Uint8Array | string | ByteSource
  /**
   * Runs it on a terminal of its own: stdout carries all that appears there, stderr nothing, and bytes of stdin are
   * keystrokes (`\x03` interrupts). The end of stdin is typed as Ctrl-D. `term` (default `xterm-256color`) becomes TERM.
   */
  readonly pty?: TerminalSize & { readonly term?: string }
  /** 1 to 2147483647; default none. */
  readonly timeoutMs?: number
  /** Kills the command and all that it started; the result says `cancelled`. */
  readonly signal?: AbortSignal
  /**
   * Called with each piece, in order. While a promise that it returned is not settled nothing more is taken from the guest
   * (beyond 256 KiB under way) and the program waits. A failure kills the command, which then ends with that failure.
   */
  readonly onOutput?: (stream: 'stdout' | 'stderr', chunk: Uint8Array) => void | Promise<void>
  /** Bytes of each stream that the result keeps (default 8 MiB); the rest is counted, never held. */
  readonly maxOutputBytes?: number
}

/** Signals that a command can be sent, by the guest's numbers. */
export const SIGNALS = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGUSR2: 12,
  SIGTERM: 15,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGWINCH: 28,
} as const

/** Name of a signal. */
export type Signal = keyof typeof SIGNALS

/** A command that runs and can be spoken to. */
export type ExecHandle = {
  /** How it ended, as `exec` tells it. */
  readonly result: Promise<ExecResult>
  /** Input; resolves when it is on its way to the program. What comes after the command's end is dropped. */
  write(bytes: Uint8Array | string): Promise<void>
  /** No more input. */
  end(): void
  /** Of a command with a terminal: its new size. */
  resize(size: TerminalSize): void
  /** Sends a signal to the command and all that it started; default SIGTERM. The result is the program's own. */
  kill(signal?: Signal): void
}

/** A file in the guest: an absolute path, as text or as bytes (a name may be any bytes but NUL and `/`). */
export type GuestPath = string | Uint8Array

/** Which part of a file is read. */
export type ReadFileOptions = {
  /** Bytes to leave out at the start; default 0. */
  readonly offset?: number
  /** Default: to the end. */
  readonly maxBytes?: number
  readonly signal?: AbortSignal
}

/** How a file is written. */
export type WriteFileOptions = {
  /** Permission bits, for example `0o755`; default: those of the old file, else 0644. */
  readonly mode?: number
  /**
   * The old content or all of the new one, also after a power cut: written beside it, then renamed. A link is replaced, not
   * followed. Default false: the file is emptied and filled.
   */
  readonly atomic?: boolean
  readonly signal?: AbortSignal
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

/** What a VM that runs uses of this machine, as this machine counts it: nothing of it is the guest's word. */
export type MicroVmMetrics = {
  /** Milliseconds since it serves. */
  readonly uptimeMs: number
  /** Processor time of its processes. */
  readonly cpuMs: number
  /** Memory of this machine that its processes hold now; less than the guest's until that has used it. */
  readonly memoryBytes: number
  /** What its disk takes, without the image under it. */
  readonly diskBytes: number
  /** Commands and files: under way now, and all that were since it serves. */
  readonly commands: { readonly running: number; readonly begun: number }
}

/** Keeps a VM running until it is released. */
export type Lease = { release(): void; [Symbol.asyncDispose](): Promise<void> }
