import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createEmitter } from '../src/emitter.ts'
import type { HarnessEvent } from '../src/index.ts'
import { createObservation, type ObservationParts, type Observed } from '../src/observe.ts'
import { drift, newLog, rig } from './support.ts'

/** A source whose state is how many events it has told; event n carries n. */
function source() {
  const emitter = createEmitter((text) => text)
  let count = 0
  let listeners = 0
  // The state is there before any observer hears of the event.
  emitter.subscribe(() => void count++)
  return {
    emit: () => emitter.emit('main', 'run_1', { type: 'text', delta: String(count + 1) }),
    count: () => count,
    listeners: () => listeners,
    observe: (more: Partial<ObservationParts<number>> = {}) =>
      createObservation({
        subscribe: (listener) => {
          listeners++
          const stop = emitter.subscribe(listener)
          return () => {
            listeners--
            stop()
          }
        },
        snapshot: () => count,
        ...more,
      }),
  }
}

const numberOf = (event: HarnessEvent): number => (event.type === 'text' ? Number(event.delta) : Number.NaN)
const brief = (item: Observed<number>): string =>
  item.type === 'snapshot' ? `=${item.snapshot}(${item.missed})` : String(numberOf(item.event))

/** The next items, as many as are asked for. */
async function take(observation: AsyncIterator<Observed<number>, void>, count: number): Promise<readonly string[]> {
  const items: string[] = []
  for (let n = 0; n < count; n++) {
    const next = await observation.next()
    items.push(next.done === true ? 'end' : brief(next.value))
  }
  return items
}

describe('an observer', () => {
  test('gets the state, then every event after it', async () => {
    const { emit, observe } = source()
    emit()
    const observation = observe()
    emit()
    expect(await take(observation, 1)).toEqual(['=2(0)'])
    emit()
    emit()
    expect(await take(observation, 2)).toEqual(['3', '4'])
    const waiting = take(observation, 2)
    emit()
    emit()
    expect(await waiting).toEqual(['5', '6'])
  })

  test('that is slow gets a fresh state in place of what it missed, and is told how much', async () => {
    const { emit, observe } = source()
    const observation = observe({ capacity: 2 })
    await take(observation, 1)
    for (let n = 0; n < 3; n++) emit()
    emit()
    expect(await take(observation, 1)).toEqual(['=4(4)'])
    emit()
    emit()
    expect(await take(observation, 2)).toEqual(['5', '6'])
    for (let n = 0; n < 3; n++) emit()
    expect(await take(observation, 1)).toEqual(['=9(3)'])
  })

  test('that never asks costs nothing: it is subscribed at its first question', async () => {
    const { emit, observe, listeners } = source()
    const observation = observe()
    emit()
    expect(listeners()).toBe(0)
    await observation.next()
    expect(listeners()).toBe(1)
    await observation.return()
    expect(listeners()).toBe(0)
  })

  test('may ask several times before there is an answer, and is answered in order', async () => {
    const { emit, observe } = source()
    const observation = observe()
    const asked = [1, 2, 3].map(() => observation.next())
    emit()
    emit()
    emit()
    const items = [...(await Promise.all(asked)), await observation.next()]
    expect(items.map((item) => (item.done === true ? 'end' : brief(item.value)))).toEqual(['=0(0)', '1', '2', '3'])
  })
})

