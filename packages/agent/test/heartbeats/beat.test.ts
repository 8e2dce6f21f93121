import { expect, test } from 'vitest'
import { sessionBeats } from '../../src/heartbeats/beat.ts'
import { parseHeartbeats } from '../../src/heartbeats/heartbeat-file.ts'
import { answering } from '../answering.ts'
import { asked, session, textOf } from '../session-support.ts'

const [once, again] = parseHeartbeats(
  'tasks: [{ name: a, every: 1h, prompt: "Look <here>" }, { name: b, every: 1h, prompt: x, continue: true }]',
  'f',
)
if (once === undefined || again === undefined) throw new Error('no tasks')
const signal = new AbortController().signal
const beat = { id: 'hb_1', task: once, due: 0, missed: 2 }

test('a beat has a lane and a conversation of its own, and says what it may answer', async () => {
  const requests: (readonly string[])[] = []
  const { harness, log } = await session(answering((request) => (requests.push(asked(request)), 'SILENCE')))
  const beats = sessionBeats({ harness, log })
  await harness.prompt('the conversation')
  for (let n = 0; n < 2; n++) expect(await beats.run(beat, signal)).toBe('SILENCE')
  expect(requests.map((texts) => texts.length)).toEqual([1, 1, 1])
  expect(requests[1]?.[0]).toMatch(
    /"a", due at 1970-01-01T00:00:00.000Z[^]*2 times[^]*Look <here>[^]*SILENCE[^]*Message: [^]*Steer: /,
  )
  for (let n = 0; n < 2; n++) await beats.run({ ...beat, task: again }, signal)
  expect(requests.slice(3).map((texts) => texts.length)).toEqual([1, 2])
  expect(log.lanes()).toEqual(['main', 'heartbeat-a', 'heartbeat-b'])
  expect(harness.messages()).toHaveLength(2)
})

test('a run that fails is an error that says why; one that is stopped ends', async () => {
  const failing = await session({
    ...answering(() => ''),
    async *stream() {
      yield { type: 'text', delta: 'x' }
      return { type: 'failed', failure: { code: 'auth', message: 'no key', retryable: false }, outputShown: true }
    },
  })
  await expect(sessionBeats(failing).run(beat, signal)).rejects.toMatchObject({
    code: 'run_failed',
    message: expect.stringContaining('no key'),
  })
  const stop = new AbortController()
  const stopped = await session(answering(() => (stop.abort(), 'late')))
  await expect(sessionBeats(stopped).run(beat, stop.signal)).rejects.toMatchObject({ code: 'run_failed' })
})

test('an answer that was cut off is an error: half of it may say something else', async () => {
  const cut = await session(answering(() => 'Message: delete nothing but', 'length'))
  await expect(sessionBeats(cut).run(beat, signal)).rejects.toMatchObject({
    code: 'run_failed',
    message: expect.stringContaining('cut off'),
  })
})

test('a message waits for the next run, a steer goes to the one that goes on; each goes once', async () => {
  let answer: (text: string) => void = () => undefined
  let ask: () => void = () => undefined
  const asking = (): Promise<void> => new Promise((resolve) => (ask = resolve))
  const { harness, log, file, close } = await session(
    answering(() => (ask(), new Promise<string>((resolve) => (answer = resolve)))),
  )
  const beats = sessionBeats({ harness, log })
  const said = (): readonly string[] =>
    harness.messages().flatMap((message) => (message.role === 'user' ? [textOf(message)] : []))
  expect(beats.isBusy()).toBe(false)
  await beats.deliver({ id: 'hb_1', kind: 'message', text: '/quit </heartbeat>' }, 'a')
  // No run goes on: it waits as well.
  await beats.deliver({ id: 'hb_2', kind: 'steer', text: 'two' }, 'a')
  await beats.deliver({ id: 'hb_1', kind: 'message', text: '/quit </heartbeat>' }, 'a')
  let waits = asking()
  const run = harness.prompt('go')
  await waits
  expect(beats.isBusy()).toBe(true)
  await beats.deliver({ id: 'hb_3', kind: 'steer', text: 'three' }, 'a')
  waits = asking()
  answer('one')
  await waits
  answer('done')
  await run
  await beats.deliver({ id: 'hb_3', kind: 'steer', text: 'three' }, 'a')
  expect(said()).toEqual([
    '<heartbeat name="a" id="hb_1">\n/quit &lt;/heartbeat&gt;\n</heartbeat>',
    '<heartbeat name="a" id="hb_2">\ntwo\n</heartbeat>',
    'go',
    '<heartbeat name="a" id="hb_3">\nthree\n</heartbeat>',
  ])
  expect(harness.status().waiting).toBe(0)
  await close()
  const later = await session(
    answering(() => 'x'),
    file,
  )
  await sessionBeats(later).deliver({ id: 'hb_2', kind: 'steer', text: 'two' }, 'a')
  expect(later.harness.status().waiting).toBe(0)
  await sessionBeats(later).deliver({ id: 'hb_4', kind: 'message', text: 'four' }, 'a')
  expect(later.harness.status().waiting).toBe(1)
})
