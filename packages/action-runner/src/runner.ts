import { createIdSource } from '@reve/base'
import type { Store } from '@reve/content-store'
import { randomBytes } from 'node:crypto'
import { statfs } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { checkAction, type Action, type CheckedAction, type SandboxName } from './action.ts'
import { probeCgroups, type CgroupSupport } from './cgroup.ts'
import { constantEnvironment, defaultPath } from './environment.ts'
import { ActionError, fromSystem } from './errors.ts'
import { cancelled, Flights } from './flights.ts'
import { actionKey } from './key.ts'
import { createLocalSandbox } from './local.ts'
import { CacheStore } from './named-caches.ts'
import { identify } from './processes.ts'
import { ResultCache } from './result-cache.ts'
import type { ActionRecord, ActionResult } from './result.ts'
import type { Isolation, Sandbox } from './sandbox.ts'
import { runInSlot } from './run-in-slot.ts'
import { cgroupPrefix, SlotFolder, type ActionUser } from './slot.ts'
import { Turnstile } from './turnstile.ts'
import type { OnOutput } from './watch.ts'

/**
 * - `store`: trees and blobs; results are kept in its database.
 * - `slotsDir`: folder of the slots; one runner owns it. With `actionUser` that user must be able to pass through the folders above it.
 * - `cachesDir`: folder of the named caches, on the file system of the slots; default `<slotsDir>-caches`.
 * - `actionUser`: user of local actions (only root can name another one); default the own.
 * - `minFreeBytes`: an action is refused when the disk of the slots has less free; default 0.
 * - `maxActions`: runs at once, default the number of processors. The others wait in order.
 * - `hostFingerprint`: enters the key of local actions; `hostFingerprint()` reads one.
 * - `sandbox`: for actions that name none; default `local`. `path`: `PATH` of actions.
 * - `now`, `random`: for times and ids.
 */
export type ActionRunnerOptions = {
  readonly store: Store
  readonly slotsDir: string
  readonly cachesDir?: string
  readonly actionUser?: ActionUser
  readonly minFreeBytes?: number
  readonly maxActions?: number
  readonly hostFingerprint: string
  readonly sandbox?: SandboxName
  readonly path?: string
  readonly now?: () => number
  readonly random?: (count: number) => Uint8Array
}

/**
 * `signal` stops the run (or only this caller's wait, when others wait for the same run); `onOutput` sees the output as it comes
 * (not that of a known result); `actor` says for whom it is.
 */
export type RunOptions = { readonly signal?: AbortSignal; readonly onOutput?: OnOutput; readonly actor?: string }

/** Runs actions. */
export interface ActionRunner extends AsyncDisposable {
  /**
   * Settles when the folders are made and what a dead runner left is gone; `run` waits for it too.
   *
   * @throws ActionError `setup_failed`.
   */
  ready(): Promise<void>
  /**
   * Answers an action from the known results, or runs it. A command that fails is a result.
   *
   * @throws ActionError; and StoreError when there is no such tree.
   */
  run(action: Action, options?: RunOptions): Promise<ActionResult>
  /**
   * The key under which the result is kept: 64 lowercase hex.
   *
   * @throws ActionError `bad_action`, `sandbox_unavailable`.
   */
  key(action: Action): string
  /** What the default sandbox keeps apart, and what an owner should be told. */
  isolation(): Isolation
  /** Stops what runs, waits until it is gone, and refuses what comes. */
  close(): Promise<void>
}

/** Opens a runner; nothing is started before the first action, but what a dead one left is swept away at once. */
export function createActionRunner(options: ActionRunnerOptions): ActionRunner {
  return new Runner(options)
}

class Runner implements ActionRunner {
  readonly #options: ActionRunnerOptions
  readonly #store: Store
  readonly #results: ResultCache
  readonly #caches: CacheStore
  readonly #slots: SlotFolder
  readonly #sandbox: Sandbox
  readonly #turnstile: Turnstile
  readonly #flights = new Flights<ActionRecord>()
  readonly #newId: (prefix: string) => string
  readonly #now: () => number
  readonly #ready: Promise<void>
  #closed = false

  constructor(options: ActionRunnerOptions) {
    this.#options = options
    this.#store = options.store
    this.#now = options.now ?? Date.now
    const random = options.random ?? randomBytes
    const newId = createIdSource({ now: this.#now, random })
    this.#newId = newId
    this.#results = new ResultCache(options.store)
    this.#caches = new CacheStore(options.cachesDir ?? `${options.slotsDir}-caches`, options.actionUser)
    const cgroups: CgroupSupport = probeCgroups(`${cgroupPrefix}${newId('probe_')}`)
    const slots = new SlotFolder(
      options.slotsDir,
      identify(process.pid),
      options.actionUser,
      cgroups.ok ? cgroups.parent : null,
    )
    this.#slots = slots
    this.#sandbox = createLocalSandbox({
      user: options.actionUser,
      ownUid: process.getuid?.(),
      cgroups,
      cgroupOf: (id) => slots.cgroupOf(id),
      token: () => `gate-${Buffer.from(random(16)).toString('hex')}`,
    })
    this.#turnstile = new Turnstile(options.maxActions ?? availableParallelism())
    this.#ready = this.#prepare()
    // Told to whoever runs the first action, or waits for `ready`.
    this.#ready.catch(() => undefined)
  }

