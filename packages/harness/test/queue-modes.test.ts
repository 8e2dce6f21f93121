import { createScriptedModel, type Model, type ModelRequest, type ScriptedTurn } from '@reve/providers/model'
import { openSession } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type HarnessOptions, pendingMessages } from '../src/index.ts'
import { checkProjection, newLog, recordsOf, type Rig, rig, said, tempFolder } from './support.ts'

const turns: readonly ScriptedTurn[] = ['one', 'two', 'three', 'four', 'five'].map((text) => ({ text }))
type Say = {
  readonly steer?: readonly string[]
  readonly followUp?: readonly string[]
  readonly nextRun?: readonly string[]
}

/** A run to which all of this is said while it waits for its first answer; `before` is called with the number of each request. */
async function play(
  say: Say,
  options: Partial<Omit<HarnessOptions, 'model'>> = {},
  before: (request: number, rig: Rig) => Promise<unknown> = () => Promise.resolve(),
  script = turns,
) {
  const requests: ModelRequest[] = []
  const inner = createScriptedModel({ turns: script })
  const log = await newLog()
  const model: Model = {
    ...inner,
    async *stream(request, given) {
      requests.push(request)
      if (requests.length === 1) {
        for (const text of say.nextRun ?? []) await made.harness.nextRun(text)
        for (const text of say.steer ?? []) await made.harness.steer(text)
        for (const text of say.followUp ?? []) await made.harness.followUp(text)
      }
      await before(requests.length, made)
      return yield* inner.stream(request, given)
    },
  }
  const made: Rig = rig(log, { ...options, model })
  const result = await made.harness.prompt('Go')
  checkProjection(made.harness.messages())
  return { ...made, result, talk: made.harness.messages().map(said), requests }
}

describe('steers', () => {
  test('all go in before the next request by default', async () => {
    const { talk, result } = await play({ steer: ['a', 'b', 'c'] })
    expect(talk).toEqual(['Go', 'one', 'a', 'b', 'c', 'two'])
    expect(result).toMatchObject({ outcome: 'completed', turns: 2, returned: [] })
  })

  test('one at a time: one before each request, in the order of their acceptance', async () => {
    const { talk, result, log } = await play({ steer: ['a', 'b', 'c'] }, { queue: { steer: 'one_at_a_time' } })
    expect(talk).toEqual(['Go', 'one', 'a', 'two', 'b', 'three', 'c', 'four'])
    expect(result).toMatchObject({ outcome: 'completed', turns: 4, returned: [] })
    const queued = recordsOf(log, 'message_queued').map(({ entryId }) => entryId)
    const path = log.path(log.leaf('main')).map(({ id }) => id)
    expect([path[2], path[4], path[6]]).toEqual(queued)
    expect(recordsOf(log, 'message_cancelled')).toEqual([])
  })
})

describe('follow-ups', () => {
  test('all go in at the first end by default', async () => {
    expect((await play({ followUp: ['a', 'b'] })).talk).toEqual(['Go', 'one', 'a', 'b', 'two'])
  })

  test('one at a time: one at each end', async () => {
    const { talk, result } = await play({ followUp: ['a', 'b'] }, { queue: { followUp: 'one_at_a_time' } })
    expect(talk).toEqual(['Go', 'one', 'a', 'two', 'b', 'three'])
    expect(result).toMatchObject({ outcome: 'completed', turns: 3, returned: [] })
  })

  test('go in after the last steer, each by its own mode', async () => {
    const say = { steer: ['s1', 's2'], followUp: ['f1', 'f2'] }
    const both = { steer: 'one_at_a_time', followUp: 'one_at_a_time' } as const
    expect((await play(say, { queue: both })).talk).toEqual([
      ...['Go', 'one', 's1', 'two', 's2', 'three', 'f1', 'four', 'f2', 'five'],
    ])
    expect((await play(say, { queue: { followUp: 'one_at_a_time' } })).talk).toEqual([
      ...['Go', 'one', 's1', 's2', 'two', 'f1', 'three', 'f2', 'four'],
    ])
    expect((await play(say, { queue: { steer: 'one_at_a_time' } })).talk).toEqual([
      ...['Go', 'one', 's1', 'two', 's2', 'three', 'f1', 'f2', 'four'],
    ])
  })
})

