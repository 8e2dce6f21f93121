import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { HarnessEvent } from '@reve/harness'
import { describe, expect, onTestFinished, test } from 'vitest'
import { openAgent } from '../src/index.ts'

const say = `tool("say", { description = "Says", params = { { name = "word", required = true } }, run = function(args) return "said " .. args.word end })`

/** An agent with these files, whose model calls `say` and then ends; nothing of it needs a VM. */
async function agentWith(
  files: Readonly<Record<string, string>>,
  turns: readonly unknown[] = [{ calls: [{ name: 'say', arguments: { word: 'hi' } }] }, { text: 'Done.' }],
) {
  const root = await mkdtemp(join(tmpdir(), 'lua-agent-'))
  const models = { providers: { demo: { api: 'scripted', models: [{ id: 'm', turns }] } } }
  const all = {
    'agent.lua': 'agent { model = "demo/m" }',
    'models.yml': JSON.stringify(models),
    'tools/say.lua': say,
    ...files,
  }
  const write = async (name: string, text: string): Promise<void> => {
    await mkdir(dirname(join(root, name)), { recursive: true })
    await writeFile(join(root, name), text)
  }
  for (const [name, text] of Object.entries(all)) await write(name, text)
  await mkdir(join(root, 'workspace'))
  const logs: string[] = []
  const agent = await openAgent(root, {
    env: () => undefined,
    vm: { cacheDir: join(root, 'cache'), runtimeDir: join(root, 'run') },
    onLog: (source, text) => logs.push(`${source}: ${text}`),
  })
  const session = await agent.openSession({ session: 'new' })
  onTestFinished(async () => {
    await session[Symbol.asyncDispose]()
    await agent.close()
  })
  await session.harness.recover()
  const events: HarnessEvent[] = []
  session.harness.subscribe((event) => events.push(event))
  const spoken = () => JSON.stringify(session.harness.messages())
  const failures = () => events.flatMap((event) => (event.type === 'hook_failed' ? [event.message] : []))
  return { root, agent, session, logs, write, spoken, failures }
}

