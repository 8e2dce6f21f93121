import { describe, expect, test } from 'vitest'
import { loadLua, positionOf } from '../src/index.ts'
import { failure, host, tools } from './helpers.ts'

const SANDBOX = `-- policy
sandbox {
  image = "debian:trixie-slim",
  cpus = 2,
  allow = {
    "github.com", -- } a brace in a comment
    "api.github.com",
  },
  secrets = {
    {
      env = "GITHUB_TOKEN",
      hosts = { "github.com" },
    },
  },
  bootstrap = {},
}
`

describe('agent{} and sandbox{}', () => {
  test('plain data with positions', async () => {
    await using lua = await loadLua({
      agent: { file: 'agent.lua', source: '\nagent {\n  model = "openai/gpt-5.6-luna",\n  thinking = "low",\n}' },
      sandbox: { file: 'sandbox.lua', source: SANDBOX },
    })
    const { agent, sandbox, tools: none, warnings } = lua.program
    expect(agent).toEqual({
      value: { model: 'openai/gpt-5.6-luna', thinking: 'low' },
      at: { file: 'agent.lua', line: 2 },
      lines: { model: 3, thinking: 4 },
    })
    expect(sandbox?.value).toEqual({
      image: 'debian:trixie-slim',
      cpus: 2,
      allow: ['github.com', 'api.github.com'],
      secrets: [{ env: 'GITHUB_TOKEN', hosts: ['github.com'] }],
      bootstrap: {},
    })
    if (sandbox === undefined) throw new Error('no sandbox')
    expect(positionOf(sandbox, 'secrets/0/hosts/0')).toEqual({ file: 'sandbox.lua', line: 12 })
    expect(positionOf(sandbox, 'secrets/0/source')).toEqual({ file: 'sandbox.lua', line: 10 })
    expect(positionOf(sandbox, 'allow/1').line).toBe(7)
    expect(positionOf(sandbox, 'toString').line).toBe(2)
    expect([none, warnings]).toEqual([[], []])
  })

  test('nothing declared is a warning, not an error', async () => {
    await using lua = await loadLua({
      agent: { file: 'agent.lua', source: '' },
      tools: [{ file: 'tools/x.lua', source: 'tool("x", { run = print })' }],
    })
    expect(lua.program.agent).toBeUndefined()
    expect(lua.program.warnings.map((warning) => warning.message)).toEqual([
      'tool "x" has no description; a model cannot tell what it is for',
      'the file never calls agent{}',
    ])
    await using empty = await loadLua({})
    expect(empty.program).toEqual({ tools: [], commands: [], hooks: [], channels: [], warnings: [] })
  })

  test.each([
    ['agent("x")', 'agent needs a table with named keys'],
    ['agent()', 'agent needs a table'],
    ['agent { "x" }', 'agent needs a table with named keys'],
    ['agent { f = function() end }', 'agent: f: a function cannot leave Lua'],
    ['agent({ a = 1 }, 2)', 'agent takes one table, got 2 arguments'],
    ['agent { a = 1 }\nagent { a = 2 }', 'agent{} is called twice; the first is at agent.lua:1'],
  ])('%s', async (source, message) => {
    const error = await failure(loadLua({ agent: { file: 'agent.lua', source } }))
    expect(error.message).toContain(message)
    expect(error.issues[0]?.file).toBe('agent.lua')
  })
})

describe('files', () => {
  test('each has its own globals; a BOM and CRLF are fine', async () => {
    await using lua = await loadLua({
      tools: [
        {
          file: 'tools/a.lua',
          source:
            '\uFEFFfunction helper() return "a" end\r\ntool("a", { description = "d", run = function() return helper() .. tostring(other) .. load("return helper()")() end })',
        },
        {
          file: 'tools/b.lua',
          source:
            'other = 1 function helper() return "b" end tool("b", { description = "d", run = function() return _G.helper() end })',
        },
      ],
    })
    expect(await lua.call('a', {}, host())).toBe('anila')
    expect(await lua.call('b', {}, host())).toBe('b')
  })

  test('no way to the host', async () => {
    await using lua = await tools(`tool("t", { description = "d", run = function()
      local found = {}
      for _, name in ipairs { "io", "package", "dofile", "loadfile", "debug", "warn" } do
        if _G[name] ~= nil then found[#found + 1] = name end
      end
      for k in pairs(os) do found[#found + 1] = "os." .. k end
      table.sort(found)
      return table.concat(found, " ")
    end })`)
    expect(await lua.call('t', {}, host())).toBe('os.clock os.date os.difftime os.time')
  })

  test('load takes text only', async () => {
    await using lua = await tools(`tool("t", { description = "d", run = function()
      local f, message = load(string.dump(function() return 1 end), "x", "b")
      return tostring(f) .. " " .. message .. " " .. load("return ...", "n", "bt", {})("fine") .. " " .. tostring(load("x = = 1", "=n"))
    end })`)
    expect(await lua.call('t', {}, host())).toMatch(/^nil .*binary chunk.* fine nil$/)
  })

  test('a script that breaks the library breaks only itself', async () => {
    await using lua = await tools(`
      pcall, error, type, next, select, tostring = nil, nil, nil, nil, nil, nil
      string.gsub, table.concat, coroutine.yield, _G.setmetatable = nil, nil, nil, nil
      tool("t", { description = "d", run = function(_, ctx) return ctx.sh(ctx.shellescape("x")) end })`)
    expect(await lua.call('t', {}, host())).toBe("'x'")
  })
})
