import type { Message } from '@reve/providers/model'
import { openSession } from '@reve/session-log'
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createHarness, type HarnessEvent } from '../src/index.ts'
import { diedSummarising } from '../src/attempts.ts'
import {
  aborted,
  echoTool,
  gate,
  gatedModel,
  newLog,
  recordsOf,
  reopen,
  rig,
  said,
  scriptOn,
  tempFolder,
  trace,
} from './support.ts'
import { createScriptedModel } from '@reve/providers/model'

describe('one log has one harness at a time', () => {
  test('a second one is refused while the first is at work, and replaces it when it is not', async () => {
    const log = await newLog()
    const opened = gate()
    const model = gatedModel(createScriptedModel({ turns: [{ text: 'One.' }, { text: 'Two.' }] }), () => opened.opened)
    const first = rig(log, { model }).harness
    const running = first.prompt('Go')
    expect(() => rig(log)).toThrow(expect.objectContaining({ code: 'log_in_use' }))
    opened.open()
    expect(await running).toMatchObject({ outcome: 'completed' })
    const second = rig(log, { model }).harness
    expect(await second.prompt('Again')).toMatchObject({ outcome: 'completed', text: 'Two.' })
    await expect(first.prompt('Me too')).rejects.toMatchObject({ code: 'closed' })
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })
})

describe('continuing what no run has made', () => {
  test('a conversation without records goes on', async () => {
    const log = await newLog()
    await log.append([
      {
        kind: 'entry',
        lane: 'main',
        type: 'message',
        payload: { message: { role: 'user', content: [{ type: 'text', text: 'Anybody?' }] } },
      },
    ])
    const { harness } = rig(log, { turns: [{ text: 'Here.' }] })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Here.' })
    expect(recordsOf(log, 'operation_started')[0]).toMatchObject({ intent: { kind: 'run', continues: null } })
    expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
  })

  test('a message that waits on a lane that nobody has used is delivered', async () => {
    const { harness } = rig(await newLog(), { turns: [{ text: 'Yes.' }] })
    await harness.nextRun('Later', { lane: 'side' })
    expect(await harness.continue({ lane: 'side' })).toMatchObject({ text: 'Yes.' })
    expect(harness.messages('side').map(said)).toEqual(['Later', 'Yes.'])
  })
})

describe('a message that waits', () => {
  test('can be taken back, once, and is not delivered', async () => {
    const opened = gate()
    const log = await newLog()
    const model = gatedModel(createScriptedModel({ turns: [{ text: 'One.' }] }), () => opened.opened)
    const { harness } = rig(log, { model })
    const running = harness.prompt('Go')
    const { entryId } = await harness.followUp('and then?')
    expect(said(await harness.withdraw(entryId))).toBe('and then?')
    expect(await harness.withdraw(entryId)).toBeUndefined()
    opened.open()
    expect(await running).toMatchObject({ turns: 1, returned: [] })
    expect(recordsOf(log, 'message_cancelled')).toMatchObject([{ entryId }])
    expect(await harness.withdraw('e_none')).toBeUndefined()
  })
})

describe('a budget', () => {
  const turns = Array.from({ length: 20 }, () => ({
    text: 'x'.repeat(400),
    calls: [{ name: 'echo', arguments: { say: 'a' } }],
  }))

  test('of tokens counts by estimate where the server tells nothing', async () => {
    const { harness } = rig(await newLog(), {
      turns,
      tools: [echoTool()],
      budget: { run: { tokens: 1000 } },
      limits: { loop: { nudgeAfter: 0, stopAfter: 0 } },
    })
    const result = await harness.prompt('Go')
    expect(result).toMatchObject({ outcome: 'failed', reason: 'budget' })
    expect(result.turns).toBeLessThan(15)
    // What is an estimate stands in no record of what was used.
    expect(harness.spending().session.usage.input).toBe(0)
  })

  test('of money is refused where no price is known, before anything is spent', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns, tools: [echoTool()], budget: { run: { usd: 1 } } })
    const result = await harness.prompt('Go')
    expect(result).toMatchObject({ outcome: 'failed', reason: 'budget' })
    expect(result.error?.message).toContain('no price of scripted/script is known')
    expect(trace(log)).toEqual(['operation_started', 'user', 'operation_finished'])
  })
})

