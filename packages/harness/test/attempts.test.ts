import { createScriptedModel, type Model, type ScriptedTurn } from '@reve/providers/model'
import { openSession, type SessionLog } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { HarnessOptions } from '../src/index.ts'
import { echoTool, newLog, recordsOf, rig, tempFolder } from './support.ts'

const turns: readonly ScriptedTurn[] = [
  { calls: [{ name: 'echo', arguments: { say: 'a' } }] },
  { text: 'two' },
  { text: 'three' },
]
const options = { effects: { sleep: () => Promise.resolve() }, tools: [echoTool('safe')] }
const attemptsOf = (log: SessionLog, runId?: string) =>
  recordsOf(log, 'task_attempt').flatMap((line) =>
    runId === undefined || line['runId'] === runId ? [[line['step'], line['attempt']]] : [],
  )

/** A model in whose request `number` the process dies: what is on disk then is what the next process finds. */
function deadly(log: SessionLog, number: number, inner = createScriptedModel({ turns })) {
  let count = 0
  let bytes: Buffer | undefined
  const model: Model = {
    ...inner,
    async *stream(request, given) {
      if (++count === number) bytes = await readFile(log.file)
      return yield* inner.stream(request, given)
    },
  }
  const next = async (): Promise<SessionLog> => {
    if (bytes === undefined) throw new Error('it did not die')
    const file = join(await tempFolder(), 'dead.jsonl')
    await writeFile(file, bytes)
    const again = await openSession(file)
    onTestFinished(() => again.close())
    return again
  }
  return { model, next }
}

/** Dies in a request, as often as wanted, each time in the first request of the continued run. */
async function diedTimes(times: number, more: Partial<HarnessOptions> = {}): Promise<SessionLog> {
  let log = await newLog()
  for (let n = 0; n < times; n++) {
    const { model, next } = deadly(log, 1)
    const { harness } = rig(log, { ...options, ...more, model })
    await harness.recover()
    await (n === 0 ? harness.prompt('Go') : harness.continue())
    log = await next()
  }
  return log
}

describe('an attempt that died with its process', () => {
  test('counts when its run is continued: the numbers rise, in the answer that it was for', async () => {
    const log = await diedTimes(1)
    const { harness } = rig(log, { ...options, turns })
    expect(await harness.recover()).toMatchObject({ lanes: [{ canContinue: true }] })
    const result = await harness.continue()
    expect(result).toMatchObject({ outcome: 'completed', text: 'two' })
    expect(attemptsOf(log, result.runId)).toEqual([
      [1, 2],
      [2, 1],
    ])
  })

  test('again and again: then the run fails, says why, and asks nobody; a person may insist', async () => {
    for (const times of [1, 2, 3]) {
      const log = await diedTimes(times)
      expect(attemptsOf(log)).toEqual(Array.from({ length: times }, (_, index) => [1, index + 1]))
    }
    const log = await diedTimes(3)
    const { harness } = rig(log, { ...options, turns })
    await harness.recover()
    const result = await harness.continue()
    expect(result).toMatchObject({
      outcome: 'failed',
      reason: 'retries_exhausted',
      error: { code: 'interrupted', message: expect.stringMatching(/tried 3 times/) },
    })
    expect(attemptsOf(log)).toHaveLength(3)
    expect(recordsOf(log, 'operation_finished').at(-1)).toMatchObject({
      outcome: 'failed',
      reason: 'retries_exhausted',
    })
    const insisted = await harness.continue()
    expect(insisted).toMatchObject({ outcome: 'completed', text: 'two' })
    expect(attemptsOf(log, insisted.runId)).toEqual([
      [1, 1],
      [2, 1],
    ])
  })

  test('in the wait after a failure counts, and so do the failed ones before it', async () => {
    const log = await newLog()
    let bytes = Buffer.alloc(0)
    const sleep = async (): Promise<void> => void (bytes = await readFile(log.file))
    const failing: readonly ScriptedTurn[] = [{ text: 'x', fail: { times: 2 } }]
    await rig(log, { turns: failing, effects: { sleep } }).harness.prompt('Go')
    const file = join(await tempFolder(), 'dead.jsonl')
    await writeFile(file, bytes)
    await using again = await openSession(file)
    const { harness } = rig(again, { ...options, turns: [{ fail: {} }] })
    await harness.recover()
    const result = await harness.continue()
    // The limit holds over both processes.
    expect(result).toMatchObject({ outcome: 'failed', reason: 'retries_exhausted', error: { code: 'server' } })
    expect(attemptsOf(again)).toEqual([
      [1, 1],
      [1, 2],
      [1, 3],
    ])
  })

  test('leaves the others of the limit: two of five', async () => {
    const log = await diedTimes(2)
    const { harness } = rig(log, { ...options, turns: [{ fail: {} }], limits: { retries: { attempts: 5 } } })
    await harness.recover()
    const result = await harness.continue()
    expect(result).toMatchObject({ reason: 'retries_exhausted' })
    expect(attemptsOf(log, result.runId)).toEqual([
      [1, 3],
      [1, 4],
      [1, 5],
    ])
  })
})