describe('the end', () => {
  test('leaving the loop unsubscribes', async () => {
    const { emit, observe, listeners } = source()
    for await (const item of observe()) {
      if (item.type === 'event') break
      emit()
    }
    expect(listeners()).toBe(0)
  })

  test('`return` ends a wait that nothing else would end', async () => {
    const { emit, observe, listeners } = source()
    const observation = observe()
    await observation.next()
    const waiting = [observation.next(), observation.next()]
    expect(await observation.return()).toEqual({ done: true, value: undefined })
    expect((await Promise.all(waiting)).map(({ done }) => done)).toEqual([true, true])
    expect(listeners()).toBe(0)
    emit()
    expect(await take(observation, 1)).toEqual(['end'])
  })

  test('`throw` ends it with that error, and leaving a block ends it too', async () => {
    const { observe, listeners } = source()
    const observation = observe()
    await observation.next()
    await expect(observation.throw(new Error('mine'))).rejects.toThrow('mine')
    expect(listeners()).toBe(0)
    {
      await using scoped = observe()
      await scoped.next()
      expect(listeners()).toBe(1)
    }
    expect(listeners()).toBe(0)
  })

  test('an abort ends it at once: what waits is not given any more', async () => {
    const { emit, observe, listeners } = source()
    const controller = new AbortController()
    const observation = observe({ signal: controller.signal })
    await observation.next()
    emit()
    controller.abort()
    expect(listeners()).toBe(0)
    expect(await take(observation, 1)).toEqual(['end'])
    const waiting = observe({ signal: new AbortController().signal })
    await waiting.next()
    expect(await take(observe({ signal: controller.signal }), 1)).toEqual(['end'])
    expect(listeners()).toBe(1)
  })

  test('when the source closes, what waits is given first', async () => {
    const { emit, observe, listeners } = source()
    const controller = new AbortController()
    const closed = controller.signal
    const behind = observe({ closed })
    const lost = observe({ closed, capacity: 0 })
    const asking = observe({ closed })
    await Promise.all([behind, lost, asking].map((observation) => observation.next()))
    const waiting = take(asking, 3)
    emit()
    await drift(6)
    emit()
    await drift(6)
    controller.abort()
    expect(await waiting).toEqual(['1', '2', 'end'])
    expect(await take(behind, 3)).toEqual(['1', '2', 'end'])
    expect(await take(lost, 2)).toEqual(['=2(2)', 'end'])
    expect(await take(observe({ closed }), 2)).toEqual(['=2(0)', 'end'])
    expect(listeners()).toBe(0)
  })

  test('a state that cannot be read is the end, and says why', async () => {
    const { observe, listeners } = source()
    const observation = observe({
      snapshot: () => {
        throw new Error('unreadable')
      },
    })
    await expect(observation.next()).rejects.toThrow('unreadable')
    expect(listeners()).toBe(0)
    expect(await take(observation, 1)).toEqual(['end'])
  })
})

test('whatever the order of telling and asking: state and events lead to the last state, none lost, none twice', async () => {
  const steps = fc.array(
    fc.oneof(
      fc.record({ type: fc.constant('emit' as const), times: fc.integer({ min: 1, max: 6 }) }),
      fc.record({ type: fc.constant('ask' as const), times: fc.integer({ min: 1, max: 4 }) }),
      fc.record({ type: fc.constant('drift' as const), times: fc.integer({ min: 1, max: 3 }) }),
    ),
    { maxLength: 40 },
  )
  await fc.assert(
    fc.asyncProperty(steps, fc.nat(5), async (all, capacity) => {
      const { emit, count, observe } = source()
      const controller = new AbortController()
      const observation = observe({ capacity, closed: controller.signal })
      const asked: Promise<IteratorResult<Observed<number>, void>>[] = []
      for (const { type, times } of all) {
        for (let n = 0; n < times; n++) {
          if (type === 'emit') emit()
          else if (type === 'ask') asked.push(observation.next())
          else await drift(1)
        }
      }
      controller.abort()
      const items = (await Promise.all(asked)).flatMap((item) => (item.done === true ? [] : [item.value]))
      for await (const item of observation) items.push(item)

      let state = Number.NaN
      for (const [index, item] of items.entries()) {
        if (item.type === 'event') {
          expect(numberOf(item.event)).toBe(state + 1)
          state++
        } else {
          if (index === 0) expect(item.missed).toBe(0)
          else {
            expect(item.missed).toBeGreaterThan(capacity)
            expect(item.snapshot).toBe(state + item.missed)
          }
          state = item.snapshot
        }
      }
      expect(state).toBe(count())
    }),
    { numRuns: 500 },
  )
})

test('of a real run: the messages of the snapshot and of the events are the conversation', async () => {
  const log = await newLog()
  const { harness } = rig(log, { turns: [{ text: 'one' }, { text: 'two' }] })
  await harness.prompt('first')
  const closing = new AbortController()
  const observation = createObservation({
    subscribe: (listener) => harness.subscribe(listener),
    snapshot: () => harness.messages(),
    closed: closing.signal,
  })
  const first = await observation.next()
  await harness.prompt('second')
  closing.abort()
  const messages = first.done !== true && first.value.type === 'snapshot' ? [...first.value.snapshot] : []
  for await (const item of observation) {
    if (item.type === 'event' && item.event.type === 'message') messages.push(item.event.message)
  }
  expect(messages).toEqual(harness.messages())
  expect(messages).toHaveLength(4)
})
