import { createScriptedModel } from '@reve/providers/model'
import { describe, expect, test } from 'vitest'
import type { Tool } from '../src/index.ts'
import { pendingMessages } from '../src/index.ts'
import {
  checkProjection,
  drift,
  echoTool,
  gate,
  gatedModel,
  newLog,
  recordsOf,
  reopen,
  rig,
  said,
  trace,
  watchedFile,
} from './support.ts'

const callEcho = { calls: [{ name: 'echo', arguments: { say: 'a' } }] }
const never = new Promise<never>(() => undefined)

/** A run that stands inside of its tool until `done` is opened. */
async function inTool(turns: readonly { readonly text: string }[] = [{ text: 'seen' }, { text: 'again' }]) {
  const log = await newLog()
  const inside = gate()
  const done = gate()
  const echo = echoTool()
  const tool: Tool = {
    ...echo,
    run: async (args, context) => {
      inside.open()
      await done.opened
      return echo.run(args, context)
    },
  }
  const { harness, events } = rig(log, { turns: [callEcho, ...turns], tools: [tool] })
  const run = harness.prompt('Go')
  await inside.opened
  return { log, harness, events, run, done, echo }
}

describe('steering', () => {
  test('is durable when accepted, delivered between turns, in order', async () => {
    const { log, harness, run, done } = await inTool()
    const first = await harness.steer('left')
    expect(recordsOf(log, 'message_queued')[0]).toMatchObject({ entryId: first.entryId, delivery: 'steer' })
    const second = await harness.steer('then right')
    expect(harness.status()).toMatchObject({ state: 'running', waiting: 2 })
    done.open()
    expect(await run).toMatchObject({ outcome: 'completed', text: 'seen' })
    expect(harness.messages().map(said)).toEqual(['Go', '', 'echo: a', 'left', 'then right', 'seen'])
    expect(
      log
        .path(log.leaf('main'))
        .slice(3, 5)
        .map(({ id }) => id),
    ).toEqual([first.entryId, second.entryId])
    checkProjection(harness.messages())
  })

  // reference 2.4: there a steer that lands in flight makes the effect's settlement lose.
  test('while a tool runs changes nothing about its result, and runs it once', async () => {
    const { log, harness, run, done, echo } = await inTool()
    await Promise.all([harness.steer('x'), harness.steer('y'), harness.followUp('z')])
    done.open()
    await run
    expect(echo.runs).toHaveLength(1)
    expect(recordsOf(log, 'tool_started')).toHaveLength(1)
    expect(harness.messages()[2]).toMatchObject({ isError: false, content: [{ text: 'echo: a' }] })
  })

  test('while a request runs changes nothing about its answer, and asks once', async () => {
    const log = await newLog()
    const open = gate()
    const asked = gate()
    const inner = createScriptedModel({ turns: [{ text: 'first' }, { text: 'second' }] })
    const { harness } = rig(log, { model: gatedModel(inner, () => open.opened, asked.open) })
    const run = harness.prompt('Go')
    await asked.opened
    await harness.steer('wait')
    open.open()
    expect(await run).toMatchObject({ outcome: 'completed', text: 'second', turns: 2 })
    expect(harness.messages().map(said)).toEqual(['Go', 'first', 'wait', 'second'])
    expect(recordsOf(log, 'task_attempt')).toHaveLength(2)
  })

  for (const order of ['steer first', 'result first'] as const) {
    test(`against settle: ${order}`, async () => {
      const { log, harness, run, done } = await inTool()
      let steered
      if (order === 'steer first') {
        steered = harness.steer('now')
        done.open()
      } else {
        done.open()
        steered = harness.steer('now')
      }
      const { entryId } = await steered
      await run
      expect(log.entry(entryId)).toBeDefined()
      expect(harness.messages().map(said).slice(0, 4)).toEqual(['Go', '', 'echo: a', 'now'])
      checkProjection(harness.messages())
    })
  }

  test('against finish, at every microtask: delivered, or refused with lane_idle; never lost', async () => {
    const seen = new Set<string>()
    for (let at = 0; at < 400 && !seen.has('lane_idle'); at++) {
      const log = await newLog({ openFile: watchedFile(() => undefined) })
      const { harness } = rig(log, { turns: [{ text: 'one' }, { text: 'two' }] })
      const run = harness.prompt('Go')
      await drift(at)
      const fate = await harness.steer('psst').then(
        () => 'accepted',
        (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : 'defect'),
      )
      const result = await run
      seen.add(fate)
      expect(['accepted', 'lane_idle']).toContain(fate)
      expect(result).toMatchObject({ outcome: 'completed', returned: [] })
      expect(
        harness
          .messages()
          .map(said)
          .filter((text) => text === 'psst'),
      ).toHaveLength(fate === 'accepted' ? 1 : 0)
      expect(pendingMessages(log, 'main')).toEqual([])
      expect(trace(log).at(-1)).toBe('operation_finished')
    }
    expect([...seen]).toEqual(['accepted', 'lane_idle'])
  })

  test('in each microtask between the last answer and the end: delivered or refused, not taken and given back', async () => {
    const seen = new Set<string>()
    for (let at = 0; at < 60; at++) {
      const log = await newLog({ openFile: watchedFile(() => undefined) })
      const { harness } = rig(log, { turns: [{ text: 'one', usage: { output: 1 } }, { text: 'two' }] })
      let fate: Promise<string> | undefined
      harness.subscribe((event) => {
        if (event.type === 'usage')
          fate ??= (async () => {
            for (let n = 0; n < at; n++) await Promise.resolve()
            return harness.steer('psst').then(
              () => 'accepted',
              () => 'refused',
            )
          })()
      })
      const result = await harness.prompt('Go')
      const how = (await fate) ?? ''
      seen.add(how)
      expect(result).toMatchObject({ outcome: 'completed', turns: how === 'accepted' ? 2 : 1, returned: [] })
    }
    expect([...seen]).toEqual(['accepted', 'refused'])
  })

  test('on an idle lane is refused, and nothing is written', async () => {
    const log = await newLog()
    const { harness } = rig(log)
    await expect(harness.steer('x')).rejects.toMatchObject({ code: 'lane_idle' })
    await expect(harness.followUp('x')).rejects.toMatchObject({ code: 'lane_idle' })
    expect(log.lines).toEqual([])
  })
})

