import { createScriptedModel, type Model } from '@reve/providers/model'
import { createSession, openSession, type SessionLog } from '@reve/session-log'
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type Harness, HarnessError, pendingMessages, type Tool } from '../src/index.ts'
import { type Act, checkRace, checkReread, course, type Done, type Moment, moments, perform } from './races-course.ts'
import {
  aborted,
  checkProjection,
  drift,
  echoTool,
  gate,
  newLog,
  recordsOf,
  rig,
  said,
  tempFolder,
  watchedFile,
} from './support.ts'

/*
 * Races, in every order. A run with one tool and one retry goes past a list of moments. At one of them, or so many turns
 * of the event loop later, something else is done to it; the run must come to its end, and what is left must add up.
 */

/** So many microtasks later; from 100 on, so many hundred turns of the event loop and the microtasks of each. */
async function later(turns: number): Promise<void> {
  for (let n = 0; n < turns % 100; n++) await Promise.resolve()
  await drift(3 * Math.floor(turns / 100))
}
const soon = [0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 100, 400]

/** Where to: each moment, and those of the last answer. */
const places: readonly (readonly [Moment, number])[] = [
  ...moments.map((moment) => [moment, 1] as const),
  ['in the request', 3],
  ['task_attempt', 3],
  ['assistant', 2],
]

/** All fates of an act, over all moments and offsets. */
async function everywhere(act: Act, offsets: readonly number[]): Promise<ReadonlySet<string>> {
  const seen = new Set<string>()
  let { log, harness, run } = await course()
  for (const [moment, nth] of places) {
    for (const turns of offsets) {
      const lane = `${moment} ${nth} ${turns}`
      try {
        let fate: Promise<Done> | undefined
        const begin = (): void => {
          fate = turns === 0 ? perform(act, harness, lane) : later(turns).then(() => perform(act, harness, lane))
        }
        const race = await run(lane, moment, begin, nth)
        const done = await fate
        if (done === undefined) throw new Error('it was not reached')
        await checkRace(log, harness, act, race, done)
        seen.add(done.type === 'refused' ? done.code : done.type)
      } catch (error) {
        if (error instanceof Error) error.message = `${act}, ${turns} turns after "${moment}" ${nth}: ${error.message}`
        throw error
      }
      if (act !== 'close') continue
      await checkReread(log)
      ;({ log, harness, run } = await course())
    }
  }
  await checkReread(log)
  return seen
}

