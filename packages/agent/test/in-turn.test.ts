import { expect, test } from 'vitest'
import { inTurn } from '../src/in-turn.ts'

const never = new AbortController().signal

test('one after the other for a thing, whatever becomes of those before; side by side for two', async () => {
  const [thing, other] = [{}, {}]
  const events: string[] = []
  const gate = Promise.withResolvers<void>()
  const first = inTurn(thing, never, async () => {
    events.push('first begins')
    await gate.promise
    throw new Error('first failed')
  })
  const second = inTurn(thing, never, async () => {
    events.push('second')
    return 2
  })
  await inTurn(other, never, async () => void events.push('other'))
  expect(events).toEqual(['first begins', 'other'])
  gate.resolve()
  await expect(first).rejects.toThrow('first failed')
  expect(await second).toBe(2)
  expect(events).toEqual(['first begins', 'other', 'second'])
})

test('one that was aborted while it waited is not done, and holds nobody up', async () => {
  const thing = {}
  const gate = Promise.withResolvers<void>()
  const controller = new AbortController()
  const first = inTurn(thing, never, () => gate.promise)
  const second = inTurn(thing, controller.signal, async () => 'done')
  const third = inTurn(thing, never, async () => 'third')
  controller.abort(new Error('not any more'))
  gate.resolve()
  await first
  await expect(second).rejects.toThrow('not any more')
  expect(await third).toBe('third')
})
