import { createServer } from 'node:http'
import { writeFileSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { openAgent } from '../src/index.ts'
import { newestFile, newSession } from '../src/sessions.ts'

async function agentWith(files: Readonly<Record<string, string>>) {
  const root = await mkdtemp(join(tmpdir(), 'definition-'))
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), text)
  }
  const vm = { cacheDir: join(root, 'cache'), runtimeDir: '/tmp/none' }
  return {
    root,
    open: (env: Readonly<Record<string, string>> = {}) => openAgent(root, { env: (name) => env[name], vm }),
  }
}

const refusal = async (
  files: Readonly<Record<string, string>>,
): Promise<{ readonly code?: unknown; readonly message: string }> => {
  const { open } = await agentWith(files)
  const error: unknown = await open().then(
    (agent) => agent.close(),
    (reason: unknown) => reason,
  )
  return error instanceof Error ? error : { message: 'it was not refused' }
}

test('a folder that is no agent is refused, naming the two files and reve init', async () => {
  const error = await refusal({ 'README.md': 'a checkout of something' })
  expect(error).toMatchObject({ code: 'not_an_agent' })
  expect(error.message).toMatch(/^not an agent directory: .*agent\.lua.*instructions\.md.*reve init/)
})

test('what is wrong with an MCP server is told with its line, and never with a value', async () => {
  const source = `agent {
  mcp = {
    kc = { url = "ftp://127.0.0.1/mcp",
      headers = { Authorization = "Bearer LITERAL" },
      ulr = "x" },
  },
}`
  const { code, message } = await refusal({ 'agent.lua': source })
  expect(code).toBe('bad_config')
  expect(message.split('\n')).toEqual([
    expect.stringMatching(/^agent\.lua:3: mcp\/kc\/url: must be an http or https URL/),
    expect.stringMatching(/^agent\.lua:4: mcp\/kc\/headers\/Authorization: must refer to a variable/),
    'agent.lua:5: mcp/kc/ulr: unknown key (did you mean "url"?)',
  ])
  expect(message).not.toContain('LITERAL')
})

test('instructions.md alone is an agent, with every default', async () => {
  const { open } = await agentWith({ 'instructions.md': 'You help.' })
  await using agent = await open()
  expect(agent.info).toMatchObject({
    model: undefined,
    tools: [],
    policy: { image: 'debian:trixie-slim', allow: [], secrets: [] },
  })
  await expect(agent.openSession({ session: 'new' })).rejects.toMatchObject({ code: 'no_model' })
})

test('every mistake in agent.lua and sandbox.lua is told at once, with its line', async () => {
  const error = await refusal({
    'agent.lua': 'agent {\n  modle = "a/b",\n  thinking = "loud",\n}\n',
    'sandbox.lua': `sandbox {
  memroy = 1024,
  cpus = "two",
  allow = { "https://github.com" },
  secrets = { { env = "TOKEN", source = "TOKEN", hosts = {} }, { env = "KEY", value = "sk-sentinel-value", hosts = { "a.example" } } },
}
`,
  })
  expect(error).toMatchObject({ code: 'bad_config' })
  for (const expected of [
    'agent.lua:2: modle: unknown key (did you mean "model"?)',
    'agent.lua:3: thinking: must be "off"',
    'sandbox.lua:2: memroy: unknown field (did you mean "memory"?)',
    'sandbox.lua:3: cpus: must be a whole number from 1 to 64',
    'sandbox.lua:4: allow/0: must be a host such as "github.com", without a scheme',
    'sandbox.lua:5: secrets/0/hosts: at least one host is required',
    "secrets/1/value: unknown field: a secret's value never stands in a file",
  ]) {
    expect(error.message).toContain(expected)
  }
  expect(error.message).not.toContain('sk-sentinel-value')
})

