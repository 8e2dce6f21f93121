import { writeFileAtomic } from '@reve/base'
import { existsSync } from 'node:fs'
import { chmod, chown, lstat, mkdir, readFile, readdir, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import * as v from 'valibot'
import { Cgroup } from './cgroup.ts'
import { ActionError } from './errors.ts'
import type { CacheStore } from './named-caches.ts'
import { isAlive, processesOfSlot, signalQuietly, type ProcessIdentity } from './processes.ts'
import { removeTree } from './remove-tree.ts'

/** Who owns the files of a slot when it is not the server's own user. */
export type ActionUser = { readonly uid: number; readonly gid: number; readonly name: string }

/** A folder of one run: the tree in `work`, and beside it what the action may use but what is no part of the result. */
export type Slot = {
  readonly id: string
  /** The server's folder around the others; an action may pass through it, not write in it. */
  readonly top: string
  readonly work: string
  readonly home: string
  readonly tmp: string
  /** The server's files about the run: output spools and pipes. */
  readonly out: string
}

const cacheUse = v.object({ name: v.string(), path: v.string() })
const markerSchema = v.object({
  version: v.literal(1),
  owner: v.object({ pid: v.number(), startTime: v.string(), bootId: v.string() }),
  cgroup: v.nullable(v.string()),
  caches: v.array(cacheUse),
})

/** A cache that stands in a slot, at a path of its tree. */
export type CacheUse = v.InferOutput<typeof cacheUse>

const markerSuffix = '.slot.json'
/** Control groups of this package carry this in front of the slot's id. */
export const cgroupPrefix = 'reve-action-'

/**
 * The slots of one runner below one folder. Each has a marker file beside it, written before the slot and removed after it,
 * that says which process it belongs to: what a dead one left is found and removed, and nothing else is touched.
 */
export class SlotFolder {
  readonly #root: string
  readonly #owner: ProcessIdentity
  readonly #user: ActionUser | undefined
  readonly #cgroupParent: string | null

  constructor(root: string, owner: ProcessIdentity, user: ActionUser | undefined, cgroupParent: string | null) {
    this.#root = root
    this.#owner = owner
    this.#user = user
    this.#cgroupParent = cgroupParent
  }

  /**
   * Makes the folder (0700; 0711 when actions run as another user, who has to pass through it).
   *
   * @throws ActionError `setup_failed` when it is a link or another user's, or the action user cannot reach it.
   */
  async prepare(): Promise<void> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 })
    const stat = await lstat(this.#root)
    if (!stat.isDirectory())
      throw new ActionError('setup_failed', `${this.#root} is not a directory (links are not followed here)`)
    await chmod(this.#root, this.#user === undefined ? 0o700 : 0o711)
    if (this.#user !== undefined) await this.#checkReachable(this.#user)
  }

  async #checkReachable(user: ActionUser): Promise<void> {
    const parts = this.#root.split('/')
    for (let depth = 1; depth <= parts.length; depth += 1) {
      const folder = parts.slice(0, depth).join('/') || '/'
      const { mode, uid, gid } = await lstat(folder)
      const bits = uid === user.uid ? mode >> 6 : gid === user.gid ? mode >> 3 : mode
      if ((bits & 1) === 0 && user.uid !== 0) {
        throw new ActionError(
          'setup_failed',
          `the action user ${user.name} (uid ${user.uid}) cannot pass through ${folder}, and so cannot reach its slots`,
          {
            hint: 'put the slots in a folder that is not below a private one, or give the folders above it the mode 0711',
          },
        )
      }
    }
  }

  /** Path of the control group of a slot, or null where there are none. */
  cgroupOf(id: string): string | null {
    return this.#cgroupParent === null ? null : join(this.#cgroupParent, `${cgroupPrefix}${id}`)
  }

  #slot(id: string): Slot {
    const top = join(this.#root, id)
    return { id, top, work: join(top, 'work'), home: join(top, 'home'), tmp: join(top, 'tmp'), out: join(top, 'out') }
  }

  /** Cuts an empty slot; the tree is laid out in `work` by the caller, then `handOver` gives it to the action's user. */
  async cut(id: string, caches: readonly CacheUse[]): Promise<Slot> {
    const slot = this.#slot(id)
    const marker = {
      version: 1,
      owner: this.#owner,
      cgroup: this.cgroupOf(id),
      caches: [...caches],
    } satisfies v.InferInput<typeof markerSchema>
    await writeFileAtomic(join(this.#root, `${id}${markerSuffix}`), JSON.stringify(marker), { fsync: false })
    try {
      await mkdir(slot.top, { mode: 0o700 })
      for (const path of [slot.work, slot.home, slot.tmp, slot.out]) await mkdir(path, { mode: 0o700 })
      return slot
    } catch (error) {
      await this.remove(slot)
      throw error
    }
  }

  /** Lets the action in: the folders that it may write become its user's. */
  async open(slot: Slot): Promise<void> {
    const user = this.#user
    if (user === undefined) return
    await Promise.all([slot.home, slot.tmp].map((path) => chown(path, user.uid, user.gid)))
    await chmod(slot.top, 0o711)
  }

  /** Shuts the slot before the server reads it: no other action of the same user gets in while it does. */
  async shut(slot: Slot): Promise<void> {
    await chmod(slot.top, 0o700)
  }

  /** Removes a slot, then its marker. */
  async remove(slot: Slot): Promise<void> {
    await removeTree(slot.top)
    await rm(join(this.#root, `${slot.id}${markerSuffix}`), { force: true })
  }

  /**
   * Ends and removes what dead processes left: their actions' processes, the slots, the control groups. Caches that stood in a
   * slot go back to their place.
   *
   * @returns how many slots were removed.
   */
  async sweep(caches: CacheStore): Promise<number> {
    let swept = 0
    for (const name of await readdir(this.#root)) {
      if (!name.endsWith(markerSuffix)) continue
      const marker = await readMarker(join(this.#root, name))
      if (marker === undefined || isAlive(marker.owner)) continue
      const slot = this.#slot(basename(name, markerSuffix))
      if (marker.cgroup !== null && basename(marker.cgroup).startsWith(cgroupPrefix))
        await new Cgroup(marker.cgroup).destroy()
      await endProcessesOfSlot(slot)
      if (existsSync(slot.top)) {
        await chmod(slot.top, 0o700)
        for (const use of marker.caches) await caches.takeOut(use, slot)
      }
      await this.remove(slot)
      swept += 1
    }
    return swept
  }
}

/** Kills what still works in a slot or knows its folder, and waits until it is gone, for a second at most. */
export async function endProcessesOfSlot(slot: Slot): Promise<void> {
  for (let round = 0; round < 200; round += 1) {
    // Again each time: a process may be forking meanwhile.
    const pids = processesOfSlot(slot.top)
    if (pids.length === 0) return
    for (const pid of pids) signalQuietly(pid, 'SIGKILL')
    await sleep(5)
  }
}

/** Undefined for a file that is not a marker of this version: it is not ours to touch. */
async function readMarker(path: string): Promise<v.InferOutput<typeof markerSchema> | undefined> {
  try {
    const parsed = v.safeParse(markerSchema, JSON.parse(await readFile(path, 'utf8')))
    return parsed.success ? parsed.output : undefined
  } catch (error) {
    if (error instanceof SyntaxError || (error instanceof Error && 'code' in error && error.code === 'ENOENT'))
      return undefined
    throw error
  }
}
