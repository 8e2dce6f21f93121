import { LuaType } from 'wasmoon'
import type { LuaC, State } from './lua-c.ts'
import type { LuaValue } from './values.ts'

/** Address of the light userdata that stands for `json.null`. */
export const NULL_POINTER = 1
const MAX_DEPTH = 100
const MAX_VALUES = 250_000

const encoder = new TextEncoder()
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const lossy = new TextDecoder('utf-8', { ignoreBOM: true })

/** A value that cannot cross the border; the message says which part of it and why. */
export class MarshalError extends Error {
  override readonly name = 'MarshalError'
}

/** Text of bytes; what is not UTF-8 becomes U+FFFD. */
export const decodeLossy = (bytes: Uint8Array): string => lossy.decode(bytes)

/** The text, or undefined when the bytes are not UTF-8. */
export function decodeStrict(bytes: Uint8Array): string | undefined {
  try {
    return strict.decode(bytes)
  } catch (error) {
    if (error instanceof TypeError) return undefined
    throw error
  }
}

export type Marshal = {
  /** Reads the value at index `i`; `undefined` is nil. Throws MarshalError and leaves the stack as it was. */
  read(L: State, i: number): LuaValue | undefined
  push(L: State, value: LuaValue | undefined): void
}

/**
 * @param options.maxBytes of strings in one value that leaves Lua: shared tables could make it any size.
 * @param options.arrayMetatable pushes the metatable that marks a table as a list.
 */