test('a change on disk counts from the next run on; a mistake in it changes nothing and is told', async () => {
  const { root, open } = await agentWith({
    'agent.lua': 'agent { model = "test/one" }',
    'models.yml':
      'providers:\n  test: { api: scripted, models: [{ id: one, turns: [{ calls: [{ name: where }] }, { calls: [{ name: where }] }, { text: Done. }] }] }\n',
    'tools/where.lua': 'tool("where", { description = "x", run = function() return "first" end })',
  })
  await using agent = await open()
  await using session = await agent.openSession({ session: 'new' })
  expect(await agent.refresh()).toEqual([])
  const results = () =>
    session.harness.messages().flatMap((message) => (message.role === 'toolResult' ? message.content : []))
  session.harness.subscribe((event) => {
    if (event.type !== 'tool_finished' || results().length > 1) return
    writeFileSync(
      join(root, 'tools/where.lua'),
      'tool("where", { description = "x", run = function() return "second" end })',
    )
  })
  await session.harness.prompt('go')
  await agent.refresh()
  await writeFile(join(root, 'tools/where.lua'), 'tool("where" oops')
  expect(await agent.refresh()).toEqual([
    expect.stringMatching(/^the agent's files are as they were.*\n.*where\.lua:1/s),
  ])
  expect(await agent.refresh()).toEqual([])
  expect(agent.info.tools).toEqual([{ name: 'where', description: 'x' }])
  await writeFile(join(root, 'tools/where.lua'), 'tool("there", { description = "y", run = function() return "" end })')
  await writeFile(join(root, 'sandbox.lua'), 'sandbox { cpus = 1 }')
  expect(await agent.refresh()).toEqual(['sandbox.lua has changed; it counts from the next start of reve on'])
  expect(agent.info.tools).toEqual([{ name: 'there', description: 'y' }])
})

test('a task is done by a sub-agent on a lane of its own, not without end', async () => {
  const { open } = await agentWith({
    'agent.lua': 'agent { model = "test/one" }',
    // Each sub-agent begins with the first turn too: the deepest one is refused.
    'models.yml':
      'providers:\n  test: { api: scripted, models: [{ id: one, turns: [{ calls: [{ name: task, arguments: { prompt: look } }] }, { text: Found. }] }] }\n',
  })
  await using agent = await open()
  await using session = await agent.openSession({ session: 'new' })
  expect(await session.harness.prompt('go')).toMatchObject({ outcome: 'completed', text: 'Found.' })
  const lanes = new Set(session.log.lines.flatMap((line) => ('lane' in line ? [line.lane] : [])))
  expect(lanes.size).toBe(4)
  const [result] = session.harness.messages().filter((message) => message.role === 'toolResult')
  expect(result).toMatchObject({ isError: false, content: [{ text: 'Found.' }] })
  expect(JSON.stringify(session.log.lines)).toContain('sub-agents may call sub-agents 3 deep')
})

test('the model is told of the skills and the memory that there are at each run', async () => {
  const systems: string[] = []
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      systems.push(JSON.stringify((JSON.parse(body) as { readonly messages: readonly unknown[] }).messages[0]))
      response.setHeader('content-type', 'text/event-stream')
      response.end('data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const { root, open } = await agentWith({
    'agent.lua': 'agent { model = "here/m" }',
    'models.yml': `providers:\n  here: { api: openai-completions, baseUrl: "http://127.0.0.1:${address.port}/v1", models: [{ id: m }] }\n`,
    'workspace/skills/early/SKILL.md': '---\nname: early\ndescription: Was there at first.\n---\n',
  })
  await using agent = await open()
  await using session = await agent.openSession({ session: 'new' })
  await session.harness.prompt('one')
  await mkdir(join(root, 'workspace/skills/late'))
  await writeFile(join(root, 'workspace/skills/late/SKILL.md'), '---\nname: late\ndescription: Came later.\n---\n')
  await rm(join(root, 'workspace/skills/early'), { recursive: true })
  await writeFile(join(root, 'workspace/SOUL.md'), 'Calm by now.')
  await session.harness.prompt('two')
  server.close()
  expect(systems).toHaveLength(2)
  expect(systems[0]).toContain('`early` (`skills/early/SKILL.md`): Was there at first.')
  expect(systems[1]).toContain('`late` (`skills/late/SKILL.md`): Came later.')
  expect(systems[1]).toContain('Calm by now.')
  expect(systems[1]).not.toContain('Was there at first.')
})

