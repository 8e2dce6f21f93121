import { createScriptedModel, type Model, type ModelRequest, type ScriptedTurn } from '@reve/providers/model'
import { openSession, type SessionLog } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type HarnessOptions, reduce, type RunResult, type SubagentOptions, type Tool } from '../src/index.ts'
import {
  aborted,
  checkProjection,
  echoTool,
  gate,
  newLog,
  recordsOf,
  reopen,
  rig,
  said,
  shape,
  tempFolder,
  watchedFile,
} from './support.ts'

/** A text out of JSON. */
const asText = (value: unknown): string => (typeof value === 'string' ? value : '')
const never = new Promise<never>(() => undefined)

/** A scripted model that keeps what it was asked. */
function listening(turns: readonly ScriptedTurn[], id = 'scripted/sub') {
  const requests: ModelRequest[] = []
  const inner = createScriptedModel({ id, turns })
  const model: Model = {
    ...inner,
    stream: (request, options) => {
      requests.push(request)
      return inner.stream(request, options)
    },
  }
  return { model, requests }
}

/** A tool that asks a sub-agent, and says what it heard. */
function askTool(
  options: () => SubagentOptions = () => ({}),
  more: Partial<Tool> = {},
): Tool & { results: RunResult[] } {
  const results: RunResult[] = []
  return {
    name: 'ask',
    description: 'asks another',
    parameters: { type: 'object' },
    replay: 'never',
    results,
    run: async (_, { subagent }) => {
      const result = await subagent('What?', options())
      results.push(result)
      return { content: `${result.outcome}: ${result.text}` }
    },
    ...more,
  }
}

const asking: readonly ScriptedTurn[] = [{ calls: [{ name: 'ask' }] }, { text: 'Done.' }]
const askTwice: readonly ScriptedTurn[] = [{ calls: [{ name: 'ask' }, { name: 'ask' }] }, { text: 'Done.' }]
const sub = (turns: readonly ScriptedTurn[]): Model => createScriptedModel({ id: 'scripted/sub', turns })
const startOf = (log: SessionLog, lane: string) =>
  recordsOf(log, 'operation_started').find((record) => record.lane === lane)

