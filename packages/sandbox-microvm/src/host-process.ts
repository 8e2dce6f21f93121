import { type ChildProcess, spawn, type SpawnOptions } from 'node:child_process'
import { accessSync, constants, statSync } from 'node:fs'
import { join } from 'node:path'
import { MicroVmError } from './errors.ts'

/**
 * Every program of the host that this package ever starts, and why. There is no other spawn in the package and no shell:
 * nothing that a model or a guest writes reaches an argument. The only strings from outside in an argument are the paths of
 * the spec's mounts, folders and caches (the owner's, absolute, checked) and the names of image packages (checked against
 * Debian's grammar).
 */
export const HOST_PROGRAMS = {
  'qemu-system-x86_64': 'is the virtual machine',
  bwrap: 'boxes QEMU in: no network, no files but those that it needs',
  cp: 'gives a VM its own copy of a saved memory, where QEMU cannot open that for reading only',
  setpriv: 'takes every capability from QEMU where root runs it without bwrap',
  node: 'is the running Node itself: around the microsandbox SDK, which starts its own runtime msb, and, where bwrap does not work, as a watcher that kills QEMU when its owner dies',
  mmdebstrap: 'builds the root file system from Debian packages',
  unshare: "keeps mmdebstrap's mounts out of sight of everything else, so that none can be left",
  mke2fs: 'turns the root file system into a disk image (called by mmdebstrap)',
  'apt-cache': 'finds the current kernel package',
  'apt-get': "downloads the kernel package and tells where this machine's own Debian mirror is",
  'dpkg-deb': 'unpacks the kernel package',
  xz: 'unpacks the kernel, which boots faster then',
} as const satisfies Readonly<Record<string, string>>

/** A program on that list. */
export type HostProgram = keyof typeof HOST_PROGRAMS

/** Where programs are looked for unless the host says otherwise. */
export const DEFAULT_SEARCH_PATH: readonly string[] = [
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/sbin',
  '/bin',
  '/opt/homebrew/bin',
]

/** The path of `program`, if one of the folders has it. */
export function findProgram(
  program: HostProgram | 'newuidmap',
  searchPath: readonly string[] = DEFAULT_SEARCH_PATH,
): string | undefined {
  if (program === 'node') return process.execPath
  return searchPath.map((folder) => join(folder, program)).find((path) => isExecutable(path))
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch (error) {
    if (error instanceof Error) return false
    throw error
  }
}

/** How a program is started. */
export type HostOptions = {
  readonly searchPath?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
}

/** Starts a program of the list. Its environment is what is given here and nothing of the caller's own. */
export function spawnHost(
  program: HostProgram,
  args: readonly string[],
  options: HostOptions & Pick<SpawnOptions, 'stdio' | 'detached'>,
): ChildProcess {
  const searchPath = options.searchPath ?? DEFAULT_SEARCH_PATH
  const path = findProgram(program, searchPath)
  if (path === undefined) throw missingProgram(program)
  return spawn(path, args, {
    env: { PATH: searchPath.join(':'), LC_ALL: 'C.UTF-8', ...options.env },
    cwd: options.cwd ?? '/',
    stdio: options.stdio ?? ['ignore', 'pipe', 'pipe'],
    detached: options.detached ?? false,
  })
}

/** The failure of a program that is not there. `hostPackages` has the command for all that is missing at once. */
export const missingProgram = (program: HostProgram): MicroVmError =>
  new MicroVmError('missing_program', `${program} is not installed on this machine (it ${HOST_PROGRAMS[program]})`)

/** How a program ended that ran to its end. */
export type HostRun = { readonly code: number; readonly stdout: Buffer; readonly stderr: string }

/** Text that is kept of a program's messages. */
const TAIL = 4000
/** A program that is told to end has this long. */
const TERM_MS = 2000

/** Runs a program of the list to its end; its exit code is the caller's to judge. The signal ends it. */
export function runHost(
  program: HostProgram,
  args: readonly string[],
  options: HostOptions & {
    readonly input?: Uint8Array
    readonly signal?: AbortSignal
    /** Called with each line of stderr. */
    readonly onLine?: (line: string) => void
  } = {},
): Promise<HostRun> {
  return new Promise((resolve, reject) => {
    if (options.signal?.aborted === true) return reject(aborted())
    const child = spawnHost(program, args, {
      ...options,
      stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
      // A group of its own, which an abort ends whole: a build is many processes.
      detached: true,
    })
    const chunks: Buffer[] = []
    let tail = ''
    let line = ''
    let killTimer: NodeJS.Timeout | undefined
    const onAbort = (): void => {
      killGroup(child, 'SIGTERM')
      killTimer = setTimeout(() => killGroup(child, 'SIGKILL'), TERM_MS)
    }
    options.signal?.addEventListener('abort', onAbort, { once: true })
    child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk))
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      tail = (tail + chunk).slice(-TAIL)
      if (options.onLine === undefined) return
      const lines = (line + chunk).split(/[\r\n]/)
      line = (lines.pop() ?? '').slice(-TAIL)
      for (const whole of lines) options.onLine(whole)
    })
    // A program that ends without reading its input says so by its exit code.
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(options.input)
    const end = (): void => {
      clearTimeout(killTimer)
      options.signal?.removeEventListener('abort', onAbort)
    }
    child.on('error', (error) => {
      end()
      reject(error)
    })
    child.on('close', (code) => {
      end()
      if (options.signal?.aborted === true) return reject(aborted())
      return resolve({ code: code ?? -1, stdout: Buffer.concat(chunks), stderr: tail })
    })
  })
}

function killGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, signal)
  } catch (error) {
    // It has ended meanwhile.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}

const aborted = (): MicroVmError => new MicroVmError('aborted', 'the start was cancelled')
