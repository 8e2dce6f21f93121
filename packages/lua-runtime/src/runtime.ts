import { didYouMean, messageOf } from '@reve/base'
import { bindArguments } from './arguments.ts'
import type { HookDeclaration, LuaProgram, LuaSources, Position } from './declarations.ts'
import { LuaError, type LuaErrorCode, type LuaIssue } from './errors.ts'
import { authorTraceback, failureIssue } from './failure.ts'
import { LuaWorker, type Ending } from './lua-worker.ts'
import { buildProgram, sourceLine } from './program.ts'
import type { Body, EmitKind, ToWorker, WorkerFile } from './protocol.ts'
import type { JsonObject, LuaValue } from './values.ts'

/** What a command left behind. Text or bytes; the exit code is data. */
export type ShResult = {
  readonly stdout: string | Uint8Array
  readonly stderr: string | Uint8Array
  readonly exitCode: number
}

/** A function of the host that a script calls as `ctx.<name>(…)`: its arguments as plain values, nil as null. */
export type HostFunction = (args: readonly LuaValue[], signal: AbortSignal) => Promise<LuaValue | undefined>

/** What `ctx` reaches during one call. The runtime knows nothing of what these do. */
export type LuaHostCalls = {
  /**
   * `ctx.sh`. The signal fires when the call is aborted or out of time; then the call waits up to `abortGraceMs` for the promise.
   * A rejection is raised as a Lua error at the caller's line.
   */
  sh(command: string, signal: AbortSignal): Promise<ShResult>
  /** More functions of `ctx`, by name; each is waited for as `sh` is. */
  readonly functions?: Readonly<Record<string, HostFunction>>
  /** `ctx.progress(text)`; dropped when absent. Raw text of a script: sanitise it before a terminal sees it. */
  progress?(text: string): void
  /** `ctx.log(text)`; dropped when absent. As raw as progress. */
  log?(text: string): void
  /** `print(…)`, the values joined by tabs; dropped when absent. */
  print?(text: string): void
  /** `ctx.workdir` */
  readonly workdir: string
}

/** A body of the program that is no tool. */
export type LuaBody =
  | { readonly type: 'command'; readonly name: string }
  /** `on(event, …)`: the place of the declaration in `program.hooks`. */
  | { readonly type: 'hook'; readonly hook: HookDeclaration }
  | { readonly type: 'poll' | 'reply'; readonly channel: string }

/** Limits, in milliseconds and bytes. Lua code cannot catch any of them. */
export type LuaLimits = {
  /** CPU for each file at load. Default 1,000. */
  readonly loadCpuMs?: number
  /** CPU for each call, without the time spent waiting for `ctx.sh`. Default 10,000. */
  readonly cpuMs?: number
  /** Wall clock for each call, `ctx.sh` included. Default: none. */
  readonly wallMs?: number
  /** Memory of the Lua state. Default 64 MiB. */
  readonly memoryBytes?: number
  /** How long an aborted call waits for a `ctx.sh` that is still running. Default 5,000. */
  readonly abortGraceMs?: number
}

export type LuaOptions = LuaLimits & {
  /** `print` while the files are loaded; dropped when absent. */
  readonly print?: (text: string) => void
}

export type CallOptions = {
  /** Ends the call with `lua_aborted`, also while it waits in the queue. */
  readonly signal?: AbortSignal
  /** `ctx.idempotency_key` */
  readonly idempotencyKey?: string
  readonly cpuMs?: number
  readonly wallMs?: number
}

