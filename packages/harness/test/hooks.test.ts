import {
  createScriptedModel,
  type JsonObject,
  type Model,
  type ModelRequest,
  type ScriptedTurn,
} from '@reve/providers/model'
import { openSession } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { HarnessEvent, HarnessOptions, Hooks, Tool } from '../src/index.ts'
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
  tempFolder,
  trace,
} from './support.ts'

/** A text out of JSON. */
const asText = (value: unknown): string => (typeof value === 'string' ? value : '')
const never = new Promise<never>(() => undefined)
const callEcho = (say: string): ScriptedTurn => ({ calls: [{ name: 'echo', arguments: { say } }] })
const failuresIn = (events: readonly HarnessEvent[]) =>
  events.flatMap((event) => (event.type === 'hook_failed' ? [{ hook: event.hook, message: event.message }] : []))

/** A run on a log of its own, and what the model was asked. */
async function world(
  turns: readonly ScriptedTurn[],
  hooks: readonly Hooks[],
  options: Partial<Omit<HarnessOptions, 'hooks' | 'model'>> = {},
) {
  const requests: ModelRequest[] = []
  const inner = createScriptedModel({ turns })
  const model: Model = {
    ...inner,
    stream: (request, given) => {
      requests.push(request)
      return inner.stream(request, given)
    },
  }
  const echo = echoTool()
  const log = await newLog()
  return { ...rig(log, { tools: [echo], ...options, model, hooks }), requests, echo }
}

describe('beforeRun', () => {
  test('hooks are awaited in order; each sees the system prompt of the one before; their messages follow the prompt', async () => {
    const order: string[] = []
    const hook = (name: string): Hooks => ({
      beforeRun: async ({ system, prompt }) => {
        await new Promise((resolve) => setTimeout(resolve, name === 'a' ? 10 : 0))
        order.push(`${name} got ${system} with ${said(prompt)}`)
        return { system: `${system}${name}`, messages: [`${name}1`, { role: 'user', content: [] }] }
      },
    })
    const silent: Hooks = { beforeRun: () => undefined }
    const { harness, requests, log, events } = await world([{ text: 'ok' }], [hook('a'), silent, hook('b')], {
      system: 'S',
    })
    expect(await harness.prompt('Hi')).toMatchObject({ outcome: 'completed' })
    expect(order).toEqual(['a got S with Hi', 'b got Sa with Hi'])
    expect(requests.map(({ system }) => system)).toEqual(['Sab'])
    expect(log.path(log.leaf('main')).map((entry) => said(JSON.parse(JSON.stringify(entry['message']))))).toEqual([
      'Hi',
      'a1',
      '',
      'b1',
      '',
      'ok',
    ])
    expect(trace(log).slice(0, 7)).toEqual([
      'operation_started',
      'user',
      'user',
      'user',
      'user',
      'user',
      'task_attempt',
    ])
    expect(requests[0]?.messages).toEqual(harness.messages().slice(0, -1))
    expect(events.filter(({ type }) => type === 'message')).toHaveLength(6)
    expect(new Set(log.path(log.leaf('main')).map(({ lane }) => lane))).toEqual(new Set(['main']))
  })

  test('a rejection keeps the prompt, asks nobody, and frees the lane', async () => {
    const asked: string[] = []
    let rejects = true
    const hooks: readonly Hooks[] = [
      { beforeRun: () => ({ messages: ['of a run that does not happen'] }) },
      { beforeRun: () => (rejects ? { reject: 'not on Sundays', messages: ['nor this'] } : undefined) },
      { beforeRun: () => void asked.push('third') },
    ]
    const { harness, requests, log, events } = await world([{ text: 'ok' }], hooks)
    expect(await harness.prompt('Hi')).toMatchObject({
      outcome: 'rejected',
      reason: 'before_run',
      error: { code: 'rejected', message: 'not on Sundays' },
      turns: 0,
      text: '',
    })
    expect(asked).toEqual([])
    expect(requests).toEqual([])
    expect(trace(log)).toEqual(['operation_started', 'user', 'lane_leaf_set', 'operation_finished'])
    expect(recordsOf(log, 'operation_finished')[0]).toMatchObject({ outcome: 'rejected', reason: 'before_run' })
    expect(events.at(-1)).toMatchObject({ type: 'run_finished', outcome: 'rejected' })
    // It stands in the log, and is not said to the model by a later run either.
    expect(harness.messages()).toEqual([])
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })
    rejects = false
    expect(await harness.prompt('Hello')).toMatchObject({ outcome: 'completed', text: 'ok' })
    expect(harness.messages().map(said)).toEqual(['Hello', 'of a run that does not happen', 'ok'])
    expect(JSON.stringify(requests)).not.toContain('Hi')
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })

  test('one that throws, rejects or gives back something else is reported and skipped', async () => {
    const hooks: readonly Hooks[] = [
      {
        name: 'thrower',
        beforeRun: () => {
          throw new Error('no idea')
        },
      },
      { beforeRun: () => Promise.reject(new Error('later')) },
      { beforeRun: () => JSON.parse('{"system": 1}') },
      { beforeRun: () => JSON.parse('{"messages": [{"role": "assistant", "content": []}]}') },
      { beforeRun: ({ system }) => ({ system: `${system}+` }) },
    ]
    const { harness, requests, events } = await world([{ text: 'ok' }], hooks, { system: 'S' })
    expect(await harness.prompt('Hi')).toMatchObject({ outcome: 'completed' })
    expect(requests[0]?.system).toBe('S+')
    expect(failuresIn(events)).toEqual([
      { hook: 'beforeRun', message: 'beforeRun of thrower: no idea' },
      { hook: 'beforeRun', message: 'beforeRun: later' },
      { hook: 'beforeRun', message: expect.stringContaining('system') },
      { hook: 'beforeRun', message: expect.stringContaining('messages.0') },
    ])
    expect(harness.messages()).toHaveLength(2)
  })

  test('is told whose run it is, and has no prompt in one that continues', async () => {
    const seen: unknown[] = []
    const hooks: Hooks = {
      beforeRun: ({ lane, runId, prompt, signal }) => void seen.push([lane, runId, said(prompt), signal.aborted]),
    }
    const { harness } = await world([{ fail: { code: 'auth', times: 1 } }], [hooks])
    const first = await harness.prompt('Hi', { lane: 'side' })
    const second = await harness.continue({ lane: 'side' })
    expect(seen).toEqual([
      ['side', first.runId, 'Hi', false],
      ['side', second.runId, '', false],
    ])
  })
})

