import { Worker } from 'node:worker_threads'
import {
  BEAT,
  STOP,
  stopReason,
  type EmitKind,
  type Failure,
  type FromWorker,
  type ToWorker,
  type WorkerFile,
} from './protocol.ts'
import type { LuaValue } from './values.ts'

/** How often the heartbeat is looked at within the time that a stuck script is given. */
const LOOKS = 4
/** A heartbeat may stand still this long however small the CPU limit is: the machine may be busy. */
const MIN_STUCK_MS = 1_000
/** Time for a worker to end what it computes after a stop, before it is ended. */
const STOP_GRACE_MS = 500

export type Loaded = FromWorker & { readonly type: 'loaded' }

/** How a call ended. After `stuck` and `broken` the worker is gone. */
export type Ending =
  | { readonly type: 'done'; readonly value: LuaValue | undefined }
  | { readonly type: 'failed'; readonly failure: Failure }
  | { readonly type: 'stuck' }
  | { readonly type: 'broken'; readonly message: string }

export type CallHandlers = {
  /** Must not reject. */
  readonly ask: (asked: string, args: readonly LuaValue[]) => Promise<ToWorker & { readonly type: 'reply' }>
  readonly emit: (kind: EmitKind, text: string) => void
}

/**
 * One worker thread with one Lua state, seen from the host: it is started, loads, answers one call at a time, and is ended when
 * it is stuck. "Stuck" is: it should be computing, and its heartbeat (a counter that Lua's hook moves) has stood still for
 * the time that it was given. A slow machine alone does not make a script stuck.
 */
export class LuaWorker {
  readonly #worker: Worker
  readonly #words: Int32Array
  #listener: ((message: FromWorker) => void) | undefined
  #watch: NodeJS.Timeout | undefined
  /** True while Lua waits for the host. */
  #waiting = false
  #stuck: (() => void) | undefined
  #dead = false

  private constructor(start: {
    readonly files: readonly WorkerFile[]
    readonly loadCpuMs: number
    readonly memoryBytes: number
  }) {
    const shared = new SharedArrayBuffer(8)
    this.#words = new Int32Array(shared)
    // `worker.ts` beside the sources, `worker.js` beside the build.
    const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
    this.#worker = new Worker(new URL(`./worker${extension}`, import.meta.url), {
      workerData: { ...start, shared },
      env: {},
      execArgv: [], // the host's own flags (--input-type, --inspect) are not for this thread
      stdout: true, // what the WebAssembly module prints when it aborts is not for the host's terminal
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: 256 + Math.ceil((start.memoryBytes * 4) / (1 << 20)) },
    })
    this.#worker.on('message', (message: FromWorker) => this.#listener?.(message))
    this.#worker.on('error', (error) => this.#lost(error instanceof Error ? error.message : String(error)))
    this.#worker.on('exit', (code) => this.#lost(`the worker ended with code ${code}`))
  }

  /** Starts a worker and loads the files. `stuckIn` names the file that did not come back. */
  static async start(
    options: { readonly files: readonly WorkerFile[]; readonly loadCpuMs: number; readonly memoryBytes: number },
    print: (text: string) => void,
  ): Promise<{
    readonly worker: LuaWorker
    readonly loaded: Loaded | { readonly stuckIn: string } | { readonly broken: string }
  }> {
    const worker = new LuaWorker(options)
    let file = ''
    const loaded = await new Promise<Loaded | { readonly stuckIn: string } | { readonly broken: string }>((resolve) => {
      worker.#listener = (message) => {
        switch (message.type) {
          case 'loading':
            file = message.file
            worker.#expect(options.loadCpuMs, () => resolve({ stuckIn: file }))
            break
          case 'emit':
            print(message.text)
            break
          case 'loaded':
            resolve(message)
            break
          case 'broken':
            resolve({ broken: message.message })
            break
          case 'ask':
          case 'done':
          case 'failed':
            break
          default:
            message satisfies never
        }
      }
    })
    worker.#rest()
    if (!('type' in loaded)) await worker.end()
    return { worker, loaded }
  }

  /** True when a call ended the worker: start another one. */
  get dead(): boolean {
    return this.#dead
  }

  /** Runs one call. There must be no other. */
  async call(message: ToWorker & { readonly type: 'call' }, handlers: CallHandlers): Promise<Ending> {
    if (this.#dead) return { type: 'broken', message: 'the worker has ended' }
    Atomics.store(this.#words, STOP, stopReason.none)
    this.#worker.ref()
    const ending = await new Promise<Ending>((resolve) => {
      const compute = (toWorker: ToWorker): void => {
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker thread has no origin
        this.#worker.postMessage(toWorker)
        this.#expect(message.cpuMs, () => resolve({ type: 'stuck' }))
      }
      const answer = async (asked: string, args: readonly LuaValue[]): Promise<void> => {
        this.#waiting = true
        this.#unwatch()
        const reply = await handlers.ask(asked, args)
        this.#waiting = false
        if (!this.#dead) compute(reply)
      }
      this.#listener = (from) => {
        switch (from.type) {
          case 'ask':
            void answer(from.asked, from.args)
            break
          case 'emit':
            handlers.emit(from.kind, from.text)
            break
          case 'done':
          case 'failed':
          case 'broken':
            resolve(from)
            break
          case 'loading':
          case 'loaded':
            break
          default:
            from satisfies never
        }
      }
      compute(message)
    })
    this.#rest()
    if (ending.type === 'stuck' || ending.type === 'broken') await this.end()
    return ending
  }

  /**
   * Makes Lua end the call: at once where it computes, with the host's answer where it waits for one. What does not end is
   * ended with its worker.
   */
  stop(reason: 'aborted' | 'wall'): void {
    Atomics.compareExchange(this.#words, STOP, stopReason.none, stopReason[reason])
    if (!this.#waiting) this.#expectWithin(STOP_GRACE_MS)
  }

  /** Ends the thread, whatever it does. A call that runs ends `broken`. */
  async end(): Promise<void> {
    this.#dead = true
    this.#unwatch()
    await this.#worker.terminate()
  }

  #expect(cpuMs: number, stuck: () => void): void {
    this.#stuck = stuck
    if (Atomics.load(this.#words, STOP) !== stopReason.none) {
      this.#expectWithin(STOP_GRACE_MS)
      return
    }
    this.#unwatch()
    let beat = Atomics.load(this.#words, BEAT)
    let still = 0
    this.#watch = setInterval(
      () => {
        const now = Atomics.load(this.#words, BEAT)
        still = now === beat ? still + 1 : 0
        beat = now
        if (still >= LOOKS) stuck()
      },
      Math.max(cpuMs, MIN_STUCK_MS) / LOOKS,
    )
  }

  #expectWithin(ms: number): void {
    this.#unwatch()
    this.#watch = setTimeout(() => this.#stuck?.(), ms)
  }

  #unwatch(): void {
    clearInterval(this.#watch)
    this.#watch = undefined
  }

  /** Between calls nothing is expected, and the thread does not keep the process alive. */
  #rest(): void {
    this.#unwatch()
    this.#stuck = undefined
    this.#listener = undefined
    this.#worker.unref()
  }

  #lost(message: string): void {
    this.#dead = true
    this.#unwatch()
    this.#listener?.({ type: 'broken', message })
  }
}