/** A loaded program. One call runs at a time; more are queued in order. */
export interface LuaRuntime {
  readonly program: LuaProgram
  /**
   * Runs a tool's body and gives the tool's text: a string as it is (U+FFFD for what is not UTF-8), `''` for nil, else
   * pretty JSON.
   *
   * @param args a JSON object, as the model sent it; defaults, types, enums and required ones are settled before the body runs.
   * @throws LuaError of every code but `lua_syntax` and `lua_declaration`. The runtime can be used after each of them; after
   * `lua_stuck` and a memory limit the next call loads the program anew (module-level state of the script is lost).
   */
  call(tool: string, args: JsonObject, host: LuaHostCalls, options?: CallOptions): Promise<string>
  /**
   * Runs a command (with the text after its name), a hook (with what happened) or a channel's function (`reply` with the answer;
   * `poll` takes nothing), and gives its first value; undefined for nil.
   *
   * @throws LuaError as `call`; `lua_unknown_tool` for a body that the program does not have.
   */
  run(body: LuaBody, args: LuaValue, host: LuaHostCalls, options?: CallOptions): Promise<LuaValue | undefined>
  /** Ends the worker. A running call ends `lua_aborted`. Idempotent. */
  close(): Promise<void>
  /** The same as `close()`: `await using lua = await loadLua(…)`. */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Loads an agent's Lua files in a worker thread: `agent{}` is known in `agent` only, `sandbox{}` in `sandbox` only, `tool()` in
 * `tools` only, `channel{}` in `channels` only; `on()` and `command()` in `agent` and `tools`. Modules of `lib` must parse, and run
 * when they are required.
 *
 * @throws LuaError with all problems of all files.
 */
export async function loadLua(sources: LuaSources, options: LuaOptions = {}): Promise<LuaRuntime> {
  const files: readonly WorkerFile[] = [
    ...(sources.agent === undefined ? [] : [{ kind: 'agent' as const, ...sources.agent }]),
    ...(sources.sandbox === undefined ? [] : [{ kind: 'sandbox' as const, ...sources.sandbox }]),
    ...(sources.tools ?? []).map((source) => ({ kind: 'tools' as const, ...source })),
    ...(sources.channels ?? []).map((source) => ({ kind: 'channels' as const, ...source })),
    ...(sources.lib ?? []).map((source) => ({ kind: 'lib' as const, ...source })),
  ]
  const limits = {
    loadCpuMs: options.loadCpuMs ?? 1_000,
    cpuMs: options.cpuMs ?? 10_000,
    wallMs: options.wallMs,
    memoryBytes: options.memoryBytes ?? 64 << 20,
    abortGraceMs: options.abortGraceMs ?? 5_000,
  }
  const start = async () => await startWorker(files, limits, options.print)
  const { worker, program } = await start()
  return new Runtime(files, limits, program, worker, async () => (await start()).worker)
}

type Limits = Required<Omit<LuaLimits, 'wallMs'>> & { readonly wallMs: number | undefined }

async function startWorker(files: readonly WorkerFile[], limits: Limits, print: LuaOptions['print']) {
  const { worker, loaded } = await LuaWorker.start({ files, ...pick(limits) }, (text) => print?.(text))
  if ('stuckIn' in loaded) {
    const message = `the file did not come back within ${limits.loadCpuMs} ms; its worker was ended`
    throw new LuaError([{ code: 'lua_stuck', file: loaded.stuckIn, message }])
  }
  if ('broken' in loaded)
    throw new LuaError([{ code: 'lua_limit', message: `Lua broke down while loading: ${loaded.broken}` }])
  const failures = loaded.failures.map((failure) => failureIssue(files, failure, { file: failure.file }))
  const { program, issues } = buildProgram(files, loaded.declarations)
  const all = [...failures, ...issues]
  if (all.length === 0) return { worker, program }
  await worker.end()
  const traceback = loaded.failures
    .map((failure) => authorTraceback(files, failure.traceback))
    .find((text) => text !== '')
  throw new LuaError(all, { traceback })
}

const pick = ({ loadCpuMs, memoryBytes }: Limits) => ({ loadCpuMs, memoryBytes })

class Runtime implements LuaRuntime {
  readonly program: LuaProgram
  readonly #files: readonly WorkerFile[]
  readonly #limits: Limits
  readonly #restart: () => Promise<LuaWorker>
  #worker: LuaWorker
  #turn: Promise<void> = Promise.resolve()
  readonly #closing = new AbortController()