describe('follow-ups and next-run messages', () => {
  test('a follow-up goes in when the run would end; steers go before it', async () => {
    const { harness, run, done } = await inTool([{ text: 'b' }, { text: 'c' }])
    await harness.followUp('and then?')
    await harness.steer('quickly')
    done.open()
    expect(await run).toMatchObject({ outcome: 'completed', text: 'c' })
    expect(harness.messages().map(said)).toEqual(['Go', '', 'echo: a', 'quickly', 'b', 'and then?', 'c'])
  })

  test('a next-run message outlives the process and goes before the next prompt', async () => {
    const log = await newLog()
    await rig(log).harness.nextRun('remember the milk')
    const again = await reopen(log)
    const { harness } = rig(again, { turns: [{ text: 'ok' }] })
    expect(await harness.recover()).toEqual({ lanes: [] })
    expect(harness.status()).toMatchObject({ state: 'idle', waiting: 1 })
    const { entryId } = await harness.nextRun('and bread')
    await harness.prompt('Go')
    expect(harness.messages().map(said)).toEqual(['remember the milk', 'and bread', 'Go', 'ok'])
    const intent = recordsOf(again, 'operation_started')[0]?.['intent']
    expect(intent).toMatchObject({ queued: [expect.any(String), entryId] })
    expect(pendingMessages(again, 'main')).toEqual([])
  })

  test('a next-run message alone can be continued to', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ text: 'a' }, { text: 'b' }] })
    await harness.prompt('Go')
    await harness.nextRun('more')
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'b' })
    expect(harness.messages().map(said)).toEqual(['Go', 'a', 'more', 'b'])
  })
})

describe('messages that are not delivered', () => {
  test('are not accepted in the first place when no line can hold them, or no lane', async () => {
    const log = await newLog()
    const { harness } = rig(log)
    const big = 'x'.repeat(10_000_001)
    await expect(harness.nextRun(big)).rejects.toMatchObject({ code: 'invalid_message' })
    await expect(harness.prompt(big)).rejects.toMatchObject({ code: 'invalid_message' })
    await expect(harness.nextRun('n', { lane: '\n' })).rejects.toMatchObject({ code: 'invalid_message' })
    expect(harness.status('\n')).toMatchObject({ state: 'idle', waiting: 0 })
    expect(log.lines).toEqual([])
    // The longest that is taken, in characters that take most bytes, fits into a line.
    await harness.nextRun('\u0001'.repeat(10_000_000))
    expect(harness.status()).toMatchObject({ waiting: 1 })
  })

  test('an abort gives steers and follow-ups back, by record; next-run messages stay', async () => {
    const { log, harness, run, done } = await inTool()
    await harness.steer('s')
    await harness.followUp('f')
    await harness.nextRun('n')
    const { returned } = await harness.abort()
    expect(returned.map(said)).toEqual(['s', 'f'])
    await expect(harness.steer('late')).rejects.toMatchObject({ code: 'lane_idle' })
    done.open()
    expect((await run).returned.map(said)).toEqual(['s', 'f'])
    expect(recordsOf(log, 'message_cancelled').map(({ delivery }) => delivery)).toEqual(['steer', 'follow_up'])
    expect(pendingMessages(log, 'main').map(({ message }) => said(message))).toEqual(['n'])
  })

  test('a run that fails gives them back too', async () => {
    const log = await newLog()
    const open = gate()
    const asked = gate()
    const inner = createScriptedModel({ turns: [{ fail: { code: 'auth' } }] })
    const { harness } = rig(log, { model: gatedModel(inner, () => open.opened, asked.open) })
    const run = harness.prompt('Go')
    await asked.opened
    await harness.steer('s')
    open.open()
    const result = await run
    expect(result).toMatchObject({ outcome: 'failed' })
    expect(result.returned.map(said)).toEqual(['s'])
    expect(trace(log).slice(-2)).toEqual(['message_cancelled', 'operation_finished'])
  })
})

describe('one run a lane', () => {
  test('two prompts at once: the second gets lane_busy, nothing of it is written', async () => {
    const log = await newLog()
    const { harness } = rig(log, { model: gatedModel(createScriptedModel({ turns: [] }), () => never) })
    const first = harness.prompt('one')
    await expect(harness.prompt('two')).rejects.toMatchObject({ code: 'lane_busy' })
    await expect(harness.continue()).rejects.toMatchObject({ code: 'lane_busy' })
    await harness.abort()
    await first
    expect(recordsOf(log, 'operation_started')).toHaveLength(1)
    expect(JSON.stringify(log.lines)).not.toContain('two')
  })

  test('is free when its end is told', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ text: 'a' }, { text: 'b' }] })
    const second = new Promise((resolve) => {
      const stop = harness.subscribe((event) => {
        if (event.type !== 'run_finished') return
        stop()
        resolve(harness.prompt('more'))
      })
    })
    await harness.prompt('Go')
    expect(await second).toMatchObject({ outcome: 'completed', text: 'b' })
  })
})
