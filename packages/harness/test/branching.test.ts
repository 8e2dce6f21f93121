import { createScriptedModel, type Model, type ModelRequest, type ScriptedTurn } from '@reve/providers/model'
import { openSession, readSession, type SessionLog } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { reduce, type Tool } from '../src/index.ts'
import {
  checkProjection,
  echoTool,
  gate,
  gatedModel,
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

const five: readonly ScriptedTurn[] = ['one', 'two', 'three', 'four', 'five'].map((text) => ({ text }))
const idsOf = (log: SessionLog, lane = 'main') => log.path(log.leaf(lane)).map(({ id }) => id)

/** A conversation of two prompts, its entries, and what the model was asked. */
async function talk(log?: SessionLog, tools: readonly Tool[] = []) {
  const requests: ModelRequest[] = []
  const inner = createScriptedModel({ turns: five })
  const model: Model = {
    ...inner,
    stream: (request, options) => {
      requests.push(request)
      return inner.stream(request, options)
    },
  }
  const made = rig(log ?? (await newLog()), { model, tools })
  await made.harness.prompt('first')
  await made.harness.prompt('second')
  requests.length = 0
  const entries = made.log.path(made.log.leaf('main'))
  const at = (index: number): string => entries[index]?.id ?? ''
  return { ...made, requests, at }
}

/** The same file without its records. */
async function withoutRecords(log: SessionLog) {
  const lines = (await readFile(log.file, 'utf8')).split(/(?<=\n)/)
  const file = join(await tempFolder(), 'entries.jsonl')
  await writeFile(file, lines.filter((line) => !line.includes('"kind":"record"')).join(''))
  return readSession(file)
}

/** The file after each line that is written from now on. */
function watched() {
  let bytes = Buffer.alloc(0)
  const states: Buffer[] = []
  let on = false
  const openFile = watchedFile((what, written) => {
    if (what !== 'write' || !on) return
    for (const line of Buffer.from(written)
      .toString()
      .split(/(?<=\n)/)) {
      bytes = Buffer.concat([bytes, Buffer.from(line)])
      states.push(bytes)
    }
  })
  const start = async (log: SessionLog): Promise<void> => {
    bytes = await readFile(log.file)
    on = true
  }
  return { openFile, states, start }
}

async function opened(bytes: Buffer): Promise<SessionLog> {
  const file = join(await tempFolder(), 'dead.jsonl')
  await writeFile(file, bytes)
  const log = await openSession(file)
  onTestFinished(() => log.close())
  return log
}

describe('a prompt from an earlier entry', () => {
  test('makes a branch: the old one stays whole, the lane goes on at the new one', async () => {
    const { harness, log, requests, at } = await talk()
    const old = idsOf(log)
    expect(await harness.prompt('another', { from: at(1) })).toMatchObject({ outcome: 'completed', text: 'two' })
    expect(requests.map(({ messages }) => messages.map(said))).toEqual([['first', 'one', 'another']])
    expect(harness.messages().map(said)).toEqual(['first', 'one', 'another', 'two'])
    expect(log.path(at(3)).map(({ id }) => id)).toEqual(old)
    expect(log.children(at(1)).map(({ id }) => id)).toEqual([at(2), idsOf(log)[2]])
    expect(recordsOf(log, 'operation_started').at(-1)).toMatchObject({ sourceLeafId: at(1) })
    // The next prompt follows it, here and in the next process.
    await harness.prompt('more')
    expect(harness.messages().map(said).slice(2)).toEqual(['another', 'two', 'more', 'three'])
    const messages = harness.messages()
    const path = idsOf(log)
    const bare = await withoutRecords(log)
    expect(bare.records()).toEqual([])
    expect(bare.path(bare.leaf('main')).map(({ id }) => id)).toEqual(path)
    const again = rig(await reopen(log), { turns: five })
    expect(again.harness.messages()).toEqual(messages)
    // And back to the old branch.
    expect(await again.harness.prompt('back', { from: at(3) })).toMatchObject({ text: 'three' })
    expect(again.harness.messages().map(said)).toEqual(['first', 'one', 'second', 'two', 'back', 'three'])
  })

  test('from null begins an empty conversation', async () => {
    const { harness, log, at } = await talk()
    expect(await harness.prompt('anew', { from: null })).toMatchObject({ text: 'one' })
    expect(harness.messages().map(said)).toEqual(['anew', 'one'])
    expect(log.children(null).map(({ id }) => id)).toEqual([at(0), idsOf(log)[0]])
    const bare = await withoutRecords(log)
    expect(bare.path(bare.leaf('main'))).toHaveLength(2)
  })

  test('in a lane that is new: both go on by themselves', async () => {
    const { harness, log, at } = await talk()
    const main = idsOf(log)
    expect(await harness.prompt('aside', { lane: 'side', from: at(1) })).toMatchObject({ text: 'two' })
    expect(idsOf(log)).toEqual(main)
    expect(harness.messages('side').map(said)).toEqual(['first', 'one', 'aside', 'two'])
    await Promise.all([harness.prompt('third'), harness.prompt('aside again', { lane: 'side' })])
    expect(harness.messages().map(said).slice(4)).toEqual(['third', 'three'])
    expect(harness.messages('side').map(said).slice(4)).toEqual(['aside again', 'three'])
    const bare = await withoutRecords(log)
    for (const lane of ['main', 'side']) {
      expect(bare.path(bare.leaf(lane)).map(({ id }) => id)).toEqual(idsOf(log, lane))
    }
  })

  test('in the middle of a turn: a call whose result is on the other branch has one that is made up', async () => {
    const log = await newLog()
    const turns = [{ calls: [{ name: 'echo', arguments: { say: 'a' } }] }, { text: 'ok' }, { text: 'fine' }]
    const { harness } = rig(log, { turns, tools: [echoTool()] })
    await harness.prompt('Go')
    const answer = idsOf(log)[1]
    expect(await harness.prompt('never mind', { from: answer ?? null })).toMatchObject({ text: 'ok' })
    checkProjection(harness.messages())
    expect(harness.messages().map(({ role }) => role)).toEqual(['user', 'assistant', 'toolResult', 'user', 'assistant'])
    expect(harness.messages()[2]).toMatchObject({ interrupted: true })
  })

  test('what waited for the next run comes along, in front of the prompt', async () => {
    const { harness, log, at } = await talk()
    await harness.nextRun('by the way')
    await harness.prompt('another', { from: at(1) })
    expect(harness.messages().map(said)).toEqual(['first', 'one', 'by the way', 'another', 'two'])
    expect(harness.status()).toMatchObject({ waiting: 0 })
    const bare = await withoutRecords(log)
    expect(bare.path(bare.leaf('main'))).toHaveLength(5)
  })

  test('that is not there, or is no entry: refused, nothing written', async () => {
    const { harness, log } = await talk()
    const record = log.records()[0]?.id ?? ''
    const before = await readFile(log.file)
    for (const from of ['e_gone', '', record]) {
      await expect(harness.prompt('x', { from })).rejects.toMatchObject({ name: 'HarnessError', code: 'unknown_entry' })
      await expect(harness.prompt('x', { from, lane: 'new' })).rejects.toMatchObject({ code: 'unknown_entry' })
      await expect(harness.navigate(from)).rejects.toMatchObject({ name: 'HarnessError', code: 'unknown_entry' })
    }
    expect(await readFile(log.file)).toEqual(before)
    expect(harness.status()).toEqual({ state: 'idle', waiting: 0 })
    expect(log.lanes()).toEqual(['main'])
  })

  test('a death after any line: the branch has its prompt, and begins where it should', async () => {
    const { openFile, states, start } = watched()
    const { harness, log, at } = await talk(await newLog({ openFile }))
    await harness.nextRun('by the way')
    await start(log)
    await harness.prompt('another', { from: at(1) })
    const whole = harness.messages()
    expect(states.length).toBeGreaterThan(5)
    for (const state of states) {
      const again = rig(await opened(state), { turns: five })
      await again.harness.recover()
      expect(again.harness.messages().map(said).slice(0, 4)).toEqual(['first', 'one', 'by the way', 'another'])
      if (again.harness.messages().at(-1)?.role === 'user') await again.harness.continue()
      expect(again.harness.messages()).toEqual(whole)
      expect(again.log.path(at(3))).toHaveLength(4)
      const bare = await withoutRecords(again.log)
      expect(bare.path(bare.leaf('main')).map(({ id }) => id)).toEqual(idsOf(again.log))
    }
  })
})

describe('navigate', () => {
  test('moves the lane, durably, in one append; what is said next branches off there', async () => {
    const writes: string[][] = []
    let synced = 0
    const openFile = watchedFile((what, bytes) => {
      if (what === 'sync') synced++
      else
        writes.push(
          Buffer.from(bytes)
            .toString()
            .split('\n')
            .slice(0, -1)
            .map((line) => shape(JSON.parse(line))),
        )
    })
    const { harness, log, events, at } = await talk(await newLog({ openFile }))
    const before = synced
    expect(await harness.navigate(at(1))).toBeUndefined()
    expect(writes.at(-1)).toEqual(['operation_started', 'lane_leaf_set', 'operation_finished'])
    expect(synced).toBe(before + 1)
    expect(events.at(-1)).toMatchObject({ type: 'navigated', lane: 'main', leafId: at(1) })
    expect(harness.status()).toEqual({ state: 'idle', waiting: 0 })
    expect(harness.messages().map(said)).toEqual(['first', 'one'])
    const again = rig(await reopen(log), { turns: five })
    expect(await again.harness.recover()).toEqual({ lanes: [] })
    expect(again.harness.messages().map(said)).toEqual(['first', 'one'])
    expect(await again.harness.prompt('another')).toMatchObject({ text: 'two' })
    expect(again.log.children(at(1))).toHaveLength(2)
  })

  test('to nothing, and to where it is', async () => {
    const { harness, log, at } = await talk()
    await harness.navigate(at(3))
    expect(harness.messages()).toHaveLength(4)
    await harness.navigate(null)
    expect(harness.messages()).toEqual([])
    await expect(harness.continue()).rejects.toMatchObject({ code: 'nothing_to_continue' })
    await harness.prompt('anew')
    expect(log.children(null)).toHaveLength(2)
  })

  test('to a question: it can be answered again', async () => {
    const { harness, log, at } = await talk()
    await harness.navigate(at(2))
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'two' })
    expect(log.children(at(2))).toHaveLength(2)
  })

  test('of another lane, to an entry of this one', async () => {
    const { harness, log, at } = await talk()
    await harness.navigate(at(1), { lane: 'side' })
    expect(log.leaf('side')).toBe(at(1))
    expect(log.leaf('main')).toBe(at(3))
    expect(await harness.prompt('aside', { lane: 'side' })).toMatchObject({ text: 'two' })
  })

  test('while the lane has a run: refused, nothing written; another lane is free', async () => {
    const log = await newLog()
    const inside = gate()
    const on = gate()
    const { harness } = rig(log, {
      model: gatedModel(createScriptedModel({ turns: five }), () => on.opened, inside.open),
    })
    const run = harness.prompt('Go')
    await inside.opened
    const lines = log.lines.length
    await expect(harness.navigate(null)).rejects.toMatchObject({ code: 'lane_busy' })
    await expect(harness.prompt('x', { from: null })).rejects.toMatchObject({ code: 'lane_busy' })
    expect(log.lines).toHaveLength(lines)
    await harness.navigate(idsOf(log)[0] ?? null, { lane: 'side' })
    on.open()
    expect(await run).toMatchObject({ outcome: 'completed' })
    expect(harness.messages('side').map(said)).toEqual(['Go'])
  })

  test('two at once, and one against a prompt: one after the other, or refused', async () => {
    const { harness, log, at } = await talk()
    const ends = await Promise.allSettled([harness.navigate(at(1)), harness.navigate(at(0)), harness.prompt('x')])
    expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected'])
    expect(ends.slice(1)).toMatchObject([{ reason: { code: 'lane_busy' } }, { reason: { code: 'lane_busy' } }])
    expect(log.leaf('main')).toBe(at(1))
  })

  test('of a lane that is none: a typed refusal, nothing written, and nothing left to recover', async () => {
    const { harness, log } = await talk()
    const before = await readFile(log.file)
    await expect(harness.navigate(null, { lane: '' })).rejects.toMatchObject({
      name: 'HarnessError',
      code: 'invalid_message',
    })
    expect(await readFile(log.file)).toEqual(before)
    expect(harness.status('')).toEqual({ state: 'idle', waiting: 0 })
  })

  test('a death after any of its lines: recovery completes it, twice is once', async () => {
    const { openFile, states, start } = watched()
    const { harness, log, at } = await talk(await newLog({ openFile }))
    await start(log)
    await harness.navigate(at(1))
    expect(states).toHaveLength(3)
    for (const [index, state] of states.entries()) {
      const dead = await opened(state)
      const again = rig(dead, { turns: five })
      if (index < 2) {
        await expect(again.harness.prompt('x')).rejects.toMatchObject({ code: 'needs_recovery' })
        await expect(again.harness.navigate(null)).rejects.toMatchObject({ code: 'needs_recovery' })
      }
      expect(await again.harness.recover()).toMatchObject({
        lanes: index < 2 ? [{ lane: 'main', operation: 'navigation', outcome: 'completed', canContinue: false }] : [],
      })
      expect(dead.leaf('main')).toBe(at(1))
      expect(trace(dead).slice(-3)).toEqual(['operation_started', 'lane_leaf_set', 'operation_finished'])
      expect(reduce(dead, () => 'safe')).toEqual({ type: 'plan', operations: [] })
      expect(await again.harness.recover()).toEqual({ lanes: [] })
      const bytes = await readFile(dead.file)
      const third = rig(await reopen(dead), { turns: five })
      expect(await third.harness.recover()).toEqual({ lanes: [] })
      expect(await readFile(dead.file)).toEqual(bytes)
      expect(third.harness.messages().map(said)).toEqual(['first', 'one'])
      expect(await third.harness.prompt('another')).toMatchObject({ outcome: 'completed', text: 'two' })
    }
  })

  test('that recovery completes is told as any other is', async () => {
    const { openFile, states, start } = watched()
    const { harness, log, at } = await talk(await newLog({ openFile }))
    await start(log)
    await harness.navigate(at(1))
    const again = rig(await opened(states[0] ?? Buffer.alloc(0)))
    await again.harness.recover()
    expect(again.events.filter(({ type }) => type === 'navigated')).toMatchObject([{ lane: 'main', leafId: at(1) }])
  })
})
