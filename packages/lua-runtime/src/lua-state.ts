import { LUA_REGISTRYINDEX, LuaReturn, LuaType } from 'wasmoon'
import type { LuaC, State } from './lua-c.ts'
import { MarshalError, NULL_POINTER, createMarshal, decodeLossy, decodeStrict, type Marshal } from './marshal.ts'
import { PRELUDE, PRELUDE_NAME } from './prelude.ts'
import {
  BEAT,
  STOP,
  stopReason,
  type Body,
  type Callee,
  type EmitKind,
  type Failure,
  type FailureCode,
  type FileKind,
  type RawDeclaration,
} from './protocol.ts'
import { isLuaTable, type LuaValue } from './values.ts'

const ASYNC_POINTER = 2
/** Instructions between two looks at the limits: about 50 µs. */
const HOOK_COUNT = 5_000
const MASK_COUNT = 8
/** What `lua_pcallk` answers when all went well (wasmoon types it as a plain number). */
const OK = 0
const OUT_OF_MEMORY = 'not enough memory'
const encoder = new TextEncoder()

export type LuaStateOptions = {
  readonly memoryBytes: number
  readonly shared: Int32Array
  /** CPU time of this thread in milliseconds. */
  readonly cpuMs: () => number
  readonly emit: (kind: EmitKind, text: string) => void
  readonly declare: (declaration: RawDeclaration) => void
}

export type Outcome =
  | { readonly ok: true; readonly value: LuaValue | undefined }
  | { readonly ok: false; readonly failure: Failure }

/** What a host call answers: a value for Lua, or the message of the error that it raises at its caller. */
export type HostReply =
  | { readonly ok: true; readonly value: LuaValue | undefined }
  | { readonly ok: false; readonly message: string }

/** Asks the host for `ctx.<asked>(args…)`. */
export type Ask = (asked: string, args: readonly LuaValue[]) => Promise<HostReply>

const entries = ['modules', 'load', 'loaded', 'call', 'describe'] as const
type Entry = (typeof entries)[number]

const callees: readonly Callee[] = ['agent', 'sandbox', 'tool', 'on', 'command', 'channel']

/**
 * One Lua state: its libraries, its limits, and the calls into it, one at a time. Any exception but those described in an
 * Outcome means that the state cannot be used any more.
 */
export class LuaState {
  readonly #c: LuaC
  readonly #options: LuaStateOptions
  readonly #main: State
  readonly #marshal: Marshal
  readonly #entries = new Map<Entry, number>()
  readonly #memory = { used: 0, refused: false, free: false }
  #deadline = Infinity
  #cpuMs = 0
  #killed: { readonly code: FailureCode; readonly message: string } | undefined

  constructor(c: LuaC, options: LuaStateOptions) {
    this.#c = c
    this.#options = options
    const { api } = c
    this.#memory.free = true
    this.#main = api.lua_newstate(this.#allocator(), null)
    if (this.#main === 0) throw new Error('Lua did not start')
    const L = this.#main
    api.luaopen_base(L)
    api.lua_settop(L, 0)
    for (const library of ['coroutine', 'table', 'string', 'utf8', 'math', 'os', 'debug'] as const) {
      api[`luaopen_${library}`](L)
      api.lua_setglobal(L, library)
    }
    api.lua_sethook(
      L,
      c.pointer((thread) => this.#hook(thread ?? 0), 'vii'),
      MASK_COUNT,
      HOOK_COUNT,
    )
    api.lua_createtable(L, 0, 0)
    const arrayPointer = api.lua_topointer(L, -1)
    const arrayRef = api.luaL_ref(L, LUA_REGISTRYINDEX)
    const pushRef = (thread: State, ref: number): void => {
      api.lua_rawgeti(thread, LUA_REGISTRYINDEX, BigInt(ref))
    }
    this.#marshal = createMarshal(c, {
      maxBytes: options.memoryBytes,
      arrayPointer,
      pushArrayMetatable: (thread) => pushRef(thread, arrayRef),
    })
    this.#boot(() => pushRef(L, arrayRef))
    this.#memory.free = false
  }

