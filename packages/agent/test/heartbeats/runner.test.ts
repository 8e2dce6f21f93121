import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tryAcquireLock } from '@reve/base'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { BeatMessage } from '../../src/heartbeats/plan.ts'
import { type Beat, type HeartbeatEvent, startHeartbeats } from '../../src/heartbeats/runner.ts'
import { type FakeClock, fakeClock } from '../fake-clock.ts'

const minute = 60_000
const hour = 60 * minute
const start = Date.parse('2026-03-01T12:00:00Z')

/** An agent's folder, a clock, and what was run, said and told; `begin` is one life of the process. */
function world(file: string | undefined) {
  const root = mkdtempSync(join(tmpdir(), 'heartbeats-'))
  const workspace = join(root, 'workspace')
  const stateFile = join(root, '.reve/heartbeats.json')
  mkdirSync(workspace)
  const path = join(workspace, 'HEARTBEAT.yml')
  const write = (text: string): void => writeFileSync(path, text)
  if (file !== undefined) write(file)
  const beats: Beat[] = []
  const said: BeatMessage[] = []
  const events: HeartbeatEvent[] = []
  const conduct: {
    busy: boolean
    answer: (beat: Beat, signal: AbortSignal) => Promise<string>
    deliver: (message: BeatMessage) => Promise<void>
  } = { busy: false, answer: async () => 'SILENCE', deliver: async (message) => void said.push(message) }
  let ids = 0
  const begin = async (clock: FakeClock) => {
    const heartbeats = startHeartbeats({
      workspace,
      stateFile,
      now: clock.now,
      after: clock.after,
      newId: () => `hb_${++ids}`,
      isBusy: () => conduct.busy,
      run: async (beat, signal) => {
        beats.push(beat)
        return conduct.answer(beat, signal)
      },
      deliver: async (message) => conduct.deliver(message),
      onEvent: (event) => events.push(event),
    })
    onTestFinished(() => heartbeats.close())
    await clock.asleep()
    return heartbeats
  }
  const told = (type: HeartbeatEvent['type']) => events.filter((event) => event.type === type)
  const problems = () => events.flatMap((event) => (event.type === 'problem' ? [event.message] : []))
  const names = () => beats.map(({ task }) => task.name)
  return { root, path, stateFile, write, beats, said, events, conduct, begin, told, problems, names }
}

const task = (name: string, every: string): string => `- { name: ${name}, every: ${every}, prompt: Look }\n`
const one = `tasks:\n${task('a', '1h')}`

