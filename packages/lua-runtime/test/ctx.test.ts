import { describe, expect, test } from 'vitest'
import type { HostFunction } from '../src/index.ts'
import { body, failure, host } from './helpers.ts'

const withFunctions = (functions: Readonly<Record<string, HostFunction>>) => ({ ...host(), functions })

describe('functions of ctx', () => {
  test('take and give any value, bytes too, and look synchronous wherever Lua can wait', async () => {
    const seen: unknown[] = []
    const echo: HostFunction = async (args) => {
      seen.push(args)
      return { first: args[0] ?? null, bytes: Uint8Array.of(0, 255, 65) }
    }
    await using lua = await body(`
      local co = coroutine.wrap(function() return select(2, pcall(ctx.echo, { a = { 1, 2 } }, nil, "\\0\\xff")) end)
      local got = co()
      return got.first.a[2] .. #got.bytes .. got.bytes:byte(2)`)
    expect(await lua.call('t', {}, withFunctions({ echo }))).toBe('23255')
    expect(seen).toEqual([[{ a: [1, 2] }, null, Uint8Array.of(0, 255)]])
  })

  test('what the host refuses is an error at its line, which pcall catches', async () => {
    const read: HostFunction = async (args) => {
      throw new Error(`no such file: ${JSON.stringify(args)}`)
    }
    await using lua = await body('local ok, why = pcall(ctx.read, "x") if args then ctx.read("y") end return why')
    const { issues, cause } = await failure(lua.call('t', {}, withFunctions({ read })))
    expect(issues[0]).toMatchObject({ line: 2, message: 'ctx.read: no such file: ["y"]' })
    expect(cause).toMatchObject({ message: 'no such file: ["y"]' })
  })

  test('cannot be called where Lua cannot wait, with a colon, or with what cannot leave Lua', async () => {
    const read: HostFunction = async () => 'x'
    const message = async (lua: string): Promise<string> => {
      await using tool = await body(lua)
      return (await failure(tool.call('t', {}, withFunctions({ read })))).message
    }
    expect(await message('table.sort({ 3, 1, 2 }, function(a, b) ctx.read("x") return a < b end)')).toContain(
      'ctx.read cannot wait here: this code runs inside a callback of a C function',
    )
    expect(await message('return (ctx:read("x"))')).toContain('call ctx.read(…) with a dot, not a colon')
    expect(await message('return (ctx.read({ f = print }))')).toContain('ctx.read: f: a function cannot leave Lua')
  })

  test('an answer that is too large ends the call, not the process', async () => {
    const read: HostFunction = async () => Array.from({ length: 50_000 }, () => 'x'.repeat(100))
    await using lua = await body('return #ctx.read("x")', { memoryBytes: 4 << 20 })
    expect(await failure(lua.call('t', {}, withFunctions({ read })))).toMatchObject({ code: 'lua_limit' })
    expect(await lua.call('t', {}, withFunctions({ read: async () => ['a'] }))).toBe('1')
  })

  test('a function that the host does not give is not there', async () => {
    await using lua = await body('return tostring(ctx.read) .. tostring(ctx.exec)')
    expect(await lua.call('t', {}, host())).toBe('nilnil')
  })

  test('log says something apart from progress and print', async () => {
    const said: string[] = []
    await using lua = await body('ctx.log("one") ctx.progress("two") print("three", 3) return ctx.idempotency_key')
    const heard = {
      ...host(),
      log: (text: string) => said.push(`log ${text}`),
      progress: (text: string) => said.push(`progress ${text}`),
      print: (text: string) => said.push(`print ${text}`),
    }
    expect(await lua.call('t', {}, heard, { idempotencyKey: 'e_1' })).toBe('e_1')
    expect(said).toEqual(['log one', 'progress two', 'print three\t3'])
  })
})
