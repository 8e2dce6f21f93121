import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** Whether this system shows what each process was started with. */
export const showsProcesses = existsSync('/proc/self/environ')
if (!showsProcesses) console.warn('no /proc here: that no git is left behind is not tested')

/** Ids of the processes whose environment names a folder: every git of a bridge has its home below `reposDir`. */
export function processesOf(folder: string): readonly string[] {
  return readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && environmentOf(pid).includes(`HOME=${folder}`))
}

/** Waits until none of them is left; gives those that stay. */
export async function remaining(folder: string): Promise<readonly string[]> {
  for (let tries = 0; tries < 200; tries += 1) {
    if (processesOf(folder).length === 0) return []
    await sleep(50)
  }
  return processesOf(folder).map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' '))
}

/** Empty for one that has ended, or that may not be looked at. */
function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error) return ''
    throw error
  }
}