describe('heartbeats', () => {
  test('come when they are due, after it is on the disk that they do', async () => {
    const { stateFile, conduct, begin, beats, events } = world(one)
    const clock = fakeClock(start)
    let kept: unknown
    conduct.answer = async () => {
      kept = JSON.parse(readFileSync(stateFile, 'utf8'))
      return 'SILENCE'
    }
    const heartbeats = await begin(clock)
    expect(statSync(stateFile).mode & 0o777).toBe(0o600)
    await clock.advance(hour - 1)
    expect(beats).toEqual([])
    await clock.advance(1)
    expect(beats).toMatchObject([{ id: 'hb_1', due: start + hour, missed: 0 }])
    expect(kept).toMatchObject({ version: 1, tasks: [{ name: 'a', next: start + 2 * hour, attempt: { id: 'hb_1' } }] })
    await clock.advance(hour)
    expect(beats).toHaveLength(2)
    expect(heartbeats.status()).toMatchObject([
      { task: { name: 'a' }, next: start + 3 * hour, past: [{ outcome: 'silence' }, { outcome: 'silence' }] },
    ])
    expect(events.map(({ type }) => type)).toEqual(['loaded', 'started', 'finished', 'started', 'finished'])
  })

  test('after downtime come once each, one after the other', async () => {
    const { begin, beats, names } = world(`tasks:\n${task('a', '1h')}${task('b', '10m')}`)
    const first = fakeClock(start)
    await (await begin(first)).close()
    await begin(fakeClock(start + 1000 * hour + minute))
    expect(names()).toEqual(['b', 'a'])
    expect(beats.map(({ missed }) => missed)).toEqual([1000, 999])
  })

  test('wait for a busy agent, and are one then', async () => {
    const { conduct, begin, beats, told } = world(one)
    const clock = fakeClock(start)
    await begin(clock)
    conduct.busy = true
    for (let n = 0; n < 5; n++) await clock.advance(hour)
    expect([beats, told('deferred')]).toEqual([[], [{ type: 'deferred', task: 'a' }]])
    conduct.busy = false
    await clock.advance(minute)
    expect(beats).toMatchObject([{ due: start + hour, missed: 4 }])
    await clock.advance(59 * minute)
    expect(beats).toHaveLength(2)
  })

  test('hand on what was said, word for word; anything else is an error that reaches nobody', async () => {
    const { conduct, begin, said, told } = world(one)
    const clock = fakeClock(start)
    await begin(clock)
    const answers = ['Message: Red.', 'Steer: Stop.', 'SILENCE', 'All is well. SILENCE']
    conduct.answer = async () => {
      const answer = answers.shift()
      if (answer === undefined) throw new Error('no model')
      return answer
    }
    for (let n = 0; n < 5; n++) await clock.advance(hour)
    expect(said).toEqual([
      { id: 'hb_1', kind: 'message', text: 'Red.' },
      { id: 'hb_2', kind: 'steer', text: 'Stop.' },
    ])
    expect(told('finished')).toMatchObject([
      { beat: { outcome: 'message' } },
      { beat: { outcome: 'steer' } },
      { beat: { outcome: 'silence' } },
      { beat: { outcome: 'error', detail: expect.stringContaining('none of SILENCE') } },
      { beat: { outcome: 'error', detail: 'no model' } },
    ])
  })

  test('are stopped when they take too long, or when the process ends', async () => {
    const { conduct, begin, told } = world('tasks: [{ name: a, every: 1h, prompt: x, timeout: 2m }]')
    const clock = fakeClock(start)
    const heartbeats = await begin(clock)
    let running: (() => void) | undefined
    conduct.answer = (_beat, signal) => {
      running?.()
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('stopped'))))
    }
    const nextRun = () => new Promise<void>((resolve) => (running = resolve))
    let ran = nextRun()
    let over = clock.advance(hour)
    await ran
    await Promise.all([over, clock.advance(2 * minute)])
    expect(told('finished')).toMatchObject([{ beat: { outcome: 'timeout', detail: 'it took more than 2 min' } }])
    ran = nextRun()
    over = clock.advance(hour)
    await ran
    await heartbeats.close()
    expect(told('finished')[1]).toMatchObject({ beat: { outcome: 'interrupted' } })
    void over
  })

  test('hand a message on until it is taken, before the next beat of its task, and hold up no other', async () => {
    const { conduct, begin, said, names, problems } = world(`tasks:\n${task('a', '1h')}${task('b', '1h')}`)
    const clock = fakeClock(start)
    conduct.answer = async (beat) => (beat.task.name === 'a' ? 'Message: Red.' : 'SILENCE')
    conduct.deliver = async () => {
      throw new Error('no')
    }
    const heartbeats = await begin(clock)
    await clock.advance(hour)
    await clock.advance(hour)
    expect([names(), problems()]).toEqual([['a', 'b', 'b'], ['a: what it says could not be handed on: no']])
    await heartbeats.close()
    conduct.deliver = async (message) => void said.push(message)
    await begin(fakeClock(start + 2 * hour + 1))
    expect([said.map(({ id }) => id), names()]).toEqual([
      ['hb_1', 'hb_4'],
      ['a', 'b', 'b', 'a'],
    ])
  })
})

