import { readdir, readFile } from 'node:fs/promises'

/** Of all that the kernel counts for Linux programs: hundredths of a second, pages of 4 KiB. */
const TICK_MS = 10
const PAGE_BYTES = 4096

/** What a process and all that it started use of this machine. */
export type ProcessUsage = { readonly cpuMs: number; readonly memoryBytes: number }

type Process = ProcessUsage & { readonly parent: number }

/** Reads `/proc`; a process that ends meanwhile counts for nothing. */
export async function processUsage(pid: number): Promise<ProcessUsage> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const all = new Map<number, Process>()
  for (const one of pids) {
    const found = await readProcess(one)
    if (found !== undefined) all.set(one, found)
  }
  const isOf = (one: number): boolean => {
    for (let at: number | undefined = one; at !== undefined && at > 0; at = all.get(at)?.parent)
      if (at === pid) return true
    return false
  }
  const mine = [...all].filter(([one]) => isOf(one)).map(([, found]) => found)
  return {
    cpuMs: mine.reduce((sum, { cpuMs }) => sum + cpuMs, 0),
    memoryBytes: mine.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0),
  }
}

async function readProcess(pid: number): Promise<Process | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined)
  // The name may hold anything, parentheses too; after it come numbers.
  const fields = text
    ?.slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map((field) => Number(field))
  if (fields === undefined) return undefined
  const [, parent = 0] = fields
  const [user = 0, system = 0] = fields.slice(11, 13)
  return { parent, cpuMs: (user + system) * TICK_MS, memoryBytes: (fields[21] ?? 0) * PAGE_BYTES }
}
