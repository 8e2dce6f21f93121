import { describe, expect, test } from 'vitest'
import { emptyTableAsList, loadLua, type JsonObject } from '../src/index.ts'
import { body, failure, host, ok, tools } from './helpers.ts'

const typed = (type: string, lua: string): string =>
  `tool("t", { description = "d", params = {{ name = "v", type = "${type}" }}, run = function(args, ctx) ${lua} end })`

const hex = (what: string): string => `return ((${what}):gsub(".", function(c) return ("%02x"):format(c:byte()) end))`

describe('strings', () => {
  test('every byte comes in from a command', async () => {
    await using lua = await body(hex('ctx.sh("bytes")'))
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
    expect(
      await lua.call(
        't',
        {},
        host(() => ok(bytes)),
      ),
    ).toBe(Buffer.from(bytes).toString('hex'))
  })

  test('NUL and UTF-8 come in from arguments and go out as results', async () => {
    await using lua = await tools(typed('string', 'return args.v'))
    for (const v of ['a\0b', 'é 😀 \u{10FFFF}', '\uFEFFbom', '', '\0'])
      expect(await lua.call('t', { v }, host())).toBe(v)
    await using sized = await tools(typed('string', 'return #args.v'))
    expect(await sized.call('t', { v: 'a\0é' }, host())).toBe('4')
  })

  test('bytes that are not UTF-8 go out as U+FFFD', async () => {
    await using lua = await body('return "a\\xff\\0b"')
    expect(await lua.call('t', {}, host())).toBe('a\uFFFD\0b')
    await using inside = await body('return { "a\\xff" }')
    expect(JSON.parse(await inside.call('t', {}, host()))).toEqual(['a\uFFFD'])
  })

  test('and stay bytes in a declaration', async () => {
    await using lua = await loadLua({ agent: { file: 'agent.lua', source: 'agent { a = "\\xff\\0", b = "\\0" }' } })
    expect(lua.program.agent?.value).toEqual({ a: new Uint8Array([255, 0]), b: '\0' })
  })

  test('a command with a NUL byte or without UTF-8 is refused at its line', async () => {
    await using lua = await body('ctx.sh("a\\0b")')
    expect((await failure(lua.call('t', {}, host()))).message).toContain(
      'tools/t.lua:2: ctx.sh: a command cannot hold a NUL byte',
    )
    await using bytes = await body('ctx.sh("\\xff")')
    expect((await failure(bytes.call('t', {}, host()))).message).toContain('not UTF-8')
    await using escaped = await body('local s = ctx.shellescape("a\\0b") return s')
    expect((await failure(escaped.call('t', {}, host()))).message).toContain(
      'tools/t.lua:2: ctx.shellescape: a shell word',
    )
  })
})

describe('numbers', () => {
  test('integers above 2^53 keep their digits on the way out', async () => {
    await using lua = await body(
      'return { a = math.maxinteger, b = math.mininteger, c = 9007199254740993, d = 1.5, e = 2^53, f = -0.0 }',
    )
    expect(await lua.call('t', {}, host())).toBe(
      '{\n  "a": 9223372036854775807,\n  "b": -9223372036854775808,\n  "c": 9007199254740993,\n  "d": 1.5,\n  "e": 9007199254740992,\n  "f": 0\n}',
    )
    await using declared = await loadLua({
      agent: { file: 'agent.lua', source: 'agent { a = math.maxinteger, b = 3, c = 3.5 }' },
    })
    expect(declared.program.agent?.value).toEqual({ a: 9223372036854775807n, b: 3, c: 3.5 })
  })

  test('integers are integers in Lua, floats floats', async () => {
    await using lua = await tools(typed('number', 'return math.type(args.v) .. " " .. tostring(args.v)'))
    expect(await lua.call('t', { v: 5 }, host())).toBe('integer 5')
    expect(await lua.call('t', { v: 5.5 }, host())).toBe('float 5.5')
    expect(await lua.call('t', { v: Number.MAX_SAFE_INTEGER }, host())).toBe('integer 9007199254740991')
    expect(await lua.call('t', { v: 1e300 }, host())).toBe('float 1e+300')
  })

  test('nan and inf are no JSON', async () => {
    await using lua = await body('return { ratio = { 0/0 } }')
    expect((await failure(lua.call('t', {}, host()))).message).toContain('ratio[1]: NaN cannot be written as JSON')
  })
})