describe('beforeTool', () => {
  test('what it changes is what the next one sees, what is recorded, and what the tool gets', async () => {
    const seen: JsonObject[] = []
    const add = (text: string): Hooks => ({
      beforeTool: async ({ arguments: args }) => {
        await Promise.resolve()
        seen.push(args)
        return { arguments: { say: `${asText(args['say'])}${text}` } }
      },
    })
    const { harness, echo, log, events } = await world([callEcho('a'), { text: 'ok' }], [add('b'), {}, add('c')])
    await harness.prompt('Go')
    expect(seen).toEqual([{ say: 'a' }, { say: 'ab' }])
    expect(echo.runs.map(({ args }) => args)).toEqual([{ say: 'abc' }])
    expect(recordsOf(log, 'tool_started')[0]).toMatchObject({ arguments: { say: 'abc' } })
    expect(events.find(({ type }) => type === 'tool_started')).toMatchObject({ arguments: { say: 'abc' } })
    // What the model wrote stays what the model wrote.
    expect(harness.messages()[1]?.content).toMatchObject([{ type: 'toolCall', arguments: { say: 'a' } }])
    expect(said(harness.messages()[2])).toBe('echo: abc')
  })

  test('a change that breaks the schema runs nothing', async () => {
    const hooks: Hooks = { beforeTool: () => ({ arguments: { say: 1 } }) }
    const { harness, echo, log } = await world([callEcho('a'), { text: 'ok' }], [hooks])
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'ok' })
    expect(echo.runs).toEqual([])
    expect(recordsOf(log, 'tool_started')).toEqual([])
    expect(harness.messages()[2]).toMatchObject({ isError: true })
    expect(said(harness.messages()[2])).toMatch(/Not executed: a hook changed .*"echo".*\/say/su)
  })

  test('is asked only about calls that could run, with the arguments as the tool would get them', async () => {
    const seen: unknown[] = []
    const hooks: Hooks = {
      beforeTool: ({ toolName, toolCallId, arguments: args }) => void seen.push([toolName, toolCallId, args]),
    }
    const counts: Tool = {
      ...echoTool('never', 'count'),
      parameters: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
    }
    const calls = [
      { name: 'gone', arguments: {} },
      { name: 'echo', malformed: '{' },
      { name: 'echo', arguments: { say: [] } },
      { name: 'count', arguments: { n: '3' } },
    ]
    const { harness } = await world([{ calls }, { text: 'ok' }], [hooks], { tools: [echoTool(), counts] })
    await harness.prompt('Go')
    expect(seen).toEqual([['count', 'call_1_4', { n: 3 }]])
  })

  test('a block reaches the model with its reason; no later hook is asked, no tool runs, the run goes on', async () => {
    const asked: string[] = []
    const after: string[] = []
    const hooks: readonly Hooks[] = [
      {
        beforeTool: ({ arguments: args }) => (args['say'] === 'bad' ? { block: 'we do not say that' } : undefined),
        afterTool: ({ arguments: args }) => void after.push(asText(args['say'])),
      },
      { beforeTool: ({ arguments: args }) => void asked.push(asText(args['say'])) },
    ]
    const calls = ['bad', 'good'].map((say) => ({ name: 'echo', arguments: { say } }))
    const { harness, echo, log } = await world([{ calls }, { text: 'sorry' }], hooks)
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'sorry', turns: 2 })
    expect(asked).toEqual(['good'])
    expect(after).toEqual(['good'])
    expect(echo.runs).toHaveLength(1)
    expect(recordsOf(log, 'tool_started')).toHaveLength(1)
    const [, , blocked, ran] = harness.messages()
    expect(blocked).toMatchObject({ isError: true })
    expect(blocked).not.toHaveProperty('interrupted')
    expect(said(blocked)).toBe('Not executed: blocked: we do not say that')
    expect(said(ran)).toBe('echo: good')
    checkProjection(harness.messages())
  })

  test('a block that terminates ends the run, when all results of the answer agree', async () => {
    const hooks: Hooks = { beforeTool: () => ({ block: 'enough', terminate: true }) }
    const { harness, requests } = await world([{ text: 'So.', ...callEcho('a') }], [hooks])
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'So.', turns: 1 })
    expect(requests).toHaveLength(1)
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })

    const half: Hooks = {
      beforeTool: ({ arguments: args }) => (args['say'] === 'a' ? { block: 'enough', terminate: true } : undefined),
    }
    const calls = ['a', 'b'].map((say) => ({ name: 'echo', arguments: { say } }))
    const other = await world([{ calls }, { text: 'on' }], [half])
    expect(await other.harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'on', turns: 2 })
  })

  test.each<readonly [string, NonNullable<Hooks['beforeTool']>]>([
    [
      'throws',
      () => {
        throw new Error('broken guard')
      },
    ],
    ['rejects', () => Promise.reject(new Error('broken guard'))],
    ['says nothing that can be understood', () => JSON.parse('{}')],
    ['gives a list for arguments', () => JSON.parse('{"arguments": []}')],
    ['blocks without a reason', () => JSON.parse('{"block": true}')],
    ['says yes', () => JSON.parse('true')],
  ])('a guard that %s blocks, and is reported', async (_, beforeTool) => {
    const later: string[] = []
    const hooks: readonly Hooks[] = [{ name: 'guard', beforeTool }, { beforeTool: () => void later.push('asked') }]
    const { harness, echo, log, events } = await world([callEcho('a'), { text: 'ok' }], hooks)
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'ok' })
    expect(echo.runs).toEqual([])
    expect(later).toEqual([])
    expect(recordsOf(log, 'tool_started')).toEqual([])
    expect(said(harness.messages()[2])).toMatch(/^Not executed: blocked: a hook failed \(beforeTool of guard: /)
    expect(failuresIn(events)).toHaveLength(1)
  })

  test('one that hangs holds an abort for the grace time and no longer: the call did not run', async () => {
    const inside = gate()
    const hooks: Hooks = {
      beforeTool: () => {
        inside.open()
        return never
      },
    }
    const { harness, echo, log } = await world([callEcho('a')], [hooks], { limits: { abortGraceMs: 10 } })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(echo.runs).toEqual([])
    expect(recordsOf(log, 'tool_started')).toEqual([])
    expect(trace(log).slice(-3)).toEqual(['abort_requested', 'toolResult', 'operation_finished'])
    expect(said(harness.messages()[2])).toContain('Not executed')
    checkProjection(harness.messages())
  })
})

