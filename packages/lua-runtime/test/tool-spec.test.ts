import { describe, expect, test } from 'vitest'
import { bindArguments } from '../src/arguments.ts'
import { failure, host, tools } from './helpers.ts'

const issuesOf = async (source: string): Promise<readonly string[]> =>
  (await failure(tools(source))).issues.map((issue) => `${issue.line}: ${issue.message}`)

describe('specs', () => {
  test('all problems of all tools, at the line of the key', async () => {
    const source = `tool("one", {
  description = 5,
  reply = "safe",
  replay = "saef",
  params = {
    { name = "a", type = "strng" },
    {
      type = "integer",
      defualt = 1,
    },
    { name = "b", type = "integer", default = "x", enum = "y" },
  },
})
tool("one", { description = "d", run = function() end })
tool("bad name", { run = 1 })`
    expect(await issuesOf(source)).toEqual([
      '2: tool "one": description must be a string, got the number 5',
      '4: tool "one": replay must be one of "safe", "never", got the string "saef" (did you mean "safe"?)',
      '6: tool "one": params[1].type must be one of "string", "integer", "number", "boolean", "array", "object", got the string "strng" (did you mean "string"?)',
      '7: tool "one": params[2].name is missing',
      '9: tool "one": params[2].defualt unknown key (did you mean "default"?); known are name, type, description, required, default, enum',
      '11: tool "one": params[3].enum must be a list like { "a", "b" }, got the string "y"',
      '3: tool "one": reply unknown key (did you mean "replay"?); known are description, replay, params, run',
      '1: tool "one": run must be a function(args, ctx), got nil',
      '14: tool "one" is declared twice; the first is at tools/t.lua:1',
      '15: the tool name must be 1 to 64 letters, digits, _ or -',
      '15: tool: run must be a function(args, ctx), got number',
    ])
  })

  test.each([
    [
      'tool("t", { run = print, params = "commits" })',
      'params must be a list like { { name = "path", type = "string" } }, got the string "commits"',
    ],
    [
      'tool("t", { run = print, params = { commits = {} } })',
      'params must be a list like { { name = "path", type = "string" } }, got a table',
    ],
    ['tool("t", { run = print, params = { "commits" } })', 'params[1] must be a table like'],
    ['tool { name = "t" }', 'tool(name, spec) needs a name (a string), got a table'],
    ['tool("t")', 'its second argument must be a table like'],
    [
      'tool("t", { run = print, params = {{ name = "a", type = "integer", default = 1.5 }} })',
      'default of "a": must be an integer, got the number 1.5',
    ],
    [
      'tool("t", { run = print, params = {{ name = "a", default = "z", enum = { "x" } }} })',
      'default of "a": must be one of "x", got the string "z"',
    ],
    [
      'tool("t", { run = print, params = {{ name = "a", type = "integer", enum = { 1, "x" } }} })',
      'enum of "a": must be an integer',
    ],
    ['tool("t", { run = print, params = {{ name = "a", enum = {} }} })', 'params[1].enum must have at least one value'],
    [
      'tool("t", { run = print, params = {{ name = "a", type = "integer", default = math.maxinteger }} })',
      'must be a JSON value',
    ],
    ['tool("t", { run = print, params = {{ name = "a" }, { name = "a" }} })', 'the param "a" is declared twice'],
    ['tool("t", { run = print, params = {{ name = "a", required = "yes" }} })', 'required must be true or false'],
    ['tool("t", { run = print, x = print })', 'x: a function cannot leave Lua'],
  ])('%s', async (source, message) => {
    expect((await failure(tools(source))).message).toContain(message)
  })

  test('what was given counts, not what the table became later; several in one file; the default of replay', async () => {
    await using lua = await tools(`local spec = { description = "first", params = {}, run = function() return "1" end }
      tool("a", spec)
      spec.description, spec.run, spec.params, spec.replay = "second", function() return "2" end, {{ name = "l", type = "array", default = {} }}, "safe"
      tool("b", spec)`)
    expect(lua.program.tools.map((tool) => [tool.name, tool.description, tool.replay, tool.params])).toEqual([
      ['a', 'first', 'never', []],
      ['b', 'second', 'safe', [{ name: 'l', type: 'array', required: false, default: [] }]],
    ])
    expect(await lua.call('a', {}, host())).toBe('1')
    expect(await lua.call('b', {}, host())).toBe('2')
  })

  test('the schema that a model sees', async () => {
    await using lua = await tools(`tool("t", { description = "d", run = print, params = {
      { name = "path", description = "Where", required = true },
      { name = "mode", type = "string", enum = { "r", "w" }, default = "r", required = true },
    } })`)
    expect(lua.program.tools[0]?.schema).toEqual({
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Where' },
        mode: { type: 'string', enum: ['r', 'w'], default: 'r' },
      },
      required: ['path'],
      additionalProperties: false,
    })
  })
})

describe('bindArguments', () => {
  const tool = {
    name: 'example',
    params: [
      { name: 'path', type: 'string', required: true },
      { name: 'n', type: 'integer', required: false, default: 5 },
      { name: 'mode', type: 'string', required: false, enum: ['read', 'write'] },
      { name: 'tags', type: 'array', required: false },
      { name: 'extra', type: 'object', required: false },
      { name: 'force', type: 'boolean', required: false },
      { name: 'ratio', type: 'number', required: false },
    ],
  } as const

  test('defaults are applied, null is not given', () => {
    expect(bindArguments(tool, { path: 'x', n: null, mode: null })).toEqual({ args: { path: 'x', n: 5 } })
    expect(bindArguments(tool, { path: '', n: 0, force: false, tags: [], extra: {}, ratio: 1.5 })).toEqual({
      args: { path: '', n: 0, force: false, tags: [], extra: {}, ratio: 1.5 },
    })
  })

  test('all problems at once', () => {
    expect(
      bindArguments(tool, { n: '5', mode: 'raed', tags: {}, extra: [], force: 'yes', ratio: '1', pth: 'x' }),
    ).toEqual({
      problems: [
        'example has no argument "pth" (did you mean "path"?); it takes path, n, mode, tags, extra, force, ratio',
        'example requires the argument "path"',
        'example: the argument "n" must be an integer, got the string "5"',
        'example: the argument "mode" must be one of "read", "write", got the string "raed" (did you mean "read"?)',
        'example: the argument "tags" must be a list, got a table',
        'example: the argument "extra" must be an object, got a list',
        'example: the argument "force" must be true or false, got the string "yes"',
        'example: the argument "ratio" must be a number, got the string "1"',
      ],
    })
    expect(bindArguments(tool, { path: 'x', n: 1.5 })).toEqual({
      problems: ['example: the argument "n" must be an integer, got the number 1.5'],
    })
    expect(bindArguments(tool, { path: 'x', n: 2 ** 53 })).toHaveProperty('problems')
    expect(bindArguments({ name: 'none', params: [] }, { toString: 1 })).toEqual({
      problems: ['none has no argument "toString"; it takes none'],
    })
  })

  test('the body does not run', async () => {
    await using lua = await tools(
      'tool("t", { description = "d", params = {{ name = "p", required = true }}, run = function(_, ctx) ctx.sh("ran") end })',
    )
    const commands: string[] = []
    const calls = host((command) => {
      commands.push(command)
      return { stdout: '', stderr: '', exitCode: 0 }
    })
    const error = await failure(lua.call('t', {}, calls))
    expect(error).toMatchObject({
      code: 'lua_arguments',
      issues: [{ message: 't requires the argument "p"', file: 'tools/t.lua', line: 1 }],
    })
    expect(commands).toEqual([])
  })
})
