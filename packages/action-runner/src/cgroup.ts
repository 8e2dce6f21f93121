import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** Where this process may make control groups (version 2, alone or in the hybrid layout), or why it may not. */
export type CgroupSupport =
  | { readonly ok: true; readonly parent: string }
  | { readonly ok: false; readonly why: string }

/**
 * Looks for a control group below which groups can be made and killed, by making one.
 *
 * @param probeName name of the group that is made and removed.
 */
export function probeCgroups(probeName: string): CgroupSupport {
  const mount = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].find((path) =>
    existsSync(join(path, 'cgroup.controllers')),
  )
  if (mount === undefined) return { ok: false, why: 'no control groups of version 2 are mounted' }
  let own: string | undefined
  try {
    own = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1]
  } catch {
    own = undefined
  }
  if (own === undefined || own.startsWith('/..')) return { ok: false, why: 'the own control group is not visible' }
  const parent = join(mount, own)
  const probe = new Cgroup(join(parent, probeName))
  try {
    probe.create()
    accessSync(join(probe.path, 'cgroup.kill'), constants.W_OK)
    return { ok: true, parent }
  } catch {
    return {
      ok: false,
      why: 'this process may not make control groups that can be killed (root on Linux 5.14 or newer can)',
    }
  } finally {
    probe.tryRemove()
  }
}

/** One control group: all processes of one action, wherever they went. */
export class Cgroup {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  create(): void {
    mkdirSync(this.path)
  }

  /** Moves a process in; what it starts afterwards is born inside. */
  add(pid: number): void {
    writeFileSync(join(this.path, 'cgroup.procs'), String(pid))
  }

  /** Live processes inside; none when the group is gone. */
  pids(): readonly number[] {
    try {
      return readFileSync(join(this.path, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number)
    } catch {
      return []
    }
  }

  /** Kills all processes inside at once, also those being forked, and waits until they are gone. Then removes the group. */
  async destroy(): Promise<void> {
    if (this.tryRemove()) return
    writeFileSync(join(this.path, 'cgroup.kill'), '1')
    // A process in an uninterruptible wait dies later: 10 s is the bound, the group is then left to the next sweep.
    for (let turn = 0; turn < 1_000 && !this.tryRemove(); turn += 1) await sleep(Math.min(10, 1 + turn))
  }

  /** Removes the group and those that an action made in it; false while a process is inside. */
  tryRemove(): boolean {
    try {
      for (const entry of readdirSync(this.path, { withFileTypes: true })) {
        if (entry.isDirectory()) new Cgroup(join(this.path, entry.name)).tryRemove()
      }
      rmdirSync(this.path)
      return true
    } catch {
      return !existsSync(this.path)
    }
  }
}