describe('afterTool', () => {
  const after = async (hooks: readonly NonNullable<Hooks['afterTool']>[], run?: Tool['run'], options = {}) => {
    const tool: Tool = { ...echoTool(), ...(run && { run }) }
    const made = await world(
      [callEcho('a'), { text: 'ok' }],
      hooks.map((afterTool) => ({ afterTool })),
      { tools: [tool], ...options },
    )
    const result = await made.harness.prompt('Go')
    return { ...made, result, message: made.harness.messages()[2] }
  }

  test('changes field by field, each on what the one before left', async () => {
    const seen: unknown[] = []
    const { message, result } = await after([
      ({ content, isError, terminate, arguments: args }) => {
        seen.push([content, isError, terminate, args])
        return { isError: true }
      },
      ({ content, isError }) => {
        seen.push([content, isError])
        return { content: 'changed' }
      },
      ({ content, isError, terminate }) => {
        seen.push([content, isError, terminate])
        return { terminate: true }
      },
    ])
    expect(seen).toEqual([
      [[{ type: 'text', text: 'echo: a' }], false, false, { say: 'a' }],
      [[{ type: 'text', text: 'echo: a' }], true],
      [[{ type: 'text', text: 'changed' }], true, false],
    ])
    expect(message).toMatchObject({ isError: true, content: [{ text: 'changed' }] })
    expect(result).toMatchObject({ outcome: 'completed', turns: 1 })
  })

  test('what it puts in is cleaned and bounded as the words of a tool are', async () => {
    const { message, log, events } = await after(
      [() => ({ content: [{ type: 'text', text: `hunter2\ud800${'x'.repeat(500)}` }] })],
      undefined,
      { redact: (text: string) => text.replaceAll('hunter2', '***'), limits: { toolResultChars: 90 } },
    )
    expect(said(message)).toMatch(/^\*\*\*\ufffdx+\n\[… \d+ characters left out …\]\nx+$/u)
    expect(await readFile(log.file, 'utf8')).not.toContain('hunter2')
    expect(JSON.stringify(events)).not.toContain('hunter2')
  })

  test('sees a failure too, and may mend it', async () => {
    const { message } = await after(
      [
        ({ isError, content }) =>
          isError ? { isError: false, content: [...content, { type: 'text', text: '!' }] } : undefined,
      ],
      () => Promise.reject(new Error('disk is full')),
    )
    expect(message).toMatchObject({ isError: false })
    expect(said(message)).toMatch(/disk is full!$/)
  })

  test('one that fails is reported, the result stays', async () => {
    const { message, events } = await after([
      () => {
        throw new Error('oh')
      },
      () => JSON.parse('{"content": 1}'),
      () => JSON.parse('{"isError": "yes"}'),
    ])
    expect(said(message)).toBe('echo: a')
    expect(message).toMatchObject({ isError: false })
    expect(failuresIn(events).map(({ hook }) => hook)).toEqual(['afterTool', 'afterTool', 'afterTool'])
  })

  test.each(['throws at the abort', 'hangs'])('is not asked about a call that %s', async (what) => {
    const asked: string[] = []
    const inside = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async (_, { signal }) => {
        inside.open()
        await aborted(signal)
        if (what === 'hangs') return never
        throw new Error('torn away')
      },
    }
    const hooks: Hooks = { afterTool: () => void asked.push('asked') }
    const { harness } = await world([callEcho('a')], [hooks], { tools: [tool], limits: { abortGraceMs: 10 } })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(asked).toEqual([])
    expect(harness.messages()[2]).toMatchObject({ interrupted: true })
  })

  test('one that hangs after an abort loses its say, not the result', async () => {
    const inside = gate()
    const hooks: Hooks = {
      afterTool: () => {
        inside.open()
        return never
      },
    }
    const { harness, events } = await world([callEcho('a')], [hooks], { limits: { abortGraceMs: 10 } })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(said(harness.messages()[2])).toBe('echo: a')
    expect(failuresIn(events)).toEqual([{ hook: 'afterTool', message: expect.stringContaining('abort') }])
  })

  test('the end that it asks for outlives the process', async () => {
    const { log, result } = await after([() => ({ terminate: true })])
    expect(result.turns).toBe(1)
    expect(log.entry(log.leaf('main') ?? '')).toMatchObject({ terminate: true })
  })
})

