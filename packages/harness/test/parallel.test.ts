import type { Message, ScriptedTurn } from '@reve/providers/model'
import { openSession, type OpenOptions } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { HarnessEvent, HarnessOptions, Tool, ToolContext } from '../src/index.ts'
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
  trace,
  watchedFile,
} from './support.ts'

/** A text out of JSON. */
const asText = (value: unknown): string => (typeof value === 'string' ? value : '')
const never = new Promise<never>(() => undefined)
const callsOf = (...names: readonly string[]): ScriptedTurn => ({
  calls: names.map((name) => {
    const [tool = '', say = ''] = name.split(' ')
    return { name: tool, arguments: { say } }
  }),
})
const finishedOrder = (events: readonly HarnessEvent[]) =>
  events.flatMap((event) => (event.type === 'tool_finished' ? [event.toolCallId] : []))
const results = (messages: readonly Message[]) => messages.filter(({ role }) => role === 'toolResult').map(said)

/** A tool whose calls say when they are in, and end when they are told to; `most` is how many were in at once. */
function gated(name: string, replay: Tool['replay'], ends: (say: string, context: ToolContext) => Promise<string>) {
  const state = { now: 0, most: 0, begun: [] as string[], ended: [] as string[] }
  const tool: Tool = {
    ...echoTool(replay, name),
    run: async (args, context) => {
      const say = asText(args['say'])
      state.begun.push(say)
      state.most = Math.max(state.most, ++state.now)
      try {
        return { content: await ends(say, context) }
      } finally {
        state.now--
        state.ended.push(say)
      }
    },
  }
  return { tool, state }
}

/** All of them are in before one of them ends; then they end from the last to the first. */
function meeting(count: number) {
  const all = gate()
  const ends = new Map<string, ReturnType<typeof gate>>()
  const order: string[] = []
  const { tool, state } = gated('look', 'safe', async (say) => {
    const own = gate()
    ends.set(say, own)
    order.push(say)
    if (order.length === count) all.open()
    await own.opened
    return `saw ${say}`
  })
  return { tool, state, all: all.opened, end: (say: string) => ends.get(say)?.open() }
}

