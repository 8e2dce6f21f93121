import { describe, expect, test } from 'vitest'
import { loadLua } from '../src/index.ts'
import { body, failure, host, ok, tools } from './helpers.ts'

/** The real template of the seed, verbatim. */
const EXAMPLE = `-- Every tools/*.lua file is trusted launch code, loaded before any work runs.
-- There is no plugin manifest and no registry to edit: drop in a file.
--
-- The Lua body runs on the host, but \`ctx.sh\` executes in the microVM. That is
-- the only command path a tool has.

tool("example", {
  description = "Summarize the working tree: branch, status, and recent commits",
  replay = "safe", -- read-only, so recovery may re-run it

params = {
    { name = "commits", type = "integer", description = "How many commits to list", default = 5 },
  },

run = function(args, ctx)
    local branch = ctx.sh("git rev-parse --abbrev-ref HEAD 2>/dev/null || echo '(no repo)'")
    local status = ctx.sh("git status --short 2>/dev/null || true")
    local log = ctx.sh("git log --oneline -n " .. tostring(args.commits) .. " 2>/dev/null || true")

if status == "" then status = "(clean)\\n" end
    return ("branch: %sstatus:\\n%s\\nrecent commits:\\n%s"):format(branch, status, log)
  end,
})
`

describe('the example of the seed', () => {
  test('works verbatim, with its default', async () => {
    await using lua = await loadLua({ tools: [{ file: 'tools/example.lua', source: EXAMPLE }] })
    expect(lua.program.tools).toEqual([
      {
        name: 'example',
        description: 'Summarize the working tree: branch, status, and recent commits',
        replay: 'safe',
        params: [
          { name: 'commits', type: 'integer', required: false, description: 'How many commits to list', default: 5 },
        ],
        schema: {
          type: 'object',
          properties: { commits: { type: 'integer', description: 'How many commits to list', default: 5 } },
          additionalProperties: false,
        },
        at: { file: 'tools/example.lua', line: 7 },
      },
    ])
    const commands: string[] = []
    const git = host((command) => {
      commands.push(command)
      if (command.includes('rev-parse')) return ok('main\n')
      return ok(command.includes('log') ? 'abc1234 init\n' : '')
    })
    expect(await lua.call('example', { commits: 2 }, git)).toBe(
      'branch: main\nstatus:\n(clean)\n\nrecent commits:\nabc1234 init\n',
    )
    await lua.call('example', {}, git)
    expect(commands.at(-1)).toBe('git log --oneline -n 5 2>/dev/null || true')
  })
})

