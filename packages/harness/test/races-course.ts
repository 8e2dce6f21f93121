import { createScriptedModel, type Model, type UserMessage } from '@reve/providers/model'
import { type Line, openSession, type SessionLog } from '@reve/session-log'
import { readFile } from 'node:fs/promises'
import { expect, onTestFinished } from 'vitest'
import { type Harness, HarnessError, pendingMessages, type RunResult, type Tool } from '../src/index.ts'
import { asText } from './as-text.ts'
import { aborted, checkProjection, newLog, recordsOf, rig, said, shape, watchedFile } from './support.ts'

/** Inside of an effect, before it ends; or the bytes of a line are on disk, and nobody knows yet. */
export const moments = [
  'in the request',
  'in the sleep',
  'in the tool',
  'operation_started',
  'task_attempt',
  'task_failed',
  'assistant',
  'tool_started',
  'toolResult',
  'operation_finished',
] as const
export type Moment = (typeof moments)[number]

/** What came of an act. */
export type Done =
  | { readonly type: 'accepted'; readonly entryId: string }
  | { readonly type: 'aborted'; readonly returned: readonly UserMessage[] }
  | { readonly type: 'ran'; readonly result: RunResult }
  | { readonly type: 'done' }
  | { readonly type: 'refused'; readonly code: string }

const accepted = async (promise: Promise<{ readonly entryId: string }>): Promise<Done> => ({
  type: 'accepted',
  entryId: (await promise).entryId,
})

/** What can be done to a run. */
export type Act =
  | 'steer'
  | 'followUp'
  | 'nextRun'
  | 'abort'
  | 'abort twice'
  | 'steer and abort'
  | 'prompt'
  | 'continue'
  | 'recover'
  | 'close'

async function actOn(harness: Harness, lane: string, act: Act): Promise<Done> {
  switch (act) {
    case 'steer':
      return accepted(harness.steer('Psst!', { lane }))
    case 'followUp':
      return accepted(harness.followUp('Psst!', { lane }))
    case 'nextRun':
      return accepted(harness.nextRun('Psst!', { lane }))
    case 'abort':
      return { type: 'aborted', ...(await harness.abort({ lane })) }
    case 'abort twice': {
      const [first, second] = await Promise.all([harness.abort({ lane }), harness.abort({ lane })])
      expect(second).toEqual(first)
      return { type: 'aborted', ...first }
    }
    case 'steer and abort': {
      const steer = harness.steer('Psst!', { lane }).catch((error: unknown) => error)
      const { returned } = await harness.abort({ lane })
      // What was accepted before an abort is in its hands.
      if (!((await steer) instanceof HarnessError)) expect(returned.map(said)).toEqual(['Psst!'])
      return { type: 'aborted', returned }
    }
    case 'prompt':
      return { type: 'ran', result: await harness.prompt('Psst!', { lane }) }
    case 'continue':
      return { type: 'ran', result: await harness.continue({ lane }) }
    case 'recover':
      expect(await harness.recover()).toEqual({ lanes: [] })
      return { type: 'done' }
    case 'close':
      await harness.close()
      return { type: 'done' }
    default:
      return act satisfies never
  }
}

/** Does it; a typed refusal is one of its ends. */
export async function perform(act: Act, harness: Harness, lane: string): Promise<Done> {
  try {
    return await actOn(harness, lane, act)
  } catch (error) {
    if (error instanceof HarnessError) return { type: 'refused', code: error.code }
    throw error
  }
}

export type Race = {
  readonly lane: string
  readonly result: RunResult
  /** The keys that the tool ran under. */
  readonly ran: readonly string[]
}

/** A session on which races are run, each on a lane of its own. */
export async function course(watch: (moment: Moment) => void = () => undefined) {
  let now:
    | {
        readonly lane: string
        readonly moment: Moment
        readonly ran: string[]
        left: number
        readonly act: () => void
      }
    | undefined
  const reached = (moment: Moment): void => {
    watch(moment)
    if (moment !== now?.moment) return
    now.left--
    if (now.left === 0) now.act()
  }
  const log = await newLog({
    openFile: watchedFile((_, bytes) => {
      for (const text of Buffer.from(bytes).toString().split('\n').slice(0, -1)) {
        const line: Line = JSON.parse(text)
        for (const moment of moments) if (line.lane === now?.lane && moment === shape(line)) reached(moment)
      }
    }),
  })
  const tool: Tool = {
    name: 'tool',
    description: 'gives its key',
    parameters: { type: 'object' },
    replay: 'never',
    run: (_, { idempotencyKey }) => {
      now?.ran.push(idempotencyKey)
      reached('in the tool')
      return Promise.resolve({ content: `really ${idempotencyKey}` })
    },
  }
  const turns = [
    { text: 'I call.', calls: [{ name: 'tool' }], fail: { times: 1 } },
    { text: 'Done.', usage: { output: 1 } },
    ...Array.from({ length: 80 }, () => ({ text: 'More.' })),
  ]
  const { harness } = rig(log, {
    // Each run has one that fails once; it gives its answer whatever its signal says.
    model: () => deafModel(createScriptedModel({ turns }), () => reached('in the request')),
    tools: [tool],
    effects: {
      sleep: (ms, signal) => {
        // The long one is the wait for what does not heed an abort: all that is here does end.
        if (ms > 1000) return aborted(signal)
        reached('in the sleep')
        return Promise.resolve()
      },
      random: () => 0,
    },
  })

  /** A run that calls `act` when it comes to the moment for the first time, or the `nth`. */
  async function run(lane: string, moment: Moment, act: () => void, nth = 1): Promise<Race> {
    const ran: string[] = []
    now = { lane, moment, ran, left: nth, act }
    const result = await harness.prompt('Go', { lane })
    return { lane, result, ran }
  }
  return { log, harness, run }
}

