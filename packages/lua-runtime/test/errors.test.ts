import { describe, expect, test } from 'vitest'
import { loadLua, LuaError } from '../src/index.ts'
import { body, failure, host, tools } from './helpers.ts'

describe('errors at run time', () => {
  test('file, line, the line itself, and a traceback of the author', async () => {
    await using lua = await tools(`local function deep(t)
  return t.missing.field
end
tool("t", { description = "d", run = function(args, ctx)
  local r = pcall(print) and deep({})
  return r
end })`)
    const error = await failure(lua.call('t', {}, host()))
    expect(error).toBeInstanceOf(LuaError)
    expect(error.code).toBe('lua_runtime')
    expect(error.message).toBe(
      "tools/t.lua:2: attempt to index a nil value (field 'missing')\n  2 |   return t.missing.field",
    )
    expect(error.issues).toEqual([
      {
        code: 'lua_runtime',
        file: 'tools/t.lua',
        line: 2,
        message: "attempt to index a nil value (field 'missing')",
        sourceLine: '  return t.missing.field',
      },
    ])
    expect(error.traceback).toBe(
      "stack traceback:\n  tools/t.lua:2: in upvalue 'deep'\n  tools/t.lua:5: in function <tools/t.lua:4>",
    )
  })

  test.each([
    ['error("plain")', 'plain'],
    ['error("no position", 0)', 'no position'],
    ['error({ message = "in a table", code = 7 })', 'in a table'],
    ['error(setmetatable({}, { __tostring = function() return "as text" end }))', 'as text'],
    ['error(setmetatable({}, { __tostring = function() error("worse") end }))', 'error object'],
    ['error(setmetatable({}, { __tostring = function() while true do end end }))', 'error object'],
    ['error({ code = 7 })', 'error object { code = 7 }'],
    ['error()', 'error(nil)'],
    ['error(42)', '42'],
    ['error(true)', 'error(true)'],
    ['error(json.null)', 'error('],
    ['assert(false, "asserted")', 'asserted'],
    ['assert(nil)', 'assertion failed!'],
    ['coroutine.wrap(function() error("in a coroutine") end)()', 'in a coroutine'],
    ['local x <close> = setmetatable({}, { __close = function() error("closing") end })', 'closing'],
  ])('%s', async (source, text) => {
    await using lua = await body(source)
    const error = await failure(lua.call('t', {}, host()))
    expect(error.code).toBe('lua_runtime')
    expect(error.issues[0]?.message).toContain(text)
    expect(error.issues[0]).toMatchObject({ file: 'tools/t.lua', line: 2 })
  })

  test('error objects stay what they are for pcall, and levels count from the author', async () => {
    await using lua = await body(`
      local ok, e = pcall(error, { code = 7 })
      local function check() error("bad use", 2) end
      local _, at = pcall(function() check() end)
      local _, handled = xpcall(function() error("x", 0) end, function(m) return "handled " .. m end)
      return e.code .. "|" .. at .. "|" .. handled .. "|" .. select("#", pcall(function() return 1, nil, nil end))`)
    expect(await lua.call('t', {}, host())).toBe('7|tools/t.lua:5: bad use|handled x|4')
  })

  test('what does not exist here is hinted at', async () => {
    await using lua = await body('return io.open("/etc/passwd")')
    const error = await failure(lua.call('t', {}, host()))
    expect(error.hint).toContain('only through ctx.sh')
    expect(error.message).toContain('hint: io does not exist here')
  })

  test('a long file name is whole again', async () => {
    const file = `tools/${'long-'.repeat(20)}name.lua`
    await using lua = await loadLua({
      tools: [{ file, source: 'tool("t", { description = "d", run = function() local r = nil + 1 return r end })' }],
    })
    const error = await failure(lua.call('t', {}, host()))
    expect(error.issues[0]).toMatchObject({ file, line: 1 })
    expect(error.traceback).toContain(file)
  })

  test('a tail call leaves no frame: the tool is named', async () => {
    await using lua = await body('return ctx.sh(nil)')
    expect((await failure(lua.call('t', {}, host()))).issues[0]).toMatchObject({
      line: 1,
      message: 'tool "t": ctx.sh needs a command (a string), got nil',
    })
  })

  test('text chunks have their own name', async () => {
    await using lua = await body('return load("\\n\\nerror(\'inside\')", "=formula")()')
    expect((await failure(lua.call('t', {}, host()))).message).toContain('formula:3: inside')
  })
})

describe('errors at load', () => {
  test('all files, all problems, at once', async () => {
    const error = await failure(
      loadLua({
        agent: { file: 'agent.lua', source: 'agent {\n  model = "a"\n  thinking = "low",\n}\n' },
        sandbox: { file: 'sandbox.lua', source: 'sandbox { image = "x" }\nsandbox { image = "y" }' },
        tools: [
          { file: 'tools/a.lua', source: '\nlocal x = y.z' },
          { file: 'tools/b.lua', source: 'tool("b", {\n  descripton = "typo",\n  run = function() end,\n})' },
        ],
      }),
    )
    expect(error.code).toBe('lua_syntax')
    expect(error.message.split('\n').filter((line) => !line.startsWith('  '))).toEqual([
      "agent.lua:3: '}' expected (to close '{' at line 1) near 'thinking'",
      "tools/a.lua:2: attempt to index a nil value (global 'y')",
      'sandbox.lua:2: sandbox{} is called twice; the first is at sandbox.lua:1',
      'tools/b.lua:2: tool "b": descripton unknown key (did you mean "description"?); known are description, replay, params, run',
    ])
    expect(error.issues[0]?.sourceLine).toBe('  thinking = "low",')
  })

  test('each function belongs to its own file, and to load time', async () => {
    const wrong = await failure(
      loadLua({
        agent: { file: 'agent.lua', source: 'tool("x", {})' },
        tools: [{ file: 'tools/t.lua', source: 'agent { model = "m" }' }],
      }),
    )
    expect(wrong.issues.map((issue) => [issue.file, issue.line, issue.message])).toEqual([
      ['agent.lua', 1, 'tool can only be called in a file in tools/, while that file is loaded'],
      ['tools/t.lua', 1, 'agent can only be called in agent.lua, while that file is loaded'],
    ])
    await using late = await body('tool("later", { run = print })')
    expect((await failure(late.call('t', {}, host()))).message).toContain(
      'tool can only be called while its file is loaded',
    )
  })

  test('a script that sleeps in load is not async', async () => {
    const error = await failure(tools('coroutine.yield(1)'))
    expect(error.message).toContain('attempt to yield from outside a coroutine')
  })
})
