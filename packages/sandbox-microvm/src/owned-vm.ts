import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { acquireLock, LockHeldError, type Lock, messageOf, sanitiseLine, writeFileAtomic } from '@reve/base'
import { backendOf } from './auto-backend.ts'
import type { Backend, Disk, RunningVm } from './backend.ts'
import { MicroVmError } from './errors.ts'
import { createHandle } from './exec-handle.ts'
import { checkCommand, type CommandControl, type GuestCommand } from './execution.ts'
import { streamOf } from './file-stream.ts'
import { fingerprint } from './fingerprint.ts'
import { GUEST_ENV, TRUST_ENV } from './guest-env.ts'
import { changedFiles, hostRunFiles, type HostRunFiles, runnerOf } from './host-run-files.ts'
import { checkMode, checkPath, checkRange, showPath } from './guest-files.ts'
import { Leases } from './leases.ts'
import type { MicroVm, MicroVmOptions } from './microvm.ts'
import type { GuestNetwork } from './network.ts'
import { lastLines, makeReady, startAborted } from './new-disk.ts'
import { processUsage } from './process-usage.ts'
import { createProgress, type Progress } from './progress.ts'
import type {
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
  ShareMount,
  WriteFileOptions,
} from './spec.ts'

/** A process that was just killed holds its lock a moment longer than its VM lives. */
const DYING_MS = 1000
/** So many files are named in one notice. */
const NAMED = 5

type Phase =
  | { readonly state: 'stopped' }
  | { readonly state: 'starting'; readonly done: Promise<void>; readonly abort: AbortController; waiters: number }
  | {
      readonly state: 'running'
      readonly vm: RunningVm
      readonly lock: Lock
      readonly sinceMs: number
      /** For each mount that the guest may write to, what in it the host would run. */
      readonly before: readonly HostRunFiles[]
      commands: { readonly running: number; readonly begun: number }
    }
  | { readonly state: 'stopping'; readonly done: Promise<void> }

/** See {@link MicroVm}. */
export class OwnedVm implements MicroVm {
  readonly #spec: MicroVmSpec
  readonly #progress: Progress
  readonly #backend: Backend
  readonly #leases: Leases
  readonly #now: () => number
  /** Environment of every command, above the image's. */
  readonly #env: Readonly<Record<string, string>>
  readonly #hasNetwork: boolean
  readonly #fingerprintFile: string
  /** VMs that a stop of ours ended. */
  readonly #stopped = new WeakSet<RunningVm>()
  #phase: Phase = { state: 'stopped' }

