import { createScriptedModel, type Message, type Model, type ModelRequest } from '@reve/providers/model'
import { readSession } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import type { Tool } from '../src/index.ts'
import { checkProjection, echoTool, newLog, recordsOf, rig, said, trace, watchedFile } from './support.ts'

const usage = { input: 10, output: 5 }
const price = { input: 1, cacheRead: 0, cacheWrite: 0, output: 2 }

describe('the sequence of a run', () => {
  test('without tools', async () => {
    const log = await newLog()
    const model = createScriptedModel({ turns: [{ text: 'Hello.', usage }], price })
    const { harness, events } = rig(log, { model })
    const result = await harness.prompt('Hi')
    expect(result).toMatchObject({ outcome: 'completed', text: 'Hello.', turns: 1, usage, returned: [] })
    expect(result.cost).toBeCloseTo(20 / 1_000_000)
    expect(trace(log)).toEqual([
      'operation_started',
      'user',
      'task_attempt',
      'assistant',
      'usage',
      'operation_finished',
    ])
    const { runId } = result
    const [user, assistant] = log.path(log.leaf('main'))
    expect(recordsOf(log, 'operation_started')[0]).toMatchObject({
      runId,
      intent: {
        kind: 'run',
        prompt: { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
        promptEntryId: user?.id,
      },
      sourceLeafId: null,
    })
    expect(recordsOf(log, 'task_attempt')[0]).toMatchObject({
      runId,
      step: 1,
      attempt: 1,
      resultEntryId: assistant?.id,
    })
    expect(recordsOf(log, 'usage')[0]).toMatchObject({ runId, entryId: assistant?.id, usage, cost: 0.00002 })
    expect(recordsOf(log, 'operation_finished')[0]).toMatchObject({ runId, outcome: 'completed' })
    expect(recordsOf(log, 'operation_finished')[0]).not.toHaveProperty('reason')
    expect(events.map(({ type }) => type)).toEqual([
      'run_started',
      'message',
      'turn_started',
      'text',
      'message',
      'usage',
      'run_finished',
    ])
    expect(new Set(events.map((event) => [event.v, event.lane, event.runId].join()))).toEqual(
      new Set([`1,main,${runId}`]),
    )
  })

  test('with one tool: the intent names call, arguments and the id of the result before the tool runs', async () => {
    const log = await newLog()
    let before: readonly string[] = []
    const echo = echoTool('never')
    const tool: Tool = {
      ...echo,
      // What another process would read at this instant.
      run: async (args, context) => {
        before = trace(await readSession(log.file))
        return echo.run(args, context)
      },
    }
    const turns = [{ calls: [{ name: 'echo', arguments: { say: 'a' } }] }, { text: 'Done.' }]
    const { harness, events } = rig(log, { turns, tools: [tool] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.', turns: 2 })
    const untilTool = ['operation_started', 'user', 'task_attempt', 'assistant', 'usage', 'tool_started']
    expect(before).toEqual(untilTool)
    expect(trace(log)).toEqual([...untilTool, 'toolResult', 'task_attempt', 'assistant', 'usage', 'operation_finished'])
    const [, assistant, result] = log.path(log.leaf('main'))
    expect(recordsOf(log, 'tool_started')[0]).toMatchObject({
      assistantEntryId: assistant?.id,
      toolIndex: 0,
      toolCallId: 'call_1_1',
      toolName: 'echo',
      arguments: { say: 'a' },
      resultEntryId: result?.id,
      replay: 'never',
    })
    expect(echo.runs).toEqual([{ args: { say: 'a' }, key: result?.id }])
    expect(harness.messages().map(said)).toEqual(['Go', '', 'echo: a', 'Done.'])
    expect(events.map(({ type }) => type)).toEqual([
      'run_started',
      'message',
      'turn_started',
      'message',
      'tool_started',
      'message',
      'tool_finished',
      'turn_started',
      'text',
      'message',
      'run_finished',
    ])
  })

  test('with three tools: one at a time, in the order of the calls', async () => {
    const log = await newLog()
    let running = 0
    const order: unknown[] = []
    const slow: Tool = {
      ...echoTool('never', 'slow'),
      run: async (args) => {
        expect(++running).toBe(1)
        await new Promise((resolve) => setTimeout(resolve, 5))
        running--
        order.push(args['say'])
        return { content: 'ok' }
      },
    }
    const calls = ['a', 'b', 'c'].map((say) => ({ name: 'slow', arguments: { say } }))
    const { harness } = rig(log, { turns: [{ text: 'Three.', calls }, { text: 'Done.' }], tools: [slow] })
    await harness.prompt('Go')
    expect(order).toEqual(['a', 'b', 'c'])
    expect(trace(log).slice(3, 11)).toEqual([
      'assistant',
      'usage',
      'tool_started',
      'toolResult',
      'tool_started',
      'toolResult',
      'tool_started',
      'toolResult',
    ])
    checkProjection(harness.messages())
  })

  test('the intent of an effect is synced, that of a safe one is only flushed', async () => {
    for (const replay of ['safe', 'never'] as const) {
      let syncs = 0
      let atTool = 0
      const log = await newLog({
        openFile: watchedFile((what) => {
          if (what === 'sync') syncs++
        }),
      })
      const tool: Tool = {
        ...echoTool(replay),
        run: () => {
          atTool = syncs
          return Promise.resolve({ content: '' })
        },
      }
      const { harness } = rig(log, {
        turns: [{ calls: [{ name: 'echo', arguments: { say: '' } }] }, { text: 'x' }],
        tools: [tool],
      })
      await harness.prompt('Go')
      expect(atTool).toBe(replay === 'safe' ? 1 : 2)
    }
  })

  test('a second prompt stands on the first, and every request extends the one before', async () => {
    const log = await newLog()
    const requests: ModelRequest[] = []
    const inner = createScriptedModel({
      turns: [{ calls: [{ name: 'echo', arguments: { say: '1' } }] }, { text: 'b' }, { text: 'c' }],
    })
    const model: Model = {
      ...inner,
      stream: (request, options) => {
        requests.push(request)
        return inner.stream(request, options)
      },
    }
    const { harness } = rig(log, { model, tools: [echoTool()] })
    await harness.prompt('one')
    await harness.prompt({ role: 'user', content: [{ type: 'text', text: 'two' }] })
    expect(requests.map(({ messages }) => messages.length)).toEqual([1, 3, 5])
    let before: readonly Message[] = []
    for (const { messages, system, tools, sessionId } of requests) {
      expect(messages.slice(0, before.length)).toEqual(before)
      expect({ system, tools, sessionId }).toEqual({
        system: 'Be brief.',
        tools: [{ name: 'echo', description: 'says it again', parameters: echoTool().parameters }],
        sessionId: log.header.id,
      })
      before = messages
    }
  })
})

describe('calls that never run', () => {
  const answer = async (turn: Parameters<typeof createScriptedModel>[0]['turns'][number]) => {
    const log = await newLog()
    const echo = echoTool()
    const { harness } = rig(log, { turns: [turn, { text: 'Done.' }], tools: [echo] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    checkProjection(harness.messages())
    expect(echo.runs).toEqual([])
    expect(recordsOf(log, 'tool_started')).toEqual([])
    const results = harness.messages().filter((message) => message.role === 'toolResult')
    expect(results.every(({ isError, interrupted }) => isError && interrupted === undefined)).toBe(true)
    return results.map(said)
  }

  test('an unknown tool is answered, with a hint', async () => {
    const [text] = await answer({ calls: [{ name: 'ecko', arguments: { say: 'a' } }] })
    expect(text).toMatch(/no tool "ecko".*echo/)
  })

  test('malformed arguments are shown raw', async () => {
    const [text] = await answer({ calls: [{ name: 'echo', malformed: '{"say": "a' }] })
    expect(text).toContain('{"say": "a')
  })

  test('arguments that break the schema are named by pointer', async () => {
    const [text] = await answer({ calls: [{ name: 'echo', arguments: { say: 1 } }] })
    expect(text).toMatch(/\/say: .*"string"/)
  })

  test('calls of a truncated answer, whole as they look', async () => {
    const texts = await answer({
      stop: 'length',
      calls: [
        { name: 'echo', arguments: { say: 'a' } },
        { name: 'echo', arguments: { say: 'b' } },
      ],
    })
    expect(texts).toHaveLength(2)
    for (const text of texts) expect(text).toContain('truncated')
  })

  test('two calls of one id get ids of their own', async () => {
    const log = await newLog()
    const echo = echoTool()
    const calls = ['a', 'b'].map((say) => ({ id: 'same', name: 'echo', arguments: { say } }))
    const { harness } = rig(log, { turns: [{ calls }, { text: 'Done.' }], tools: [echo] })
    await harness.prompt('Go')
    checkProjection(harness.messages())
    expect(
      harness
        .messages()
        .filter(({ role }) => role === 'toolResult')
        .map(said),
    ).toEqual(['echo: a', 'echo: b'])
  })
})

describe('results', () => {
  const resultOf = async (run: Tool['run'], limits = {}) => {
    const log = await newLog()
    const { harness } = rig(log, {
      turns: [{ calls: [{ name: 'echo', arguments: { say: '' } }] }, { text: 'Done.' }],
      tools: [{ ...echoTool(), run }],
      limits,
    })
    await harness.prompt('Go')
    const result = harness.messages()[2]
    if (result?.role !== 'toolResult') throw new Error('no result')
    return result
  }

  test('what a tool throws is an error result', async () => {
    const result = await resultOf(() => Promise.reject(new Error('disk is full')))
    expect(result).toMatchObject({ isError: true })
    expect(said(result)).toContain('disk is full')
  })

  test('an output that is none is an error result', async () => {
    const nothing = JSON.parse('{"content": 1}')
    expect(await resultOf(() => Promise.resolve(nothing))).toMatchObject({ isError: true })
  })

  test('long text loses its middle, never half a character', async () => {
    const result = await resultOf(() => Promise.resolve({ content: `a${'😀'.repeat(1000)}z` }), {
      toolResultChars: 100,
    })
    expect(said(result)).toMatch(/^a.*\n\[… \d+ characters left out …\]\n.*z$/su)
    expect(said(result).isWellFormed()).toBe(true)
    expect(said(result).length).toBeLessThan(150)
  })

  test('empty output is said to be empty', async () => {
    expect(said(await resultOf(() => Promise.resolve({ content: '' })))).toBe('(no output)')
  })

  test('lone surrogates end at the door', async () => {
    const log = await newLog()
    const { harness } = rig(log, {
      turns: [{ text: 'a\ud800', calls: [{ name: 'echo', arguments: { say: '\udc00' } }] }, { text: 'ok' }],
      tools: [{ ...echoTool(), run: () => Promise.resolve({ content: 'x\ud83d' }) }],
    })
    await harness.prompt('hi \ud800')
    checkProjection(harness.messages())
    expect(harness.messages().map(said)).toEqual(['hi \ufffd', 'a\ufffd', 'x\ufffd', 'ok'])
  })

  test('terminate ends the run without another answer', async () => {
    const log = await newLog()
    const { harness } = rig(log, {
      turns: [{ text: 'last words', calls: [{ name: 'echo', arguments: { say: '' } }] }],
      tools: [{ ...echoTool(), run: () => Promise.resolve({ content: 'over', terminate: true }) }],
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', turns: 1, text: 'last words' })
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })
  })
})

describe('ends', () => {
  test('the turn cap', async () => {
    const log = await newLog()
    const turns = Array.from({ length: 9 }, () => ({ calls: [{ name: 'echo', arguments: { say: 'again' } }] }))
    const { harness } = rig(log, { turns, tools: [echoTool()], limits: { maxTurns: 3 } })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason: 'max_turns', turns: 3 })
    expect(recordsOf(log, 'operation_finished')[0]).toMatchObject({ outcome: 'failed', reason: 'max_turns' })
    checkProjection(harness.messages())
  })

  test('a system prompt that cannot be made fails the run, and closes it', async () => {
    const log = await newLog()
    const { harness } = rig(log, {
      system: () => {
        throw new Error('no file')
      },
    })
    expect(await harness.prompt('Go')).toMatchObject({
      outcome: 'failed',
      reason: 'system_prompt',
      error: { message: 'no file' },
    })
    expect(harness.status()).toMatchObject({ state: 'idle' })
  })

  test('tools that cannot be had fail the run, and close it', async () => {
    const log = await newLog()
    const { harness } = rig(log, { tools: () => [echoTool(), echoTool()] })
    expect(await harness.prompt('Go')).toMatchObject({
      outcome: 'failed',
      reason: 'tools',
      error: { code: 'invalid_tools', message: expect.stringContaining('"echo"') },
    })
    expect(harness.status()).toMatchObject({ state: 'idle' })
  })

  test('tools are read once there is a system prompt: making it may find out what there is', async () => {
    const log = await newLog()
    let found: readonly Tool[] = []
    const { harness } = rig(log, {
      turns: [{ calls: [{ name: 'echo', arguments: { say: 'hi' } }] }, { text: 'Done.' }],
      system: async () => {
        found = [echoTool()]
        return 'S'
      },
      tools: () => found,
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(harness.messages().map(said)).toContain('echo: hi')
  })

  test('two tools of one name: nothing is written', async () => {
    const log = await newLog()
    const { harness } = rig(log, { tools: [echoTool(), echoTool()] })
    await expect(harness.prompt('Go')).rejects.toMatchObject({ code: 'invalid_tools' })
    expect(log.lines).toEqual([])
    expect(harness.status()).toMatchObject({ state: 'idle' })
  })

  test('messages without content, lanes without a name: nothing is written', async () => {
    const log = await newLog()
    const { harness } = rig(log)
    await expect(harness.prompt('  ')).rejects.toMatchObject({ code: 'invalid_message' })
    await expect(harness.prompt({ role: 'user', content: [] })).rejects.toMatchObject({ code: 'invalid_message' })
    await expect(harness.prompt('Go', { lane: 'a\nb' })).rejects.toMatchObject({ code: 'invalid_message' })
    expect(log.lines).toEqual([])
    expect(harness.status('a\nb')).toMatchObject({ state: 'idle' })
  })

  test('the log fails: the run rejects, effects are stopped, nothing is accepted until it is reopened', async () => {
    const log = await newLog()
    let signal: AbortSignal | undefined
    const tool: Tool = {
      ...echoTool(),
      run: async (_, context) => {
        signal = context.signal
        await log.close()
        return { content: 'done' }
      },
    }
    const { harness } = rig(log, { turns: [{ calls: [{ name: 'echo', arguments: { say: '' } }] }], tools: [tool] })
    await expect(harness.prompt('Go')).rejects.toMatchObject({ code: 'log_faulted' })
    expect(signal?.aborted).toBe(true)
    await expect(harness.prompt('Go')).rejects.toMatchObject({ code: 'log_faulted' })
    expect(harness.status()).toMatchObject({ state: 'needs_recovery' })
  })
})

test('lanes are independent', async () => {
  const log = await newLog()
  const { harness } = rig(log, { turns: [{ text: 'one', delayMs: 20 }, { text: 'two' }] })
  const [a, b] = await Promise.all([harness.prompt('a'), harness.prompt('b', { lane: 'side' })])
  expect([a.text, b.text]).toEqual(['one', 'one'])
  expect(harness.messages('side').map(said)).toEqual(['b', 'one'])
  expect(harness.messages().map(said)).toEqual(['a', 'one'])
})

test('a tool can run a lane of its own', async () => {
  const log = await newLog()
  const { harness } = rig(log, {
    model: createScriptedModel({ turns: [{ calls: [{ name: 'ask' }] }, { text: 'Done.' }] }),
    tools: () => [
      {
        ...echoTool(),
        name: 'ask',
        parameters: { type: 'object' },
        run: async (_, { lane }) => ({
          content: lane === 'main' ? (await harness.prompt('sub', { lane: 'sub' })).outcome : 'deep',
        }),
      },
    ],
  })
  await harness.prompt('Go')
  expect(harness.messages().map(said)).toEqual(['Go', '', 'completed', 'Done.'])
  expect(harness.messages('sub').map(said)).toEqual(['sub', '', 'deep', 'Done.'])
})