describe('in both orders', () => {
  const whole = ['Go', 'I call.', 'its result', 'Done.']
  const between = ['Go', 'I call.', 'its result', 'Psst!', 'Done.']
  const after = [...whole, 'Psst!', 'More.']
  const notRun = ['Go', 'I call.', 'not executed']

  /** The conversation in short. */
  const talk = (harness: Harness, lane: string): readonly string[] =>
    harness.messages(lane).map((message) => {
      const text = said(message)
      return text.startsWith('really ') ? 'its result' : text.startsWith('Not executed') ? 'not executed' : text
    })

  test.each<readonly [Act, Moment, number, string, readonly string[]]>([
    // A steer against the settling of a request, of a tool, of a failure: nothing about them changes.
    ['steer', 'in the request', 1, 'accepted', between],
    ['steer', 'assistant', 1, 'accepted', between],
    ['steer', 'in the tool', 1, 'accepted', between],
    ['steer', 'toolResult', 1, 'accepted', between],
    ['steer', 'in the sleep', 1, 'accepted', between],
    ['steer', 'task_attempt', 2, 'accepted', between],
    // Against the end.
    ['steer', 'assistant', 2, 'accepted', after],
    ['steer', 'operation_finished', 1, 'lane_idle', whole],
    ['followUp', 'in the tool', 1, 'accepted', after],
    ['followUp', 'assistant', 2, 'accepted', after],
    ['followUp', 'operation_finished', 1, 'lane_idle', whole],
    // An abort against the settling of a request and of a tool: what they really gave stands.
    ['abort', 'in the request', 2, 'aborted', notRun],
    ['abort', 'assistant', 1, 'aborted', notRun],
    ['abort', 'tool_started', 1, 'aborted', notRun],
    ['abort', 'in the tool', 1, 'aborted', whole.slice(0, 3)],
    ['abort', 'toolResult', 1, 'aborted', whole.slice(0, 3)],
    // Against the wait before a retry, and its end.
    ['abort', 'task_failed', 1, 'aborted', ['Go']],
    ['abort', 'in the sleep', 1, 'aborted', ['Go']],
    ['abort', 'task_attempt', 2, 'aborted', ['Go']],
    // Against the end, and the beginning.
    ['abort', 'operation_started', 1, 'aborted', ['Go']],
    ['abort', 'assistant', 2, 'aborted', whole],
    ['abort', 'operation_finished', 1, 'aborted', whole],
    ['abort twice', 'in the tool', 1, 'aborted', whole.slice(0, 3)],
    ['abort twice', 'operation_finished', 1, 'aborted', whole],
    // A second prompt.
    ['prompt', 'operation_started', 1, 'lane_busy', whole],
    ['prompt', 'in the tool', 1, 'lane_busy', whole],
    ['prompt', 'operation_finished', 1, 'lane_busy', whole],
    ['nextRun', 'operation_started', 1, 'accepted', whole],
    ['nextRun', 'operation_finished', 1, 'accepted', whole],
    ['recover', 'operation_started', 1, 'done', whole],
    ['recover', 'in the tool', 1, 'done', whole],
    ['recover', 'operation_finished', 1, 'done', whole],
  ])('%s at "%s" (time %i): %s', async (act, moment, nth, expected, conversation) => {
    const { log, harness, run } = await course()
    let fate: Promise<Done> | undefined
    const race = await run('main', moment, () => void (fate = perform(act, harness, 'main')), nth)
    const done = await fate
    if (done === undefined) throw new Error('it was not reached')
    expect(done.type === 'refused' ? done.code : done.type).toBe(expected)
    expect(talk(harness, 'main')).toEqual(conversation)
    const late = moment === 'operation_finished'
    expect(race.result.outcome).toBe(act.startsWith('abort') && !late ? 'aborted' : 'completed')
    expect(pendingMessages(log, 'main')).toHaveLength(act === 'nextRun' ? 1 : 0)
    await checkRace(log, harness, act, race, done)
    await checkReread(log)
  })

  test('an abort after the sleep of a retry: the attempt is recorded, and not made', async () => {
    const asked: Moment[] = []
    const { log, harness, run } = await course((moment) => asked.push(moment))
    await run('main', 'task_attempt', () => void harness.abort(), 2)
    expect(recordsOf(log, 'task_attempt').map(({ attempt }) => attempt)).toEqual([1, 2])
    expect(asked.filter((moment) => moment === 'in the request')).toHaveLength(1)
  })

  test('a message for the next run against a prompt', async () => {
    const { log, harness } = await course()
    const before = harness.nextRun('before')
    const run = harness.prompt('Go')
    const behind = harness.nextRun('behind')
    const steer = harness.steer('Psst!')
    await Promise.all([before, run, behind, steer])
    expect(talk(harness, 'main')).toEqual(['before', 'Go', 'Psst!', 'I call.', 'its result', 'Done.'])
    expect(harness.status()).toEqual({ state: 'idle', waiting: 1 })
    await harness.prompt('And now?')
    expect(talk(harness, 'main').slice(-3)).toEqual(['behind', 'And now?', 'More.'])
    await checkReread(log)
  })

  test('two prompts in one breath: the second is refused, and nothing of it is written', async () => {
    const { log, harness } = await course()
    const [first, second, third] = await Promise.allSettled([
      harness.prompt('Go'),
      harness.prompt('Psst!'),
      harness.continue(),
    ])
    expect(first).toMatchObject({ value: { outcome: 'completed' } })
    expect(second).toMatchObject({ reason: { code: 'lane_busy' } })
    expect(third).toMatchObject({ reason: { code: 'lane_busy' } })
    expect(JSON.stringify(log.lines)).not.toContain('Psst!')
    await checkReread(log)
  })

  test('the signal of a run that is over does nothing to the next', async () => {
    const { log, harness, run } = await course()
    const stop = new AbortController()
    await harness.prompt('Go', { signal: stop.signal })
    const { result } = await run('main', 'in the request', () => stop.abort())
    expect(result).toMatchObject({ outcome: 'completed' })
    expect(recordsOf(log, 'abort_requested')).toEqual([])
  })

  test('close against close, and against whatever begins in the same breath', async () => {
    const { log, harness } = await course()
    const run = harness.prompt('Go')
    const steer = harness.steer('Psst!')
    const closes = [harness.close(), harness.close()]
    const late = await Promise.allSettled([
      harness.prompt('Late!', { lane: 'other' }),
      harness.steer('Late!'),
      harness.nextRun('Late!'),
      harness.continue(),
      harness.recover(),
    ])
    expect(late).toMatchObject(late.map(() => ({ status: 'rejected', reason: { code: 'closed' } })))
    expect((await harness.abort()).returned.map(said)).toEqual(['Psst!'])
    await Promise.all(closes)
    await steer
    expect(await run).toMatchObject({ outcome: 'aborted', returned: [{ content: [{ text: 'Psst!' }] }] })
    expect(JSON.stringify(log.lines)).not.toContain('Late!')
    await checkReread(log)
  })
})

