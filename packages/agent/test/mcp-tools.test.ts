import { setTimeout as delay } from 'node:timers/promises'
import type { Tool, ToolOutput } from '@reve/harness'
import { expect, onTestFinished, test, vi } from 'vitest'
import { serviceEffects } from '../src/effects.ts'
import { createMcpTools, type McpOptions } from '../src/mcp-tools.ts'
import type { McpSetting } from '../src/mcp/setting.ts'
import { listening, type Offer, stateful, stateless, text, tool } from './mcp/mcp-server.ts'

const token = 'a-token-of-some-length'

function mcpTools(setting: McpSetting | (() => McpSetting), more: Partial<McpOptions> = {}) {
  const mcp = createMcpTools({
    setting: typeof setting === 'function' ? setting : () => setting,
    env: (name) => (name === 'T' ? token : undefined),
    after: serviceEffects().after,
    shorten: async (words) => words,
    ...more,
  })
  onTestFinished(() => mcp.close())
  return mcp
}

const toolOf = (tools: readonly Tool[], name: string): Tool => {
  const found = tools.find((one) => one.name === name)
  if (found === undefined) throw new Error(`no tool ${name} among ${tools.map((one) => one.name).join(', ')}`)
  return found
}

const call = (
  found: Tool,
  args: Parameters<Tool['run']>[0] = {},
  more: { signal?: AbortSignal; progress?: (line: string) => void } = {},
) =>
  found.run(args, {
    signal: more.signal ?? new AbortController().signal,
    progress: more.progress ?? (() => undefined),
    lane: 'main',
    runId: 'run_1',
    toolCallId: 'c',
    idempotencyKey: 'e_1',
    subagent: () => Promise.reject(new Error('no sub-agents here')),
  })

const words = ({ content }: ToolOutput): string =>
  typeof content === 'string'
    ? content
    : content.map((part) => (part.type === 'text' ? part.text : part.type)).join('\n')

const offer = (more: Partial<Offer> = {}): Offer => ({
  tools: [tool('say'), tool('look', { annotations: { readOnlyHint: true } })],
  call: async (name, args) => text(`${name} ${JSON.stringify(args)}`),
  instructions: 'Say what you see.',
  ...more,
})

const eras = { stateless, stateful }

test.each(['stateless', 'stateful'] as const)('the tools of a %s server are an agent’s', async (kind) => {
  const { url } = await eras[kind](offer())
  const mcp = mcpTools({ s: { url } })
  expect([mcp.tools(), await mcp.refresh(), await mcp.refresh()]).toEqual([[], [], []])
  expect(mcp.tools().map(({ name, replay, description }) => [name, replay, description])).toEqual([
    ['s__look', 'safe', 'Does look.'],
    ['s__say', 'never', 'Does say.'],
  ])
  expect(mcp.tools(new Set(['s__say'])).map(({ name }) => name)).toEqual(['s__look'])
  expect(await call(toolOf(mcp.tools(), 's__say'), { word: 'hi' })).toEqual({
    content: [{ type: 'text', text: 'say {"word":"hi"}' }],
    isError: false,
  })
  expect(mcp.instructions()).toEqual([{ server: 's', text: 'Say what you see.' }])
  expect(mcp.status()).toEqual([{ name: 's', url, state: 'up', tools: 2, problems: [] }])
})

test('a server that is down is told once and tried again; the others work meanwhile', async () => {
  const down = await stateless(offer())
  await down.close()
  const up = await stateless(offer())
  const mcp = mcpTools({ down: { url: down.url }, up: { url: up.url } })
  expect(await mcp.refresh()).toEqual([
    'the MCP server down: it cannot be reached (ECONNREFUSED); this run goes without its tools, the next one tries again',
  ])
  expect(await mcp.refresh()).toEqual([])
  expect(mcp.tools().map(({ name }) => name)).toEqual(['up__look', 'up__say'])
  await stateless(offer(), undefined, down.port)
  expect(await mcp.refresh()).toEqual(['the MCP server down is as it should be again'])
  expect(mcp.tools()).toHaveLength(4)
})

test('a server that says nothing is not waited for, and has its tools in a later run', async () => {
  let isSilent = true
  const held: (() => void)[] = []
  const { url } = await stateless(offer(), (_, response) => {
    if (isSilent) held.push(() => response.destroy())
    return isSilent
  })
  const mcp = mcpTools({ s: { url } }, { limits: { patienceMs: 3_600_000, shortPatienceMs: 50 } })
  expect(await mcp.refresh({ signal: AbortSignal.timeout(50) })).toEqual([
    'the MCP server s: it has not answered yet; this run goes without its tools',
  ])
  isSilent = false
  held.forEach((drop) => drop())
  await vi.waitFor(async () => {
    await mcp.refresh()
    expect(mcp.tools()).toHaveLength(2)
  })
})

