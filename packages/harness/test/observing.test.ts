import { createScriptedModel, type Model, type ScriptedTurn } from '@reve/providers/model'
import type { SessionLog } from '@reve/session-log'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Harness, Observed, Snapshot, Tool } from '../src/index.ts'
import { aborted, echoTool, gate, gatedModel, newLog, rig, said, watchedFile } from './support.ts'

/** A text out of JSON. */
const asText = (value: unknown): string => (typeof value === 'string' ? value : '')
type Item = Observed<Snapshot>
type Lane = { ids: readonly string[]; text: string; readonly tools: Set<string> }

const upTo = (ids: readonly string[], id: string | null) => ids.slice(0, id === null ? 0 : ids.indexOf(id) + 1)

/** What somebody knows who was told all of this, and nothing else; it has to hang together on the way. */
function follow(items: readonly Item[]): ReadonlyMap<string, Lane> {
  let lanes = new Map<string, Lane>()
  for (const item of items) {
    if (item.type === 'snapshot') {
      lanes = new Map(
        item.snapshot.lanes.map(({ lane, path, live }) => [
          lane,
          {
            ids: path.map(({ id }) => id),
            text: live?.text ?? '',
            tools: new Set(live?.tools.map(({ toolCallId }) => toolCallId)),
          },
        ]),
      )
      continue
    }
    const { event } = item
    const lane: Lane = lanes.get(event.lane) ?? { ids: [], text: '', tools: new Set() }
    lanes.set(event.lane, lane)
    switch (event.type) {
      case 'text':
        lane.text += event.delta
        break
      case 'retry':
        if (event.discard) lane.text = ''
        break
      case 'message': {
        // Where it stands, if that is told.
        const { entryId, parentId }: { readonly entryId: string; readonly parentId?: string | null } = event
        lane.ids = [...(parentId === undefined ? lane.ids : upTo(lane.ids, parentId)), entryId]
        if (event.message.role !== 'assistant') break
        expect(lane.text).toBe(said(event.message))
        lane.text = ''
        break
      }
      case 'compaction_finished':
        if (event.entryId !== undefined) lane.ids = [...lane.ids, event.entryId]
        break
      case 'navigated':
        lane.ids = upTo(lane.ids, event.leafId)
        break
      case 'tool_started':
        expect(lane.tools.has(event.toolCallId)).toBe(false)
        lane.tools.add(event.toolCallId)
        break
      case 'tool_finished':
        expect(lane.tools.delete(event.toolCallId)).toBe(true)
        break
      case 'run_finished':
        expect(lane.tools.size).toBe(0)
        break
      default:
        break
    }
  }
  return lanes
}

/** Each lane is where the log has it. */
function expectWhole(items: readonly Item[], log: SessionLog): void {
  const lanes = follow(items)
  for (const lane of log.lanes()) {
    expect(lanes.get(lane)?.ids ?? []).toEqual(log.path(log.leaf(lane)).map(({ id }) => id))
  }
}

/** Takes the snapshot in this very instant, and gives the rest when the harness is closed. */
function observer(harness: Harness, capacity?: number) {
  const observation = harness.observe(capacity === undefined ? {} : { capacity })
  const first = observation.next()
  const next = async (): Promise<Item | undefined> => {
    const item = await observation.next()
    return item.done === true ? undefined : item.value
  }
  const rest = async (): Promise<readonly Item[]> => {
    const items: Item[] = []
    const head = await first
    if (head.done !== true) items.push(head.value)
    for (let item = await next(); item !== undefined; item = await next()) items.push(item)
    return items
  }
  return { observation, first, next, rest }
}

const say = (name: string, text: string) => ({ name, arguments: { say: text } })
const looking = (tool: Tool): Tool => ({
  ...tool,
  run: async (args, context) => {
    context.progress('looking')
    await new Promise((resolve) => setImmediate(resolve))
    return tool.run(args, context)
  },
})