function deafModel(inner: Model, asked: () => void): Model {
  return {
    ...inner,
    async *stream(request) {
      asked()
      return yield* inner.stream(request, { signal: new AbortController().signal })
    },
  }
}

/** What holds of every order. */
export async function checkRace(log: SessionLog, harness: Harness, act: Act, race: Race, done: Done): Promise<void> {
  const { lane, result, ran } = race
  const returned = result.returned.map(said)
  // The run gives back what its abort gave back; an abort that came too late has nothing.
  if (done.type === 'aborted') expect(done.returned).toEqual(result.returned)
  // Nobody is left waiting, and the lane takes its next run.
  const closed = act === 'close'
  if (closed) await expect(harness.prompt('And now?', { lane })).rejects.toMatchObject({ code: 'closed' })
  else expect(await harness.prompt('And now?', { lane })).toMatchObject({ outcome: 'completed' })

  const records = (type: string) => recordsOf(log, type).filter((line) => line.lane === lane)
  const finished = records('operation_finished')
  expect(new Set(finished.map(({ runId }) => runId)).size).toBe(finished.length)
  expect(finished).toHaveLength(records('operation_started').length)
  expect(log.lines.findLast((line) => line.lane === lane)).toMatchObject({ type: 'operation_finished' })
  const asked = records('abort_requested')
  expect(asked.length).toBeLessThanOrEqual(1)
  expect(result.outcome).toBe(asked.some(({ runId }) => runId === result.runId) ? 'aborted' : 'completed')
  expect(finished[0]).toMatchObject({ runId: result.runId, outcome: result.outcome })
  if (!act.includes('abort') && !closed) expect(asked).toEqual([])

  // What the tool gave is its result, word for word; what did not run is not said to have run.
  expect(ran.length).toBeLessThanOrEqual(1)
  for (const { resultEntryId } of records('tool_started')) {
    const key = asText(resultEntryId)
    expect(log.entry(key)?.['message']).toMatchObject(
      ran.includes(key)
        ? { isError: false, content: [{ text: `really ${key}` }] }
        : { isError: true, content: [{ text: expect.stringContaining('Not executed') }] },
    )
  }
  const messages = harness.messages(lane)
  for (const message of messages)
    if (message.role === 'assistant') expect(message.stopReason).toBe(said(message) === 'I call.' ? 'toolUse' : 'stop')
  checkProjection(messages)

  // The message went in, or came back: once. One that was refused left no trace.
  const delivered = messages.filter((message) => message.role === 'user' && said(message) === 'Psst!').length
  const waiting = pendingMessages(log, lane).length
  const back = returned.filter((text) => text === 'Psst!').length
  expect(records('message_cancelled')).toHaveLength(back)
  if (result.outcome === 'completed') expect(returned).toEqual([])
  switch (done.type) {
    case 'accepted':
      expect([delivered, waiting, back].toSorted((a, b) => a - b)).toEqual([0, 0, 1])
      if (delivered === 1) expect(log.entry(done.entryId)?.['message']).toMatchObject({ content: [{ text: 'Psst!' }] })
      if (!closed) expect(waiting).toBe(0)
      break
    case 'refused':
      expect([delivered, waiting, back]).toEqual([0, 0, 0])
      expect(JSON.stringify(log.lines.filter((line) => line.lane === lane))).not.toContain('Psst!')
      break
    case 'ran':
      expect(done.result.outcome).toBe('completed')
      expect([delivered, waiting, back]).toEqual([act === 'prompt' ? 1 : 0, 0, 0])
      break
    case 'aborted':
    case 'done':
      expect([delivered, waiting]).toEqual([0, 0])
      break
    default:
      done satisfies never
  }
}

/** The file says what memory says, and a next process finds nothing to do. */
export async function checkReread(log: SessionLog): Promise<void> {
  const { lines } = log
  await log.close()
  const bytes = await readFile(log.file)
  const again = await openSession(log.file)
  onTestFinished(() => again.close())
  expect(again.lines).toEqual(lines)
  expect(await rig(again).harness.recover()).toEqual({ lanes: [] })
  await again.close()
  expect(bytes.equals(await readFile(log.file))).toBe(true)
}