test('what the configuration says now counts', async () => {
  const [one, two] = [await stateful(offer()), await stateless(offer())]
  let setting: McpSetting = { a: { url: one.url } }
  const mcp = mcpTools(() => setting)
  await mcp.refresh()
  expect(one.sessions()).toBe(1)
  setting = { a: { url: two.url }, b: { url: two.url } }
  await mcp.refresh()
  expect(one.sessions()).toBe(0)
  expect(mcp.tools().map(({ name }) => name)).toEqual(['a__look', 'a__say', 'b__look', 'b__say'])
  setting = undefined
  await mcp.refresh()
  expect([mcp.tools(), mcp.status()]).toEqual([[], []])
})

test.each(['stateless', 'stateful'] as const)(
  'the list of a %s server is read again at each run, and a change is said at a call',
  async (kind) => {
    const offered = offer()
    const server = await eras[kind](offered)
    const mcp = mcpTools({ s: { url: server.url } })
    await mcp.refresh()
    const say = toolOf(mcp.tools(), 's__say')
    offered.tools = [tool('say'), tool('new')]
    await vi.waitFor(async () => {
      await server.changed()
      expect(words(await call(say))).toContain('The tools of s have changed')
    })
    await mcp.refresh()
    expect(mcp.tools().map(({ name }) => name)).toEqual(['s__new', 's__say'])
    expect(words(await call(say))).toBe('say {}')
  },
)

test('a session that the server has forgotten is begun anew, for calls and lists, and the call is made once', async () => {
  let calls = 0
  const server = await stateful(
    offer({
      call: async () => {
        calls += 1
        return text('done')
      },
    }),
  )
  const mcp = mcpTools({ s: { url: server.url } })
  await mcp.refresh()
  server.forget()
  const say = toolOf(mcp.tools(), 's__say')
  const both = await Promise.all([call(say), call(say)])
  expect([both.map(words), calls, server.sessions()]).toEqual([['done', 'done'], 2, 1])
  server.forget()
  expect([await mcp.refresh(), mcp.tools().length]).toEqual([[], 2])
  await mcp.close()
  expect(server.sessions()).toBe(0)
})

test.each(['stateless', 'stateful'] as const)(
  'a call of a %s server that is cancelled ends there too; progress is shown',
  async (kind) => {
    const ended = Promise.withResolvers<string>()
    const server = await eras[kind](
      offer({
        call: async (_, __, { mcpReq }) => {
          const progressToken = mcpReq._meta?.progressToken ?? 0
          await mcpReq.notify({
            method: 'notifications/progress',
            params: { progressToken, progress: 1, total: 3, message: 'half \u001b]0;way' },
          })
          await new Promise((resolve) => mcpReq.signal.addEventListener('abort', resolve, { once: true }))
          ended.resolve('cancelled')
          return text('late')
        },
      }),
    )
    const mcp = mcpTools({ s: { url: server.url } })
    await mcp.refresh()
    const controller = new AbortController()
    const lines: string[] = []
    const progress = (line: string): void => {
      lines.push(line)
      controller.abort()
    }
    await expect(call(toolOf(mcp.tools(), 's__say'), {}, { signal: controller.signal, progress })).rejects.toThrow(
      'given up',
    )
    expect([lines, await ended.promise]).toEqual([['half'], 'cancelled'])
  },
)

test('a call that takes too long, or whose connection breaks, has an outcome that is not known', async () => {
  let mode: 'hang' | 'break' = 'hang'
  const server = await stateless(
    offer({
      call: (_, __, { mcpReq }) =>
        new Promise((resolve) => mcpReq.signal.addEventListener('abort', () => resolve(text('')))),
    }),
    (request, response) => {
      if (mode === 'break' && request.headers['mcp-method'] === 'tools/call') {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write(': here\n\n')
        setTimeout(() => response.destroy(), 10)
        return true
      }
      return false
    },
  )
  const mcp = mcpTools({ s: { url: server.url } }, { limits: { silentMs: 100 } })
  await mcp.refresh()
  const say = toolOf(mcp.tools(), 's__say')
  const late = await call(say)
  expect([late.isError, words(late)]).toEqual([true, expect.stringContaining('no answer came in time. Whether it was')])
  mode = 'break'
  const broken = await call(say)
  expect([broken.isError, words(broken)]).toEqual([
    true,
    expect.stringContaining('Whether it was carried out is not known'),
  ])
})

test('a server that goes away between two calls is said not to have done the second one', async () => {
  const server = await stateless(offer())
  const mcp = mcpTools({ s: { url: server.url } })
  await mcp.refresh()
  await server.close()
  const say = toolOf(mcp.tools(), 's__say')
  // A connection that was kept open may be broken in the midst of the first one.
  expect((await call(say)).isError).toBe(true)
  const result = await call(say)
  expect([result.isError, words(result)]).toEqual([
    true,
    'The MCP server s did not do it: it cannot be reached (ECONNREFUSED).',
  ])
})

