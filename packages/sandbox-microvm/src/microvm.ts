import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { acquireLock, LockHeldError, type Lock, messageOf, sanitiseLine, writeFileAtomic } from '@reve/base'
import type { Backend, BackendFactory, Disk, RunningVm } from './backend.ts'
import { checkSpec } from './check-spec.ts'
import { MicroVmError } from './errors.ts'
import { checkCommand } from './execution.ts'
import { fingerprint } from './fingerprint.ts'
import { type After, Leases } from './leases.ts'
import { ONLY_QEMU } from './probe.ts'
import { createProgress, type Progress } from './progress.ts'
import { qemuBackend } from './qemu/backend.ts'
import type { BackendName, ExecRequest, ExecResult, Lease, MicroVmHost, MicroVmSpec, MicroVmStatus } from './spec.ts'

/** What a command finds in its environment unless the spec or the request says otherwise. */
const GUEST_ENV = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/root',
  USER: 'root',
  LOGNAME: 'root',
  SHELL: '/bin/sh',
  LANG: 'C.UTF-8',
  TERM: 'dumb',
}

/** A process that was just killed holds its lock a moment longer than its VM lives. */
const DYING_MS = 1000

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
  /** Keeps it running until released; `idleStopMs` after the last release it stops, its disk stays. */
  acquire(): Promise<Lease>
  /** Powers it off; commands that still run end with `stopped`. Does nothing when it does not run. */
  stop(): Promise<void>
  /** Stops it and deletes its disk. */
  remove(): Promise<void>
  status(): MicroVmStatus
}

/** How a VM is made; what is not given is the system's own. */
export type MicroVmOptions = {
  readonly backend?: 'auto' | BackendName
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
 * @throws MicroVmError `bad_spec` with everything that is wrong; `backend_unavailable`.
 */
export function createMicroVm(spec: MicroVmSpec, host: MicroVmHost, options: MicroVmOptions = {}): MicroVm {
  if (options.backend === 'microsandbox')
    throw new MicroVmError('backend_unavailable', `backend "microsandbox": ${ONLY_QEMU}`)
  checkSpec(spec, host)
  return new OwnedVm(spec, host, options)
}

type Phase =
  | { readonly state: 'stopped' }
  | { readonly state: 'starting'; readonly done: Promise<void>; readonly abort: AbortController; waiters: number }
  | { readonly state: 'running'; readonly vm: RunningVm; readonly lock: Lock }
  | { readonly state: 'stopping'; readonly done: Promise<void> }

class OwnedVm implements MicroVm {
  readonly #spec: MicroVmSpec
  readonly #progress: Progress
  readonly #backend: Backend
  readonly #leases: Leases
  readonly #now: () => number
  readonly #fingerprintFile: string
  /** VMs that a stop of ours ended. */
  readonly #stopped = new WeakSet<RunningVm>()
  #phase: Phase = { state: 'stopped' }

  constructor(spec: MicroVmSpec, host: MicroVmHost, options: MicroVmOptions) {
    this.#spec = spec
    this.#now = options.now ?? Date.now
    this.#progress = createProgress(host.onEvent, this.#now)
    this.#fingerprintFile = spec.fingerprintFile ?? join(spec.stateDir, 'fingerprint')
    const makeBackend = options.factory ?? qemuBackend
    this.#backend = makeBackend({
      spec,
      host,
      progress: this.#progress,
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

  async exec(request: ExecRequest): Promise<ExecResult> {
    const command = checkCommand(request, { cwd: this.#spec.workdir, env: { ...GUEST_ENV, ...this.#spec.env } })
    const release = this.#leases.take()
    let vm: RunningVm | undefined
    try {
      vm = await this.#started(command.signal)
      return await vm.exec(command)
    } catch (error) {
      if (vm !== undefined && this.#stopped.has(vm))
        throw new MicroVmError('stopped', `the VM "${this.#spec.name}" was stopped while the command ran`, {
          cause: error,
        })
      if (command.signal?.aborted === true && error instanceof MicroVmError && error.code === 'aborted')
        return neverRan()
      throw error
    } finally {
      release()
    }
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
          phase.lock,
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

  async #release(end: Promise<void>, lock: Lock): Promise<void> {
    try {
      await end
    } finally {
      this.#phase = { state: 'stopped' }
      lock.release()
    }
  }

  async #started(signal?: AbortSignal): Promise<RunningVm> {
    for (;;) {
      if (signal?.aborted === true) throw aborted()
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
      left.reject(aborted())
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
        this.#phase = { state: 'running', ...(await this.#boot(abort.signal)) }
      } catch (error) {
        this.#phase = { state: 'stopped' }
        throw abort.signal.aborted ? aborted() : error
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

  async #boot(signal: AbortSignal): Promise<{ readonly vm: RunningVm; readonly lock: Lock }> {
    const { name, stateDir, egress } = this.#spec
    await mkdir(stateDir, { recursive: true, mode: 0o700 })
    const lock = await this.#own()
    try {
      await this.#backend.cleanUp()
      if (egress.kind === 'list' && egress.hosts.length > 0)
        this.#progress.notice(
          `the VM "${name}" has no network in this version: ${egress.hosts.length} listed hosts are not reachable from it`,
        )
      const wanted = fingerprint(this.#spec, this.#backend.name)
      const recorded = await readFile(this.#fingerprintFile, 'utf8').catch(() => '')
      const kept = recorded.trim() === wanted ? await this.#backend.findDisk(wanted) : undefined
      const vm = kept === undefined ? await this.#bootNew(wanted, signal) : await this.#bootWith(kept, signal)
      await this.#progress.stage('ready', `${name} is ready`, async () => undefined)
      return { vm, lock }
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
        await this.#bootstrap(vm, signal)
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
    if (signal.aborted) throw aborted()
    const vm = await this.#backend.boot(disk, signal, (error) => this.#ended(error))
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

  async #bootstrap(vm: RunningVm, signal: AbortSignal): Promise<void> {
    const { bootstrap, workdir, env } = this.#spec
    for (const [index, command] of bootstrap.entries()) {
      const label = `bootstrap ${index + 1}/${bootstrap.length}: ${sanitiseLine(command.split('\n')[0] ?? '', 80)}`
      await this.#progress.stage('bootstrap', label, async () => {
        const result = await vm.exec(
          checkCommand({ argv: ['sh', '-lc', command], signal }, { cwd: workdir, env: { ...GUEST_ENV, ...env } }),
        )
        if (result.cancelled) throw aborted()
        if (result.exitCode !== 0)
          throw new MicroVmError(
            'bootstrap_failed',
            `${label} ended with ${result.exitCode}: ${lastLines(result)}. Correct it in sandbox.lua; no disk was kept`,
          )
      })
    }
  }

  /** The VM ended by itself; a stop of ours is not one. */
  #ended(error: MicroVmError): void {
    const phase = this.#phase
    if (phase.state !== 'running') return
    this.#leases.cancel()
    this.#progress.notice(`the VM "${this.#spec.name}" ended: ${messageOf(error)}`)
    // Its process may still be there when it was the protocol that broke.
    this.#phase = { state: 'stopping', done: this.#release(phase.vm.stop(), phase.lock) }
  }
}

const aborted = (): MicroVmError => new MicroVmError('aborted', 'the start was cancelled')

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

function lastLines(result: ExecResult): string {
  const text = new TextDecoder().decode(result.stderrBytes > 0 ? result.stderr : result.stdout)
  return text
    .trim()
    .split('\n')
    .slice(-3)
    .map((line) => sanitiseLine(line, 200))
    .join(' | ')
}