describe('beforeRunEnd', () => {
  test('a follow-up is said once, the last hook counts, and the end is asked about again', async () => {
    const ends: string[] = []
    const once = (text: string): Hooks => ({
      beforeRunEnd: ({ text: end, messages }) => {
        ends.push(`${text}: ${end} of ${messages.length}`)
        return ends.length <= 2 ? { followUp: text } : undefined
      },
    })
    const { harness, log } = await world([{ text: 'one' }, { text: 'two' }], [once('a'), once('b')])
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'two', turns: 2 })
    expect(ends).toEqual(['a: one of 2', 'b: one of 2', 'a: two of 4', 'b: two of 4'])
    expect(harness.messages().map(said)).toEqual(['Go', 'one', 'b', 'two'])
    expect(recordsOf(log, 'message_queued')).toEqual([])
    expect(recordsOf(log, 'operation_started')).toHaveLength(1)
  })

  test.each(['steer', 'followUp'] as const)('a %s that lands while it thinks is delivered', async (delivery) => {
    const inside = gate()
    const go = gate()
    let asked = 0
    const hooks: Hooks = {
      beforeRunEnd: async () => {
        asked++
        inside.open()
        await go.opened
      },
    }
    const { harness } = await world([{ text: 'one' }, { text: 'two' }], [hooks])
    const run = harness.prompt('Go')
    await inside.opened
    await harness[delivery]('wait')
    go.open()
    expect(await run).toMatchObject({ outcome: 'completed', text: 'two', returned: [] })
    expect(asked).toBe(2)
    expect(harness.messages().map(said)).toEqual(['Go', 'one', 'wait', 'two'])
  })

  test('both: the steer and the follow-up of the hook are in the next request', async () => {
    const inside = gate()
    const go = gate()
    let asked = 0
    const hooks: Hooks = {
      beforeRunEnd: async () => {
        inside.open()
        await go.opened
        return asked++ === 0 ? { followUp: 'check it' } : undefined
      },
    }
    const { harness } = await world([{ text: 'one' }, { text: 'two' }], [hooks])
    const run = harness.prompt('Go')
    await inside.opened
    await harness.steer('wait')
    go.open()
    expect(await run).toMatchObject({ text: 'two', returned: [] })
    expect(harness.messages().map(said)).toEqual(['Go', 'one', 'check it', 'wait', 'two'])
  })

  test('is asked only about a good end, and one that fails does not spoil it', async () => {
    const asked: string[] = []
    const hooks: Hooks = {
      beforeRunEnd: ({ text }) => {
        asked.push(text)
        throw new Error('oh')
      },
    }
    const failing = await world([{ fail: { code: 'auth' } }], [hooks])
    expect(await failing.harness.prompt('Go')).toMatchObject({ outcome: 'failed' })
    const capped = await world([callEcho('a')], [hooks], { limits: { maxTurns: 1 } })
    expect(await capped.harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason: 'max_turns' })
    expect(asked).toEqual([])
    const good = await world([{ text: 'fine' }], [hooks])
    expect(await good.harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'fine' })
    expect(asked).toEqual(['fine'])
    expect(failuresIn(good.events)).toEqual([{ hook: 'beforeRunEnd', message: 'beforeRunEnd: oh' }])
  })
})

