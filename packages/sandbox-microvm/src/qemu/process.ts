import { mkdir, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { sanitiseLine } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import { connectGuest, type GuestConnection } from '../guest-connection.ts'
import { findProgram, missingProgram, spawnHost } from '../host-process.ts'
import { boxed, watched } from './box.ts'
import { type Machine, qemuArguments } from './command-line.ts'
import { restoreState } from './migration.ts'
import { connectQmp, type Qmp } from './qmp.ts'
import { seccompFilter } from './seccomp.ts'

/** A QEMU process whose guest agent serves. */
export type QemuProcess = {
  readonly guest: GuestConnection
  readonly control: Qmp
  readonly pid: number
  /** Resolves when the process is gone and its sockets are removed; never rejects. */
  readonly closed: Promise<void>
  /** Ends it: a clean power off, then a quit that writes the disk out, then a kill. */
  stop(): Promise<void>
  /** Ends it without asking the guest; what the guest had not written yet is lost. */
  quit(): Promise<void>
}

/** A whole boot takes 3 s emulated and 1 s with KVM; a busy machine is many times slower. */
const BOOT_MS = { tcg: 120_000, kvm: 20_000 } as const
const POWER_OFF_MS = 15_000
const QUIT_MS = 3000
/** What a guest wrote on its console that is worth showing when it does not come up. */
const CONSOLE_BYTES = 4000

/** What QEMU is started with. */
export type QemuOptions = {
  readonly machine: Omit<Machine, 'agentSocket' | 'qmpSocket'>
  /** A folder for the sockets; made here and removed at the end. */
  readonly socketDir: string
  readonly box: boolean
  readonly searchPath: readonly string[]
  readonly now: () => number
  readonly signal?: AbortSignal
  readonly bootMs?: number
  /** What the machine goes on from, together with a file of its memory; it boots otherwise. */
  readonly saved?: { readonly qemu: string; readonly state: Uint8Array }
  /** What the guest is asked for before anything else; without it the guest has not come up. */
  readonly begin?: (guest: GuestConnection) => Promise<void>
  readonly onLost: (error: MicroVmError) => void
}

/**
 * Starts QEMU and waits until the guest agent in it serves: after a boot, or as it did when its machine was saved. A start
 * that fails leaves no process and no socket.
 */
export async function startQemu(options: QemuOptions): Promise<QemuProcess> {
  const path = findProgram('qemu-system-x86_64', options.searchPath)
  if (path === undefined) throw missingProgram('qemu-system-x86_64')
  const { accelerator, disk, memory, shares, vmlinux, initrd } = options.machine
  const files = disk === undefined || disk === 'placeholder' ? undefined : disk
  await mkdir(options.socketDir, { recursive: true, mode: 0o700 })
  const [agent, qmp] = await Promise.all(['agent', 'qmp'].map((name) => listenOnce(join(options.socketDir, name))))
  if (agent === undefined || qmp === undefined)
    throw new MicroVmError('boot_failed', 'the sockets of the VM could not be made')
  const args = qemuArguments({ ...options.machine, agentSocket: agent.path, qmpSocket: qmp.path })
  const qemu = { program: 'qemu-system-x86_64', path, args } as const
  const command = options.box
    ? boxed(qemu, {
        readonly: [
          vmlinux,
          initrd,
          ...(files === undefined ? [] : [files.base]),
          ...(memory?.use === 'shared' ? [memory.path] : []),
          ...shares.filter((share) => share.readonly).map((share) => share.path),
        ],
        writable: [
          options.socketDir,
          ...(files === undefined ? [] : [files.overlay]),
          ...(memory === undefined || memory.use === 'shared' ? [] : [memory.path]),
          ...shares.filter((share) => !share.readonly).map((share) => share.path),
        ],
        devices: accelerator === 'kvm' ? ['/dev/kvm'] : [],
      })
    : watched(qemu, options.searchPath, process.getuid?.() === 0)
  // A session of its own: an interrupt that is typed for the owner is not meant for the VM.
  const child = spawnHost(command.program, command.args, {
    searchPath: options.searchPath,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    detached: true,
  })
  const filter = child.stdio[3]
  // A program that is already gone says so by its exit.
  filter?.on('error', () => undefined)
  if (filter instanceof Writable) filter.end(seccompFilter())

  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-CONSOLE_BYTES)))
  child.stdin?.on('error', () => undefined)
  const exited = Promise.withResolvers<void>()
  child.once('error', (error) => {
    said += String(error)
    exited.resolve()
  })
  child.once('exit', () => exited.resolve())
  const closed = exited.promise.then(async () => {
    agent.close()
    qmp.close()
    await rm(options.socketDir, { recursive: true, force: true })
  })

  const kill = (): void => {
    child.stdin?.destroy()
    child.kill(options.box ? 'SIGKILL' : 'SIGTERM')
  }
  const within = async (ms: number): Promise<boolean> => {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<boolean>((resolve) => (timer = setTimeout(() => resolve(false), ms)))
    try {
      return await Promise.race([closed.then(() => true), late])
    } finally {
      clearTimeout(timer)
    }
  }

  try {
    const boot = async (): Promise<{ readonly guest: GuestConnection; readonly control: Qmp }> => {
      const [socket, monitor] = await Promise.all([agent.connection, qmp.connection])
      const control = connectQmp(monitor)
      const guest = connectGuest(socket, options.onLost, options.now)
      if (options.saved === undefined) await guest.ready
      else await restoreState(control, options.saved, join(options.socketDir, 'state'))
      await options.begin?.(guest)
      return { guest, control }
    }
    const { guest, control } = await firstOf(
      boot(),
      options.bootMs ?? BOOT_MS[accelerator],
      exited.promise,
      options.signal,
    )
    const quit = async (): Promise<void> => {
      control.quit()
      if (await within(QUIT_MS)) return
      kill()
      await closed
    }
    void closed.then(() => guest.fail(new MicroVmError('guest_lost', 'the VM ended; the next command starts it again')))
    return {
      guest,
      control,
      pid: child.pid ?? 0,
      closed,
      quit,
      stop: async () => {
        guest.shutdown()
        if (!(await within(POWER_OFF_MS))) await quit()
      },
    }
  } catch (error) {
    kill()
    await closed
    if (error instanceof MicroVmError && error.code === 'aborted') throw error
    const console = said
      .trim()
      .split('\n')
      .slice(-5)
      .map((line) => sanitiseLine(line, 300))
      .join(' | ')
    throw new MicroVmError(
      'boot_failed',
      `the VM (${accelerator}) did not come up: ${error instanceof Error ? error.message : 'unknown'}${console === '' ? '' : `. It said: ${console}`}`,
      { cause: error },
    )
  }
}

/** `work`, or a failure when it takes too long, the process ends before, or the caller has enough. */
async function firstOf<T>(
  work: Promise<T>,
  ms: number,
  exited: Promise<void>,
  signal: AbortSignal | undefined,
): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new MicroVmError('boot_failed', `nothing after ${ms / 1000} s`)), ms)
  const onAbort = (): void => reject(new MicroVmError('aborted', 'the start was cancelled'))
  if (signal?.aborted === true) onAbort()
  signal?.addEventListener('abort', onAbort, { once: true })
  void exited.then(() => reject(new MicroVmError('boot_failed', 'QEMU ended')))
  // Whichever comes later has nobody waiting for it.
  work.catch(() => undefined)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', onAbort)
  }
}

type Listener = { readonly path: string; readonly connection: Promise<Socket>; close(): void }

/** A socket that QEMU connects to: it takes one connection and no more. */
function listenOnce(path: string): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const { promise: connection, resolve: connected } = Promise.withResolvers<Socket>()
    const server = createServer((socket) => {
      server.close()
      connected(socket)
    })
    server.once('error', reject)
    server.listen(path, () => resolve({ path, connection, close: () => server.close() }))
  })
}
