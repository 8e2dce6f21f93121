import { createScriptedModel, type Model } from '@reve/providers/model'
import { describe, expect, test } from 'vitest'
import type { Tool } from '../src/index.ts'
import {
  aborted,
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

const never = new Promise<never>(() => undefined)
const callEcho = { calls: [{ name: 'echo', arguments: { say: 'a' } }] }

describe('abort', () => {
  test('in a request: the partial text stays, without its calls, with a note', async () => {
    const log = await newLog()
    const next = createScriptedModel({ turns: [{}, { text: 'next' }] })
    const model: Model = {
      ...next,
      async *stream(request, options) {
        if (request.messages.length > 1) return yield* next.stream(request, options)
        yield { type: 'text', delta: 'one two' }
        await aborted(options.signal)
        const content = [
          { type: 'reasoning', text: 'hm' },
          { type: 'text', text: 'one two' },
          { type: 'toolCall', id: 'c', name: 'echo', malformed: '{"sa' },
        ] as const
        return { type: 'aborted', partial: { role: 'assistant', model: next.id, content, stopReason: 'aborted' } }
      },
    }
    const { harness, events } = rig(log, { model, tools: [echoTool()] })
    const stop = harness.subscribe((event) => {
      if (event.type === 'text') void harness.abort()
    })
    const result = await harness.prompt('Go')
    stop()
    expect(result).toMatchObject({ outcome: 'aborted', reason: 'abort_requested', returned: [] })
    expect(result.text).toBe('one two')
    const shown = trace(log)
    expect(shown.indexOf('abort_requested')).toBeLessThan(shown.indexOf('assistant'))
    expect(shown.at(-1)).toBe('operation_finished')
    const last = harness.messages().at(-1)
    expect(last).toMatchObject({ role: 'assistant', stopReason: 'aborted', content: [{ type: 'text' }] })
    expect(said(last)).toMatch(/^one two\n\n\[.*interrupted.*\]$/u)
    expect(events.filter(({ type }) => type === 'abort_requested')).toHaveLength(1)
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })
    expect(await harness.prompt('More')).toMatchObject({ outcome: 'completed' })
    checkProjection(harness.messages())
  })

  test('before any text: no answer is kept, and the run can be continued', async () => {
    const log = await newLog()
    const model = gatedModel(createScriptedModel({ turns: [{ text: 'ok' }] }), () => never)
    const { harness } = rig(log, { model })
    const run = harness.prompt('Go')
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted', text: '' })
    expect(trace(log)).not.toContain('assistant')
    const again = rig(await reopen(log), { turns: [{ text: 'ok' }] })
    expect(await again.harness.recover()).toEqual({ lanes: [] })
    expect(await again.harness.continue()).toMatchObject({ outcome: 'completed', text: 'ok' })
  })

  test('in a tool that heeds the signal: its own result stands, later calls were not started', async () => {
    const log = await newLog()
    const inside = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async (_, { signal }) => {
        inside.open()
        await aborted(signal)
        return { content: 'killed, exit 130' }
      },
    }
    const calls = [...callEcho.calls, { name: 'echo', arguments: { say: 'b' } }]
    const { harness } = rig(log, { turns: [{ calls }], tools: [tool] })
    const run = harness.prompt('Go')
    await inside.opened
    expect(recordsOf(log, 'abort_requested')).toHaveLength(0)
    await harness.abort()
    expect(recordsOf(log, 'abort_requested')).toHaveLength(1)
    expect(await run).toMatchObject({ outcome: 'aborted' })
    const [, , first, second] = harness.messages()
    expect(first).toMatchObject({ isError: false, content: [{ text: 'killed, exit 130' }] })
    expect(first).not.toHaveProperty('interrupted')
    expect(second).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('Not executed') }] })
    expect(recordsOf(log, 'tool_started')).toHaveLength(1)
    checkProjection(harness.messages())
  })

  test('in a tool that throws at the signal: outcome unknown', async () => {
    const log = await newLog()
    const inside = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async (_, { signal }) => {
        inside.open()
        await aborted(signal)
        throw new Error('torn away')
      },
    }
    const { harness } = rig(log, { turns: [callEcho], tools: [tool] })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    await run
    expect(harness.messages()[2]).toMatchObject({
      isError: true,
      interrupted: true,
      content: [{ text: expect.stringMatching(/torn away.*may or may not have happened/su) }],
    })
  })

  test('in a tool that hangs: after the grace period the promised result is written', async () => {
    const log = await newLog()
    const inside = gate()
    const late = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async (_, { progress }) => {
        inside.open()
        await late.opened
        progress('too late')
        return { content: 'too late' }
      },
    }
    const { harness, events } = rig(log, { turns: [callEcho], tools: [tool], limits: { abortGraceMs: 20 } })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    const result = harness.messages()[2]
    expect(result).toMatchObject({
      interrupted: true,
      content: [{ text: expect.stringContaining('may or may not have happened') }],
    })
    const lines = log.lines.length
    late.open()
    await new Promise((resolve) => setTimeout(resolve, 10))
    expect(log.lines).toHaveLength(lines)
    expect(events.some(({ type }) => type === 'tool_progress')).toBe(false)
    expect(recordsOf(log, 'tool_started')[0]).toMatchObject({ resultEntryId: log.path(log.leaf('main')).at(-1)?.id })
  })

  test('of a model that hangs', async () => {
    const log = await newLog()
    const model: Model = {
      ...createScriptedModel({ turns: [] }),
      async *stream() {
        yield { type: 'text', delta: 'half' }
        return never
      },
    }
    const { harness } = rig(log, { model, limits: { abortGraceMs: 20 } })
    harness.subscribe((event) => {
      if (event.type === 'text') void harness.abort()
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'aborted', text: 'half' })
    expect(said(harness.messages().at(-1))).toMatch(/^half\n/)
  })

  test('while the system prompt is being made', async () => {
    const log = await newLog()
    const { harness } = rig(log, { system: () => never, limits: { abortGraceMs: 5 } })
    const run = harness.prompt('Go')
    await harness.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(trace(log)).toEqual(['operation_started', 'user', 'abort_requested', 'operation_finished'])
  })

  test('in the wait before a retry ends at once', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ fail: { code: 'server', retryAfterMs: 50_000 } }] })
    harness.subscribe((event) => {
      if (event.type === 'retry') void harness.abort()
    })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'aborted' })
    expect(recordsOf(log, 'task_attempt')).toHaveLength(1)
  })

  test('is idempotent, and nothing on an idle lane', async () => {
    const log = await newLog()
    const { harness } = rig(log, { model: gatedModel(createScriptedModel({ turns: [] }), () => never) })
    expect(await harness.abort()).toEqual({ returned: [] })
    expect(log.lines).toEqual([])
    const run = harness.prompt('Go')
    await harness.steer('wait')
    const [first, second] = await Promise.all([harness.abort(), harness.abort()])
    expect(first).toEqual(second)
    expect(first.returned.map(said)).toEqual(['wait'])
    await run
    expect(await harness.abort()).toEqual({ returned: [] })
    expect(recordsOf(log, 'abort_requested')).toHaveLength(1)
  })

  test('by the signal of the prompt; the next run has a signal of its own', async () => {
    const log = await newLog()
    const stop = new AbortController()
    const inside = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async (_, { signal }) => {
        inside.open()
        await aborted(signal)
        return { content: 'x' }
      },
    }
    const { harness } = rig(log, { turns: [callEcho, { text: 'fresh' }], tools: [tool] })
    const run = harness.prompt('Go', { signal: stop.signal })
    await inside.opened
    stop.abort()
    expect(await run).toMatchObject({ outcome: 'aborted' })
    expect(await harness.prompt('More')).toMatchObject({ outcome: 'completed', text: 'fresh' })
    const lines = log.lines.length
    await expect(harness.prompt('Go', { signal: stop.signal })).rejects.toThrow('aborted')
    expect(log.lines).toHaveLength(lines)
  })

  test('close() aborts, waits for the promised result, and then refuses', async () => {
    const log = await newLog()
    const inside = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async (_, { signal }) => {
        inside.open()
        await aborted(signal)
        await new Promise((resolve) => setTimeout(resolve, 20))
        return { content: 'cleaned up' }
      },
    }
    const { harness } = rig(log, { turns: [callEcho], tools: [tool] })
    const run = harness.prompt('Go')
    await inside.opened
    await harness.close()
    expect(trace(log).slice(-2)).toEqual(['toolResult', 'operation_finished'])
    expect(await run).toMatchObject({ outcome: 'aborted' })
    await expect(harness.prompt('x')).rejects.toMatchObject({ code: 'closed' })
    await expect(harness.nextRun('x')).rejects.toMatchObject({ code: 'closed' })
  })
})