  constructor(
    files: readonly WorkerFile[],
    limits: Limits,
    program: LuaProgram,
    worker: LuaWorker,
    restart: () => Promise<LuaWorker>,
  ) {
    this.#files = files
    this.#limits = limits
    this.program = program
    this.#worker = worker
    this.#restart = restart
  }

  async call(name: string, args: JsonObject, host: LuaHostCalls, options: CallOptions = {}): Promise<string> {
    const tool = this.program.tools.find((candidate) => candidate.name === name)
    if (tool === undefined) {
      const names = this.program.tools.map((candidate) => candidate.name)
      const known = names.length === 0 ? 'there are none' : `there are ${names.join(', ')}`
      throw new LuaError([
        { code: 'lua_unknown_tool', message: `there is no Lua tool "${name}"${didYouMean(name, names)}; ${known}` },
      ])
    }
    const bound = bindArguments(tool, args)
    if ('problems' in bound) {
      const at = { file: tool.at.file, line: tool.at.line }
      throw new LuaError(bound.problems.map((message) => ({ code: 'lua_arguments', message, ...at })))
    }
    const target: Target = { body: { type: 'tool', name }, what: `tool "${name}"`, at: tool.at }
    const text = await this.#inTurn(target, { args: bound.args, gives: 'text' }, host, options)
    return typeof text === 'string' ? text : ''
  }

  async run(
    body: LuaBody,
    args: LuaValue,
    host: LuaHostCalls,
    options: CallOptions = {},
  ): Promise<LuaValue | undefined> {
    return await this.#inTurn(this.#targetOf(body), { args, gives: 'value' }, host, options)
  }

  #targetOf(body: LuaBody): Target {
    const missing = (what: string): LuaError =>
      new LuaError([{ code: 'lua_unknown_tool', message: `there is no ${what} here` }])
    switch (body.type) {
      case 'command': {
        const { name } = body
        const found = this.program.commands.find((command) => command.name === name)
        if (found === undefined) throw missing(`command "${name}"`)
        return { body: { type: 'command', name }, what: `command "${name}"`, at: found.at }
      }
      case 'hook': {
        const { event, index, at } = body.hook
        return { body: { type: 'hook', name: index + 1 }, what: `on("${event}")`, at }
      }
      case 'poll':
      case 'reply': {
        const { type } = body
        const found = this.program.channels.find(({ name }) => name === body.channel)
        if (found === undefined || (type === 'reply' && !found.canReply))
          throw missing(`${type} of a channel "${body.channel}"`)
        return { body: { type, name: found.at.file }, what: `${type} of channel "${found.name}"`, at: found.at }
      }
      default:
        return body satisfies never
    }
  }