describe('tables', () => {
  test.each([
    ['{}', '{}'],
    ['json.array()', '[]'],
    ['json.array({})', '[]'],
    ['{ a = {}, b = json.array() }', '{\n  "a": {},\n  "b": []\n}'],
    ['{ 1, 2 }', '[\n  1,\n  2\n]'],
    ['{ 1, nil, 3 }', '[\n  1,\n  null,\n  3\n]'],
    ['{ json.null, nil, "x" }', '[\n  null,\n  null,\n  "x"\n]'],
    ['{ b = 1, a = json.null, ["__proto__"] = 2 }', '{\n  "__proto__": 2,\n  "a": null,\n  "b": 1\n}'],
    ['{ ["1"] = "string key" }', '{\n  "1": "string key"\n}'],
    ['json.null', 'null'],
    ['true', 'true'],
    ['nil', ''],
    ['"text", "ignored"', 'text'],
  ])('return %s', async (lua, text) => {
    await using runtime = await body(`return ${lua}`)
    expect(await runtime.call('t', {}, host())).toBe(text)
  })

  test.each([
    ['{ [404] = "x" }', 'a list of 404 slots has only 1 values; use string keys'],
    ['{ "a", b = 1 }', 'the table mixes a list with string keys'],
    ['{ [0] = "x" }', 'lists start at 1'],
    ['{ x = { [1.5] = 1 } }', 'x: table keys must be strings'],
    ['{ [true] = 1 }', 'table keys must be strings'],
    ['{ x = { y = print } }', 'x.y: a function cannot leave Lua'],
    ['coroutine.create(print)', 'a thread cannot leave Lua'],
    ['(function() local t = {} t.t = { t } return t end)()', 't[1]: the table contains itself'],
    ['(function() local t = {} for _ = 1, 200 do t = { t } end return t end)()', 'nested deeper than 100'],
    ['{ ["\\xff"] = 1 }', 'a table key is not UTF-8'],
  ])('return %s is refused', async (lua, message) => {
    await using runtime = await body(`return ${lua}`)
    const error = await failure(runtime.call('t', {}, host()))
    expect(error.code).toBe('lua_runtime')
    expect(error.message).toContain(message)
  })

  test('JSON goes through a tool unchanged: empty lists, nulls, nesting', async () => {
    await using lua = await tools(typed('object', 'return args.v'))
    const v: JsonObject = { list: [], object: {}, nothing: null, deep: [[], [{ a: [null, 1] }]], text: '1' }
    expect(JSON.parse(await lua.call('t', { v }, host()))).toEqual(v)
  })

  test('null inside is json.null', async () => {
    await using lua = await tools(typed('array', 'return tostring(args.v[1] == json.null) .. #args.v'))
    expect(await lua.call('t', { v: [null, 2] }, host())).toBe('true2')
  })

  test('arguments that are nested too deep are refused', async () => {
    await using lua = await tools(typed('array', 'return 1'))
    const deep = JSON.parse(`${'['.repeat(200)}${']'.repeat(200)}`)
    expect((await failure(lua.call('t', { v: deep }, host()))).code).toBe('lua_arguments')
    expect(await lua.call('t', { v: [] }, host())).toBe('1')
  })

  test('an empty table where a list is expected', () => {
    expect(emptyTableAsList({})).toEqual([])
    expect(emptyTableAsList({ a: 1 })).toEqual({ a: 1 })
    expect(emptyTableAsList('x')).toBe('x')
  })
})