  async #prepare(): Promise<void> {
    const { actionUser } = this.#options
    const own = process.getuid?.()
    if (actionUser !== undefined && own !== 0 && own !== actionUser.uid) {
      throw new ActionError('setup_failed', `only root can run actions as another user (${actionUser.name})`)
    }
    await this.#slots.prepare()
    await this.#slots.sweep(this.#caches)
  }

  ready(): Promise<void> {
    return this.#ready
  }

  isolation(): Isolation {
    return this.#sandbox.isolation()
  }

  key(action: Action): string {
    return this.#keyOf(this.#check(action))
  }

  #check(action: Action): CheckedAction {
    const checked = checkAction(action, this.#options.sandbox ?? 'local')
    if (checked.sandbox !== this.#sandbox.name) {
      throw new ActionError(
        'sandbox_unavailable',
        `the sandbox "${checked.sandbox}" is not part of this version, which carries: ${this.#sandbox.name}`,
      )
    }
    if (checked.image !== null) {
      throw new ActionError('bad_action', `image: the sandbox "${checked.sandbox}" has no images; it runs on the host`)
    }
    return checked
  }

  #environment(action: CheckedAction): Readonly<Record<string, string>> {
    return constantEnvironment(
      this.#options.path ?? defaultPath,
      this.#options.actionUser?.name ?? 'action',
      action.env,
    )
  }

  #keyOf(action: CheckedAction): string {
    return actionKey({
      tree: action.tree,
      argv: action.argv,
      cwd: action.cwd,
      env: this.#environment(action),
      image: action.image,
      sandbox: this.#sandbox.keyPart(action),
      network: action.network,
      gitignore: action.gitignore,
      cachePaths: action.caches.map((cache) => cache.path),
      host: this.#options.hostFingerprint,
    })
  }

  async run(action: Action, options: RunOptions = {}): Promise<ActionResult> {
    const checked = this.#check(action)
    if (this.#closed) throw closed()
    await this.#ready
    const key = this.#keyOf(checked)
    const known = checked.fresh ? undefined : this.#results.find(key)
    if (known !== undefined) return { ...known.record, key, cached: { since: known.since } }
    // Two callers with different timeouts have different runs: the shorter one's end says nothing to the other.
    const record = await this.#flights.ride(
      `${key} ${checked.timeoutS}`,
      (signal, emit) => this.#execute(checked, key, signal, emit),
      {
        alone: checked.fresh,
        signal: options.signal,
        onOutput: options.onOutput,
      },
    )
    return { ...record, key, cached: false }
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#ready.catch(() => undefined)
    await this.#flights.stopAll()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #execute(action: CheckedAction, key: string, signal: AbortSignal, emit: OnOutput): Promise<ActionRecord> {
    const began = performance.now()
    const releases: (() => void)[] = []
    try {
      try {
        releases.push(
          await this.#caches.lock(
            action.caches.map((cache) => cache.name),
            signal,
          ),
        )
        releases.push(await this.#turnstile.enter(signal))
        signal.throwIfAborted()
      } catch (error) {
        if (signal.aborted) throw this.#closed ? closed() : cancelled()
        throw error
      }
      await this.#checkDisk()
      const queueMs = performance.now() - began
      for (const { name } of action.caches) await this.#caches.prepare(name)
      const id = this.#newId('slot_')
      const slot = await this.#slots.cut(
        id,
        action.caches.map(({ name, path }) => ({ name, path })),
      )
      try {
        const record = await runInSlot(
          {
            store: this.#store,
            caches: this.#caches,
            slots: this.#slots,
            sandbox: this.#sandbox,
            user: this.#options.actionUser,
            environment: this.#environment(action),
            signal,
            onOutput: emit,
            queueMs,
          },
          slot,
          action,
        )
        this.#results.keep(key, record, new Date(this.#now()).toISOString())
        return record
      } finally {
        await this.#slots.remove(slot)
      }
    } catch (error) {
      if (signal.aborted && !(error instanceof ActionError)) throw this.#closed ? closed() : cancelled()
      throw fromSystem(error)
    } finally {
      for (const release of releases.toReversed()) release()
    }
  }

  async #checkDisk(): Promise<void> {
    const least = this.#options.minFreeBytes ?? 0
    if (least <= 0) return
    const { bavail, bsize } = await statfs(this.#options.slotsDir)
    const free = bavail * bsize
    if (free < least) {
      throw new ActionError(
        'disk_full',
        `the disk of the slots has ${free} bytes free, less than the ${least} that an action needs`,
        { hint: 'free some space, or lower the limit' },
      )
    }
  }
}

const closed = (): ActionError => new ActionError('closed', 'the action runner is closed')