describe('transformContext', () => {
  test('changes one request and nothing else: the next starts from the log', async () => {
    const seen: (readonly string[])[] = []
    const drop: Hooks = {
      transformContext: ({ messages }) => {
        seen.push(messages.map(said))
        return { messages: [{ role: 'user', content: [{ type: 'text', text: 'cut short' }] }, ...messages.slice(1)] }
      },
    }
    const add: Hooks = {
      transformContext: ({ messages }) => ({
        messages: [...messages, { role: 'user', content: [{ type: 'text', text: `of ${messages.length}` }] }],
      }),
    }
    const broken: Hooks = { transformContext: () => JSON.parse('{"messages": [{"role": "system"}]}') }
    const { harness, requests, log, events } = await world([callEcho('a'), { text: 'ok' }], [drop, broken, add])
    expect(await harness.prompt('a long story')).toMatchObject({ outcome: 'completed', text: 'ok' })
    expect(seen).toEqual([['a long story'], ['a long story', '', 'echo: a']])
    expect(requests.map(({ messages }) => messages.map(said))).toEqual([
      ['cut short', 'of 1'],
      ['cut short', '', 'echo: a', 'of 3'],
    ])
    expect(harness.messages().map(said)).toEqual(['a long story', '', 'echo: a', 'ok'])
    expect(await readFile(log.file, 'utf8')).not.toContain('cut short')
    expect(failuresIn(events).map(({ hook }) => hook)).toEqual(['transformContext', 'transformContext'])
  })

  test('what it adds is sent without secrets and without half characters', async () => {
    const hooks: Hooks = {
      transformContext: ({ messages }) => ({
        messages: [...messages, { role: 'user', content: [{ type: 'text', text: 'the key is hunter2 \ud800' }] }],
      }),
    }
    const { harness, requests } = await world([{ text: 'ok' }], [hooks], {
      redact: (text) => text.replaceAll('hunter2', '***'),
    })
    await harness.prompt('Go')
    expect(requests[0]?.messages.map(said)).toEqual(['Go', 'the key is *** \ufffd'])
  })
})