describe('it does not count', () => {
  /** The first attempt of what comes after. */
  const firstAfter = async (
    log: SessionLog,
    then: (harness: ReturnType<typeof rig>['harness']) => Promise<{ runId: string }>,
  ) => {
    const { harness } = rig(log, { ...options, turns })
    await harness.recover()
    const { runId } = await then(harness)
    return attemptsOf(log, runId)[0]
  }

  test('for a new prompt', async () => {
    expect(await firstAfter(await diedTimes(1), (harness) => harness.prompt('Something else'))).toEqual([1, 1])
  })

  test('when its answer is there: the process died later', async () => {
    const log = await newLog()
    let bytes = Buffer.alloc(0)
    const dying = {
      ...echoTool('safe'),
      run: async () => {
        bytes = await readFile(log.file)
        return { content: 'x' }
      },
    }
    await rig(log, { turns, tools: [dying] }).harness.prompt('Go')
    const file = join(await tempFolder(), 'dead.jsonl')
    await writeFile(file, bytes)
    await using again = await openSession(file)
    expect(await firstAfter(again, (harness) => harness.continue())).toEqual([1, 1])
  })

  test('when somebody had asked to stop', async () => {
    const log = await newLog()
    const { model, next } = deadly(log, 1)
    const aborting: Model = {
      ...model,
      async *stream(request, given) {
        await harness.abort()
        return yield* model.stream(request, given)
      },
    }
    const { harness } = rig(log, { ...options, model: aborting })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'aborted' })
    const again = await next()
    expect(recordsOf(again, 'abort_requested')).toHaveLength(1)
    expect(recordsOf(again, 'operation_finished')).toHaveLength(0)
    expect(await firstAfter(again, (harness) => harness.continue())).toEqual([1, 1])
  })

  test('after an end that was no death', async () => {
    const log = await newLog()
    const { harness } = rig(log, { ...options, turns: [{ text: 'x', fail: { times: 3 } }] })
    expect(await harness.prompt('Go')).toMatchObject({ outcome: 'failed', reason: 'retries_exhausted' })
    const { runId } = await harness.continue()
    expect(attemptsOf(log, runId)).toEqual([[1, 1]])
  })

  test('for an answer somewhere else in the conversation', async () => {
    const log = await newLog()
    await rig(log, { ...options, turns: [{ text: 'one' }] }).harness.prompt('first')
    const question = log.path(log.leaf('main'))[0]?.id ?? null
    const { model, next } = deadly(log, 1)
    await rig(log, { ...options, model }).harness.prompt('second')
    const again = await next()
    const run = (harness: ReturnType<typeof rig>['harness']) =>
      harness.navigate(question).then(() => harness.continue())
    expect(await firstAfter(again, run)).toEqual([1, 1])
  })
})
