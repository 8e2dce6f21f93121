import { LuaFactory, type LuaReturn, type LuaWasm } from 'wasmoon'

/*
 * The part of Lua's C API that wasmoon wraps badly: strings with lengths (its wrapper cuts at NUL and mangles bytes), C
 * functions written in JavaScript, and the allocator. Everything else is called on `api` directly.
 */

/** Address of a `lua_State`. */
export type State = number

export type LuaC = {
  readonly api: LuaWasm
  /** The bytes of the string at index `i`, copied. The value there must be a string. */
  bytes(L: State, i: number): Uint8Array
  pushBytes(L: State, bytes: Uint8Array): void
  /** Puts `fn` into the table of functions that Lua can call; signature as Emscripten writes it (`ii`: one int in, one out). */
  pointer(fn: (...args: number[]) => number | void, signature: string): number
  /** `lua_resume`: its code and the number of values on top of `L`. */
  resume(L: State, nargs: number): { readonly code: LuaReturn; readonly count: number }
  malloc(size: number): number
  realloc(pointer: number, size: number): number
  free(pointer: number): void
}

const isRawFunction = (value: unknown): value is (...args: number[]) => number => typeof value === 'function'

function rawExport(module: object, name: string): (...args: number[]) => number {
  const value: unknown = Reflect.get(module, name)
  if (!isRawFunction(value)) throw new Error(`this build of Lua has no ${name}`)
  return value
}

/** Instantiates Lua's WebAssembly module: one a worker. */
export async function loadLuaC(): Promise<LuaC> {
  const api = await new LuaFactory().getLuaModule()
  const { module } = api
  const tolstring = rawExport(module, '_lua_tolstring')
  const pushlstring = rawExport(module, '_lua_pushlstring')
  const realloc = rawExport(module, '_realloc')
  const malloc = (size: number): number => {
    const pointer = module._malloc(size)
    if (pointer === 0) throw new Error('WebAssembly is out of memory')
    return pointer
  }
  const word = malloc(4)
  return {
    api,
    bytes(L, i) {
      const start = tolstring(L, i, word)
      const length = module.HEAPU32[word >> 2] ?? 0
      return module.HEAPU8.slice(start, start + length)
    },
    pushBytes(L, bytes) {
      const pointer = malloc(bytes.length + 1)
      try {
        module.HEAPU8.set(bytes, pointer)
        pushlstring(L, pointer, bytes.length)
      } finally {
        module._free(pointer)
      }
    },
    pointer: (fn, signature) => module.addFunction(fn, signature),
    resume(L, nargs) {
      const code = api.lua_resume(L, null, nargs, word)
      return { code, count: module.HEAP32[word >> 2] ?? 0 }
    },
    malloc,
    realloc,
    free: (pointer) => {
      module._free(pointer)
    },
  }
}