test.each(['beforeRun', 'beforeRunEnd', 'transformContext'] as const)(
  '%s that hangs holds an abort for the grace time and no longer',
  async (name) => {
    const inside = gate()
    const hang = (): Promise<never> => {
      inside.open()
      return never
    }
    const { harness, log, requests } = await world([{ text: 'one' }], [{ [name]: hang }], {
      limits: { abortGraceMs: 10 },
    })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted', reason: 'abort_requested' })
    expect(requests).toHaveLength(name === 'beforeRunEnd' ? 1 : 0)
    expect(trace(log).at(-1)).toBe('operation_finished')
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  },
)

describe('a hook that writes into what it was given, as JavaScript may,', () => {
  test('changes no message but those that it gives back', async () => {
    const scribble: Hooks = {
      transformContext: ({ messages }) => {
        for (const { content } of messages) for (const part of content) Object.assign(part, { text: 'scribbled' })
        Object.assign(messages, { length: 1 })
      },
      beforeRunEnd: ({ messages }) => void Object.assign(messages, { length: 0 }),
    }
    const { harness, requests, log } = await world([callEcho('a'), { text: 'ok' }, { text: 'on' }], [scribble])
    await harness.prompt('Go')
    await harness.prompt('More')
    const talk = ['Go', '', 'echo: a', 'ok', 'More', 'on']
    expect(harness.messages().map(said)).toEqual(talk)
    expect(requests.at(-1)?.messages.map(said)).toEqual(talk.slice(0, -1))
    expect(
      rig(await reopen(log))
        .harness.messages()
        .map(said),
    ).toEqual(talk)
  })

  test('gets no arguments past the schema, and none that are not recorded', async () => {
    const hooks: Hooks = { beforeTool: ({ arguments: args }) => void Object.assign(args, { say: 1 }) }
    const { harness, echo, log } = await world([callEcho('a'), { text: 'ok' }], [hooks])
    await harness.prompt('Go')
    expect(echo.runs.map(({ args }) => args)).toEqual([{ say: 'a' }])
    expect(recordsOf(log, 'tool_started')[0]).toMatchObject({ arguments: { say: 'a' } })
    expect(harness.messages()[1]?.content).toMatchObject([{ arguments: { say: 'a' } }])
  })
})

