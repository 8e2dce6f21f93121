import { createScriptedModel, type Model, type ModelRequest, type ScriptedTurn } from '@reve/providers/model'
import { isEntry, openSession } from '@reve/session-log'
import { readFileSync } from 'node:fs'
import { copyFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { HarnessEvent, Tool } from '../src/index.ts'
import { readRecord } from '../src/records.ts'
import {
  aborted,
  checkProjection,
  echoTool,
  gate,
  newLog,
  recordsOf,
  rig,
  said,
  scriptOn,
  tempFolder,
  watchedFile,
} from './support.ts'

/** A file that keeps a diary: what was written, and when it was synced. */
function diary() {
  const pages: string[] = []
  const openFile = watchedFile((what, bytes) => pages.push(what === 'sync' ? 'sync' : Buffer.from(bytes).toString()))
  /** What came after the write that holds such a line. */
  const after = (type: string) => pages[pages.findIndex((page) => page.includes(`"type":"${type}"`)) + 1]
  return { pages, openFile, after }
}

/** Waits for its abort; `inside` opens when it has begun. */
function waitingTool(onAbort: () => void = () => undefined) {
  const inside = gate()
  const tool: Tool = {
    ...echoTool(),
    run: async (_, { signal }) => {
      inside.open()
      await aborted(signal)
      onAbort()
      return { content: 'stopped' }
    },
  }
  return { tool, inside: inside.opened }
}

const callingEcho: ScriptedTurn = { calls: [{ name: 'echo', arguments: { say: 'a' } }] }

describe('what is promised is synced', () => {
  test('the wish to abort, before anything is stopped; the end, before anybody hears of it', async () => {
    const { pages, openFile, after } = diary()
    const log = await newLog({ openFile })
    let atAbort: readonly string[] = []
    const { tool, inside } = waitingTool(() => (atAbort = [...pages]))
    const { harness } = rig(log, { turns: [callingEcho], tools: [tool] })
    let atEnd: readonly string[] = []
    harness.subscribe(({ type }) => {
      if (type === 'run_finished') atEnd = [...pages]
    })
    const running = harness.prompt('Go')
    await inside
    await harness.abort()
    expect(await running).toMatchObject({ outcome: 'aborted' })
    expect(after('abort_requested')).toBe('sync')
    expect(atAbort.slice(-2)).toEqual([expect.stringContaining('"abort_requested"'), 'sync'])
    expect(atEnd.slice(-2)).toEqual([expect.stringContaining('"operation_finished"'), 'sync'])
  })

  test('the end of a run that was not aborted, and of a compaction', async () => {
    const { pages, openFile } = diary()
    const log = await newLog({ openFile })
    const { harness } = rig(log, { model: scriptOn(log, [{ text: 'Hi.' }]) })
    for (const work of [() => harness.prompt('Hello'), () => harness.compact()]) {
      expect(await work()).toMatchObject({ outcome: 'completed' })
      expect(pages.slice(-2)).toEqual([expect.stringContaining('"operation_finished"'), 'sync'])
    }
  })

  test('what recovery decided, before it tells of it', async () => {
    const log = await newLog()
    const { tool, inside } = waitingTool()
    const dying = rig(log, { turns: [callingEcho], tools: [tool] }).harness
    const running = dying.prompt('Go')
    await inside
    const file = join(await tempFolder(), 'dead.jsonl')
    await copyFile(log.file, file)
    await dying.close()
    await running

    const { pages, openFile } = diary()
    const dead = await openSession(file, { openFile })
    onTestFinished(() => dead.close())
    const { harness } = rig(dead, { tools: [tool] })
    let told: readonly string[] = []
    harness.subscribe(({ type }) => {
      if (type === 'recovered') told = [...pages]
    })
    expect((await harness.recover()).lanes).toHaveLength(1)
    expect(told.slice(-2)).toEqual([expect.stringContaining('"reason":"recovered"'), 'sync'])
  })
})

describe('a run that was too large once', () => {
  const bulk = (say: string): ScriptedTurn => ({ calls: [{ name: 'echo', arguments: { say: say.repeat(2000) } }] })

  /** A run whose second and fourth requests are too large; `meanwhile` is called inside of the tool, with which call it is. */
  async function twiceTooLarge(
    turns: readonly ScriptedTurn[],
    meanwhile: (harness: ReturnType<typeof rig>['harness'], call: number) => Promise<unknown>,
  ) {
    const log = await newLog()
    const inner = scriptOn(log, turns)
    let requests = 0
    const model: Model = {
      ...inner,
      async *stream(request, options) {
        const forSummary = request.tools.length === 0
        if (!forSummary && [2, 4].includes(++requests)) {
          const failure = { code: 'overflow', message: 'prompt is too long', retryable: false } as const
          return { type: 'failed', failure, outputShown: false }
        }
        return yield* inner.stream(request, options)
      },
    }
    const echo = echoTool()
    const tool: Tool = {
      ...echo,
      run: async (args, context) => {
        await meanwhile(harness, echo.runs.length + 1)
        return echo.run(args, context)
      },
    }
    const { harness } = rig(log, { model, tools: [tool], compaction: { reserveTokens: 100, keepRecentTokens: 100 } })
    return { result: await harness.prompt('Go'), overflows: recordsOf(log, 'compaction_started').length }
  }

  const threeTurns = [bulk('a'), bulk('b'), { text: 'Done.' }]

  test('has no second summary for the same', async () => {
    const { result, overflows } = await twiceTooLarge(threeTurns, () => Promise.resolve())
    expect(result).toMatchObject({ outcome: 'failed', reason: 'context_overflow' })
    expect(overflows).toBe(1)
  })

  test('has one for what a steer says', async () => {
    const { result, overflows } = await twiceTooLarge(threeTurns, async (harness, call) =>
      call === 2 ? harness.steer('And this') : undefined,
    )
    expect(result).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(overflows).toBe(2)
  })

  test('has one for what a follow-up says', async () => {
    const turns = [bulk('a'), { text: 'b'.repeat(2000) }, { text: 'Done.' }]
    const { result, overflows } = await twiceTooLarge(turns, (harness) => harness.followUp('And this'))
    expect(result).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(overflows).toBe(2)
  })
})

describe('calls of one answer that came with the same id', () => {
  test.each([
    ['the same', ['same', 'same', 'same'], ['same', 'same_2', 'same_3']],
    ['none', ['', ''], ['_2', '_3']],
    ['one that the next has too', ['x', 'x', 'x_2'], ['x', 'x_2', 'x_2_2']],
  ])('%s: each has one of its own, and the result that is its own', async (_, given, kept) => {
    const log = await newLog()
    const echo = echoTool()
    const calls = given.map((id, n) => ({ name: 'echo', id, arguments: { say: `${n}` } }))
    const requests: ModelRequest[] = []
    const { harness } = rig(log, {
      model: watched(createScriptedModel({ turns: [{ calls }, { text: 'Done.' }] }), requests),
      tools: [echo],
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    const messages = requests[1]?.messages ?? []
    checkProjection(messages)
    expect(callIds(messages[1])).toEqual(kept)
    expect(messages.slice(2)).toMatchObject(kept.map((id) => ({ role: 'toolResult', toolCallId: id })))
    expect(messages.slice(2).map(said)).toEqual(given.map((_, n) => `echo: ${n}`))
    expect(recordsOf(log, 'tool_started').map(({ toolCallId }) => toolCallId)).toEqual(kept)
  })
})

const callIds = (message: ModelRequest['messages'][number] | undefined) =>
  message?.role === 'assistant'
    ? message.content.flatMap((part) => (part.type === 'toolCall' ? [part.id] : []))
    : undefined

/** The model, which keeps what it is asked. */
const watched = (inner: Model, requests: ModelRequest[]): Model => ({
  ...inner,
  stream: (request, options) => {
    requests.push(request)
    return inner.stream(request, options)
  },
})

test.each([['high' as const], ['off' as const], [2048], [undefined]])(
  'thinking, as it was given (%s), is part of every request for an answer',
  async (thinking) => {
    const requests: ModelRequest[] = []
    const { harness } = rig(await newLog(), {
      model: watched(createScriptedModel({ turns: [callingEcho, { text: 'Done.' }] }), requests),
      tools: [echoTool()],
      ...(thinking !== undefined && { thinking }),
    })
    await harness.prompt('Go')
    expect(requests.map((request) => ('thinking' in request ? request.thinking : 'none'))).toEqual([
      thinking ?? 'none',
      thinking ?? 'none',
    ])
  },
)

describe('a compaction keeps no secret', () => {
  const secret = 'sk-1234567890'
  const redact = (text: string): string => text.replaceAll(secret, '[redacted]')

  /** All that was kept, told and given back. */
  const everything = async (file: string, events: readonly HarnessEvent[], result: unknown) =>
    (await readFile(file, 'utf8')) + JSON.stringify([events, result])

  test('of its summary and its instructions', async () => {
    const log = await newLog()
    const asked: ModelRequest[] = []
    const model = scriptOn(log, [{ text: 'Hi.' }], {
      summary: () => ({ text: `The key is ${secret}.` }),
      asked: (request) => asked.push(request),
    })
    const { harness, events } = rig(log, { model, redact })
    await harness.prompt('Hello')
    const result = await harness.compact({ instructions: `forget ${secret}` })
    expect(result).toMatchObject({ outcome: 'completed' })
    expect(recordsOf(log, 'operation_started').at(-1)).toMatchObject({ intent: { instructions: 'forget [redacted]' } })
    const summary = log.lines.find((line) => isEntry(line) && line.type === 'compaction')
    expect(summary).toMatchObject({ summary: 'The key is [redacted].' })
    expect(JSON.stringify(asked)).not.toContain(secret)
    expect(await everything(log.file, events, [result, harness.messages()])).not.toContain(secret)
  })

  test('of a summary that a hook brings, and of why one declines', async () => {
    const log = await newLog()
    let answer: { readonly decline: string } | { readonly summary: string } = { decline: `not with ${secret}` }
    const { harness, events } = rig(log, {
      turns: [{ text: 'Hi.' }],
      redact,
      hooks: [{ beforeCompaction: () => answer }],
    })
    await harness.prompt('Hello')
    const declined = await harness.compact()
    expect(declined).toMatchObject({ outcome: 'rejected', error: { message: 'not with [redacted]' } })
    answer = { summary: `all about ${secret}` }
    const made = await harness.compact()
    expect(made).toMatchObject({ outcome: 'completed' })
    expect(said(harness.messages()[0])).toContain('all about [redacted]')
    expect(await everything(log.file, events, [declined, made])).not.toContain(secret)
  })
})

test('the page of the format shows no key of a record that its schema does not have, and none is missing', () => {
  const page = readFileSync(new URL('../../../docs/session-format.md', import.meta.url), 'utf8')
  const types = [
    ...(['operation_started', 'task_attempt', 'task_failed', 'tool_started', 'message_queued'] as const),
    ...(['message_cancelled', 'abort_requested', 'usage', 'compaction_started', 'compaction_finished'] as const),
    'operation_finished' as const,
  ]
  for (const type of types) {
    const lines = page.split('\n').filter((line) => line.startsWith('{"kind":"record"') && line.includes(`"${type}"`))
    expect(lines.length, type).toBeGreaterThan(0)
    for (const line of lines) {
      const { kind, id, seq, ts, lane, type: _, ...payload } = JSON.parse(line)
      expect(readRecord({ kind, id, seq, ts, lane, type, ...payload }, type)).toEqual({ ok: true, payload })
    }
  }
})