  constructor(spec: MicroVmSpec, host: MicroVmHost, options: MicroVmOptions) {
    this.#spec = spec
    this.#now = options.now ?? Date.now
    this.#progress = createProgress(host.onEvent, this.#now)
    this.#fingerprintFile = spec.fingerprintFile ?? join(spec.stateDir, 'fingerprint')
    const network = spec.egress.kind === 'list' ? options.network : undefined
    this.#hasNetwork = network !== undefined
    const secrets = spec.egress.kind === 'list' ? (options.secrets ?? []) : []
    const trusted = typeof network === 'object' && network.certificate !== undefined
    const intercepts = trusted || secrets.length > 0
    this.#env = { ...(intercepts ? TRUST_ENV : {}), ...spec.env }
    const makeBackend = options.factory ?? backendOf(options.backend ?? 'auto')
    this.#backend = makeBackend({
      spec,
      host,
      progress: this.#progress,
      ...(network === undefined ? {} : { network: once(network) }),
      secrets,
      now: this.#now,
      randomBytes: options.randomBytes ?? randomBytes,
    })
    this.#leases = new Leases(spec.idleStopMs, () => void this.stop(), options.after)
  }

  status(): MicroVmStatus {
    const phase = this.#phase
    const vm = phase.state === 'running' ? phase.vm : undefined
    return {
      state: phase.state,
      backend: this.#backend.name,
      ...(vm?.accelerator === undefined ? {} : { accelerator: vm.accelerator }),
      ...(vm?.pid === undefined ? {} : { pid: vm.pid }),
    }
  }

  async metrics(): Promise<MicroVmMetrics | undefined> {
    const phase = this.#phase
    if (phase.state !== 'running') return undefined
    const { vm, sinceMs, commands } = phase
    const [usage, diskBytes] = await Promise.all([
      vm.pid === undefined ? { cpuMs: 0, memoryBytes: 0 } : processUsage(vm.pid),
      vm.diskBytes(),
    ])
    return { uptimeMs: this.#now() - sinceMs, ...usage, diskBytes, commands }
  }

  async start(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    // Whoever starts it and takes no lease has it for the idle time.
    const release = this.#leases.take()
    try {
      await this.#started(options.signal)
    } finally {
      release()
    }
  }

  async acquire(): Promise<Lease> {
    const release = this.#leases.take()
    try {
      await this.#started()
    } catch (error) {
      release()
      throw error
    }
    return { release, [Symbol.asyncDispose]: async () => release() }
  }

  exec(request: ExecRequest): Promise<ExecResult> {
    return this.#exec(request)
  }

  spawn(request: Omit<ExecRequest, 'stdin'>): ExecHandle {
    return createHandle((stdin, onBegin) => this.#exec({ ...request, stdin }, onBegin))
  }

  readFile(path: GuestPath, options: ReadFileOptions = {}): ReadableStream<Uint8Array> {
    checkPath(path)
    checkRange(options)
    return streamOf((onChunk, stop) => {
      const signal = options.signal === undefined ? stop : AbortSignal.any([stop, options.signal])
      return this.#serve(`"${showPath(path)}" was read`, signal, (vm) =>
        vm.readFile({ ...options, signal, path, onChunk }),
      )
    })
  }

  async writeFile(
    path: GuestPath,
    source: Uint8Array | string | ByteSource,
    options: WriteFileOptions = {},
  ): Promise<void> {
    checkPath(path)
    checkMode(options.mode)
    const bytes = typeof source === 'string' ? Buffer.from(source) : source
    return this.#serve(`"${showPath(path)}" was written`, options.signal, (vm) =>
      vm.writeFile({ ...options, path, source: bytes }),
    )
  }

  async #exec(request: ExecRequest, onBegin?: (control: CommandControl) => void): Promise<ExecResult> {
    const command = this.#command(request)
    try {
      return await this.#serve('the command ran', command.signal, (vm) => {
        const inImage = this.#command(request, vm)
        return vm.exec(onBegin === undefined ? inImage : { ...inImage, onBegin })
      })
    } catch (error) {
      if (command.signal?.aborted === true && error instanceof MicroVmError && error.code === 'aborted')
        return neverRan()
      throw error
    }
  }

  /** A checked command, in the environment of the image that the VM runs when it is known. */
  #command(request: ExecRequest, vm?: RunningVm): GuestCommand {
    return checkCommand(request, { cwd: this.#spec.workdir, env: { ...GUEST_ENV, ...vm?.env, ...this.#env } })
  }

  /** Has `work` done by the VM, which is started for it and kept until it is done. */
  async #serve<T>(doing: string, signal: AbortSignal | undefined, work: (vm: RunningVm) => Promise<T>): Promise<T> {
    const release = this.#leases.take()
    let vm: RunningVm | undefined
    try {
      vm = await this.#started(signal)
      this.#count(vm, 1)
      return await work(vm)
    } catch (error) {
      if (vm !== undefined && this.#stopped.has(vm))
        throw new MicroVmError('stopped', `the VM "${this.#spec.name}" was stopped while ${doing}`, { cause: error })
      throw error
    } finally {
      if (vm !== undefined) this.#count(vm, -1)
      release()
    }
  }

  #count(vm: RunningVm, change: 1 | -1): void {
    const phase = this.#phase
    if (phase.state !== 'running' || phase.vm !== vm) return
    const { running, begun } = phase.commands
    phase.commands = { running: running + change, begun: begun + Math.max(change, 0) }
  }

  async stop(): Promise<void> {
    this.#leases.cancel()
    const phase = this.#phase
    switch (phase.state) {
      case 'stopped':
        return
      case 'stopping':
        return phase.done
      case 'starting':
        phase.abort.abort()
        await phase.done.catch(() => undefined)
        return this.stop()
      case 'running': {
        this.#stopped.add(phase.vm)
        const done = this.#release(
          this.#progress.stage('stopped', `stop ${this.#spec.name}`, () => phase.vm.stop()),
          phase,
        )
        this.#phase = { state: 'stopping', done }
        return done
      }
      default:
        return phase satisfies never
    }
  }

  async remove(): Promise<void> {
    await this.stop()
    await mkdir(this.#spec.stateDir, { recursive: true, mode: 0o700 })
    const lock = await this.#own()
    try {
      await rm(this.#fingerprintFile, { force: true })
      await this.#backend.removeDisks()
    } finally {
      lock.release()
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  async #release(end: Promise<void>, { lock, before }: Extract<Phase, { state: 'running' }>): Promise<void> {
    try {
      await end
      await this.#warn(before)
    } finally {
      this.#phase = { state: 'stopped' }
      lock.release()
    }
  }

  #look(): Promise<readonly HostRunFiles[]> {
    return Promise.all(this.#writable().map((mount) => hostRunFiles(mount.host)))
  }

  #writable(): readonly ShareMount[] {
    return this.#spec.mounts.filter((mount) => mount.readonly !== true)
  }

  /** Tells what the guest left that the host runs without being asked to. */
  async #warn(before: readonly HostRunFiles[]): Promise<void> {
    const after = await this.#look()
    for (const [index, mount] of this.#writable().entries()) {
      const changed = changedFiles(before[index] ?? new Map(), after[index] ?? new Map())
      const [first] = changed
      if (first === undefined) continue
      const names = changed.slice(0, NAMED).map((path) => sanitiseLine(join(mount.host, path), 200))
      const more = changed.length > NAMED ? ` and ${changed.length - NAMED} more` : ''
      const runner = [...new Set(changed.map(runnerOf))].join(' and ')
      this.#progress.notice(
        `while "${this.#spec.name}" ran, ${names.join(', ')}${more} changed, where ${runner} of this machine take commands from: look before you use them there`,
      )
    }
  }

  async #started(signal?: AbortSignal): Promise<RunningVm> {
    for (;;) {
      if (signal?.aborted === true) throw startAborted()
      const phase = this.#phase
      if (phase.state === 'running') return phase.vm
      if (phase.state === 'stopping') await phase.done
      else await this.#share(phase.state === 'starting' ? phase : this.#begin(), signal)
    }
  }

  /** Waits for a boot as one of several: when the last of them has had enough, the boot is given up. */
  async #share(boot: Extract<Phase, { state: 'starting' }>, signal: AbortSignal | undefined): Promise<void> {
    boot.waiters += 1
    const left = Promise.withResolvers<never>()
    const onAbort = (): void => {
      boot.waiters -= 1
      if (boot.waiters === 0) boot.abort.abort()
      left.reject(startAborted())
    }
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      await Promise.race([boot.done, left.promise])
    } catch (error) {
      // What was given up has to be gone before anybody tries again.
      if (boot.waiters === 0) await boot.done.catch(() => undefined)
      throw error
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  #begin(): Extract<Phase, { state: 'starting' }> {
    const abort = new AbortController()
    const boot = async (): Promise<void> => {
      try {
        const booted = await this.#boot(abort.signal)
        this.#phase = { state: 'running', ...booted, sinceMs: this.#now(), commands: { running: 0, begun: 0 } }
      } catch (error) {
        this.#phase = { state: 'stopped' }
        throw abort.signal.aborted ? startAborted() : error
      }
    }
    // The phase is set below before any of this runs.
    const done = Promise.resolve().then(boot)
    // Every waiter may have left.
    done.catch(() => undefined)
    const phase = { state: 'starting' as const, done, abort, waiters: 0 }
    this.#phase = phase
    return phase
  }

  async #own(): Promise<Lock> {
    try {
      return await acquireLock(join(this.#spec.stateDir, 'owner.lock'), { waitMs: DYING_MS })
    } catch (error) {
      if (!(error instanceof LockHeldError)) throw error
      const owner = error.pid === undefined ? 'another process' : `process ${error.pid}`
      throw new MicroVmError(
        'busy',
        `the VM "${this.#spec.name}" is in use by ${owner}; wait until that has stopped it, or end that process`,
        { cause: error },
      )
    }
  }

  async #boot(
    signal: AbortSignal,
  ): Promise<{ readonly vm: RunningVm; readonly lock: Lock; readonly before: readonly HostRunFiles[] }> {
    const { name, stateDir, egress } = this.#spec
    await mkdir(stateDir, { recursive: true, mode: 0o700 })
    const lock = await this.#own()
    try {
      await this.#backend.cleanUp(signal)
      const isNetworkLeft = this.#backend.name === 'qemu' && !this.#hasNetwork
      if (egress.kind === 'list' && egress.hosts.length > 0 && isNetworkLeft)
        this.#progress.notice(
          `the VM "${name}" was given no network: ${egress.hosts.length} listed hosts are not reachable from it`,
        )
      const before = await this.#look()
      const wanted = fingerprint(this.#spec, this.#backend.name)
      const recorded = await readFile(this.#fingerprintFile, 'utf8').catch(() => '')
      const kept = recorded.trim() === wanted ? await this.#backend.findDisk(wanted) : undefined
      const vm = kept === undefined ? await this.#bootNew(wanted, signal) : await this.#bootWith(kept, signal)
      await this.#progress.stage('ready', `${name} is ready`, async () => undefined)
      return { vm, lock, before }
    } catch (error) {
      lock.release()
      throw error
    }
  }

  /** The old disk stays until the new one is ready; a failure leaves nothing of the new one. */
  async #bootNew(wanted: string, signal: AbortSignal): Promise<RunningVm> {
    const disk = await this.#backend.createDisk(wanted, signal)
    try {
      const vm = await this.#bootWith(disk, signal)
      try {
        await makeReady(vm, {
          spec: this.#spec,
          progress: this.#progress,
          command: (request) => this.#command({ ...request, signal }, vm),
        })
        await this.#backend.keepDisk(disk)
        await writeFileAtomic(this.#fingerprintFile, `${wanted}\n`)
        return vm
      } catch (error) {
        await vm.stop()
        throw error
      }
    } catch (error) {
      await this.#backend.discardDisk(disk)
      throw error
    }
  }

  async #bootWith(disk: Disk, signal: AbortSignal): Promise<RunningVm> {
    if (signal.aborted) throw startAborted()
    const vm = await this.#backend.boot(disk, signal, (error) => this.#ended(error))
    // A mount has been made with its folder; a program that finds nothing to do would cost each start its time.
    if (this.#spec.mounts.some(({ guest }) => guest === this.#spec.workdir)) return vm
    const made = await vm.exec(
      checkCommand({ argv: ['mkdir', '-p', '--', this.#spec.workdir], signal }, { cwd: '/', env: GUEST_ENV }),
    )
    if (made.exitCode === 0) return vm
    await vm.stop()
    throw new MicroVmError(
      'boot_failed',
      `the working directory ${this.#spec.workdir} cannot be made in the guest: ${lastLines(made)}`,
    )
  }

  /** The VM ended by itself; a stop of ours is not one. */
  #ended(error: MicroVmError): void {
    const phase = this.#phase
    if (phase.state !== 'running') return
    this.#leases.cancel()
    this.#progress.notice(`the VM "${this.#spec.name}" ended: ${messageOf(error)}`)
    // Its process may still be there when it was the protocol that broke.
    this.#phase = { state: 'stopping', done: this.#release(phase.vm.stop(), phase) }
  }
}

/** One network for all starts of a VM. A making that failed is tried again. */
function once(network: NonNullable<MicroVmOptions['network']>): () => Promise<GuestNetwork | undefined> {
  if (typeof network === 'object') return () => Promise.resolve(network)
  let made: Promise<GuestNetwork | undefined> | undefined
  return async () => {
    made ??= network()
    try {
      return await made
    } catch (error) {
      made = undefined
      throw error
    }
  }
}

/** The result of a command whose caller had enough before the VM was up. */
const neverRan = (): ExecResult => ({
  exitCode: 130,
  cancelled: true,
  timedOut: false,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  stdoutBytes: 0,
  stderrBytes: 0,
  leftRunning: [],
  durationMs: 0,
})