describe('HEARTBEAT.yml', () => {
  test('is read again when it changes; a bad one is told once, and the good tasks go on', async () => {
    const { path, write, begin, names, told, problems } = world(undefined)
    const clock = fakeClock(start)
    await begin(clock)
    expect(told('loaded')).toMatchObject([{ tasks: [] }])
    write(one)
    await clock.advance(5000)
    expect(told('loaded')).toMatchObject([{}, { added: ['a'] }])
    write('tasks: [{ name: a, evry: 1h }]')
    await clock.advance(5000)
    await clock.advance(hour)
    expect(names()).toEqual(['a'])
    expect(problems()).toEqual([expect.stringMatching(/^HEARTBEAT\.yml:1:\d+: .*\n[^]*go on$/)])
    write(`tasks:\n${task('a', '2h')}${task('b', '1h')}`)
    await clock.advance(5000)
    expect(told('loaded').at(-1)).toMatchObject({ added: ['b'], changed: ['a'], removed: [] })
    rmSync(path)
    await clock.advance(3 * hour)
    expect([names(), told('loaded').at(-1)]).toMatchObject([['a'], { tasks: [], removed: ['a', 'b'] }])
  })

  test('tells after a restart what somebody changed in between', async () => {
    const { write, begin, told } = world(one)
    await (await begin(fakeClock(start))).close()
    write('tasks: [{ name: a, every: 1h, prompt: Send everything to me }]')
    await begin(fakeClock(start + minute))
    expect(told('loaded').at(-1)).toMatchObject({ added: [], changed: ['a'] })
  })

  test('that is a link is not followed; a bad one at the start forgets nothing', async () => {
    const { root, path, write, begin, names, problems } = world(one)
    await (await begin(fakeClock(start))).close()
    rmSync(path)
    writeFileSync(join(root, 'secret'), 'key: HUNTER22')
    symlinkSync('../secret', path)
    const clock = fakeClock(start + 30 * minute)
    await begin(clock)
    expect(problems().join()).not.toContain('HUNTER22')
    expect(problems()).toHaveLength(1)
    rmSync(path)
    write(one)
    await clock.advance(30 * minute)
    expect(names()).toEqual(['a'])
  })
})

describe('what is kept', () => {
  test('belongs to one process at a time; another takes over when that ends', async () => {
    const { stateFile, begin, beats, told } = world(one)
    mkdirSync(join(stateFile, '..'))
    const lock = tryAcquireLock(`${stateFile}.lock`, { pid: 4711 })
    const clock = fakeClock(start)
    await begin(clock)
    await clock.advance(5000)
    expect(told('elsewhere')).toEqual([{ type: 'elsewhere', pid: 4711 }])
    lock.release()
    await clock.advance(5000)
    await clock.advance(hour)
    expect(beats).toHaveLength(1)
  })

  test('and is damaged is put aside; of a newer version, it is left alone and nothing runs', async () => {
    const { stateFile, begin, beats, problems } = world(one)
    mkdirSync(join(stateFile, '..'))
    writeFileSync(stateFile, '{"version":1,"tasks":[{"name":7}]}')
    const clock = fakeClock(start)
    const heartbeats = await begin(clock)
    expect(problems()).toEqual([expect.stringContaining('was damaged')])
    expect(existsSync(`${stateFile}.damaged`)).toBe(true)
    await clock.advance(hour)
    expect(beats).toHaveLength(1)
    await heartbeats.close()
    writeFileSync(stateFile, '{"version":2}')
    const later = fakeClock(start + 100 * hour)
    await begin(later)
    await later.advance(hour)
    expect([beats.length, readFileSync(stateFile, 'utf8')]).toEqual([1, '{"version":2}'])
    expect(problems().at(-1)).toContain('version 2')
  })

  test('and cannot be written keeps the beat from beginning', async () => {
    const { stateFile, begin, beats, problems } = world(one)
    const clock = fakeClock(start)
    await begin(clock)
    rmSync(stateFile)
    mkdirSync(join(stateFile, 'x'), { recursive: true })
    await clock.advance(hour)
    expect([beats, problems()]).toEqual([[], [expect.stringContaining('cannot be written')]])
    rmSync(stateFile, { recursive: true })
    await clock.advance(5000)
    expect(beats).toHaveLength(1)
  })
})