/** A run with everything that happens in one: two tools at once, a retry after shown text, a steer, a sub-agent. */
const busyTurns: readonly ScriptedTurn[] = [
  { text: 'I look around.', chunk: 3, calls: [say('look', 'a'), say('look', 'b')] },
  { text: 'I ask.', chunk: 2, calls: [say('echo', 'x'), { name: 'ask' }], fail: { times: 1, afterText: true } },
  { text: 'Done.', chunk: 1 },
  { text: 'Anything else?' },
]
const quick = { effects: { sleep: () => Promise.resolve() } }

function busy(log: SessionLog) {
  const echo = echoTool()
  const tools: readonly Tool[] = [
    looking(echoTool('safe', 'look')),
    {
      ...echo,
      run: async (args, context) => {
        await made.harness.steer('by the way')
        await made.harness.nextRun('later')
        return echo.run(args, context)
      },
    },
    {
      name: 'ask',
      description: 'asks another',
      parameters: { type: 'object' },
      replay: 'never',
      run: async (_, { subagent }) => {
        const turns = [{ text: 'Hm.', chunk: 1, calls: [say('look', 'c')] }, { text: 'So.' }]
        return { content: (await subagent('What?', { model: createScriptedModel({ turns }) })).text }
      },
    },
  ]
  const made = rig(log, { ...quick, turns: busyTurns, tools })
  return made
}

describe('whoever comes, whenever', () => {
  test('sees each thing once: in the snapshot or as an event', async () => {
    let watch = (): void => undefined
    const log = await newLog({ openFile: watchedFile(() => watch()) })
    const { harness } = busy(log)
    const observers: ReturnType<typeof observer>[] = []
    const come = (): void => void observers.push(observer(harness))
    // As the bytes reach the disk, when an event is told, and between any two steps of the program.
    watch = come
    harness.subscribe(come)
    come()
    const state = { over: false }
    const run = (async () => {
      await harness.prompt('Go')
      await harness.prompt('Go on')
      await harness.compact()
      await harness.navigate(log.path(log.leaf('main'))[2]?.id ?? null)
      state.over = true
    })()
    for (let n = 0; !state.over; n++) {
      await (n % 12 === 11 ? new Promise((resolve) => setImmediate(resolve)) : Promise.resolve())
      if (observers.length < 4000) come()
    }
    await run
    expect(log.lines.some(({ type }) => type === 'compaction')).toBe(true)
    expect(log.lanes()).toHaveLength(2)
    await harness.close()
    const firsts = new Set<string>()
    for (const { rest } of observers) {
      const items = await rest()
      expectWhole(items, log)
      expect(items.filter(({ type }) => type === 'snapshot')).toHaveLength(1)
      const [first] = items
      if (first?.type !== 'snapshot') throw new Error('no snapshot')
      expect(first.missed).toBe(0)
      firsts.add(JSON.stringify(first.snapshot))
    }
    // Many states were met on the way, most of them in the middle of something.
    expect(firsts.size).toBeGreaterThan(60)
  })

  test('and however slowly they read: what was missed is said, and a snapshot stands for it', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 6 }),
        fc.array(fc.nat(3), { maxLength: 60 }),
        async (capacity, reads) => {
          const log = await newLog({ openFile: watchedFile(() => undefined) })
          const { harness, events } = busy(log)
          const { first, next, rest } = observer(harness, capacity)
          const items: Item[] = []
          await first
          const run = harness.prompt('Go')
          const reading = (async () => {
            for (const pause of reads) {
              for (let n = 0; n < pause; n++) await new Promise((resolve) => setImmediate(resolve))
              const item = await next()
              if (item !== undefined) items.push(item)
            }
          })()
          await run
          await harness.close()
          await reading
          const all = [...(await rest().then(([head, ...later]) => [...(head ? [head] : []), ...items, ...later]))]
          expectWhole(all, log)
          const told = all.filter(({ type }) => type === 'event').length
          const missed = all.reduce((sum, item) => sum + (item.type === 'snapshot' ? item.missed : 0), 0)
          expect(told + missed).toBe(events.length)
        },
      ),
      { numRuns: 25 },
    )
  })

  test('a slow one gets a second snapshot, and the run did not wait for it', async () => {
    const log = await newLog()
    const { harness, events } = busy(log)
    const { first, next } = observer(harness, 3)
    expect(await first).toMatchObject({ value: { type: 'snapshot', missed: 0, snapshot: { lanes: [] } } })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
    const item = await next()
    expect(item).toMatchObject({ type: 'snapshot', missed: events.length })
    expectWhole(item === undefined ? [] : [item], log)
    const after = next()
    await harness.prompt('Go on')
    expect(await after).toMatchObject({ type: 'event', event: { type: 'run_started' } })
  })
})