describe('abort against settle', () => {
  /** A tool whose result and an abort arrive in a chosen order. */
  const race = async (order: readonly ('result' | 'abort')[]) => {
    const log = await newLog()
    const inside = gate()
    const done = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async () => {
        inside.open()
        await done.opened
        return { content: 'it is done' }
      },
    }
    const { harness } = rig(log, { turns: [callEcho, { text: 'seen' }], tools: [tool] })
    const run = harness.prompt('Go')
    await inside.opened
    const acts = { result: () => Promise.resolve(done.open()), abort: () => harness.abort() }
    await Promise.all(order.map((what) => acts[what]()))
    const result = await run
    checkProjection(harness.messages())
    // Whoever comes first: the tool did finish, and its result says so.
    expect(harness.messages()[2]).toMatchObject({ isError: false, content: [{ text: 'it is done' }] })
    expect(result.outcome).toBe('aborted')
    const again = rig(await reopen(log))
    expect(await again.harness.recover()).toEqual({ lanes: [] })
  }

  test('the abort first', () => race(['abort', 'result']))
  test('the result first', () => race(['result', 'abort']))

  test('an abort while the end is being written: the run has completed, nothing follows its end', async () => {
    const log = await newLog()
    const { harness } = rig(log, { turns: [{ text: 'done', usage: { output: 1 } }] })
    let late: ReturnType<typeof harness.abort> | undefined
    // The last event before the end: the decision is made a few microtasks later.
    harness.subscribe((event) => {
      if (event.type === 'usage')
        void (async () => {
          for (let n = 0; n < 50 && harness.status().state === 'running'; n++) await Promise.resolve()
          late = harness.abort()
        })()
    })
    const result = await harness.prompt('Go')
    await late
    expect(trace(log).at(-1)).toBe('operation_finished')
    expect(result.outcome).toBe(recordsOf(log, 'abort_requested').length > 0 ? 'aborted' : 'completed')
    const again = rig(await reopen(log))
    expect(await again.harness.recover()).toEqual({ lanes: [] })
  })

  test('an abort between the intent and the effect: the effect is not begun, and its result says so', async () => {
    let atIntent = (): void => undefined
    const openFile = watchedFile((_, bytes) => {
      if (Buffer.from(bytes).includes('"tool_started"')) atIntent()
    })
    const log = await newLog({ openFile })
    const echo = echoTool()
    const { harness } = rig(log, { turns: [callEcho], tools: [echo] })
    let abort: Promise<unknown> = Promise.resolve()
    atIntent = () => void (abort = harness.abort())
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'aborted' })
    await abort
    expect(echo.runs).toEqual([])
    expect(recordsOf(log, 'tool_started')).toHaveLength(1)
    expect(said(harness.messages()[2])).toContain('Not executed')
  })

  test('an abort at every microtask of a run never breaks the log', async () => {
    const outcomes = new Set<string>()
    for (let at = 0; at < 600 && !outcomes.has('completed'); at += 3) {
      const log = await newLog({ openFile: watchedFile(() => undefined) })
      const { harness } = rig(log, { turns: [callEcho, { text: 'seen' }], tools: [echoTool()] })
      const run = harness.prompt('Go')
      await drift(at)
      await harness.abort()
      const { outcome } = await run
      expect(trace(log).filter((line) => line === 'operation_finished')).toHaveLength(1)
      expect(trace(log).at(-1)).toBe('operation_finished')
      expect(outcome).toBe(recordsOf(log, 'abort_requested').length > 0 ? 'aborted' : 'completed')
      checkProjection(harness.messages())
      const again = rig(await reopen(log))
      expect(await again.harness.recover()).toEqual({ lanes: [] })
      outcomes.add(outcome)
    }
    expect([...outcomes]).toEqual(['aborted', 'completed'])
  })
})