describe('calls that are all safe', () => {
  test('run at the same time; intents in one append before them, results in source order whoever ends first', async () => {
    const writes: string[][] = []
    const log = await newLog({
      openFile: watchedFile((what, bytes) => {
        const lines = Buffer.from(bytes).toString().split('\n').slice(0, -1)
        if (what === 'write') writes.push(lines.map((line) => shape(JSON.parse(line))))
      }),
    })
    const { tool, state, all, end } = meeting(3)
    const turns = [callsOf('look a', 'look b', 'look c'), { text: 'Done.' }]
    const { harness, events } = rig(log, { turns, tools: [tool] })
    const run = harness.prompt('Go')
    await all
    expect(state.begun).toEqual(['a', 'b', 'c'])
    expect(writes.at(-1)).toEqual(['tool_started', 'tool_started', 'tool_started'])
    expect(recordsOf(log, 'tool_started').map(({ toolIndex, arguments: args }) => [toolIndex, args])).toEqual([
      [0, { say: 'a' }],
      [1, { say: 'b' }],
      [2, { say: 'c' }],
    ])
    for (const say of ['c', 'b']) {
      end(say)
      for (let n = 0; n < 5; n++) await new Promise((resolve) => setImmediate(resolve))
    }
    expect(state.ended).toEqual(['c', 'b'])
    // The order in the log is the order of the calls: what is ahead of its turn waits.
    expect(trace(log)).not.toContain('toolResult')
    expect(finishedOrder(events)).toEqual([])
    end('a')
    expect(await run).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(trace(log).slice(3, 12)).toEqual([
      'assistant',
      'usage',
      'tool_started',
      'tool_started',
      'tool_started',
      'toolResult',
      'toolResult',
      'toolResult',
      'task_attempt',
    ])
    expect(results(harness.messages())).toEqual(['saw a', 'saw b', 'saw c'])
    expect(finishedOrder(events)).toEqual(['call_1_1', 'call_1_2', 'call_1_3'])
    const promised = recordsOf(log, 'tool_started').map(({ resultEntryId }) => resultEntryId)
    const path = log.path(log.leaf('main')).map(({ id }) => id)
    expect(path.slice(2, 5)).toEqual(promised)
    checkProjection(harness.messages())
  })

  test('not more of them than the limit', async () => {
    for (const [parallelTools, most] of [
      [1, 1],
      [2, 2],
      [8, 5],
    ] as const) {
      const log = await newLog()
      const { tool, state } = gated('look', 'safe', async (say) => {
        for (let n = 0; n < 4; n++) await new Promise((resolve) => setImmediate(resolve))
        return say
      })
      const turns = [callsOf('look a', 'look b', 'look c', 'look d', 'look e'), { text: 'Done.' }]
      const { harness } = rig(log, { turns, tools: [tool], limits: { parallelTools } })
      expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
      expect(state.most).toBe(most)
      expect(results(harness.messages())).toEqual(['a', 'b', 'c', 'd', 'e'])
      if (parallelTools === 1)
        expect(trace(log).slice(5, 9)).toEqual(['tool_started', 'toolResult', 'tool_started', 'toolResult'])
    }
  })

  test('one that is refused keeps its place among them, and they still run together', async () => {
    const log = await newLog()
    const { tool, all, end } = meeting(2)
    const bad = { name: 'look', arguments: { say: [] } }
    const turns = [
      { calls: [...(callsOf('look a').calls ?? []), bad, ...(callsOf('look b').calls ?? [])] },
      { text: 'Done.' },
    ]
    const { harness } = rig(log, { turns, tools: [tool] })
    const run = harness.prompt('Go')
    await all
    end('b')
    end('a')
    expect(await run).toMatchObject({ outcome: 'completed' })
    expect(results(harness.messages())).toEqual(['saw a', expect.stringContaining('Not executed'), 'saw b'])
    checkProjection(harness.messages())
  })

  test('hooks are asked about them in their order, all before the first of them runs; a block keeps its place', async () => {
    const log = await newLog()
    const order: string[] = []
    const { tool } = gated('look', 'safe', (say) => {
      order.push(`run ${say}`)
      return Promise.resolve(say)
    })
    const { harness } = rig(log, {
      turns: [callsOf('look a', 'look b', 'look c'), { text: 'Done.' }],
      tools: [tool],
      hooks: [
        {
          beforeTool: async ({ arguments: args }) => {
            const say = asText(args['say'])
            // The first one thinks longest.
            for (let n = 0; n < (say === 'a' ? 6 : 1); n++) await new Promise((resolve) => setImmediate(resolve))
            order.push(`ask ${say}`)
            return say === 'b' ? { block: 'no' } : undefined
          },
        },
      ],
    })
    await harness.prompt('Go')
    expect(order).toEqual(['ask a', 'ask b', 'ask c', 'run a', 'run c'])
    expect(results(harness.messages())).toEqual(['a', 'Not executed: blocked: no', 'c'])
    expect(recordsOf(log, 'tool_started').map(({ toolIndex }) => toolIndex)).toEqual([0, 2])
  })

  test.each(['throws', 'gives nothing back'])('one that %s takes nothing from the others', async (what) => {
    const log = await newLog()
    const tool: Tool = {
      ...echoTool('safe', 'look'),
      run: (args) => {
        if (args['say'] !== 'b') return Promise.resolve({ content: asText(args['say']) })
        return what === 'throws' ? Promise.reject(new Error('blind')) : Promise.resolve(JSON.parse('{}'))
      },
    }
    const { harness } = rig(log, { turns: [callsOf('look a', 'look b', 'look c'), { text: 'Done.' }], tools: [tool] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    expect(results(harness.messages())).toEqual(['a', expect.stringContaining('"look"'), 'c'])
  })

  test('the run ends on them only when all of them want it', async () => {
    for (const [enders, turns] of [
      ['ab', 1],
      ['b', 2],
    ] as const) {
      const log = await newLog()
      const tool: Tool = {
        ...echoTool('safe', 'look'),
        run: (args) => Promise.resolve({ content: 'x', terminate: enders.includes(asText(args['say'])) }),
      }
      const { harness } = rig(log, { turns: [callsOf('look a', 'look b'), { text: 'Done.' }], tools: [tool] })
      expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', turns })
    }
  })
})

test.each([
  ['one that may not run twice among them', 'change b'],
  ['one that nobody knows among them', 'gone b'],
])('%s: strictly one after the other', async (_, odd) => {
  const log = await newLog()
  const look = gated('look', 'safe', async (say) => {
    for (let n = 0; n < 4; n++) await new Promise((resolve) => setImmediate(resolve))
    return say
  })
  const change = gated('change', 'never', (say) => {
    expect(look.state.now).toBe(0)
    return Promise.resolve(say)
  })
  const turns = [callsOf('look a', odd, 'look c'), { text: 'Done.' }]
  const { harness } = rig(log, { turns, tools: [look.tool, change.tool] })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
  expect(look.state.most).toBe(1)
  const shapes = trace(log).filter((line) => line === 'tool_started' || line === 'toolResult')
  const pair = ['tool_started', 'toolResult']
  expect(shapes).toEqual([...pair, ...(odd === 'gone b' ? ['toolResult'] : pair), ...pair])
})

describe('an abort in the middle', () => {
  const abortInside = async (
    run: Tool['run'],
    options: Partial<HarnessOptions>,
    calls: ScriptedTurn,
    inside: Promise<void>,
  ) => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [calls], tools: [{ ...echoTool('safe', 'look'), run }], ...options })
    const running = harness.prompt('Go')
    await inside
    await harness.abort()
    expect(await running).toMatchObject({ outcome: 'aborted' })
    checkProjection(harness.messages())
    const promised = recordsOf(log, 'tool_started').map(({ resultEntryId }) => resultEntryId)
    const count = calls.calls?.length ?? 0
    expect(promised).toHaveLength(count)
    expect(
      log
        .path(log.leaf('main'))
        .map(({ id }) => id)
        .slice(-count),
    ).toEqual(promised)
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
    return harness.messages().filter((message) => message.role === 'toolResult')
  }

  test('writes every promised result: the one that is done, the one that is torn away, the one that was not begun', async () => {
    const inside = gate()
    const shown = await abortInside(
      async (args, { signal }) => {
        if (args['say'] === 'a') return { content: 'done' }
        inside.open()
        await aborted(signal)
        throw new Error('torn away')
      },
      { limits: { parallelTools: 2 } },
      callsOf('look a', 'look b', 'look c', 'look d'),
      inside.opened.then(() => new Promise<void>((resolve) => setImmediate(resolve))),
    )
    expect(shown.map(said)).toEqual([
      'done',
      expect.stringMatching(/torn away.*may or may not/su),
      expect.stringMatching(/torn away.*may or may not|Not executed/su),
      expect.stringContaining('Not executed'),
    ])
    expect(shown.map(({ interrupted }) => interrupted === true).slice(0, 2)).toEqual([false, true])
  })

  test('does not wait for one that hangs longer than the grace time, and loses no other', async () => {
    const inside = gate()
    let count = 0
    const shown = await abortInside(
      async (args, { signal }) => {
        if (++count === 3) inside.open()
        if (args['say'] === 'a') return never
        await aborted(signal)
        return { content: `${asText(args['say'])} is fine` }
      },
      { limits: { abortGraceMs: 10 } },
      callsOf('look a', 'look b', 'look c'),
      inside.opened,
    )
    expect(shown.map(said)).toEqual([expect.stringContaining('had not stopped'), 'b is fine', 'c is fine'])
  })
})