describe('a late one', () => {
  test('sees what is being said, and then the rest of it', async () => {
    const log = await newLog()
    const half = gate()
    const on = gate()
    const inner = createScriptedModel({ turns: [] })
    const model: Model = {
      ...inner,
      async *stream() {
        yield { type: 'reasoning', delta: 'Let me see.' }
        yield { type: 'text', delta: 'Half of ' }
        half.open()
        await on.opened
        yield { type: 'text', delta: 'it.' }
        const content = [{ type: 'text', text: 'Half of it.' }] as const
        return { type: 'answer', message: { role: 'assistant', model: inner.id, content, stopReason: 'stop' } }
      },
    }
    const { harness } = rig(log, { model })
    const run = harness.prompt('Go')
    await half.opened
    const { first, rest } = observer(harness)
    const head = await first
    expect(head).toMatchObject({
      value: {
        snapshot: {
          lanes: [
            {
              lane: 'main',
              status: { state: 'running', aborting: false },
              path: [{ type: 'message' }],
              live: { operation: 'run', step: 1, text: 'Half of ', reasoning: 'Let me see.', tools: [] },
            },
          ],
        },
      },
    })
    on.open()
    await run
    await harness.close()
    const items = await rest()
    expect(items.flatMap((item) => (item.type === 'event' ? [item.event.type] : []))).toEqual([
      'text',
      'message',
      'run_finished',
    ])
    expectWhole(items, log)
  })

  test('sees the tools that run, with their arguments and the last that they showed', async () => {
    const log = await newLog()
    let running = 0
    const both = gate()
    const on = gate()
    const slow: Tool = {
      ...echoTool('safe'),
      run: async (args, { progress }) => {
        progress('first')
        progress(`working on ${asText(args['say'])}`)
        if (++running === 2) both.open()
        await on.opened
        return { content: 'ok' }
      },
    }
    const turns = [{ text: 'Two.', calls: [say('echo', 'a'), say('echo', 'b')] }, { text: 'Done.' }]
    const { harness } = rig(log, { turns, tools: [slow] })
    const run = harness.prompt('Go', { lane: 'side' })
    await both.opened
    const { first, rest } = observer(harness)
    const live = {
      text: '',
      tools: [
        { toolCallId: 'call_1_1', toolName: 'echo', arguments: { say: 'a' }, progress: 'working on a' },
        { toolCallId: 'call_1_2', toolName: 'echo', arguments: { say: 'b' }, progress: 'working on b' },
      ],
    }
    expect(await first).toMatchObject({ value: { snapshot: { lanes: [{ lane: 'side', live }] } } })
    on.open()
    await run
    await harness.close()
    expectWhole(await rest(), log)
  })

  test('sees whose sub-agent runs, and an abort that is on its way', async () => {
    const log = await newLog()
    const inside = gate()
    const on = gate()
    const model = gatedModel(
      createScriptedModel({ turns: [{ text: 'x' }] }),
      () => new Promise(() => undefined),
      inside.open,
    )
    const ask: Tool = {
      ...echoTool(),
      name: 'ask',
      parameters: { type: 'object' },
      run: async (_, { subagent, signal }) => {
        await subagent('What?', { model, lane: 'helper' })
        await aborted(signal)
        await on.opened
        return { content: 'ok' }
      },
    }
    const { harness } = rig(log, { turns: [{ calls: [{ name: 'ask' }] }], tools: [ask] })
    const run = harness.prompt('Go')
    await inside.opened
    const before = await observer(harness).first
    const { runId } = harness.status() as { runId: string }
    const parent = { lane: 'main', runId, toolCallId: 'call_1_1' }
    const main = { lane: 'main', live: { tools: [{ toolName: 'ask' }], aborting: false } }
    expect(before).toMatchObject({ value: { snapshot: { lanes: [main, { lane: 'helper', live: { parent } }] } } })
    await harness.abort()
    const after = await observer(harness).first
    expect(after).toMatchObject({
      value: { snapshot: { lanes: [{ lane: 'main', status: { aborting: true }, live: { aborting: true } }, {}] } },
    })
    on.open()
    await run
    const end = await observer(harness).first
    const lanes = end.done === true || end.value.type !== 'snapshot' ? [] : end.value.snapshot.lanes
    expect(lanes.map(({ lane, status: { state }, live }) => [lane, state, live])).toEqual([
      ['main', 'idle', undefined],
      ['helper', 'idle', undefined],
    ])
  })

  test('sees a session that a dead process left, as it is', async () => {
    const log = await newLog()
    await rig(log, { turns: [{ text: 'one' }] }).harness.prompt('Go')
    const { harness } = rig(log)
    expect(await observer(harness).first).toMatchObject({
      value: { snapshot: { lanes: [{ lane: 'main', status: { state: 'idle', waiting: 0 }, path: [{}, {}] }] } },
    })
  })
})