  #boot(pushArrayMetatable: () => void): void {
    const { api } = this.#c
    const L = this.#main
    const source = encoder.encode(PRELUDE)
    const buffer = this.#c.malloc(source.length)
    this.#c.api.module.HEAPU8.set(source, buffer)
    const loaded = api.luaL_loadbufferx(L, buffer, source.length, `=${PRELUDE_NAME}`, 't')
    this.#c.free(buffer)
    if (loaded === LuaReturn.Ok) {
      api.lua_pushlightuserdata(L, ASYNC_POINTER)
      api.lua_pushlightuserdata(L, NULL_POINTER)
      this.#pushHost((thread) => this.#fatal(thread))
      this.#pushHost((thread) => this.#emit(thread))
      this.#pushHost((thread) => this.#declare(thread))
      pushArrayMetatable()
    }
    if (loaded !== LuaReturn.Ok || api.lua_pcallk(L, 6, 1, 0, 0, null) !== OK)
      throw new Error(`Lua's prelude failed: ${decodeLossy(this.#c.bytes(L, -1))}`)
    for (const entry of entries) {
      api.lua_getfield(L, -1, entry)
      this.#entries.set(entry, api.luaL_ref(L, LUA_REGISTRYINDEX))
    }
    api.lua_settop(L, 0)
  }

  #pushHost(fn: (thread: State) => number): void {
    this.#c.api.lua_pushcclosure(
      this.#main,
      this.#c.pointer((thread) => fn(thread ?? 0), 'ii'),
      0,
    )
  }

  #allocator(): number {
    const memory = this.#memory
    return this.#c.pointer((_data, pointer = 0, oldSize = 0, newSize = 0) => {
      if (newSize === 0) {
        if (pointer !== 0) {
          memory.used -= oldSize
          this.#c.free(pointer)
        }
        return 0
      }
      const grown = pointer === 0 ? newSize : newSize - oldSize
      if (grown > 0 && !memory.free && memory.used + grown > this.#options.memoryBytes) {
        memory.refused = true
        return 0
      }
      const moved = this.#c.realloc(pointer, newSize)
      if (moved !== 0) memory.used += grown
      else memory.refused = true
      return moved
    }, 'iiiii')
  }

  // ---- what Lua calls. No JavaScript exception may leave these: Lua's own unwinding is one.

  /** Raises in `thread` when a limit is reached; after that, again and again, until the call is over. */
  #hook(thread: State): void {
    Atomics.add(this.#options.shared, BEAT, 1)
    this.#look()
    if (this.#killed === undefined) return
    this.#c.api.luaL_where(thread, 0)
    this.#c.pushBytes(thread, encoder.encode(this.#killed.message))
    this.#c.api.lua_concat(thread, 2)
    this.#c.api.lua_error(thread)
  }

  #look(): void {
    const stop = Atomics.load(this.#options.shared, STOP)
    if (this.#killed !== undefined) return
    if (stop === stopReason.aborted) this.#killed = { code: 'lua_aborted', message: 'the call was aborted' }
    else if (stop === stopReason.wall)
      this.#killed = { code: 'lua_limit', message: 'the wall clock limit was exceeded' }
    else if (this.#options.cpuMs() > this.#deadline)
      this.#killed = { code: 'lua_limit', message: `the CPU limit of ${this.#cpuMs} ms was exceeded` }
  }

  /** fatal(message): must this error go up to the host? */
  #fatal(thread: State): number {
    if (this.#killed === undefined && this.#memory.refused && this.#isOutOfMemory(thread, 1))
      this.#killed = { code: 'lua_limit', message: this.#memoryMessage() }
    this.#c.api.lua_pushboolean(thread, this.#killed === undefined ? 0 : 1)
    return 1
  }

  #memoryMessage(): string {
    return `the memory limit of ${this.#options.memoryBytes} bytes was exceeded`
  }

  #isOutOfMemory(thread: State, index: number): boolean {
    const { api } = this.#c
    if (api.lua_type(thread, index) !== LuaType.String) return false
    return decodeStrict(this.#c.bytes(thread, index)) === OUT_OF_MEMORY
  }

  /** emit(kind, text) */
  #emit(thread: State): number {
    const kind = decodeLossy(this.#c.bytes(thread, 1))
    this.#options.emit(kind === 'progress' || kind === 'log' ? kind : 'print', decodeLossy(this.#c.bytes(thread, 2)))
    return 0
  }

  /** declare(callee, file, line, name, value, functions) */
  #declare(thread: State): number {
    const named = decodeLossy(this.#c.bytes(thread, 1))
    const functions = this.#marshal.read(thread, 6)
    const base: Omit<RawDeclaration, 'name' | 'value' | 'problem'> = {
      callee: callees.find((callee) => callee === named) ?? 'tool',
      file: decodeLossy(this.#c.bytes(thread, 2)),
      line: this.#c.api.lua_tonumberx(thread, 3, null),
      functions: Object.fromEntries(
        isLuaTable(functions)
          ? Object.entries(functions).map(([key, type]) => [key, typeof type === 'string' ? type : 'nil'])
          : [],
      ),
    }
    try {
      const name = this.#marshal.read(thread, 4)
      this.#options.declare({ ...base, name, value: this.#marshal.read(thread, 5) })
    } catch (error) {
      if (!(error instanceof MarshalError)) throw error
      this.#options.declare({ ...base, problem: error.message })
    }
    return 0
  }

  // ---- what the host calls

  /**
   * Gives what `require` finds: name, file and source of each module. They run when they are required.
   *
   * @returns those that do not parse.
   */
  async giveModules(
    modules: readonly (readonly [name: string, file: string, source: string])[],
  ): Promise<readonly (Failure & { readonly file: string })[]> {
    const failures: (Failure & { readonly file: string })[] = []
    for (const [name, file, source] of modules) {
      const outcome = await this.#run('modules', [name, file, source, `@${file}`], 1000)
      if (!outcome.ok) failures.push({ ...outcome.failure, file })
      else if (typeof outcome.value === 'string') failures.push({ ...syntaxFailure(outcome.value), file })
    }
    return failures
  }

  /** Runs one file of the agent; its declarations arrive through `options.declare`. */
  async loadFile(file: string, source: string, kind: FileKind, cpuMs: number): Promise<Outcome> {
    const outcome = await this.#run('load', [file, source, `@${file}`, kind], cpuMs)
    if (!outcome.ok || outcome.value === undefined) return outcome
    const text = typeof outcome.value === 'string' ? outcome.value : 'the file does not parse'
    return { ok: false, failure: syntaxFailure(text) }
  }

  /** Ends the phase in which `tool()` and its like may be called. */
  async finishLoading(): Promise<void> {
    await this.#run('loaded', [], 1000)
  }

  /** Runs a body that a file declared. `ask` is what the functions of `ctx` wait for. */
  async call(
    call: {
      readonly body: Body
      readonly args: LuaValue
      readonly functions: readonly string[]
      readonly workdir: string
      readonly key: string | undefined
      readonly cpuMs: number
    },
    ask: Ask,
  ): Promise<Outcome> {
    const { body, args, workdir, key, functions } = call
    return await this.#run('call', [body.type, body.name, args, workdir, key, functions], call.cpuMs, ask)
  }

  async #run(entry: Entry, args: readonly (LuaValue | undefined)[], cpuMs: number, ask?: Ask): Promise<Outcome> {
    const { api } = this.#c
    this.#killed = undefined
    this.#cpuMs = cpuMs
    this.#memory.refused = false
    const { thread, anchor } = this.#unbounded(() => {
      const created = api.lua_newthread(this.#main)
      return { thread: created, anchor: api.luaL_ref(this.#main, LUA_REGISTRYINDEX) }
    })
    try {
      const refusal = this.#pushAll(thread, entry, args)
      if (refusal !== undefined)
        return { ok: false, failure: { code: 'lua_arguments', text: refusal, traceback: '', spoiled: false } }
      let budget = cpuMs
      let passed = args.length
      for (;;) {
        const before = this.#options.cpuMs()
        this.#deadline = before + budget
        const { code, count } = this.#c.resume(thread, passed)
        budget -= this.#options.cpuMs() - before
        this.#deadline = Infinity
        if (code === LuaReturn.Ok) return this.#result(thread, count)
        if (code !== LuaReturn.Yield) return { ok: false, failure: this.#failure(thread, code) }
        const reply = await this.#answer(thread, count, ask)
        this.#look()
        passed = this.#pushReply(thread, reply)
      }
    } finally {
      this.#unbounded(() => {
        api.lua_resetthread(thread) // closes what is still to be closed
        api.luaL_unref(this.#main, LUA_REGISTRYINDEX, anchor)
      })
    }
  }

  /**
   * The host works on the stack outside of any protected call, where an error of memory would end the process: there the
   * limit is lifted, and large values are weighed before they are pushed.
   */
  #unbounded<T>(work: () => T): T {
    this.#memory.free = true
    try {
      return work()
    } finally {
      this.#memory.free = false
    }
  }

  #pushEntry(thread: State, entry: Entry): void {
    this.#c.api.lua_rawgeti(thread, LUA_REGISTRYINDEX, BigInt(this.#entries.get(entry) ?? 0))
  }

  #pushAll(thread: State, entry: Entry, args: readonly (LuaValue | undefined)[]): string | undefined {
    return this.#unbounded(() => {
      this.#pushEntry(thread, entry)
      try {
        for (const value of args) this.#marshal.push(thread, value)
        return undefined
      } catch (error) {
        if (error instanceof MarshalError) return error.message
        throw error
      }
    })
  }

  #result(thread: State, count: number): Outcome {
    if (count === 0) return { ok: true, value: undefined }
    try {
      return {
        ok: true,
        value: this.#unbounded(() => this.#marshal.read(thread, this.#c.api.lua_gettop(thread) - count + 1)),
      }
    } catch (error) {
      if (!(error instanceof MarshalError)) throw error
      return {
        ok: false,
        failure: { code: 'lua_runtime', text: `the result: ${error.message}`, traceback: '', spoiled: false },
      }
    }
  }

  /** Answers what Lua yielded: (ASYNC, name, …). */
  async #answer(thread: State, count: number, ask?: Ask): Promise<HostReply> {
    const { api } = this.#c
    const first = api.lua_gettop(thread) - count + 1
    const isAsking = count >= 2 && api.lua_touserdata(thread, first) === ASYNC_POINTER && ask !== undefined
    if (!isAsking) throw new Error('Lua yielded something that the host does not know')
    const asked = decodeLossy(this.#c.bytes(thread, first + 1))
    const args: LuaValue[] = []
    try {
      for (let index = first + 2; index < first + count; index++) args.push(this.#marshal.read(thread, index) ?? null)
    } catch (error) {
      if (!(error instanceof MarshalError)) throw error
      return { ok: false, message: `ctx.${asked}: ${error.message}` }
    } finally {
      api.lua_settop(thread, first - 1)
    }
    return await ask(asked, args)
  }

  /** Puts (ok, value) on the stack, or (false, why) when the call must end. */
  #pushReply(thread: State, reply: HostReply): number {
    const { api } = this.#c
    const weight = reply.ok ? weightOf(reply.value) : 0
    if (this.#memory.used + weight > this.#options.memoryBytes)
      this.#killed ??= {
        code: 'lua_limit',
        message: `${this.#memoryMessage()} by the ${weight} bytes of an answer of the host`,
      }
    const told: HostReply = this.#killed === undefined ? reply : { ok: false, message: this.#killed.message }
    this.#unbounded(() => {
      api.lua_pushboolean(thread, told.ok ? 1 : 0)
      const top = api.lua_gettop(thread)
      try {
        this.#marshal.push(thread, told.ok ? told.value : told.message)
      } catch (error) {
        if (!(error instanceof MarshalError)) throw error
        api.lua_settop(thread, top - 1)
        api.lua_pushboolean(thread, 0)
        this.#marshal.push(thread, error.message)
      }
    })
    return 2
  }

  #failure(thread: State, code: LuaReturn): Failure {
    const { api } = this.#c
    if (this.#killed === undefined && code === LuaReturn.ErrorMem)
      this.#killed = { code: 'lua_limit', message: this.#memoryMessage() }
    return this.#unbounded(() => {
      api.luaL_traceback(this.#main, thread, null, 0)
      const traceback = decodeLossy(this.#c.bytes(this.#main, -1))
      api.lua_pop(this.#main, 1)
      const spoiled = this.#memory.refused && this.#killed?.message.startsWith('the memory limit') === true
      const text = spoiled ? (this.#killed?.message ?? '') : this.#describe(thread)
      return { code: this.#killed?.code ?? 'lua_runtime', text, traceback, spoiled }
    })
  }

  /** Text of the error value on top of `thread`. */
  #describe(thread: State): string {
    const { api } = this.#c
    const killed = this.#killed
    this.#killed = undefined
    this.#deadline = this.#options.cpuMs() + 100
    this.#pushEntry(this.#main, 'describe')
    api.lua_pushvalue(thread, -1)
    api.lua_xmove(thread, this.#main, 1)
    const code = api.lua_pcallk(this.#main, 1, 1, 0, 0, null)
    const text =
      code === OK && api.lua_type(this.#main, -1) === LuaType.String
        ? decodeLossy(this.#c.bytes(this.#main, -1))
        : 'an error without text'
    api.lua_settop(this.#main, 0)
    this.#deadline = Infinity
    this.#killed = killed
    return text
  }
}

const syntaxFailure = (text: string): Failure => ({ code: 'lua_syntax', text, traceback: '', spoiled: false })

/** About what a value takes in Lua: the bytes of its text, and what a table takes for each of its parts. */
function weightOf(value: LuaValue | undefined): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (value instanceof Uint8Array) return value.length
  if (typeof value !== 'object' || value === null) return 16
  const parts: readonly (LuaValue | undefined)[] = Array.isArray(value)
    ? value
    : Object.entries(value).flatMap(([key, part]) => [key, part])
  return parts.reduce<number>((sum, part) => sum + 40 + weightOf(part), 64)
}