describe('what reaches the disk', () => {
  const redact = (text: string) => text.replaceAll('hunter2', '***')

  test('is clean, whichever hook brought it', async () => {
    let ended = false
    const hooks: Hooks = {
      name: 'hunter2',
      beforeRun: () => ({ messages: ['run hunter2'], system: 'system hunter2' }),
      beforeTool: ({ arguments: args }) =>
        args['say'] === 'block' ? { block: 'no hunter2' } : { arguments: { say: 'say hunter2\ud800' } },
      afterTool: () => {
        throw new Error('after hunter2')
      },
      beforeRunEnd: () => {
        if (ended) return undefined
        ended = true
        return { followUp: 'end hunter2' }
      },
    }
    const calls = ['a', 'block'].map((say) => ({ name: 'echo', arguments: { say } }))
    const made = await world([{ calls }, { text: 'one' }, { text: 'two' }], [hooks], { redact })
    expect(await made.harness.prompt('Go')).toMatchObject({ text: 'two' })
    expect(made.echo.runs.map(({ args }) => args)).toEqual([{ say: 'say ***\ufffd' }])
    for (const text of [
      await readFile(made.log.file, 'utf8'),
      JSON.stringify(made.events),
      JSON.stringify(made.requests),
    ]) {
      expect(text).not.toContain('hunter2')
      expect(text).toContain('***')
    }
    const rejecting = await world([], [{ beforeRun: () => ({ reject: 'hunter2' }) }], { redact })
    expect(await rejecting.harness.prompt('Go')).toMatchObject({ error: { message: '***' } })
  })

  test('is clean, also where a model hid it in the escapes of a text that is decoded', async () => {
    const list: Tool = {
      ...echoTool('never', 'list'),
      parameters: { type: 'object', properties: { items: { type: 'array', items: { type: 'string' } } } },
      run: (args) => Promise.resolve({ content: JSON.stringify(args['items']) }),
    }
    const calls = [{ name: 'list', arguments: { items: String.raw`["\u0068unter2", "\ud800"]` } }]
    const { harness, log, events } = await world([{ calls }, { text: 'ok' }], [], { redact, tools: [list] })
    await harness.prompt('Go')
    expect(recordsOf(log, 'tool_started')[0]).toMatchObject({ arguments: { items: ['***', '\ufffd'] } })
    expect(await readFile(log.file, 'utf8')).not.toContain('hunter2')
    expect(JSON.stringify(events)).not.toContain('hunter2')
  })
})

test('a call that recovery makes again was let through before; what comes of it now is new', async () => {
  const log = await newLog()
  const file = join(await tempFolder(), 'dead.jsonl')
  const asked: string[] = []
  const hooks: Hooks = {
    beforeTool: ({ arguments: args }) => {
      asked.push(`before ${asText(args['say'])}`)
      return { arguments: { say: `${asText(args['say'])}!` } }
    },
    afterTool: ({ content, arguments: args }) => {
      asked.push(`after ${asText(args['say'])}`)
      return { content: [...content, { type: 'text', text: ' (seen)' }] }
    },
  }
  const dying: Tool = {
    ...echoTool('safe'),
    run: async () => {
      await writeFile(file, await readFile(log.file))
      return { content: 'never seen' }
    },
  }
  await rig(log, { turns: [callEcho('a'), { text: 'x' }], tools: [dying], hooks: [hooks] }).harness.prompt('Go')
  expect(asked).toEqual(['before a', 'after a!'])
  const again = await openSession(file)
  onTestFinished(() => again.close())
  const { harness } = rig(again, { tools: [echoTool('safe')], hooks: [hooks] })
  expect(await harness.recover()).toMatchObject({ lanes: [{ replayed: [{ toolName: 'echo' }], unknown: [] }] })
  expect(asked).toEqual(['before a', 'after a!', 'after a!'])
  expect(said(harness.messages()[2])).toBe('echo: a! (seen)')
})