describe('a log that fails in the middle', () => {
  /** The real file until the first result is written. */
  const failing: NonNullable<OpenOptions['openFile']> = async (path, ...rest) => {
    const file = await watchedFile(() => undefined)(path, ...rest)
    return {
      ...file,
      write: (bytes) =>
        Buffer.from(bytes).includes('"toolResult"') ? Promise.reject(new Error('EIO')) : file.write(bytes),
    }
  }

  test('rejects, and not before every effect has ended', async () => {
    const log = await newLog({ openFile: failing })
    const { tool, all, end, state } = meeting(2)
    const { harness } = rig(log, { turns: [callsOf('look a', 'look b')], tools: [tool] })
    let over = false
    const run = harness.prompt('Go').finally(() => (over = true))
    run.catch(() => undefined)
    await all
    end('a')
    for (let n = 0; n < 20; n++) await new Promise((resolve) => setImmediate(resolve))
    expect(over).toBe(false)
    end('b')
    await expect(run).rejects.toMatchObject({ code: 'log_faulted' })
    expect(state.now).toBe(0)
    expect(harness.status()).toMatchObject({ state: 'needs_recovery' })
    await expect(harness.prompt('More')).rejects.toMatchObject({ code: 'log_faulted' })
  })

  test('stops the effects that would go on for long, and begins none any more', async () => {
    const log = await newLog({ openFile: failing })
    const begun: string[] = []
    const tool: Tool = {
      ...echoTool('safe', 'look'),
      run: async (args, { signal }) => {
        begun.push(asText(args['say']))
        if (args['say'] === 'a') return { content: 'quick' }
        // A server that is watched until somebody says stop.
        await aborted(signal)
        return { content: 'stopped' }
      },
    }
    const turns = [callsOf('look a', 'look b', 'look c', 'look d', 'look e')]
    const { harness } = rig(log, { turns, tools: [tool], limits: { parallelTools: 2 } })
    await expect(harness.prompt('Go')).rejects.toMatchObject({ code: 'log_faulted' })
    expect(begun).toEqual(['a', 'b', 'c'])
    // Without the stop it would wait for ever.
  }, 5000)
})

test('a death after any line leaves what recovery brings to the same conversation, each call made again once', async () => {
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
  states = []
  const turns = [callsOf('look a', 'look b', 'look c'), { text: 'Done.' }]
  const whole = rig(log, { turns, tools: [echoTool('safe', 'look')] })
  await whole.harness.prompt('Go')
  const folder = await tempFolder()
  const seen = new Set<number>()
  for (const [index, state] of states.entries()) {
    const file = join(folder, `${index}.jsonl`)
    await writeFile(file, state)
    await using again = await openSession(file)
    const begun = recordsOf(again, 'tool_started')
    const inFlight = begun.filter(({ resultEntryId }) => again.entry(asText(resultEntryId)) === undefined)
    const look = echoTool('safe', 'look')
    const { harness } = rig(again, { turns, tools: [look] })
    const report = await harness.recover()
    expect(look.runs.map(({ key }) => key)).toEqual(inFlight.map(({ resultEntryId }) => resultEntryId))
    expect(report.lanes.flatMap(({ unknown }) => unknown)).toEqual([])
    seen.add(inFlight.length)
    if (harness.messages().at(-1)?.role !== 'assistant') await harness.continue()
    checkProjection(harness.messages())
    // A cut among the intents, or before them, leaves calls that were never begun: they are not made later.
    if (begun.length === 3) expect(harness.messages()).toEqual(whole.harness.messages())
  }
  expect(seen).toEqual(new Set([0, 1, 2, 3]))
})