const oneByOne = { queue: { steer: 'one_at_a_time', followUp: 'one_at_a_time' } } as const

test('what waits for the next run goes in at once, whatever the mode', async () => {
  const { harness, talk } = await play({ nextRun: ['n1', 'n2'] }, oneByOne)
  expect(talk).toEqual(['Go', 'one'])
  await harness.prompt('On')
  expect(harness.messages().map(said)).toEqual(['Go', 'one', 'n1', 'n2', 'On', 'two'])
})

describe('what was not yet delivered', () => {
  const say = { steer: ['a', 'b', 'c'], followUp: ['d', 'e'], nextRun: ['n'] }

  test('is given back by an abort, in order, by record; what was delivered stays', async () => {
    let returned: readonly string[] = []
    const made = await play(say, oneByOne, async (request, { harness }) => {
      if (request === 2) returned = (await harness.abort()).returned.map(said)
    })
    expect(returned).toEqual(['b', 'c', 'd', 'e'])
    expect(made.result.returned.map(said)).toEqual(['b', 'c', 'd', 'e'])
    expect(made.talk).toEqual(['Go', 'one', 'a'])
    expect(recordsOf(made.log, 'message_cancelled')).toHaveLength(4)
    expect(made.harness.status()).toEqual({ state: 'idle', waiting: 1 })
  })

  test('is given back by a run that fails or reaches its limit', async () => {
    const failing = await play(say, oneByOne, () => Promise.resolve(), [{ text: 'one' }, { fail: { code: 'auth' } }])
    expect(failing.result).toMatchObject({ outcome: 'failed', reason: 'provider_error' })
    expect(failing.result.returned.map(said)).toEqual(['b', 'c', 'd', 'e'])
    const capped = await play(say, { ...oneByOne, limits: { maxTurns: 2 } })
    expect(capped.result).toMatchObject({ outcome: 'failed', reason: 'max_turns' })
    // The turn that is not asked for has taken its message: it is in the conversation.
    expect(capped.talk).toEqual(['Go', 'one', 'a', 'two', 'b'])
    expect(capped.result.returned.map(said)).toEqual(['c', 'd', 'e'])
    expect(capped.harness.status()).toEqual({ state: 'idle', waiting: 1 })
  })

  test('is given back by recovery, and what waits for the next run still waits', async () => {
    const file = join(await tempFolder(), 'dead.jsonl')
    await play(say, oneByOne, async (request, { log }) => {
      if (request === 3) await writeFile(file, await readFile(log.file))
    })
    await using log = await openSession(file)
    const { harness } = rig(log, { turns, ...oneByOne })
    const report = await harness.recover()
    expect(report.lanes.flatMap(({ returned }) => returned.map(said))).toEqual(['c', 'd', 'e'])
    expect(harness.messages().map(said)).toEqual(['Go', 'one', 'a', 'two', 'b'])
    expect(pendingMessages(log, 'main').map(({ message }) => said(message))).toEqual(['n'])
    expect(await harness.continue()).toMatchObject({ outcome: 'completed' })
    expect(harness.messages().map(said)).toEqual(['Go', 'one', 'a', 'two', 'b', 'n', 'three'])
    await harness.close()
  })
})

test('a message that is accepted later waits its turn behind the others', async () => {
  const { talk } = await play({ steer: ['a', 'b'] }, oneByOne, async (request, { harness }) => {
    if (request === 2) await harness.steer('late')
  })
  expect(talk).toEqual(['Go', 'one', 'a', 'two', 'b', 'three', 'late', 'four'])
})