/** Sixty messages of every delivery, in bursts, while a run goes by. */
test('messages from many callers go in by the order in which they were accepted', async () => {
  for (let offset = 0; offset < 12; offset++) {
    const { log, harness } = await course()
    const run = harness.prompt('Go')
    const sent: Promise<unknown>[] = []
    for (let n = 0; n < 20; n++) {
      await drift(offset)
      const sends = [harness.steer(`steer ${n}`), harness.followUp(`follow up ${n}`), harness.nextRun(`next ${n}`)]
      sent.push(...sends.map((send) => send.catch(perhapsIdle)))
    }
    await Promise.all([run, ...sent])
    await harness.prompt('And now?')
    const queued = recordsOf(log, 'message_queued')
    for (const delivery of ['steer', 'follow_up', 'next_run']) {
      const ids = queued.filter((line) => line['delivery'] === delivery).map(({ entryId }) => entryId)
      expect(log.path(log.leaf('main')).flatMap(({ id }) => (ids.includes(id) ? [id] : []))).toEqual(ids)
    }
    expect(pendingMessages(log, 'main')).toEqual([])
    expect(recordsOf(log, 'message_cancelled')).toEqual([])
    checkProjection(harness.messages())
    await checkReread(log)
  }
})

function perhapsIdle(error: unknown): void {
  if (!(error instanceof HarnessError) || error.code !== 'lane_idle') throw error
}

describe('at every moment of a run, and in each of many turns of the event loop after it', () => {
  test.each([
    ['steer', ['accepted', 'lane_idle']],
    ['followUp', ['accepted', 'lane_idle']],
    ['nextRun', ['accepted']],
    ['abort', ['aborted']],
    ['abort twice', ['aborted']],
    ['steer and abort', ['aborted']],
    ['prompt', ['lane_busy', 'ran']],
    ['continue', ['lane_busy', 'nothing_to_continue']],
    ['recover', ['done']],
    ['close', ['done']],
  ] as const)('%s: %o', async (act, fates) => {
    expect([...(await everywhere(act, act === 'close' ? [0, 2, 7, 100] : soon))].toSorted()).toEqual(fates)
  })
})