describe('call', () => {
  test('ctx has sh, workdir, shellescape, progress and idempotency_key', async () => {
    await using lua = await body(`
      ctx.progress("half") print("a", nil, 1.5)
      return table.concat({ ctx.workdir, ctx.shellescape("it's"), ctx.shellescape(""), tostring(ctx.idempotency_key) }, "|")`)
    const seen: string[] = []
    const calls = {
      ...host(),
      progress: (text: string) => seen.push(`p:${text}`),
      print: (text: string) => seen.push(`o:${text}`),
    }
    expect(await lua.call('t', {}, calls, { idempotencyKey: 'e_1' })).toBe(`/workspace|'it'\\''s'|''|e_1`)
    expect(seen).toEqual(['p:half', 'o:a\tnil\t1.5'])
    expect(await lua.call('t', {}, host())).toMatch(/\|nil$/)
  })

  test('stdout alone, or stdout and stderr', async () => {
    await using lua = await body('return ctx.sh("x")')
    expect(
      await lua.call(
        't',
        {},
        host(() => ok('out')),
      ),
    ).toBe('out')
    expect(
      await lua.call(
        't',
        {},
        host(() => ({ stdout: 'out', stderr: 'err', exitCode: 3 })),
      ),
    ).toBe('outerr')
    expect(
      await lua.call(
        't',
        {},
        host(() => ok('out', new Uint8Array([0x21]))),
      ),
    ).toBe('out!')
  })

  test('a thousand calls in one runtime', async () => {
    await using lua = await tools(
      'local n = 0 tool("t", { description = "d", params = {{ name = "i", type = "integer" }}, run = function(a, ctx) n = n + 1 return ctx.sh(tostring(a.i)) .. n end })',
    )
    for (let i = 1; i <= 1000; i += 1) expect(await lua.call('t', { i }, host())).toBe(`${i}${i}`)
  })

  test('one at a time, in order', async () => {
    await using lua = await tools(
      'tool("t", { description = "d", params = {{ name = "i", type = "integer" }}, run = function(a, ctx) ctx.sh("a" .. a.i) ctx.sh("b" .. a.i) end })',
    )
    const order: string[] = []
    const slow = host(async (command) => {
      order.push(command)
      await new Promise((resolve) => setImmediate(resolve))
      return ok('')
    })
    await Promise.all([1, 2, 3].map(async (i) => await lua.call('t', { i }, slow)))
    expect(order).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'b3'])
  })

  test('a rejected sh is a Lua error at its line, which pcall can catch and which is the cause otherwise', async () => {
    const broken = new Error('the VM is gone')
    const calls = host(() => Promise.reject(broken))
    await using lua = await body('return ctx.sh("x")')
    const error = await failure(lua.call('t', {}, calls))
    expect(error).toMatchObject({ code: 'lua_runtime', cause: broken })
    await using caught = await body('local fine, e = pcall(ctx.sh, "x")\nreturn tostring(fine) .. ": " .. e')
    expect(await caught.call('t', {}, calls)).toBe('false: tools/t.lua:2: the VM is gone')
  })

  test('unknown tool', async () => {
    await using lua = await tools('tool("example", { description = "d", run = function() end })')
    const error = await failure(lua.call('exmaple', {}, host()))
    expect(error.code).toBe('lua_unknown_tool')
    expect(error.message).toContain('did you mean "example"')
  })

  test('a ctx that outlives its call, and misuse of ctx.sh, are told', async () => {
    await using lua = await tools(`local old
      tool("keep", { description = "d", run = function(_, ctx) old = ctx end })
      tool("use", { description = "d", run = function() return old.sh("x") end })
      tool("colon", { description = "d", run = function(_, ctx)
        local r = ctx:sh("x") return r end })
      tool("number", { description = "d", run = function(_, ctx) local r = ctx.sh(nil) return r end })`)
    await lua.call('keep', {}, host())
    expect((await failure(lua.call('use', {}, host()))).message).toContain('belongs to a call that has ended')
    const colon = await failure(lua.call('colon', {}, host()))
    expect(colon.issues[0]).toMatchObject({
      file: 'tools/t.lua',
      line: 5,
      message: 'call ctx.sh(…) with a dot, not a colon',
    })
    expect((await failure(lua.call('number', {}, host()))).message).toContain(
      'ctx.sh needs a command (a string), got nil',
    )
  })

  test("a host's callback that throws fails the call and not the process", async () => {
    await using lua = await body('ctx.progress("x") return "r"')
    const progress = (): void => {
      throw new Error('no screen')
    }
    expect((await failure(lua.call('t', {}, { ...host(), progress }))).message).toContain('no screen')
    expect(await lua.call('t', {}, host())).toBe('r')
  })

  test('close ends a running call and refuses later ones', async () => {
    const lua = await body('return ctx.sh("x")')
    const { promise: started, resolve } = Promise.withResolvers<void>()
    const running = failure(
      lua.call(
        't',
        {},
        host(async (_, signal) => {
          resolve()
          await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('killed'))))
          return ok('')
        }),
      ),
    )
    await started
    await lua.close()
    await lua.close()
    expect((await running).code).toBe('lua_aborted')
    expect((await failure(lua.call('t', {}, host()))).message).toContain('the Lua runtime was closed')
  })
})

describe('coroutines', () => {
  test('ctx.sh inside wrap, resume, nested coroutines, iterators and pcall', async () => {
    await using lua = await body(`
      local gen = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(ctx.sh("g" .. i)) end end)
      local out = {}
      for v in gen do out[#out + 1] = v end
      local co = coroutine.create(function(a)
        local inner = coroutine.wrap(function() coroutine.yield(ctx.sh("in" .. a)) end)
        local b = coroutine.yield(inner())
        return select(2, pcall(function() return ctx.sh("p" .. b) end))
      end)
      out[#out + 1] = select(2, coroutine.resume(co, "A"))
      out[#out + 1] = select(2, coroutine.resume(co, "B"))
      out[#out + 1] = coroutine.status(co)
      local mt = setmetatable({}, { __index = function(_, k) return ctx.sh("k" .. k) end })
      out[#out + 1] = mt.x
      return table.concat(out, " ")`)
    expect(await lua.call('t', {}, host())).toBe('g1 g2 g3 inA pB dead kx')
  })

  test.each([
    ['table.sort', 'table.sort({ 3, 1, 2 }, function(a, b)\nctx.sh("x") return a < b end)'],
    ['string.gsub', '("abc"):gsub(".", function()\nlocal r = ctx.sh("x") return r end)'],
    [
      'a metamethod called from C',
      'tostring(setmetatable({}, { __tostring = function()\nlocal r = ctx.sh("x") return r end }))',
    ],
    [
      'a coroutine in table.sort',
      'table.sort({ 2, 1 }, function(a, b) coroutine.wrap(function()\nctx.sh("x") end)() return a < b end)',
    ],
  ])('ctx.sh in %s says where and what to do', async (_, source) => {
    await using lua = await body(source)
    const error = await failure(lua.call('t', {}, host()))
    expect(error.issues[0]).toMatchObject({ code: 'lua_runtime', file: 'tools/t.lua', line: 3 })
    expect(error.message).toContain('ctx.sh cannot wait here')
    await using fine = await body(
      'return pcall(function() table.sort({ 2, 1 }, function() ctx.sh("x") end) end) and "" or ctx.sh("after")',
    )
    expect(await fine.call('t', {}, host())).toBe('after')
  })

  test('yield outside of a coroutine', async () => {
    await using lua = await body('coroutine.yield(1)')
    const error = await failure(lua.call('t', {}, host()))
    expect(error.issues[0]).toMatchObject({ line: 2, message: 'attempt to yield from outside a coroutine' })
  })
})