describe('the end', () => {
  test('leaving the loop ends it; the run goes on', async () => {
    const log = await newLog()
    const { harness, events } = busy(log)
    const run = harness.prompt('Go')
    const observation = harness.observe()
    let count = 0
    for await (const _ of observation) if (++count === 3) break
    expect(await observation.next()).toEqual({ done: true, value: undefined })
    expect(await run).toMatchObject({ outcome: 'completed' })
    expect(events.length).toBeGreaterThan(3)
  })

  test('an abort of its signal ends a wait; the harness stays', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ text: 'ok' }] })
    const stop = new AbortController()
    const observation = harness.observe({ signal: stop.signal })
    await observation.next()
    const waiting = observation.next()
    stop.abort()
    expect(await waiting).toEqual({ done: true, value: undefined })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
  })

  test('close() ends it, after all that was told until then', async () => {
    const log = await newLog()
    const inside = gate()
    const model = gatedModel(createScriptedModel({ turns: [] }), () => new Promise(() => undefined), inside.open)
    const { harness } = rig(log, { model })
    const { rest } = observer(harness)
    const waiting = observer(harness)
    await waiting.first
    const all = (async () => {
      const types: string[] = []
      for (let item = await waiting.next(); item !== undefined; item = await waiting.next()) {
        if (item.type === 'event') types.push(item.event.type)
      }
      return types
    })()
    const run = harness.prompt('Go')
    await inside.opened
    await harness.close()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    const told = ['run_started', 'message', 'turn_started', 'abort_requested', 'run_finished']
    expect((await rest()).flatMap((item) => (item.type === 'event' ? [item.event.type] : []))).toEqual(told)
    expect(await all).toEqual(told)
    // Whoever comes now sees how it ended.
    const late = await observer(harness).rest()
    expect(late).toMatchObject([
      { type: 'snapshot', snapshot: { lanes: [{ lane: 'main', status: { state: 'idle' } }] } },
    ])
    expectWhole(late, log)
  })
})

test('where a lane goes on is told, when a prompt takes it elsewhere', async () => {
  const log = await newLog()
  const { harness } = rig(log, { turns: [{ text: 'one' }, { text: 'two' }, { text: 'three' }] })
  await harness.prompt('first')
  await harness.prompt('second')
  const [, one] = log.path(log.leaf('main'))
  const { rest } = observer(harness)
  await harness.prompt('other', { from: one?.id ?? null })
  await harness.prompt('anew', { from: null })
  await harness.close()
  expectWhole(await rest(), log)
})
