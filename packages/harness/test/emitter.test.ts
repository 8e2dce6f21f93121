import { expect, test } from 'vitest'
import { createEmitter } from '../src/emitter.ts'
import type { HarnessEvent } from '../src/index.ts'

const say = (text: string) => ({ type: 'text', delta: text }) as const

test('a listener that throws or rejects is reported to the others, and they lose nothing', async () => {
  const emitter = createEmitter((text) => text)
  const seen: HarnessEvent[] = []
  emitter.subscribe(() => {
    throw new Error('first')
  })
  emitter.subscribe((event) => {
    seen.push(event)
  })
  // oxlint-disable-next-line typescript/no-misused-promises
  emitter.subscribe((event) => (event.type === 'text' ? Promise.reject(new Error('second')) : Promise.resolve()))
  emitter.emit('main', 'run_1', say('a'))
  await new Promise((resolve) => setImmediate(resolve))
  expect(seen).toEqual([
    { v: 1, lane: 'main', runId: 'run_1', type: 'text', delta: 'a' },
    { v: 1, lane: 'main', runId: 'run_1', type: 'listener_failed', message: 'first' },
    { v: 1, lane: 'main', runId: 'run_1', type: 'listener_failed', message: 'second' },
  ])
})

test('events that a listener causes come after the one that it hears', () => {
  const emitter = createEmitter((text) => text)
  const seen: string[] = []
  emitter.subscribe((event) => {
    if (event.type === 'text' && event.delta === 'a') emitter.emit('main', '', say('b'))
  })
  emitter.subscribe((event) => {
    if (event.type === 'text') seen.push(event.delta)
  })
  emitter.emit('main', '', say('a'))
  expect(seen).toEqual(['a', 'b'])
})

test('a listener hears nothing after it left, and each subscription is one of its own', () => {
  const emitter = createEmitter((text) => text)
  let heard = 0
  const listener = (): void => void heard++
  const stop = emitter.subscribe(listener)
  emitter.subscribe(listener)
  emitter.emit('main', '', say('a'))
  stop()
  stop()
  emitter.emit('main', '', say('b'))
  expect(heard).toBe(3)
})