test('models are discovered once a day, and kept in the agent', async () => {
  let asked = 0
  const server = createServer((_, response) => {
    asked += 1
    response.setHeader('content-type', 'application/json').end('{"data":[{"id":"large"}]}')
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const { root, open } = await agentWith({
    'agent.lua': 'agent {}',
    'models.yml': `providers:\n  own: { baseUrl: "http://127.0.0.1:${address.port}", api: openai-completions, models: [{ id: small }] }\n`,
  })
  await using agent = await open()
  const found = { models: [{ reference: 'own/large' }], failures: {} }
  expect([await agent.discoverModels(), await agent.discoverModels(), asked]).toEqual([found, found, 1])
  expect(await readdir(join(root, '.reve'))).toEqual(['model-catalogue.json'])
  server.close()
  server.closeAllConnections()
})

test('a budget is checked, and ends a run that would go on beyond it', async () => {
  const error = await refusal({
    'agent.lua': 'agent {\n  budget = {\n    run = { tokens = -1, euro = 2 },\n    week = {},\n  },\n}\n',
  })
  for (const expected of [
    'agent.lua:3: budget/run/tokens: must not be negative',
    'agent.lua:3: budget/run/euro: unknown key',
    'agent.lua:4: budget/week: unknown key',
  ])
    expect(error.message).toContain(expected)
  const { open } = await agentWith({
    'agent.lua': 'agent { model = "test/one", budget = { run = { tokens = 100 } } }',
    'models.yml':
      'providers:\n  test:\n    api: scripted\n    models:\n      - { id: one, turns: [{ text: One., usage: { input: 90, output: 20 }, calls: [{ name: nothing }] }, { text: Two. }] }\n',
  })
  await using agent = await open()
  await using session = await agent.openSession({ session: 'new' })
  await session.harness.recover()
  expect(await session.harness.prompt('go')).toMatchObject({ outcome: 'failed', reason: 'budget' })
})

test("a mistake in a tool's Lua names its file and line", async () => {
  const error = await refusal({
    'agent.lua': 'agent {}',
    'tools/broken.lua': 'tool("x", {\n  run = function( end\n})\n',
  })
  expect(error).toMatchObject({ code: 'bad_config' })
  expect(error.message).toMatch(/tools\/broken\.lua:2/)
})

test('empty lists in Lua are empty lists', async () => {
  const { open } = await agentWith({
    'agent.lua': 'agent {}',
    'sandbox.lua': 'sandbox { allow = {}, secrets = {}, bootstrap = {}, env = {} }',
  })
  await using agent = await open()
  expect(agent.info.policy).toMatchObject({ allow: [], secrets: [], bootstrap: [], env: {} })
})

test('an unknown Lua tool is refused before any VM starts, naming those there are', async () => {
  const { open } = await agentWith({
    'agent.lua': 'agent {}',
    'tools/a.lua': 'tool("hello", { description = "d", run = function() return "hi" end })',
  })
  await using agent = await open()
  await expect(agent.runTool('helo', {})).rejects.toMatchObject({
    code: 'unknown_tool',
    message: expect.stringContaining('hello'),
  })
  expect(await agent.runTool('hello', {})).toBe('hi')
  expect(agent.vm.status().state).toBe('stopped')
})

test('a session without a tool call needs no VM, is on disk, and is found again', async () => {
  const { root, open } = await agentWith({
    'agent.lua': 'agent { model = "demo/scripted" }',
    'models.yml':
      'providers:\n  demo:\n    api: scripted\n    models:\n      - id: scripted\n        turns: [{ text: "One." }, { text: "Two." }]\n',
  })
  await using agent = await open()
  await expect(agent.openSession({ session: 'newest' })).rejects.toMatchObject({ code: 'no_session' })
  {
    await using session = await agent.openSession({ session: 'new' })
    expect(await session.harness.prompt('first')).toMatchObject({ outcome: 'completed', text: 'One.' })
    expect(session.log.file.startsWith(join(root, '.reve', 'sessions', 'main-'))).toBe(true)
    await expect(agent.openSession({ session: 'newest' })).rejects.toMatchObject({ code: 'locked' })
  }
  await using session = await agent.openSession({ session: 'newest' })
  expect(await session.harness.prompt('second')).toMatchObject({ outcome: 'completed', text: 'Two.' })
  expect(agent.vm.status().state).toBe('stopped')
})

test("keys and secrets of the environment never reach the session's file", async () => {
  const { open } = await agentWith({
    'agent.lua': 'agent { model = "demo/scripted" }',
    'sandbox.lua': 'sandbox { secrets = { { env = "T", source = "MY_TOKEN", hosts = { "a.example" } } } }',
    'models.yml':
      'providers:\n  demo:\n    api: scripted\n    models:\n      - id: scripted\n        turns: [{ text: "you said sentinel-4711-secret" }]\n',
  })
  await using agent = await open({ MY_TOKEN: 'sentinel-4711-secret' })
  await using session = await agent.openSession({ session: 'new' })
  const events: string[] = []
  session.harness.subscribe((event) => events.push(JSON.stringify(event)))
  await session.harness.prompt('my token is sentinel-4711-secret')
  expect(events.join()).not.toContain('sentinel-4711-secret')
  expect(JSON.stringify(session.log.lines)).not.toContain('sentinel-4711-secret')
  expect(JSON.stringify(session.log.lines)).toContain('[redacted]')
})

test('opening an agent leaves nothing in its folder but a missing workspace/, and refuses one that is a file', async () => {
  const { root, open } = await agentWith({ 'agent.lua': 'agent {}', '.reve': 'a file in the way of later work' })
  await (await open()).close()
  expect((await readdir(root)).toSorted()).toEqual(['.reve', 'agent.lua', 'workspace'])
  await rm(join(root, 'workspace'), { recursive: true })
  await writeFile(join(root, 'workspace'), '')
  await expect(open()).rejects.toMatchObject({ name: 'AgentError', code: 'io' })
})

test('of sessions that begin within one second, the last is the newest', async () => {
  const root = await mkdtemp(join(tmpdir(), 'sessions-'))
  const files: string[] = []
  for (let ms = 0; ms < 12; ms++) {
    const log = await newSession(root, () => Date.UTC(2026, 0, 1) + ms)
    files.push(log.file)
    await log.close()
    expect(await newestFile(root)).toBe(log.file)
  }
  expect(files.toSorted()).toEqual(files)
})

test('a model is checked without a session: its file, its name, its key', async () => {
  const { root, open } = await agentWith({
    'agent.lua': 'agent { model = "hosted/m" }',
    'models.yml':
      'providers:\n  hosted:\n    api: openai-completions\n    baseUrl: http://127.0.0.1:9\n    apiKey: $SOME_KEY\n    models: [{ id: m }]\n',
  })
  await using set = await open({ SOME_KEY: 'a-key-of-some-length' })
  await set.checkModel()
  await using unset = await open()
  await expect(unset.checkModel()).rejects.toThrow('SOME_KEY')
  await rm(join(root, 'models.yml'))
  await expect(set.checkModel()).rejects.toMatchObject({ code: 'no_model' })
})