describe('against a recovery', () => {
  /** A session that a process left in the middle of two runs, each inside of its tool, one of them `safe`. */
  async function deadSession(): Promise<SessionLog> {
    const folder = await tempFolder()
    await using log = await createSession(join(folder, 'dying.jsonl'), { cwd: 'workspace' })
    const inside = [gate(), gate()]
    const tool = (name: string, replay: Tool['replay']): Tool => ({
      ...echoTool(replay, name),
      run: async (_, { signal }) => {
        inside.pop()?.open()
        await aborted(signal)
        return { content: '' }
      },
    })
    const reached = inside.map(({ opened }) => opened)
    const turns = (name: string) => [{ text: 'I call.', calls: [{ name, arguments: { say: 'a' } }] }]
    const models = new Map([
      ['safe', createScriptedModel({ turns: turns('safe') })],
      ['never', createScriptedModel({ turns: turns('never') })],
    ])
    const { harness } = rig(log, {
      model: {
        ...createScriptedModel({ turns: [] }),
        stream: (request, options) =>
          (models.get(said(request.messages[0])) ?? createScriptedModel({ turns: [] })).stream(request, options),
      },
      tools: [tool('safe', 'safe'), tool('never', 'never')],
    })
    const runs = [harness.prompt('safe'), harness.prompt('never', { lane: 'other' })]
    await Promise.all(reached)
    await harness.steer('left')
    const file = join(folder, 'dead.jsonl')
    await copyFile(log.file, file)
    await harness.close()
    await Promise.all(runs)
    const dead = await openSession(file, { openFile: watchedFile(() => undefined) })
    onTestFinished(() => dead.close())
    return dead
  }

  /**
   * A harness on such a session, or on a new one, whose replay stands inside of its tool until `done` is opened. A prompt
   * "defect" ends in one, with a safe call in flight.
   */
  async function recovering(
    parts: {
      readonly log?: SessionLog
      readonly asked?: (said: string) => Promise<void>
      readonly hold?: () => Promise<void>
    } = {},
  ) {
    const log = parts.log ?? (await deadSession())
    const inside = gate()
    const done = gate()
    let defects = 0
    const safe: Tool = {
      ...echoTool('safe', 'safe'),
      run: async ({ say }) => {
        if (say === 'defect' && defects++ === 0) return { content: 'a defect' }
        inside.open()
        await done.opened
        return { content: 'really' }
      },
    }
    const hold: Tool = {
      ...echoTool('never', 'hold'),
      run: async () => {
        await parts.hold?.()
        return { content: 'really' }
      },
    }
    const script = (name: string) =>
      createScriptedModel({
        turns: [
          { text: 'I call.', calls: [{ name, arguments: { say: 'defect' } }] },
          { text: 'Done.' },
          { text: 'More.' },
        ],
      })
    const [holding, defective] = [script('hold'), script('safe')]
    const model: Model = {
      ...holding,
      async *stream(request, options) {
        const first = said(request.messages[0])
        await parts.asked?.(first)
        return yield* (first === 'defect' ? defective : holding).stream(request, options)
      },
    }
    const redact = (text: string): string => {
      if (text.includes('a defect')) throw new Error(text)
      return text
    }
    const { harness } = rig(log, { model, tools: [safe, echoTool('never', 'never'), hold], redact })
    return { log, harness, inside, done }
  }

  async function checkRecovered(log: SessionLog, harness: Harness): Promise<void> {
    expect(await harness.recover()).toEqual({ lanes: [] })
    expect(recordsOf(log, 'operation_finished')).toHaveLength(recordsOf(log, 'operation_started').length)
    for (const lane of log.lanes()) checkProjection(harness.messages(lane))
    await checkReread(log)
  }

  const codeOf = (promise: Promise<unknown>): Promise<string> =>
    promise.then(
      () => 'done',
      (error: unknown) => {
        if (error instanceof HarnessError) return error.code
        throw error
      },
    )

  test.each(['prompt first', 'recovery first'])('a prompt: %s', async (order) => {
    const { log, harness, inside, done } = await recovering()
    const prompts = () => ['main', 'other'].map((lane) => codeOf(harness.prompt('Psst!', { lane })))
    const early = order === 'prompt first' ? prompts() : []
    const recovery = harness.recover()
    const late = prompts()
    await inside.opened
    const inReplay = prompts()
    done.open()
    for (const code of await Promise.all([...early, ...late, ...inReplay])) expect(code).toBe('needs_recovery')
    expect((await recovery).lanes).toHaveLength(2)
    expect(JSON.stringify(log.lines)).not.toContain('Psst!')
    expect(await harness.prompt('Go on')).toMatchObject({ outcome: 'completed' })
    expect(await harness.continue({ lane: 'other' })).toMatchObject({ outcome: 'completed' })
    await checkRecovered(log, harness)
  })

  test('a prompt, a steer and a message for the next run, in each of many turns of the event loop', async () => {
    const seen = new Set<string>()
    const last = 40
    for (let turns = 0; turns <= last; turns++) {
      const { log, harness, done } = await recovering()
      done.open()
      const recovery = harness.recover()
      await (turns === last ? recovery : drift(turns))
      const waiting = harness.nextRun('and bread')
      const steer = codeOf(harness.steer('left here'))
      const prompt = codeOf(harness.prompt('Psst!'))
      seen.add(await prompt)
      expect(await steer).toBe('lane_idle')
      const { entryId } = await waiting
      const { lanes } = await recovery
      expect(lanes.flatMap(({ returned }) => returned.map(said))).toEqual(['left'])
      expect(harness.status()).toEqual({ state: 'idle', waiting: (await prompt) === 'done' ? 0 : 1 })
      if ((await prompt) !== 'done') await harness.prompt('Go on')
      expect(log.entry(entryId)).toBeDefined()
      expect(pendingMessages(log, 'main')).toEqual([])
      await checkRecovered(log, harness)
    }
    expect([...seen].toSorted()).toEqual(['done', 'needs_recovery'])
  })

  test.each(['abort first', 'result first'])('an abort against the settling of a replay: %s', async (order) => {
    const { log, harness, inside, done } = await recovering()
    const recovery = harness.recover()
    await inside.opened
    if (order === 'result first') done.open()
    const abort = harness.abort()
    done.open()
    await Promise.all([abort, recovery])
    expect(harness.messages()[2]).toMatchObject({ isError: false, content: [{ text: 'really' }] })
    await checkRecovered(log, harness)
  })

  test.each(['close first', 'result first'])('a close against the settling of a replay: %s', async (order) => {
    const { log, harness, inside, done } = await recovering()
    const recovery = harness.recover()
    await inside.opened
    if (order === 'result first') done.open()
    const close = harness.close()
    done.open()
    await Promise.all([close, recovery])
    await expect(harness.recover()).rejects.toMatchObject({ code: 'closed' })
    expect(harness.messages()[2]).toMatchObject({ isError: false, content: [{ text: 'really' }] })
    await checkReread(log)
  })

  test.each(
    ['in its request', 'in its tool'].flatMap((where) => ['before', 'after'].map((when) => [where, when] as const)),
  )(
    'a run of this process that ends during the recovery of another lane, %s when that began, and began itself %s the dead one',
    async (where, when) => {
      const held = gate()
      const letGo = gate()
      const hold = async (): Promise<void> => {
        held.open()
        await letGo.opened
      }
      const { log, harness, inside, done } = await recovering({
        ...(when === 'before' && { log: await newLog() }),
        asked: (first) => (first === 'Go' && where === 'in its request' ? hold() : Promise.resolve()),
        ...(where === 'in its tool' && { hold }),
      })
      const run = harness.prompt('Go', { lane: 'side' })
      await held.opened
      if (when === 'before') await expect(harness.prompt('defect')).rejects.toThrow('a defect')
      const recovery = harness.recover()
      await inside.opened
      letGo.open()
      expect(await run).toMatchObject({ outcome: 'completed' })
      done.open()
      const { lanes } = await recovery
      expect(lanes.map(({ lane }) => lane).toSorted()).toEqual(when === 'before' ? ['main'] : ['main', 'other'])
      expect(harness.messages('side')).toHaveLength(4)
      expect(harness.messages('side')[2]).toMatchObject({ isError: false, content: [{ text: 'really' }] })
      await checkRecovered(log, harness)
    },
  )
})