describe('compaction', () => {
  const failing = { fail: { code: 'auth' } } as const

  test('by hand leaves what still waits for an answer in its own words', async () => {
    const log = await newLog()
    const { harness } = rig(log, {
      model: scriptOn(log, [{ text: 'One.' }, failing]),
      compaction: { keepRecentTokens: 0 },
    })
    await harness.prompt('First')
    expect(await harness.prompt('And what about the second?')).toMatchObject({ outcome: 'failed' })
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    expect(harness.messages().map(said).at(-1)).toBe('And what about the second?')
  })

  test('an empty summary of a hook is none', async () => {
    const log = await newLog()
    const { harness, events } = rig(log, {
      model: scriptOn(log, [{ text: 'One.' }]),
      hooks: [{ beforeCompaction: () => ({ summary: ' ' }) }],
    })
    await harness.prompt('First')
    expect(await harness.compact()).toMatchObject({ outcome: 'completed' })
    expect(events.filter(({ type }) => type === 'hook_failed')).toHaveLength(1)
    expect(harness.messages().map(said).join()).toContain('Summary 1.')
  })

  test('who hears of its end finds the lane free', async () => {
    const log = await newLog()
    const { harness } = rig(log, { model: scriptOn(log, [{ text: 'One.' }, { text: 'Two.' }]) })
    await harness.prompt('First')
    const ended = new Promise<string>((resolve) => {
      harness.subscribe((event: HarnessEvent) => {
        if (event.type === 'compaction_finished') resolve(harness.status().state)
      })
    })
    await harness.compact()
    expect(await ended).toBe('idle')
  })

  test('that kills its process each time is given up after as many as a request may have attempts', async () => {
    const folder = await tempFolder()
    const long = (text: string) => text.padEnd(6000, ' and so on')
    let file = ''
    let summaries = 0
    for (let life = 0; life < 6; life++) {
      const next = join(folder, `${life}.jsonl`)
      if (life > 0) await copyFile(file, next)
      await using log = await openSession(next, { create: { cwd: 'workspace' } })
      file = next
      const copy = join(folder, `dead-${life}.jsonl`)
      const died = gate()
      const model = scriptOn(log, [{ calls: [{ name: 'echo', arguments: { say: long('a') } }] }, { text: 'Done.' }], {
        contextWindow: 3000,
      })
      const harness = createHarness({
        log,
        system: '',
        tools: [echoTool()],
        compaction: { reserveTokens: 100, keepRecentTokens: 100 },
        model: {
          ...model,
          async *stream(request, options) {
            if (request.sessionId?.endsWith(':summary') !== true) return yield* model.stream(request, options)
            summaries++
            // The process dies here: what the next one finds is the file as it is now.
            await copyFile(next, copy)
            died.open()
            await aborted(options.signal)
            return yield* model.stream(request, options)
          },
        },
      })
      await harness.recover()
      const run = life === 0 ? harness.prompt('Go') : harness.continue()
      const end = await Promise.race([run, died.opened])
      if (end !== undefined) {
        expect(end).toMatchObject({ outcome: 'completed', text: 'Done.' })
        expect(summaries).toBe(3)
        return
      }
      await harness.close()
      file = copy
    }
    throw new Error('it went on for ever')
  })

  test('diedSummarising counts only what is in a row', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ text: 'ok' }] })
    const { runId } = await harness.prompt('Go')
    expect(diedSummarising(log, 'main', runId)).toBe(0)
  })
})

test('what transformContext gives back is paired as any conversation is', async () => {
  const seen: (readonly Message[])[] = []
  const log = await newLog()
  const model = createScriptedModel({
    turns: [{ calls: [{ name: 'echo', arguments: { say: 'a' } }] }, { text: 'Done.' }],
  })
  const { harness } = rig(log, {
    tools: [echoTool()],
    model: {
      ...model,
      async *stream(request, options) {
        seen.push(request.messages)
        return yield* model.stream({ ...request, messages: harness.messages() }, options)
      },
    },
    hooks: [{ transformContext: ({ messages }) => ({ messages: messages.slice(-1) }) }],
  })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed' })
  // A result without its call does not appear.
  expect(seen.map((messages) => messages.map(({ role }) => role))).toEqual([['user'], []])
})

test('an answer that no line can hold fails its run, and the session goes on', async () => {
  const log = await newLog()
  const huge = 'x'.repeat(65 * 1024 * 1024)
  const model = createScriptedModel({ turns: [{ text: huge }] })
  const { harness } = rig(log, { model })
  expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', error: { code: 'protocol' } })
  expect(trace(log).slice(-3)).toEqual(['task_failed', 'usage', 'operation_finished'])
  expect(await rig(log, { turns: [{ text: 'Fine.' }] }).harness.continue()).toMatchObject({ text: 'Fine.' })
})

test('a tool that does not say whether it may be run again is refused before anything is written', async () => {
  const log = await newLog()
  const { replay: _missing, ...bare } = echoTool()
  const { harness } = rig(log, { turns: [{ text: 'ok' }], tools: [bare as ReturnType<typeof echoTool>] })
  await expect(harness.prompt('Go')).rejects.toMatchObject({ code: 'invalid_tools' })
  expect(log.lines).toEqual([])
})

test('usage in fractions measures a conversation in whole tokens', async () => {
  const log = await newLog()
  const model = scriptOn(log, [{ text: 'One.', usage: { input: 2000.5, output: 0.25 } }])
  const { harness } = rig(log, { model })
  await harness.prompt('Go')
  expect(await harness.compact()).toMatchObject({ outcome: 'completed', compacted: { tokensBefore: 2001 } })
  expect(await rig(await reopen(log)).harness.recover()).toEqual({ lanes: [] })
})