  async #inTurn(
    target: Target,
    call: { readonly args: LuaValue; readonly gives: 'text' | 'value' },
    host: LuaHostCalls,
    options: CallOptions,
  ): Promise<LuaValue | undefined> {
    const signal =
      options.signal === undefined ? this.#closing.signal : AbortSignal.any([options.signal, this.#closing.signal])
    const before = this.#turn
    const { promise: done, resolve: finish } = Promise.withResolvers<void>()
    this.#turn = before.then(() => done)
    try {
      await unlessAborted(before, signal)
      if (signal.aborted) throw this.#error('lua_aborted', this.#abortText(), target)
      return await this.#run(target, call, host, options, signal)
    } finally {
      finish()
    }
  }

  async #run(
    target: Target,
    call: { readonly args: LuaValue; readonly gives: 'text' | 'value' },
    host: LuaHostCalls,
    options: CallOptions,
    signal: AbortSignal,
  ): Promise<LuaValue | undefined> {
    if (this.#worker.dead) {
      const fresh = await this.#restart()
      this.#worker = fresh
      if (this.#closing.signal.aborted) await fresh.end()
      if (signal.aborted) throw this.#error('lua_aborted', this.#abortText(), target)
    }
    const worker = this.#worker
    const wallMs = options.wallMs ?? this.#limits.wallMs
    const stopping = new AbortController()
    let stopped: 'aborted' | 'wall' | undefined
    const stop = (reason: 'aborted' | 'wall'): void => {
      if (stopped !== undefined) return
      stopped = reason
      worker.stop(reason)
      stopping.abort(
        new LuaError([{ code: reason === 'wall' ? 'lua_limit' : 'lua_aborted', message: 'the call was stopped' }]),
      )
    }
    const aborted = (): void => stop('aborted')
    signal.addEventListener('abort', aborted, { once: true })
    const wall = wallMs === undefined ? undefined : setTimeout(() => stop('wall'), wallMs)
    const faults = new HostFaults()
    let ending: Ending
    const cpuMs = options.cpuMs ?? this.#limits.cpuMs
    try {
      ending = await worker.call(
        {
          type: 'call',
          body: target.body,
          ...call,
          functions: ['sh', ...Object.keys(host.functions ?? {})],
          workdir: host.workdir,
          key: options.idempotencyKey,
          cpuMs,
        },
        {
          ask: async (asked, args) => await this.#ask(host, asked, args, stopping.signal, faults),
          emit: (kind, text) => faults.guard(kind, () => said(host, kind, text)),
        },
      )
    } finally {
      signal.removeEventListener('abort', aborted)
      clearTimeout(wall)
    }
    return await this.#settle(ending, target, { stopped, wallMs, cpuMs, faults })
  }

  async #ask(
    host: LuaHostCalls,
    asked: string,
    args: readonly LuaValue[],
    signal: AbortSignal,
    faults: HostFaults,
  ): Promise<ToWorker & { readonly type: 'reply' }> {
    // Lua may have asked just before it saw the stop: nothing starts after an abort.
    if (signal.aborted) return { type: 'reply', ok: false, message: this.#abortText() }
    try {
      const answer = asked === 'sh' ? sh(host, args, signal) : host.functions?.[asked]?.(args, signal)
      if (answer === undefined) throw new Error('this host has no such function')
      const value = await withinGrace(answer, asked, signal, this.#limits.abortGraceMs)
      return { type: 'reply', ok: true, value }
    } catch (error) {
      const message = asked === 'sh' ? messageOf(error) : `ctx.${asked}: ${messageOf(error)}`
      faults.raised = { message, cause: error }
      return { type: 'reply', ok: false, message }
    }
  }

  async #settle(
    ending: Ending,
    target: Target,
    call: {
      readonly stopped: 'aborted' | 'wall' | undefined
      readonly wallMs: number | undefined
      readonly cpuMs: number
      readonly faults: HostFaults
    },
  ): Promise<LuaValue | undefined> {
    const wallText = `${target.what}: the wall clock limit of ${call.wallMs} ms was exceeded`
    switch (ending.type) {
      case 'done': // also when a stop came too late to change anything
        if (call.faults.callback !== undefined) throw call.faults.callback
        return ending.value
      case 'failed': {
        const { failure } = ending
        if (failure.spoiled) await this.#worker.end()
        const text =
          failure.code === 'lua_aborted'
            ? failure.text.replace('the call was aborted', this.#abortText())
            : failure.text
        const issue = failureIssue(this.#files, { ...failure, text }, { ...target.at, what: `${target.what}: ` })
        const cause = call.faults.causeOf(failure.text)
        throw new LuaError([issue], {
          traceback: authorTraceback(this.#files, failure.traceback),
          ...(cause === undefined ? {} : { cause }),
        })
      }
      case 'stuck':
        if (call.stopped === 'aborted') throw this.#error('lua_aborted', this.#abortText(), target)
        if (call.stopped === 'wall') throw this.#error('lua_limit', wallText, target)
        throw this.#error(
          'lua_stuck',
          `${target.what} did not come back from one library call within ${call.cpuMs} ms (a pattern that explodes?); its worker was ended`,
          target,
        )
      case 'broken':
        if (call.stopped === 'aborted') throw this.#error('lua_aborted', this.#abortText(), target)
        throw this.#error(
          'lua_limit',
          `${target.what} broke the Lua state: ${ending.message}; its worker was ended`,
          target,
        )
      default:
        return ending satisfies never
    }
  }

  #abortText(): string {
    return this.#closing.signal.aborted ? 'the Lua runtime was closed' : 'the call was aborted'
  }

  #error(code: LuaErrorCode, message: string, { at }: Target): LuaError {
    const text = sourceLine(
      this.#files.find((file) => file.file === at.file),
      at.line,
    )
    const { file, line } = at
    const issue: LuaIssue = { code, message, file, line, ...(text === undefined ? {} : { sourceLine: text }) }
    return new LuaError([issue])
  }

  async close(): Promise<void> {
    this.#closing.abort()
    await this.#turn
    await this.#worker.end()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** What is called: for Lua, for messages, and where it was declared. */
type Target = { readonly body: Body; readonly what: string; readonly at: Position }

/** What the host's own functions threw during one call. */
class HostFaults {
  /** The last rejection of a function of `ctx`: the cause of the Lua error that it became. */
  raised: { readonly message: string; readonly cause: unknown } | undefined
  callback: LuaError | undefined

  guard(kind: string, work: () => void): void {
    try {
      work()
    } catch (error) {
      this.callback ??= new LuaError(
        [{ code: 'lua_runtime', message: `the host's ${kind} failed: ${messageOf(error)}` }],
        { cause: error },
      )
    }
  }

  causeOf(text: string): unknown {
    return this.raised !== undefined && text.endsWith(this.raised.message) ? this.raised.cause : undefined
  }
}

function said(host: LuaHostCalls, kind: EmitKind, text: string): void {
  switch (kind) {
    case 'print':
      return host.print?.(text)
    case 'progress':
      return host.progress?.(text)
    case 'log':
      return host.log?.(text)
    default:
      return kind satisfies never
  }
}

async function sh(
  host: LuaHostCalls,
  [command]: readonly LuaValue[],
  signal: AbortSignal,
): Promise<string | Uint8Array> {
  if (typeof command !== 'string') throw new Error('ctx.sh: the command is not UTF-8 text')
  if (command.includes('\0')) throw new Error('ctx.sh: a command cannot hold a NUL byte')
  return shText(await host.sh(command, signal))
}

/** What `ctx.sh` gives: stdout, or stdout followed by stderr when stderr is not empty. */
function shText({ stdout, stderr }: ShResult): string | Uint8Array {
  if (stderr.length === 0) return stdout
  if (typeof stdout === 'string' && typeof stderr === 'string') return stdout + stderr
  return Buffer.concat([Buffer.from(stdout), Buffer.from(stderr)])
}

async function unlessAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const { promise: aborted, resolve } = Promise.withResolvers<void>()
  const listener = (): void => resolve()
  signal.addEventListener('abort', listener, { once: true })
  await Promise.race([promise, aborted])
  signal.removeEventListener('abort', listener)
}

/** The promise, or a rejection `ms` after the signal fired. */
async function withinGrace<T>(promise: Promise<T>, asked: string, signal: AbortSignal, ms: number): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  let timer: NodeJS.Timeout | undefined
  const listener = (): void => {
    timer = setTimeout(() => reject(new Error(`ctx.${asked} did not end within ${ms} ms of the abort`)), ms)
  }
  if (signal.aborted) listener()
  else signal.addEventListener('abort', listener, { once: true })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', listener)
  }
}
