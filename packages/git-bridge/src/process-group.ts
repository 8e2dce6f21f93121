import type { ChildProcess } from 'node:child_process'

/** Milliseconds for git to take its lock files away before it is killed. */
const graceMs = 2_000

/** Ends a process and all that it started: told first, killed after a moment. */
export function stopGroup(child: ChildProcess): void {
  if (!signalGroup(child, 'SIGTERM')) return
  const timer = setTimeout(() => void signalGroup(child, 'SIGKILL'), graceMs)
  child.once('close', () => clearTimeout(timer))
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): boolean {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return false
  try {
    return process.kill(-child.pid, signal)
  } catch {
    // Ended in this moment.
    return false
  }
}