test('credentials go in a header, to the server alone; a refusal says where to look', async () => {
  const other = await listening((_, response) => response.writeHead(200).end())
  let mode: 'open' | 'redirect' | 'closed' = 'open'
  const server = await stateless(offer(), (request, response) => {
    if (mode === 'redirect') response.writeHead(307, { location: `${other.url}?t=1` }).end()
    else if (mode === 'closed' || request.headers.authorization !== `Bearer ${token}`)
      response.writeHead(401).end(`no entry for ${request.headers.authorization}`)
    else return false
    return true
  })
  const mcp = mcpTools({
    s: { url: server.url, headers: { Authorization: 'Bearer $T' } },
    none: { url: server.url },
    unset: { url: server.url, headers: { Authorization: 'Bearer $U' } },
  })
  expect(await mcp.refresh()).toEqual([
    expect.stringContaining('none: it does not take the credentials (HTTP 401: no entry for undefined)'),
    expect.stringContaining('unset: its header Authorization refers to $U, which is not set'),
  ])
  const say = toolOf(mcp.tools(), 's__say')
  expect(words(await call(say))).toBe('say {}')
  mode = 'redirect'
  expect(words(await call(say))).toContain(`it redirects to ${other.url}, which is not followed`)
  expect(other.requests).toEqual([])
  mode = 'closed'
  const notes = await mcp.refresh()
  expect(notes.join()).toContain('HTTP 401: no entry for Bearer [redacted]')
  expect(notes.join()).not.toContain(token)
})

test.each([
  ['not found', 404, 'text/plain', 'nothing here', 'no MCP endpoint answers there (HTTP 404: nothing here)'],
  ['no service', 503, 'text/plain', 'busy', 'HTTP 503: busy'],
  ['a page', 200, 'text/html', '<html>', 'its answer is not what the protocol says'],
  ['other JSON', 200, 'application/json', '{"a":1}', 'Invalid'],
  ['broken JSON', 200, 'application/json', '{', 'JSON'],
])('what is no MCP server is told: %s', async (_, status, type, body, problem) => {
  const { url } = await listening((request, response) => {
    request.resume()
    response.writeHead(status, { 'content-type': type }).end(body)
  })
  const mcp = mcpTools({ s: { url } })
  expect((await mcp.refresh()).join()).toContain(problem)
  expect(mcp.tools()).toEqual([])
})

test.each(['stateless', 'stateful'] as const)(
  'tools of a %s server that are wrong hide no other; texts of strangers are bounded and clean',
  async (kind) => {
    const { url } = await eras[kind](
      offer({
        tools: [
          tool('good', { description: `\u001b[2JLook\u{E0049}\u{E0050} \u202Eup ${'x'.repeat(9000)}` }),
          { name: 'bad' },
          { description: 'none' },
          tool('a b'),
          tool('good', { description: 'again' }),
          tool('loose', {
            description: 5,
            annotations: { readOnlyHint: 'yes' },
            inputSchema: { type: 'object', $ref: 'http://x/' },
          }),
          tool('later', { execution: { taskSupport: 'required' } }),
          ...Array.from({ length: 300 }, (_, index) => tool(`more${index}`)),
        ],
        instructions: 'y'.repeat(9000),
      }),
    )
    const mcp = mcpTools({ s: { url } })
    const [note = '', ...none] = await mcp.refresh()
    expect(none).toEqual([])
    for (const part of [
      'its tool 2 is left out: inputSchema is missing',
      'its tool 3 is left out: name is missing',
      'only the first 200 of its 307',
    ])
      expect(note).toContain(part)
    // Only the older era has tools that run as tasks.
    if (kind === 'stateful') expect(note).toContain('its tool "later" is left out')
    const good = toolOf(mcp.tools(), 's__good')
    expect(good.description).toMatch(/^Look ⟨U\+202E⟩up x+…$/)
    expect(good.description).toHaveLength(4000)
    expect(toolOf(mcp.tools(), 's__loose')).toMatchObject({
      replay: 'never',
      description: 'loose, of the MCP server s',
    })
    expect(mcp.tools().filter(({ name }) => name.startsWith('s__a_b_'))).toHaveLength(1)
    expect(mcp.instructions()[0]?.text).toHaveLength(4000)
    expect(await mcp.refresh()).toEqual([])
  },
)

test('what a tool answers that is an error, or no answer at all, is told to the model', async () => {
  const answers = [
    async () => ({ ...text('it is full'), isError: true }),
    async () => Promise.reject(new Error('the disk \u001b[1mburns')),
    async () => ({ content: [{ type: 'hologram' }] }) as never,
  ]
  const { url } = await stateful(offer({ call: () => (answers.shift() ?? (async () => text('')))() }))
  const mcp = mcpTools({ s: { url } })
  await mcp.refresh()
  const say = toolOf(mcp.tools(), 's__say')
  expect(await call(say)).toEqual({ content: [{ type: 'text', text: 'it is full' }], isError: true })
  expect(await call(say)).toMatchObject({ isError: true, content: expect.stringContaining('the disk burns') })
  expect(await call(say)).toMatchObject({ isError: true })
})

test('two calls at once are told apart', async () => {
  const { url } = await stateful(
    offer({
      call: async (_, { word }) => {
        await delay(word === 'a' ? 30 : 0)
        return text(String(word))
      },
    }),
  )
  const mcp = mcpTools({ s: { url } })
  await mcp.refresh()
  const say = toolOf(mcp.tools(), 's__say')
  expect((await Promise.all(['a', 'b', 'c'].map((word) => call(say, { word })))).map(words)).toEqual(['a', 'b', 'c'])
})