describe('a sub-agent', () => {
  test('has a lane of its own, ends with a text, and all that tells of it names the call that it serves', async () => {
    const log = await newLog()
    const usage = { input: 3, output: 4 }
    const ask = askTool(() => ({ model: sub([{ text: 'Forty-two.', usage }]) }))
    const { harness, events } = rig(log, { turns: asking, tools: [ask] })
    const main = await harness.prompt('Go')
    expect(main).toMatchObject({ outcome: 'completed', text: 'Done.', turns: 2 })
    // What it used stands in its own result; the caller's has its own requests alone.
    expect(main.usage).toMatchObject({ input: 0, output: 0 })
    expect(ask.results).toMatchObject([{ outcome: 'completed', text: 'Forty-two.', turns: 1, usage }])
    expect(harness.messages().map(said)).toEqual(['Go', '', 'completed: Forty-two.', 'Done.'])

    const resultEntryId = recordsOf(log, 'tool_started')[0]?.['resultEntryId']
    const lane = `sub-${asText(resultEntryId)}`
    expect(log.lanes()).toEqual(['main', lane])
    expect(harness.messages(lane).map(said)).toEqual(['What?', 'Forty-two.'])
    const parent = { lane: 'main', runId: main.runId, toolCallId: 'call_1_1' }
    expect(startOf(log, lane)).toMatchObject({ runId: ask.results[0]?.runId, intent: { parent }, sourceLeafId: null })
    expect(startOf(log, 'main')?.['intent']).not.toHaveProperty('parent')
    expect(log.records(lane).map(shape)).toEqual(['operation_started', 'task_attempt', 'usage', 'operation_finished'])

    const told = events.filter((event) => event.lane === lane)
    expect(told.map(({ type }) => type)).toEqual([
      'run_started',
      'message',
      'turn_started',
      'text',
      'message',
      'usage',
      'run_finished',
    ])
    expect(told[0]).toMatchObject({ parent })
    expect(new Set(told.map(({ runId }) => runId))).toEqual(new Set([ask.results[0]?.runId]))
    expect(events.find(({ type, lane }) => type === 'run_started' && lane === 'main')).not.toHaveProperty('parent')
    // The whole of it lies within the call.
    const shapes = events.map(({ type, lane }) => `${type} ${lane}`)
    expect(shapes.indexOf('tool_started main')).toBeLessThan(shapes.indexOf(`run_started ${lane}`))
    expect(shapes.indexOf(`run_finished ${lane}`)).toBeLessThan(shapes.indexOf('tool_finished main'))
  })

  test('has a model, tools, a system prompt and a turn limit of its own', async () => {
    const log = await newLog()
    const echo = echoTool('never', 'shout')
    const { model, requests } = listening([
      { calls: [{ name: 'shout', arguments: { say: 'hey' } }] },
      { calls: [{ name: 'ask' }] },
      { text: 'never asked for' },
    ])
    const ask = askTool(() => ({ model, tools: [echo], system: 'You shout.', maxTurns: 2 }))
    const { harness } = rig(log, { turns: asking, tools: [ask] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    expect(requests.map(({ system, tools }) => [system, tools.map(({ name }) => name)])).toEqual([
      ['You shout.', ['shout']],
      ['You shout.', ['shout']],
    ])
    expect(echo.runs).toHaveLength(1)
    expect(ask.results).toMatchObject([{ outcome: 'failed', reason: 'max_turns', turns: 2 }])
    expect(said(harness.messages(ask.results[0] && log.lanes()[1])[4])).toContain('no tool "ask"')
  })

  test('goes on from an entry that it is given, on a lane that it is given', async () => {
    const log = await newLog()
    const { model, requests } = listening([{ text: 'unused' }, { text: 'I know.' }, { text: 'I still know.' }])
    let from: string | null = null
    const ask = askTool(() => ({ model, lane: 'expert', ...(from !== null && { from }) }))
    const { harness } = rig(log, {
      turns: [
        { text: 'Hello.' },
        { calls: [{ name: 'ask' }] },
        { text: 'A.' },
        { calls: [{ name: 'ask' }] },
        { text: 'B.' },
      ],
      tools: [ask],
    })
    await harness.prompt('Hi')
    from = log.leaf('main')
    await harness.prompt('Go')
    expect(requests[0]?.messages.map(said)).toEqual(['Hi', 'Hello.', 'What?'])
    expect(harness.messages('expert').map(said)).toEqual(['Hi', 'Hello.', 'What?', 'I know.'])
    expect(startOf(log, 'expert')).toMatchObject({ sourceLeafId: from })
    // The next time it goes on where it was.
    from = null
    await harness.prompt('Again')
    expect(requests[1]?.messages.map(said)).toEqual(['Hi', 'Hello.', 'What?', 'I know.', 'What?'])
    expect(harness.messages().map(said)).toEqual([
      'Hi',
      'Hello.',
      'Go',
      '',
      'completed: I know.',
      'A.',
      'Again',
      '',
      'completed: I still know.',
      'B.',
    ])
  })

  test('that fails tells the tool how; the run of the tool goes on', async () => {
    const log = await newLog()
    const ask = askTool(() => ({ model: sub([{ fail: { code: 'auth', message: 'no key' } }]) }))
    const { harness } = rig(log, { turns: asking, tools: [ask] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(ask.results).toMatchObject([{ outcome: 'failed', reason: 'provider_error', error: { code: 'auth' } }])
  })

  test('can be steered and aborted by the name of its lane, and nobody else ends of that', async () => {
    const log = await newLog()
    const inside = gate()
    const slow: Tool = {
      ...echoTool('never', 'slow'),
      run: async (_, { signal }) => {
        inside.open()
        await aborted(signal)
        return { content: 'stopped' }
      },
    }
    const model = sub([{ calls: [{ name: 'slow', arguments: { say: '' } }] }, { text: 'x' }])
    const ask = askTool(() => ({ model, lane: 'helper', tools: [slow] }))
    const { harness } = rig(log, { turns: asking, tools: [ask] })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.steer('psst', { lane: 'helper' })
    expect((await harness.abort({ lane: 'helper' })).returned.map(said)).toEqual(['psst'])
    expect(await run).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(ask.results).toMatchObject([{ outcome: 'aborted', returned: [{ content: [{ text: 'psst' }] }] }])
    expect(recordsOf(log, 'abort_requested').map(({ lane }) => lane)).toEqual(['helper'])
  })
})

describe('an abort of the caller', () => {
  const running = async (
    replay: Tool['replay'],
    turns: readonly ScriptedTurn[],
    slowRun: Tool['run'],
    options: Partial<HarnessOptions> = {},
  ) => {
    const log = await newLog()
    const slow: Tool = { ...echoTool('never', 'slow'), run: slowRun }
    const model = sub([{ calls: [{ name: 'slow', arguments: { say: '' } }] }, { text: 'x' }])
    const ask = askTool(() => ({ model, tools: [slow] }), { replay })
    return { ask, ...rig(log, { turns, tools: [ask], ...options }) }
  }

  test('is one of its sub-agents: first they close, then it does', async () => {
    const inside = gate()
    const { log, ask, harness } = await running('never', asking, async (_, { signal }) => {
      inside.open()
      await aborted(signal)
      return { content: 'cleaned up' }
    })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted', reason: 'abort_requested' })
    expect(ask.results).toMatchObject([{ outcome: 'aborted', reason: 'abort_requested' }])
    const [main, lane = ''] = log.lanes()
    expect(recordsOf(log, 'abort_requested').map((record) => record.lane)).toEqual([main, lane])
    expect(recordsOf(log, 'operation_finished').map((record) => record.lane)).toEqual([lane, main])
    expect(said(harness.messages(lane)[2])).toBe('cleaned up')
    expect(said(harness.messages()[2])).toBe('aborted: ')
    for (const name of log.lanes()) checkProjection(harness.messages(name))
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })

  test('reaches two of them at once', async () => {
    let count = 0
    const both = gate()
    const { log, ask, harness } = await running('safe', askTwice, async (_, { signal }) => {
      if (++count === 2) both.open()
      await aborted(signal)
      return { content: 'cleaned up' }
    })
    const run = harness.prompt('Go')
    await both.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(ask.results.map(({ outcome }) => outcome)).toEqual(['aborted', 'aborted'])
    expect(recordsOf(log, 'operation_finished')).toHaveLength(3)
    expect(recordsOf(log, 'operation_finished').at(-1)?.lane).toBe('main')
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })

  test('closes all, also when the sub-agent hangs in a tool', async () => {
    const inside = gate()
    const { log, harness } = await running(
      'never',
      asking,
      () => {
        inside.open()
        return never
      },
      { limits: { abortGraceMs: 10 } },
    )
    const run = harness.prompt('Go')
    await inside.opened
    await harness.close()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(recordsOf(log, 'operation_finished').map(({ lane }) => lane)).toEqual(
      expect.arrayContaining([...log.lanes()]),
    )
    for (const lane of log.lanes()) checkProjection(harness.messages(lane))
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })

  test('at every instant of the two runs', async () => {
    const seen = new Set<string>()
    for (let instant = 1, passed = instant; passed >= instant; instant++) {
      passed = 0
      let abort: Promise<unknown> = Promise.resolve()
      // As bytes reach the disk, and as events are told.
      const pass = (): void => {
        if (++passed === instant) abort = harness.abort()
      }
      const log = await newLog({ openFile: watchedFile(pass) })
      passed = 0
      const model = sub([{ calls: [{ name: 'echo', arguments: { say: 'x' } }] }, { text: 'sub' }])
      const { harness } = rig(log, { turns: asking, tools: [askTool(() => ({ model })), echoTool()] })
      harness.subscribe(pass)
      const { outcome } = await harness.prompt('Go')
      await abort
      await harness.close()
      const started = recordsOf(log, 'operation_started').length
      expect(recordsOf(log, 'operation_finished')).toHaveLength(started)
      seen.add(`${outcome} of ${started}`)
      for (const lane of log.lanes()) checkProjection(harness.messages(lane))
      expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
    }
    expect([...seen].toSorted()).toEqual(['aborted of 1', 'aborted of 2', 'completed of 2'])
  })
})

describe('what is refused', () => {
  /** What the tool heard when it asked for a sub-agent. */
  const heard = async (options: SubagentOptions | string) => {
    const log = await newLog()
    const codes: unknown[] = []
    const ask: Tool = {
      ...askTool(),
      run: async (_, { subagent }) => {
        const message = typeof options === 'string' ? options : 'What?'
        await subagent(message, typeof options === 'string' ? {} : options).catch((error: unknown) => {
          codes.push(error)
          throw error
        })
        return { content: '' }
      },
    }
    const { harness } = rig(log, { turns: asking, tools: [ask] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    expect(harness.messages()[2]).toMatchObject({ isError: true })
    expect(recordsOf(log, 'operation_started')).toHaveLength(1)
    return codes
  }

  test.each<readonly [string, SubagentOptions | string, string]>([
    ['the lane of the caller', { lane: 'main' }, 'lane_busy'],
    ['an entry that is not there', { from: 'e_gone' }, 'unknown_entry'],
    ['two tools of one name', { tools: [echoTool(), echoTool()] }, 'invalid_tools'],
    ['nothing to say', ' ', 'invalid_message'],
    ['a lane that is none', { lane: '' }, 'invalid_message'],
  ])('%s', async (_, options, code) => {
    expect(await heard(options)).toMatchObject([{ name: 'HarnessError', code }])
  })

  test('more than `subagentDepth` of them in each other', async () => {
    for (const subagentDepth of [0, 1, 2]) {
      const log = await newLog()
      const errors: unknown[] = []
      const ask: Tool = {
        ...askTool(),
        run: async (_, { subagent }) => {
          const result = await subagent('Deeper.').catch((error: unknown) => {
            errors.push(error)
            throw error
          })
          return { content: result.text }
        },
      }
      const { harness } = rig(log, { turns: asking, tools: [ask], limits: { subagentDepth } })
      expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
      expect(log.lanes()).toHaveLength(1 + subagentDepth)
      expect(errors).toMatchObject([{ code: 'too_deep' }])
    }
  })

  test('a run for a call that is over', async () => {
    const log = await newLog()
    let late: Promise<unknown> = never
    const ask: Tool = {
      ...askTool(),
      run: (_, { subagent }) => {
        late = new Promise((resolve) => setImmediate(resolve)).then(() => subagent('Too late?'))
        late.catch(() => undefined)
        return Promise.resolve({ content: 'gone already' })
      },
    }
    const { harness } = rig(log, { turns: asking, tools: [ask] })
    await harness.prompt('Go')
    await expect(late).rejects.toMatchObject({ code: 'closed' })
    expect(log.lanes()).toEqual(['main'])
  })
})

test('one that its tool does not wait for ends with the call: nobody would hear of it', async () => {
  const log = await newLog()
  const inside = gate()
  const slow: Tool = {
    ...echoTool('never', 'slow'),
    run: async (_, { signal }) => {
      inside.open()
      await aborted(signal)
      return { content: 'stopped' }
    },
  }
  const model = sub([{ calls: [{ name: 'slow', arguments: { say: '' } }] }, { text: 'late' }])
  let left: Promise<RunResult> = never
  const ask: Tool = {
    ...askTool(),
    run: async (_, { subagent }) => {
      left = subagent('What?', { model, tools: [slow], lane: 'helper' })
      await inside.opened
      return { content: 'off it goes' }
    },
  }
  const { harness } = rig(log, { turns: asking, tools: [ask] })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
  expect(await left).toMatchObject({ outcome: 'aborted' })
  expect(said(harness.messages('helper').at(-1))).toBe('stopped')
  expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
})

test('two safe calls have their sub-agents at the same time, each on a lane of its own', async () => {
  const log = await newLog()
  let here = 0
  const both = gate()
  const meet: Tool = {
    ...echoTool('never', 'meet'),
    run: async () => {
      if (++here === 2) both.open()
      await both.opened
      return { content: 'met' }
    },
  }
  const model = sub([{ calls: [{ name: 'meet', arguments: { say: '' } }] }, { text: 'we met' }])
  const ask = askTool(() => ({ model, tools: [meet] }), { replay: 'safe' })
  const { harness } = rig(log, { turns: askTwice, tools: [ask] })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
  const ids = recordsOf(log, 'tool_started').flatMap(({ lane, resultEntryId }) =>
    lane === 'main' ? [resultEntryId] : [],
  )
  expect(log.lanes().toSorted()).toEqual(['main', ...ids.map((id) => `sub-${asText(id)}`)].toSorted())
  expect(harness.messages().map(said)).toEqual(['Go', '', 'completed: we met', 'completed: we met', 'Done.'])
  const calls = ids.map((id) => startOf(log, `sub-${asText(id)}`)?.['intent'])
  expect(calls).toMatchObject([{ parent: { toolCallId: 'call_1_1' } }, { parent: { toolCallId: 'call_1_2' } }])
})

describe('a crash', () => {
  /** The file after each of its lines. */
  const statesOf = async (drive: (log: SessionLog) => Promise<unknown>): Promise<readonly Buffer[]> => {
    let bytes = Buffer.alloc(0)
    let states: Buffer[] = []
    const log = await newLog({
      openFile: watchedFile((what, written) => {
        for (const line of what === 'write'
          ? Buffer.from(written)
              .toString()
              .split(/(?<=\n)/)
          : []) {
          bytes = Buffer.concat([bytes, Buffer.from(line)])
          states.push(bytes)
        }
      }),
    })
    bytes = await readFile(log.file)
    states = [bytes]
    await drive(log)
    return states
  }

  const subTurns = [
    { calls: [{ name: 'echo', arguments: { say: 'x' } }] },
    ...Array.from({ length: 4 }, () => ({ text: 'sub' })),
  ]
  const team = (replay: Tool['replay'], echo = echoTool()) => ({
    turns: [...asking, { text: 'More.' }],
    tools: [askTool(() => ({ model: sub(subTurns), tools: [echo] }), { replay })],
  })

  test.each(['never', 'safe'] as const)(
    'after every line: both lanes are closed, once (the call is %s)',
    async (replay) => {
      const states = await statesOf((log) => rig(log, team(replay)).harness.prompt('Go'))
      const folder = await tempFolder()
      const seen = new Set<string>()
      for (const [index, state] of states.entries()) {
        const file = join(folder, `${index}.jsonl`)
        await writeFile(file, state)
        await using log = await openSession(file)
        const open = log.lanes().filter((lane) => {
          const ends = log.records(lane).filter(({ type }) => type === 'operation_finished').length
          return log.records(lane).filter(({ type }) => type === 'operation_started').length > ends
        })
        const { harness } = rig(log, team(replay))
        const { lanes } = await harness.recover()
        // The last that began is closed first: a call that is made again finds its lane free.
        expect(lanes.map(({ lane }) => lane)).toEqual(open.toReversed())
        seen.add(`${lanes.length} closed, ${lanes.flatMap(({ replayed }) => replayed).length} made again`)
        expect(reduce(log, () => 'safe')).toEqual({ type: 'plan', operations: [] })
        for (const lane of log.lanes()) {
          expect(harness.status(lane)).toMatchObject({ state: 'idle' })
          checkProjection(harness.messages(lane))
        }
        const count = log.lines.length
        expect(await harness.recover()).toEqual({ lanes: [] })
        expect(log.lines).toHaveLength(count)
        const last = harness.messages().at(-1)
        if (last?.role !== 'assistant') {
          const run = last === undefined ? harness.prompt('Go') : harness.continue()
          expect(await run).toMatchObject({ outcome: 'completed', text: 'Done.' })
        }
        checkProjection(harness.messages())
        await harness.close()
      }
      expect([...seen]).toEqual(
        expect.arrayContaining(
          replay === 'safe'
            ? ['0 closed, 0 made again', '1 closed, 0 made again', '1 closed, 1 made again', '2 closed, 1 made again']
            : ['0 closed, 0 made again', '1 closed, 0 made again', '2 closed, 0 made again'],
        ),
      )
    },
  )

  test('the model is told that the outcome of the call is unknown, and what the sub-agent did stays', async () => {
    const folder = await tempFolder()
    const file = join(folder, 'dead.jsonl')
    const log = await newLog()
    const dying: Tool = {
      ...echoTool(),
      run: async () => {
        await writeFile(file, await readFile(log.file))
        return { content: 'x' }
      },
    }
    const { tools } = team('never', { ...dying, runs: [] })
    await rig(log, { turns: asking, tools }).harness.prompt('Go')
    await using again = await openSession(file)
    const { harness, events } = rig(again, team('never'))
    const report = await harness.recover()
    const lane = again.lanes()[1] ?? ''
    expect(report.lanes).toMatchObject([
      {
        lane,
        parent: { lane: 'main', toolCallId: 'call_1_1' },
        outcome: 'aborted',
        unknown: [{ toolName: 'echo' }],
        canContinue: false,
      },
      { lane: 'main', outcome: 'aborted', unknown: [{ toolName: 'ask' }], canContinue: true },
    ])
    expect(events.map((event) => `${event.type} ${event.lane}`)).toEqual([
      `message ${lane}`,
      `recovered ${lane}`,
      'message main',
      'recovered main',
    ])
    for (const name of [lane, 'main']) {
      expect(harness.messages(name).at(-1)).toMatchObject({ role: 'toolResult', interrupted: true })
    }
    // Under the main agent's prompt and tools it would be another agent.
    await expect(harness.continue({ lane })).rejects.toMatchObject({ code: 'nothing_to_continue' })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Done.' })
    await harness.close()
  })

  test('a call that is made again serves under the same key, and its sub-agent on the same lane', async () => {
    const file = join(await tempFolder(), 'dead.jsonl')
    const log = await newLog()
    const dying: Tool = {
      ...echoTool(),
      run: async () => {
        await writeFile(file, await readFile(log.file))
        return { content: 'x' }
      },
    }
    await rig(log, team('safe', { ...dying, runs: [] })).harness.prompt('Go')
    await using again = await openSession(file)
    const { harness } = rig(again, team('safe'))
    await harness.recover()
    const lane = again.lanes()[1] ?? ''
    expect(again.lanes()).toEqual(['main', lane])
    expect(recordsOf(again, 'operation_started').filter((record) => record.lane === lane)).toMatchObject([
      { intent: { parent: { lane: 'main', toolCallId: 'call_1_1' } } },
      { intent: { parent: { lane: 'main', toolCallId: 'call_1_1' } } },
    ])
    expect(harness.messages().at(-1)).toMatchObject({ role: 'toolResult', isError: false })
    expect(said(harness.messages().at(-1))).toBe('completed: sub')
    await harness.close()
  })
})
