import { describe, expect, test } from 'vitest'
import { loadLua } from '../src/index.ts'
import { body, failure, host, ok, tools } from './helpers.ts'

const EXPLODING = '("a"):rep(40):find(("a?"):rep(40) .. ("a"):rep(40) .. "b" .. (".-"):rep(30) .. "c")'

/** Both tools of one runtime: the bad one, and one that shows that the runtime works on. */
const pair = (bad: string): string =>
  `tool("bad", { description = "d", run = function(args, ctx)\n${bad}\nend })
   tool("good", { description = "d", run = function(args, ctx) return ctx.sh("good") end })`

describe('CPU', () => {
  test.each([
    ['an endless loop', 'while true do end'],
    ['in pcall', 'while true do pcall(function() while true do end end) end'],
    [
      'in xpcall with an endless handler',
      'while true do xpcall(function() while true do end end, function() while true do end end) end',
    ],
    ['in a coroutine', 'while true do coroutine.resume(coroutine.create(function() while true do end end)) end'],
    ['in wrap and pcall', 'while true do pcall(coroutine.wrap(function() while true do end end)) end'],
    [
      'in a close handler',
      'while true do pcall(function() local x <close> = setmetatable({}, { __close = function() while true do end end }) while true do end end) end',
    ],
    ['in a chunk reader', 'while true do load(function() while true do end end) end'],
  ])('%s', async (_, bad) => {
    await using lua = await tools(pair(bad))
    const error = await failure(lua.call('bad', {}, host(), { cpuMs: 100 }))
    expect(error.code).toBe('lua_limit')
    expect(error.message).toContain('the CPU limit of 100 ms')
    expect(error.issues[0]).toMatchObject({ file: 'tools/t.lua' })
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('waiting for ctx.sh costs none', async () => {
    await using lua = await body('return ctx.sh("x")')
    const slow = host(async () => {
      await new Promise((resolve) => setTimeout(resolve, 300))
      return ok('slow')
    })
    expect(await lua.call('t', {}, slow, { cpuMs: 50 })).toBe('slow')
  })

  test('at load, and the other files are still looked at', async () => {
    const error = await failure(
      loadLua(
        {
          tools: [
            { file: 'tools/a.lua', source: 'pcall(function() while true do end end)' },
            { file: 'tools/b.lua', source: 'tool("b", {})' },
          ],
        },
        { loadCpuMs: 50 },
      ),
    )
    expect(error.issues.map((issue) => [issue.code, issue.file])).toEqual([
      ['lua_limit', 'tools/a.lua'],
      ['lua_declaration', 'tools/b.lua'],
    ])
  })
})

describe('stuck in a library call', () => {
  test('the worker is ended and the next call has a fresh one', async () => {
    await using lua = await tools(`loads = (loads or 0) + 1 local n = 0\n${pair(EXPLODING)}
      tool("count", { description = "d", run = function() n = n + 1 return n end })`)
    await lua.call('count', {}, host())
    expect(await lua.call('count', {}, host())).toBe('2')
    const error = await failure(lua.call('bad', {}, host(), { cpuMs: 200 }))
    expect(error.code).toBe('lua_stuck')
    expect(error.message).toContain('tools/t.lua:2')
    expect(await lua.call('count', {}, host())).toBe('1')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('in a finalizer, where Lua runs no hook', async () => {
    await using lua = await tools(
      pair('setmetatable({}, { __gc = function() while true do end end }) collectgarbage()'),
    )
    expect((await failure(lua.call('bad', {}, host(), { cpuMs: 200 }))).code).toBe('lua_stuck')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('queued calls go on in the fresh worker', async () => {
    await using lua = await tools(pair(EXPLODING))
    const [bad, good] = await Promise.all([
      failure(lua.call('bad', {}, host(), { cpuMs: 200 })),
      lua.call('good', {}, host()),
    ])
    expect([bad.code, good]).toEqual(['lua_stuck', 'good'])
  })

  test('an abort does not wait for the pattern', async () => {
    await using lua = await tools(pair(`ctx.progress("go") local _ = ${EXPLODING}`))
    const controller = new AbortController()
    const calls = { ...host(), progress: () => controller.abort() }
    expect((await failure(lua.call('bad', {}, calls, { signal: controller.signal }))).code).toBe('lua_aborted')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('at load it names the file', async () => {
    const error = await failure(tools(EXPLODING.replace(/^/, 'local _ = '), { loadCpuMs: 200 }))
    expect(error).toMatchObject({ code: 'lua_stuck', issues: [{ file: 'tools/t.lua' }] })
  })
})

describe('memory', () => {
  test.each([
    ['a growing string', 'local s = "x" while true do s = s .. s end'],
    [
      'in pcall',
      'local t = {} while true do pcall(function() while true do t[#t + 1] = ("x"):rep(1000) .. #t end end) end',
    ],
    ['one huge string', 'return ("x"):rep(1 << 30)'],
    [
      'in a coroutine',
      'while true do local co = coroutine.wrap(function() return ("x"):rep(1 << 28) end) pcall(co) end',
    ],
  ])('%s', async (_, bad) => {
    await using lua = await tools(pair(bad), { memoryBytes: 8 << 20 })
    const error = await failure(lua.call('bad', {}, host()))
    expect(error.code).toBe('lua_limit')
    expect(error.message).toContain('the memory limit of 8388608 bytes')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('what is kept in globals does not starve later calls', async () => {
    await using lua = await tools(
      `hoard = {}\n${pair('while true do hoard[#hoard + 1] = ("x"):rep(1000) .. #hoard end')}`,
      { memoryBytes: 8 << 20 },
    )
    for (let i = 0; i < 3; i += 1) expect((await failure(lua.call('bad', {}, host()))).code).toBe('lua_limit')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('output of a command that does not fit', async () => {
    await using lua = await tools(pair('return #select(2, pcall(ctx.sh, "big"))'), { memoryBytes: 8 << 20 })
    const error = await failure(
      lua.call(
        'bad',
        {},
        host(() => ok(new Uint8Array(9 << 20))),
      ),
    )
    expect(error.code).toBe('lua_limit')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('shared tables that would unfold without end', async () => {
    await using lua = await tools(pair('local t = { 1 } for _ = 1, 60 do t = { t, t } end return t'))
    const error = await failure(lua.call('bad', {}, host()))
    expect(error.message).toContain('more than 250000 parts')
    expect(await lua.call('good', {}, host())).toBe('good')
  })
})

describe('wall', () => {
  test.each([
    ['computing', 'while true do pcall(function() while true do end end) end'],
    ['in a pattern', EXPLODING],
    ['waiting', 'pcall(ctx.sh, "hang") return "swallowed"'],
  ])('%s', async (_, bad) => {
    await using lua = await tools(pair(bad))
    const hang = host(
      async (_command, signal) =>
        await new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(new Error('killed')), { once: true }),
        ),
    )
    const error = await failure(lua.call('bad', {}, hang, { wallMs: 200 }))
    expect(error.code).toBe('lua_limit')
    expect(error.message).toContain('wall clock limit')
    expect(await lua.call('good', {}, host())).toBe('good')
  })
})

describe('abort', () => {
  test('a cancelled ctx.sh ends the call, pcall or not, and the runtime works on', async () => {
    await using lua = await tools(pair('for _ = 1, 3 do pcall(ctx.sh, "hang") end return "swallowed"'))
    const controller = new AbortController()
    const seen: string[] = []
    const error = await failure(
      lua.call(
        'bad',
        {},
        host(async (command, signal) => {
          seen.push(command)
          const killed = new Promise((resolve) => signal.addEventListener('abort', resolve))
          controller.abort()
          await killed
          return { stdout: 'partial', stderr: '', exitCode: 130 }
        }),
        { signal: controller.signal },
      ),
    )
    expect(error.code).toBe('lua_aborted')
    expect(seen).toEqual(['hang'])
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('a ctx.sh that ignores its signal is left after the grace time', async () => {
    await using lua = await tools(pair('return ctx.sh("hang")'), { abortGraceMs: 50 })
    const controller = new AbortController()
    const deaf = host(async () => {
      controller.abort()
      return await new Promise(() => {})
    })
    expect((await failure(lua.call('bad', {}, deaf, { signal: controller.signal }))).code).toBe('lua_aborted')
    expect(await lua.call('good', {}, host())).toBe('good')
  })

  test('while computing, while queued, and before the call', async () => {
    await using lua = await tools(pair('ctx.progress("go") while true do pcall(function() while true do end end) end'))
    const first = new AbortController()
    const second = new AbortController()
    const running = failure(
      lua.call('bad', {}, { ...host(), progress: () => second.abort() }, { signal: first.signal }),
    )
    const queued = failure(lua.call('good', {}, host(), { signal: second.signal }))
    expect((await queued).code).toBe('lua_aborted')
    first.abort()
    expect((await running).code).toBe('lua_aborted')
    expect((await failure(lua.call('good', {}, host(), { signal: AbortSignal.abort() }))).code).toBe('lua_aborted')
    expect(await lua.call('good', {}, host())).toBe('good')
  })
})

describe('deep recursion', () => {
  test.each([
    ['of a function', 'local function f() return 1 + f() end return f()', 'stack overflow'],
    ['of pcall', 'local function f() local a, b = pcall(f) error(b, 0) end f()', 'stack overflow'],
    ['of coroutines', 'local function f() return coroutine.wrap(f)() end f()', 'stack overflow'],
    ['of gsub', 'local function f() return (("a"):gsub("a", f)) end f()', 'stack overflow'],
    [
      'of metamethods',
      'local mt = {} mt.__tostring = function() return tostring(setmetatable({}, mt)) end tostring(setmetatable({}, mt))',
      'stack overflow',
    ],
    ['of a pattern', 'return ("a"):rep(1 << 20):match((".-"):rep(250) .. "b")', 'pattern too complex'],
    ['of the parser', 'assert(load(("("):rep(100000)))', 'stack overflow'],
  ])('%s is an ordinary error', async (_, bad, message) => {
    await using lua = await tools(pair(bad))
    const error = await failure(lua.call('bad', {}, host()))
    expect(error.code).toBe('lua_runtime')
    expect(error.message).toContain(message)
    expect(error.issues[0]).toMatchObject({ file: 'tools/t.lua', line: 2 })
    expect(await lua.call('good', {}, host())).toBe('good')
  })
})

test('a flood of progress is cut', async () => {
  await using lua = await body('for i = 1, 100000 do ctx.progress("x" .. i) end return "done"')
  const seen: string[] = []
  expect(await lua.call('t', {}, { ...host(), progress: (text) => seen.push(text) })).toBe('done')
  expect(seen.length).toBe(10_000)
  expect(seen.at(-1)).toContain('dropped')
})
