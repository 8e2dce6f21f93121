import { createScriptedModel, type Model, type ModelRequest, type ScriptedTurn } from '@reve/providers/model'
import { openSession } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { HarnessOptions, RunOptions, Tool } from '../src/index.ts'
import { checkProjection, echoTool, newLog, recordsOf, rig, said, tempFolder } from './support.ts'

/** A scripted model that keeps what it was asked. */
function listening(turns: readonly ScriptedTurn[], id = 'scripted/script') {
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

const names = ({ tools }: ModelRequest) => tools.map(({ name }) => name)
const call = (name: string): ScriptedTurn => ({ calls: [{ name, arguments: { say: 'a' } }] })

async function world(turns: readonly ScriptedTurn[], options: Partial<Omit<HarnessOptions, 'model'>> = {}) {
  const { model, requests } = listening(turns)
  const log = await newLog()
  return { ...rig(log, { system: 'S', tools: [echoTool()], ...options, model }), requests }
}

describe('one run may have', () => {
  test('another model: its answers bear its name, and reasoning stays with the model that wrote it', async () => {
    const { harness, requests } = await world([
      { reasoning: 'MULLED OVER', text: 'one' },
      { text: 'x' },
      { text: 'three' },
    ])
    const other = listening([{ text: 'y' }, { reasoning: 'SEEN THROUGH', text: 'two' }], 'scripted/other')
    await harness.prompt('a')
    expect(await harness.prompt('b', { model: other.model })).toMatchObject({ text: 'two' })
    expect(await harness.prompt('c')).toMatchObject({ text: 'three' })
    expect(harness.messages().flatMap((message) => (message.role === 'assistant' ? [message.model] : []))).toEqual([
      'scripted/script',
      'scripted/other',
      'scripted/script',
    ])
    expect(JSON.stringify(other.requests)).not.toContain('MULLED OVER')
    expect(JSON.stringify(requests.at(-1))).toContain('MULLED OVER')
    expect(JSON.stringify(requests.at(-1))).not.toContain('SEEN THROUGH')
    checkProjection(harness.messages(), 'scripted/script')
  })

  test('other tools: those are offered, and only those run', async () => {
    const shout = echoTool('never', 'shout')
    const own = echoTool()
    const { harness, requests } = await world([call('shout'), call('echo'), { text: 'ok' }, { text: 'next' }], {
      tools: [own],
    })
    expect(await harness.prompt('a', { tools: [shout] })).toMatchObject({ outcome: 'completed' })
    await harness.prompt('b')
    expect(requests.map(names)).toEqual([['shout'], ['shout'], ['shout'], ['echo']])
    expect(shout.runs).toHaveLength(1)
    expect(own.runs).toEqual([])
    expect(said(harness.messages()[4])).toMatch(/no tool "echo".*shout/)
  })

  test('no tools at all, and an empty system prompt', async () => {
    const { harness, requests } = await world([{ text: 'one' }])
    await harness.prompt('a', { tools: [], system: '' })
    expect(requests).toMatchObject([{ system: '', tools: [] }])
  })

  test('another system prompt: the own one is not even made, and hooks see the other', async () => {
    let made = 0
    const seen: string[] = []
    const { harness, requests } = await world([{ text: 'one' }, { text: 'two' }], {
      system: () => `S${++made}`,
      hooks: [{ beforeRun: ({ system }) => void seen.push(system) }],
    })
    await harness.prompt('a', { system: 'Other.' })
    expect(made).toBe(0)
    await harness.prompt('b')
    expect(requests.map(({ system }) => system)).toEqual(['Other.', 'S1'])
    expect(seen).toEqual(['Other.', 'S1'])
  })

  test('another limit of turns, higher or lower', async () => {
    const turns = Array.from({ length: 9 }, () => call('echo'))
    const loop = { stopAfter: 0 }
    const { harness } = await world(turns, { limits: { maxTurns: 3, loop } })
    expect(await harness.prompt('a', { maxTurns: 1 })).toMatchObject({
      outcome: 'failed',
      reason: 'max_turns',
      turns: 1,
    })
    expect(await harness.continue({ maxTurns: 4 })).toMatchObject({ reason: 'max_turns', turns: 4 })
    expect(await harness.continue()).toMatchObject({ reason: 'max_turns', turns: 3 })
  })
})

test('a run that continues takes them as well', async () => {
  const { harness, requests } = await world([{ fail: { code: 'auth' } }])
  expect(await harness.prompt('a')).toMatchObject({ outcome: 'failed', reason: 'provider_error' })
  const other = listening([call('shout'), { text: 'ok' }], 'scripted/other')
  const options: RunOptions = { model: other.model, tools: [echoTool('never', 'shout')], system: 'Other.' }
  expect(await harness.continue(options)).toMatchObject({ outcome: 'completed', text: 'ok' })
  expect(other.requests.map((request) => [request.system, names(request)])).toEqual([
    ['Other.', ['shout']],
    ['Other.', ['shout']],
  ])
  expect(requests).toHaveLength(1)
})

test('two lanes at once, each with its own', async () => {
  const { harness, requests } = await world([{ text: 'mine' }])
  const other = listening([{ text: 'theirs' }], 'scripted/other')
  const [a, b] = await Promise.all([
    harness.prompt('a'),
    harness.prompt('b', { lane: 'side', model: other.model, system: 'Other.', tools: [] }),
  ])
  expect([a.text, b.text]).toEqual(['mine', 'theirs'])
  expect(requests.map((request) => [request.system, names(request)])).toEqual([['S', ['echo']]])
  expect(other.requests.map((request) => [request.system, names(request)])).toEqual([['Other.', []]])
})

test('sub-agents have what the harness has, not what the run had', async () => {
  const inner = listening([{ text: 'plain' }])
  const log = await newLog()
  const { harness } = rig(log, { model: inner.model, system: 'S', tools: [echoTool()] })
  const ask: Tool = {
    ...echoTool(),
    name: 'ask',
    run: async (_, { subagent }) => ({ content: (await subagent('What?')).text }),
  }
  const model = createScriptedModel({ id: 'scripted/other', turns: [call('ask'), { text: 'ok' }] })
  expect(await harness.prompt('a', { model, tools: [ask], system: 'Other.' })).toMatchObject({ text: 'ok' })
  expect(inner.requests.map((request) => [request.system, names(request)])).toEqual([['S', ['echo']]])
  expect(said(harness.messages()[2])).toBe('plain')
})

test('what cannot be is refused before anything is written', async () => {
  const { harness, log } = await world([{ text: 'x' }])
  for (const tools of [[echoTool(), echoTool()], [echoTool('safe', '')]]) {
    await expect(harness.prompt('a', { tools })).rejects.toMatchObject({ name: 'HarnessError', code: 'invalid_tools' })
  }
  expect(log.lines).toEqual([])
  expect(harness.status()).toEqual({ state: 'idle', waiting: 0 })
})

test('they die with the process: recovery knows the own tools only', async () => {
  const file = join(await tempFolder(), 'dead.jsonl')
  const log = await newLog()
  const shout: Tool = {
    ...echoTool('safe', 'shout'),
    run: async () => {
      await writeFile(file, await readFile(log.file))
      return { content: 'x' }
    },
  }
  const turns = [call('shout'), { text: 'ok' }]
  await rig(log, { turns }).harness.prompt('a', { tools: [shout] })
  await using again = await openSession(file)
  const { harness } = rig(again, { turns })
  expect(await harness.recover()).toMatchObject({ lanes: [{ unknown: [{ toolName: 'shout' }], replayed: [] }] })
  expect(said(harness.messages().at(-1))).toMatch(/no longer exists/)
  expect(recordsOf(again, 'operation_finished')).toHaveLength(1)
  expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'ok' })
})
