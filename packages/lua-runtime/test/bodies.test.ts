import { describe, expect, test } from 'vitest'
import { loadLua, type LuaSources } from '../src/index.ts'
import { failure, host, ok, tools } from './helpers.ts'

const issuesOf = async (sources: LuaSources): Promise<readonly string[]> =>
  (await failure(loadLua(sources))).issues.map(({ file, line, message }) => `${file}:${line}: ${message}`)

const inTools = (source: string): LuaSources => ({ tools: [{ file: 'tools/t.lua', source }] })
const inChannel = (source: string, file = 'channels/mail.lua'): LuaSources => ({ channels: [{ file, source }] })

describe('command(name, { … })', () => {
  test('is declared in agent.lua and tools, and gives any value', async () => {
    await using lua = await loadLua({
      agent: {
        file: 'agent.lua',
        source:
          'command("hello", { description = "Says hello", args = "<who>", run = function(args) return "hello " .. args end })',
      },
      ...inTools('command("ask", { run = function(args, ctx) return { prompt = ctx.sh(args) } end })'),
    })
    expect(lua.program.commands).toEqual([
      { name: 'hello', description: 'Says hello', args: '<who>', at: { file: 'agent.lua', line: 1 } },
      { name: 'ask', description: '', at: { file: 'tools/t.lua', line: 1 } },
    ])
    expect(await lua.run({ type: 'command', name: 'hello' }, 'you', host())).toBe('hello you')
    const asked = await lua.run(
      { type: 'command', name: 'ask' },
      'x',
      host((command) => ok(`${command}!`)),
    )
    expect(asked).toEqual({ prompt: 'x!' })
  })

  test('mistakes are told together', async () => {
    const source = `command("Bad Name", { run = print })
command("a", { descripton = "d", run = 1 })
command("b", { run = print })
command("b", { run = print })`
    expect(await issuesOf(inTools(source))).toEqual([
      'tools/t.lua:1: command: must be the name of a command: 1 to 32 of a-z, 0-9, _ and -, a letter first',
      'tools/t.lua:2: command "a": descripton unknown key (did you mean "description"?); known are description, args, run',
      'tools/t.lua:2: command "a": run must be a function(args, ctx), got number',
      'tools/t.lua:4: command "b" is declared twice; the first is at tools/t.lua:3',
    ])
  })

  test('one that is not there is refused', async () => {
    await using lua = await tools('')
    expect(await failure(lua.run({ type: 'command', name: 'x' }, '', host()))).toMatchObject({
      code: 'lua_unknown_tool',
      message: 'there is no command "x" here',
    })
  })
})

describe('on(event, hook)', () => {
  test('hooks are told in the order of their files and lines', async () => {
    await using lua = await loadLua({
      agent: { file: 'agent.lua', source: 'on("before_tool", function(event) return { block = event.tool } end)' },
      ...inTools('on("before_run", function() end)\non("before_tool", function(_, ctx) return ctx.workdir end)'),
    })
    const { hooks } = lua.program
    expect(hooks.map(({ event, at }) => `${event} ${at.file}:${at.line}`)).toEqual([
      'before_tool agent.lua:1',
      'before_run tools/t.lua:1',
      'before_tool tools/t.lua:2',
    ])
    const answers = []
    for (const hook of hooks) answers.push(await lua.run({ type: 'hook', hook }, { tool: 'bash' }, host()))
    expect(answers).toEqual([{ block: 'bash' }, undefined, '/workspace'])
  })

  test('mistakes are told; an error names the file of the hook', async () => {
    expect(await issuesOf(inTools('on("before_tol", print)\non("before_run")\non("before_run", print, 1)'))).toEqual([
      expect.stringMatching(
        /^tools\/t\.lua:1: on: its first argument must be one of "before_run".*did you mean "before_tool"/,
      ),
      'tools/t.lua:2: on: its second argument must be a function(event, ctx), got nil',
      'tools/t.lua:3: on takes an event and a function',
    ])
    await using lua = await tools('on("before_run", function()\n  error("no")\nend)')
    const [hook] = lua.program.hooks
    if (hook === undefined) throw new Error('no hook')
    expect((await failure(lua.run({ type: 'hook', hook }, {}, host()))).issues[0]).toMatchObject({
      file: 'tools/t.lua',
      line: 2,
      message: 'no',
    })
  })

  test('a hook that never ends meets its limit, and the next one runs', async () => {
    await using lua = await tools(
      'on("before_run", function() while true do end end)\non("before_run", function() return 1 end)',
    )
    const [first, second] = lua.program.hooks
    if (first === undefined || second === undefined) throw new Error('no hooks')
    expect(await failure(lua.run({ type: 'hook', hook: first }, {}, host(), { cpuMs: 50 }))).toMatchObject({
      code: 'lua_limit',
    })
    expect(await lua.run({ type: 'hook', hook: second }, {}, host())).toBe(1)
  })
})

describe('channel { … }', () => {
  test('has the name of its file; poll gets ctx alone, reply the answer', async () => {
    await using lua = await loadLua(
      inChannel(`channel { every = "5m", poll = function(ctx) return ctx.receive { text = "hi" } end,
        reply = function(answer, ctx) return answer.text .. ctx.workdir end }`),
    )
    expect(lua.program.channels).toEqual([
      { name: 'mail', everyMs: 300_000, canReply: true, at: { file: 'channels/mail.lua', line: 1 } },
    ])
    const receive = async (args: unknown) => JSON.stringify(args)
    const polled = await lua.run({ type: 'poll', channel: 'mail' }, null, { ...host(), functions: { receive } })
    expect(polled).toBe('[{"text":"hi"}]')
    expect(await lua.run({ type: 'reply', channel: 'mail' }, { text: 'm' }, host())).toBe('m/workspace')
  })

  test.each([
    ['channel { every = "soon", poll = print }', 'channel "mail": every must be a time from "1s" to "24h"'],
    ['channel { every = 0.1, poll = print }', 'channel "mail": every must be a time from "1s" to "24h"'],
    ['channel { poll = print, reply = 1 }', 'channel "mail": reply must be a function(answer, ctx), got number'],
    ['channel { }', 'channel "mail": poll must be a function(ctx), got nil'],
    ['channel { poll = print, pol = 1 }', 'channel "mail": pol unknown key (did you mean "poll"?)'],
    ['channel { poll = print } channel { poll = print }', 'channel{} is called twice, and a file is one channel'],
  ])('%s', async (source, message) => {
    expect((await issuesOf(inChannel(source))).join()).toContain(message)
  })

  test('a file with a name that is none is refused; one without a reply cannot reply', async () => {
    expect((await issuesOf(inChannel('channel { poll = print }', 'channels/My Mail.lua'))).join()).toContain(
      "channel: the file's name must be the name of a channel",
    )
    await using lua = await loadLua(inChannel('channel { poll = print }'))
    expect(lua.program.channels[0]).toMatchObject({ everyMs: 30_000, canReply: false })
    await expect(lua.run({ type: 'reply', channel: 'mail' }, {}, host())).rejects.toMatchObject({
      code: 'lua_unknown_tool',
    })
  })

  test('what belongs to one kind of file is refused in the others, saying where it belongs', async () => {
    expect((await issuesOf(inTools('channel { poll = print }'))).join()).toContain(
      'channel can only be called in a file in channels/',
    )
    expect((await issuesOf(inChannel('on("before_run", print)'))).join()).toContain(
      'on can only be called in agent.lua or a file in tools/',
    )
  })
})
