import { describe, expect, test } from 'vitest'
import { loadLua, type LuaSource } from '../src/index.ts'
import { failure, host, ok } from './helpers.ts'

const lib = (files: Readonly<Record<string, string>>): readonly LuaSource[] =>
  Object.entries(files).map(([name, source]) => ({ file: `tools/lib/${name}`, source }))

/** A tool `t` with that body, and modules. */
const load = (body: string, modules: Readonly<Record<string, string>>) =>
  loadLua({
    tools: [
      { file: 'tools/t.lua', source: `tool("t", { description = "d", run = function(args, ctx)\n${body}\nend })` },
    ],
    lib: lib(modules),
  })

describe('require', () => {
  test('gives what a module returns, once for all that require it', async () => {
    await using lua = await loadLua({
      agent: { file: 'agent.lua', source: 'agent { name = require("names").agent }' },
      tools: ['a', 'b'].map((name) => ({
        file: `tools/${name}.lua`,
        source: `local names = require("names")
          tool("${name}", { description = "d", run = function() names.count = names.count + 1 return names.count end })`,
      })),
      lib: lib({ 'names.lua': 'return { agent = "ada", count = 0 }' }),
    })
    expect(lua.program.agent?.value).toEqual({ name: 'ada' })
    expect([await lua.call('a', {}, host()), await lua.call('b', {}, host())]).toEqual(['1', '2'])
  })

  test('takes folders by dots, init.lua for a folder, and true for a module without a value', async () => {
    const modules = { 'http/client.lua': 'return "client"', 'http/init.lua': 'return "http"', 'none.lua': 'x = 1' }
    await using lua = await load(
      'return require("http.client") .. require("http") .. tostring(require("none")) .. tostring(x)',
      modules,
    )
    expect(await lua.call('t', {}, host())).toBe('clienthttptruenil')
  })

  test('a module may wait for the host while it is required by a call', async () => {
    const modules = { 'm.lua': 'local m = {} function m.go(ctx) return ctx.sh("in m") end return m' }
    await using lua = await load('return require("m").go(ctx)', modules)
    expect(
      await lua.call(
        't',
        {},
        host((command) => ok(command)),
      ),
    ).toBe('in m')
  })

  test('nothing but the modules of the agent is there', async () => {
    await using lua = await load('local m = require("socket") return m', { 'a.lua': '', 'b.lua': '' })
    const { issues } = await failure(lua.call('t', {}, host()))
    expect(issues[0]).toMatchObject({
      file: 'tools/t.lua',
      line: 2,
      message: 'there is no module "socket" in tools/lib/ (there are a, b); nothing else can be required',
    })
    for (const path of ['../agent', '/etc/passwd', 'a/../../x', 'tools.lib.a']) {
      await using other = await load(`return require(${JSON.stringify(path)})`, { 'a.lua': '' })
      expect((await failure(other.call('t', {}, host()))).message).toContain(`there is no module "${path}"`)
    }
  })

  test('modules that require each other are told with the way, and can be required again', async () => {
    const modules = { 'a.lua': 'local b = require("b")', 'b.lua': 'local a = require("a")', 'c.lua': 'return 1' }
    await using lua = await load(
      'pcall(require, "a") return tostring(select(2, pcall(require, "a"))) .. require("c")',
      modules,
    )
    expect(await lua.call('t', {}, host())).toMatch(/b\.lua:1: modules require each other: a > b > a1$/)
  })

  test('a module that fails says where, and is tried again the next time', async () => {
    const modules = { 'm.lua': 'tries = (tries or 0) + 1\nlocal x = nil\nreturn x.field' }
    await using lua = await load('local m = require("m") return m', modules)
    for (const _ of [1, 2]) {
      const { issues, traceback } = await failure(lua.call('t', {}, host()))
      expect(issues[0]).toMatchObject({ file: 'tools/lib/m.lua', line: 3, sourceLine: 'return x.field' })
      expect(traceback).toContain('tools/t.lua:2')
    }
  })

  test('modules that do not parse, and names that mean two files, are refused at load, with the rest', async () => {
    const promise = load('return 1', {
      'bad.lua': 'return = 1',
      'two.lua': '',
      'two/init.lua': '',
      'wörld.lua': '',
    })
    expect((await failure(promise)).issues.map(({ file, message }) => `${file}: ${message}`)).toEqual([
      expect.stringMatching(/^tools\/lib\/bad\.lua: unexpected symbol near '='/),
      'tools/lib/two.lua: require("two") could mean tools/lib/two.lua or tools/lib/two/init.lua; rename one of them',
      'tools/lib/two/init.lua: require("two") could mean tools/lib/two.lua or tools/lib/two/init.lua; rename one of them',
      'tools/lib/wörld.lua: modules below tools/lib/ take letters, digits, _ and - in their names',
    ])
  })

  test('a module cannot declare anything, and its limits are those of the call', async () => {
    await using lua = await load('return require("m")', { 'm.lua': 'tool("x", { run = print })' })
    expect((await failure(lua.call('t', {}, host()))).message).toContain('tool can only be called in a file in tools/')
    await using endless = await load('return require("m")', { 'm.lua': 'while true do end' })
    expect(await failure(endless.call('t', {}, host(), { cpuMs: 50 }))).toMatchObject({ code: 'lua_limit' })
  })
})
