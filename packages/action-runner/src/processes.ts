import { readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'

/** A process, told apart from a later one of the same pid by the moment it started. */
export type ProcessIdentity = { readonly pid: number; readonly startTime: string; readonly bootId: string }

/** Kernel clock ticks since boot at which `pid` started, or undefined when it is gone or the system has no /proc. */
function startTimeOf(pid: number): string | undefined {
  try {
    // The command stands in brackets and may hold anything: fields are counted behind the last one.
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return undefined
  }
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return ''
  }
}

/** Who this process is. Without /proc (macOS) only the pid says so. */
export function identify(pid: number): ProcessIdentity {
  return { pid, startTime: startTimeOf(pid) ?? '', bootId: bootId() }
}

/** True while the very process that `identify` described runs. Without /proc: while any process has its pid. */
export function isAlive(identity: ProcessIdentity): boolean {
  if (identity.bootId !== bootId()) return false
  if (identity.startTime !== '') return startTimeOf(identity.pid) === identity.startTime
  return canSignal(identity.pid)
}

function canSignal(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

/** Sends a signal; a process or group (negative) that is gone, or belongs to another user, is no error. */
export function signalQuietly(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal)
  } catch {
    return false
  }
}

/** The short name of a process, as the kernel keeps it; it is chosen by the process and may hold anything. */
export async function commandName(pid: number): Promise<string> {
  try {
    return (await readFile(`/proc/${pid}/comm`, 'utf8')).trim()
  } catch {
    return '?'
  }
}

/**
 * Processes that carry a slot's folder in their environment or work in it. This finds what left its process group where
 * there is no cgroup; a process that cleared its environment and moved away is not found. Zombies do not count. Linux only.
 */
export function processesOfSlot(folder: string): readonly number[] {
  const found: number[] = []
  const needle = `${folder}/`
  let names: readonly string[]
  try {
    names = readdirSync('/proc')
  } catch {
    return []
  }
  for (const name of names) {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid === process.pid) continue
    try {
      const cwd = readlinkSync(`/proc/${pid}/cwd`)
      if (cwd === folder || cwd.startsWith(needle) || readFileSync(`/proc/${pid}/environ`, 'latin1').includes(needle))
        found.push(pid)
    } catch {
      // Gone meanwhile, a kernel thread, or another user's: not ours to end.
      continue
    }
  }
  return found
}