export function createMarshal(
  c: LuaC,
  options: {
    readonly maxBytes: number
    readonly arrayPointer: number
    readonly pushArrayMetatable: (L: State) => void
  },
): Marshal {
  const { api } = c
  type Reading = { values: number; bytes: number; readonly open: Set<number>; readonly path: (string | number)[] }

  const refuse = (reading: Reading, what: string): MarshalError =>
    new MarshalError(reading.path.length === 0 ? what : `${showPath(reading.path)}: ${what}`)

  function readNumber(L: State, i: number): number | bigint {
    if (!api.lua_isinteger(L, i)) return api.lua_tonumberx(L, i, null)
    const integer = api.lua_tointegerx(L, i, null)
    return integer >= BigInt(Number.MIN_SAFE_INTEGER) && integer <= BigInt(Number.MAX_SAFE_INTEGER)
      ? Number(integer)
      : integer
  }

  function readString(L: State, i: number, reading: Reading): Uint8Array {
    const bytes = c.bytes(L, i)
    reading.bytes += bytes.length
    if (reading.bytes > options.maxBytes) throw refuse(reading, `the value holds more than ${options.maxBytes} bytes`)
    return bytes
  }

  function readAt(L: State, i: number, reading: Reading): LuaValue | undefined {
    if (++reading.values > MAX_VALUES) throw refuse(reading, `the value has more than ${MAX_VALUES} parts`)
    const kind = api.lua_type(L, i)
    switch (kind) {
      case LuaType.None:
      case LuaType.Nil:
        return undefined
      case LuaType.Boolean:
        return api.lua_toboolean(L, i) !== 0
      case LuaType.Number:
        return readNumber(L, i)
      case LuaType.String: {
        const bytes = readString(L, i, reading)
        return decodeStrict(bytes) ?? bytes
      }
      case LuaType.LightUserdata:
        if (api.lua_touserdata(L, i) === NULL_POINTER) return null
        break
      case LuaType.Table:
        return readTable(L, api.lua_absindex(L, i), reading)
      case LuaType.Function:
      case LuaType.Userdata:
      case LuaType.Thread:
        break
      default:
        kind satisfies never
    }
    throw refuse(reading, `a ${api.lua_typename(L, kind)} cannot leave Lua`)
  }

  function readKey(L: State, reading: Reading): string | number {
    const type = api.lua_type(L, -2)
    if (type === LuaType.String) {
      const key = decodeStrict(readString(L, -2, reading))
      if (key === undefined) throw refuse(reading, 'a table key is not UTF-8')
      return key
    }
    if (type === LuaType.Number && api.lua_isinteger(L, -2)) {
      const key = Number(api.lua_tointegerx(L, -2, null))
      if (Number.isSafeInteger(key)) return key
    }
    throw refuse(reading, 'table keys must be strings, or the integers 1 to n')
  }

  function readTable(L: State, i: number, reading: Reading): LuaValue {
    const identity = api.lua_topointer(L, i)
    if (reading.open.has(identity)) throw refuse(reading, 'the table contains itself')
    if (reading.open.size >= MAX_DEPTH) throw refuse(reading, `tables are nested deeper than ${MAX_DEPTH}`)
    if (!api.lua_checkstack(L, 8)) throw refuse(reading, 'the Lua stack is full')
    reading.open.add(identity)
    const integers = new Map<number, LuaValue>()
    const strings: [string, LuaValue][] = []
    api.lua_pushnil(L)
    while (api.lua_next(L, i)) {
      const key = readKey(L, reading)
      reading.path.push(key)
      const value = readAt(L, -1, reading) ?? null
      reading.path.pop()
      if (typeof key === 'number') integers.set(key, value)
      else strings.push([key, value])
      api.lua_pop(L, 1)
    }
    reading.open.delete(identity)
    if (integers.size > 0 && strings.length > 0) throw refuse(reading, 'the table mixes a list with string keys')
    if (integers.size > 0) return list(integers, reading)
    if (strings.length === 0 && isMarkedArray(L, i)) return []
    const result: Record<string, LuaValue> = Object.create(null) // a Lua key may be __proto__
    for (const [key, value] of strings.sort(([a], [b]) => (a < b ? -1 : 1))) result[key] = value
    return result
  }

  function list(integers: ReadonlyMap<number, LuaValue>, reading: Reading): readonly LuaValue[] {
    let last = 0
    for (const key of integers.keys()) {
      if (key < 1) throw refuse(reading, `the list has the key ${key}; lists start at 1, other keys must be strings`)
      last = Math.max(last, key)
    }
    if (last > integers.size * 2)
      throw refuse(
        reading,
        `a list of ${last} slots has only ${integers.size} values; use string keys (tostring(k)) for a sparse table`,
      )
    return Array.from({ length: last }, (_, index) => integers.get(index + 1) ?? null)
  }

  function isMarkedArray(L: State, i: number): boolean {
    if (!api.lua_getmetatable(L, i)) return false
    const marked = api.lua_topointer(L, -1) === options.arrayPointer
    api.lua_pop(L, 1)
    return marked
  }

  function pushAt(L: State, value: LuaValue | undefined, depth: number): void {
    if (depth > MAX_DEPTH) throw new MarshalError(`the value is nested deeper than ${MAX_DEPTH}`)
    if (!api.lua_checkstack(L, 6)) throw new MarshalError('the Lua stack is full')
    if (value === undefined) api.lua_pushnil(L)
    else if (value === null) api.lua_pushlightuserdata(L, NULL_POINTER)
    else if (typeof value === 'boolean') api.lua_pushboolean(L, value ? 1 : 0)
    else if (typeof value === 'number') {
      if (Number.isSafeInteger(value) && !Object.is(value, -0)) api.lua_pushinteger(L, BigInt(value))
      else api.lua_pushnumber(L, value)
    } else if (typeof value === 'bigint') api.lua_pushinteger(L, BigInt.asIntN(64, value))
    else if (typeof value === 'string') c.pushBytes(L, encoder.encode(value))
    else if (value instanceof Uint8Array) c.pushBytes(L, value)
    else if (isList(value)) {
      api.lua_createtable(L, value.length, 0)
      value.forEach((item, index) => {
        pushAt(L, item, depth + 1)
        api.lua_rawseti(L, -2, BigInt(index + 1))
      })
      if (value.length === 0) {
        options.pushArrayMetatable(L) // so that an empty list goes back as a list
        api.lua_setmetatable(L, -2)
      }
    } else {
      api.lua_createtable(L, 0, 8)
      for (const [key, item] of Object.entries(value)) {
        c.pushBytes(L, encoder.encode(key))
        pushAt(L, item, depth + 1)
        api.lua_rawset(L, -3)
      }
    }
  }

  return {
    read(L, i) {
      const top = api.lua_gettop(L)
      try {
        return readAt(L, i, { values: 0, bytes: 0, open: new Set(), path: [] })
      } catch (error) {
        if (error instanceof MarshalError) api.lua_settop(L, top)
        throw error
      }
    },
    push(L, value) {
      pushAt(L, value, 0)
    },
  }
}

const isList = (value: LuaValue): value is readonly LuaValue[] => Array.isArray(value)

/** `items[3].name`: as the author would write it in Lua. */
export function showPath(path: readonly (string | number)[]): string {
  return path
    .map((key, index) => {
      if (typeof key === 'number') return `[${key}]`
      if (!/^[A-Za-z_]\w*$/.test(key)) return `[${JSON.stringify(key)}]`
      return index === 0 ? key : `.${key}`
    })
    .join('')
}