describe('hooks of on(event, …)', () => {
  test('see what happens and change it, each in Lua’s own names', async () => {
    const { session, logs, spoken, failures } = await agentWith(
      {
        'tools/hooks.lua': `
        on("before_run", function(event, ctx) ctx.log(event.prompt) return { messages = { "(be brief)" } } end)
        on("before_tool", function(event, ctx)
          ctx.log(event.tool .. " " .. event.arguments.word)
          return { arguments = { word = event.arguments.word .. "!" } }
        end)
        on("after_tool", function(event) return { text = event.text .. " (seen)" } end)
        local done = false
        on("before_run_end", function(event)
          if done then return end
          done = true
          return { follow_up = "after " .. event.text }
        end)`,
      },
      [{ calls: [{ name: 'say', arguments: { word: 'hi' } }] }, { text: 'Done.' }, { text: 'Really done.' }],
    )
    expect(await session.harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Really done.' })
    expect(logs).toEqual(['tools/hooks.lua:2: Go', 'tools/hooks.lua:3: say hi'])
    for (const text of ['(be brief)', 'said hi! (seen)', 'after Done.']) expect(spoken()).toContain(text)
    expect(failures()).toEqual([])
  })

  test('block a call, reject a run, and change what the model sees for one request', async () => {
    const blocked = await agentWith({
      'tools/h.lua': 'on("before_tool", function(e) return { block = "not " .. e.tool } end)',
    })
    await blocked.session.harness.prompt('Go')
    expect(blocked.spoken()).toContain('not say')
    const rejected = await agentWith({
      'agent.lua': 'agent { model = "demo/m" }\non("before_run", function() return { reject = "closed" } end)',
    })
    expect(await rejected.session.harness.prompt('Go')).toMatchObject({ outcome: 'rejected' })
    const seen = await agentWith({
      'tools/h.lua': `on("transform_context", function(e, ctx)
        ctx.log(e.messages[1].content[1].text)
        e.messages[1].content[1].text = "other"
        return { messages = e.messages }
      end)`,
    })
    expect(await seen.session.harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    expect(seen.logs[0]).toBe('tools/h.lua:1: Go')
    expect(seen.spoken()).toContain('"Go"')
    expect(seen.failures()).toEqual([])
  })

  test('one that is wrong is told with its place and skipped; a call that it was asked about is blocked', async () => {
    const { session, failures, spoken } = await agentWith({
      'tools/h.lua': `on("after_tool", function() error("broken") end)
on("after_tool", function() return { txt = "x" } end)
on("after_tool", function() return "x" end)`,
    })
    expect(await session.harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    expect(failures()).toEqual([
      expect.stringMatching(/^afterTool of tools\/h\.lua:1: tools\/h\.lua:1: broken/),
      'afterTool of tools/h.lua:2: txt is not what this event takes',
      'afterTool of tools/h.lua:3: must be a table like { text = "…", is_error = true }',
    ])
    expect(spoken()).toContain('said hi')
    const asked = await agentWith({ 'tools/h.lua': 'on("before_tool", function() error("broken") end)' })
    await asked.session.harness.prompt('Go')
    expect(asked.failures()).toHaveLength(1)
    expect(asked.spoken()).not.toContain('said hi')
  })

  test('those of a file that changed count from then on', async () => {
    const { agent, session, write, spoken } = await agentWith({})
    await write('tools/later.lua', 'on("before_run", function() return { messages = "(new)" } end)')
    expect(await agent.refresh()).toEqual([])
    await session.harness.prompt('Go')
    expect(spoken()).toContain('(new)')
  })
})

describe('commands', () => {
  test('are listed and run; they give a text, or what is to be said to the model', async () => {
    const { agent } = await agentWith({
      'tools/lib/words.lua': 'return { greeting = "hello" }',
      'tools/c.lua': `local words = require("words")
        command("greet", { description = "Greets", args = "<who>", run = function(args) return words.greeting .. " " .. args end })
        command("ask", { run = function(args) return { prompt = "Explain " .. args } end })
        command("quiet", { run = function() end })
        command("odd", { run = function() return 5 end })`,
    })
    expect(agent.commands()).toEqual([
      { name: 'greet', description: 'Greets', args: '<who>' },
      { name: 'ask', description: '' },
      { name: 'quiet', description: '' },
      { name: 'odd', description: '' },
    ])
    expect(await agent.runCommand('greet', 'you')).toEqual({ type: 'text', text: 'hello you' })
    expect(await agent.runCommand('ask', 'this')).toEqual({ type: 'prompt', prompt: 'Explain this' })
    expect(await agent.runCommand('quiet', '')).toEqual({ type: 'text', text: '' })
    await expect(agent.runCommand('odd', '')).rejects.toThrow('a command gives a string to show')
    await expect(agent.runCommand('gret', '')).rejects.toMatchObject({
      code: 'unknown_command',
      message: 'this agent has no command "gret" (it has: greet, ask, quiet, odd)',
    })
  })
})

describe('channels/*.lua', () => {
  test('take messages in once, keep how far they read, and bring answers', async () => {
    const { agent, session, logs, spoken } = await agentWith(
      {
        'channels/feed.lua': `local source = { "one", "two" }
channel {
  every = 1,
  poll = function(ctx)
    local read = ctx.get("read") or 0
    for i = read + 1, #source do
      ctx.receive { text = source[i], from = "feed", key = tostring(i), keep = { read = i } }
    end
  end,
  reply = function(answer, ctx)
    ctx.log(answer.to.key .. " " .. tostring(answer.ok) .. " " .. answer.text .. " " .. ctx.get("read"))
  end,
}`,
      },
      [{ text: 'First.' }, { text: 'Second.' }],
    )
    expect(agent.info.channels).toEqual(['feed'])
    const replied = Promise.withResolvers<void>()
    let count = 0
    await using channels = agent.startChannels(session, {
      onEvent: (event) => {
        if (event.type === 'problem') replied.reject(new Error(event.message))
        if (event.type === 'replied' && ++count === 2) replied.resolve()
      },
    })
    void channels
    await replied.promise
    expect(logs).toEqual(['channel feed: 1 true First. 2', 'channel feed: 2 true Second. 2'])
    expect(spoken()).toContain('<message channel=\\"feed\\" from=\\"feed\\"')
  })

  test('one that fails is told with its place, and tried again', async () => {
    const { agent, session } = await agentWith({
      'channels/bad.lua': 'channel { every = 1, poll = function(ctx) ctx.receive { txt = "x" } end }',
    })
    const told = Promise.withResolvers<string>()
    await using channels = agent.startChannels(session, {
      onEvent: (event) => event.type === 'problem' && told.resolve(event.message),
    })
    void channels
    expect(await told.promise).toContain('channels/bad.lua:1: ctx.receive: txt is none of text, from, key, keep')
  })
})

describe('what is wrong in the files', () => {
  const refusal = async (files: Readonly<Record<string, string>>): Promise<string> => {
    const error: unknown = await agentWith(files).then(
      () => undefined,
      (reason: unknown) => reason,
    )
    return error instanceof Error ? error.message : ''
  }

  test('is told for modules, channels, hooks and commands too, all at once', async () => {
    const message = await refusal({
      'tools/lib/broken.lua': 'return +',
      'channels/x.lua': 'channel { every = "soon", poll = print }',
      'tools/c.lua': 'command("A", {})\non("never", print)',
    })
    for (const place of ['tools/lib/broken.lua:1:', 'channels/x.lua:1:', 'tools/c.lua:1:', 'tools/c.lua:2:'])
      expect(message).toContain(place)
  })

  test('a channel cannot have the name of one that comes with reve', async () => {
    expect(await refusal({ 'channels/http.lua': 'channel { poll = print }' })).toBe(
      'channels/http.lua:1: "http" is a channel that comes with reve; give the file another name',
    )
  })
})
