import { expect, test } from 'vitest'
import { cacheText, diagnoseCache, type AskedRequest, type ModelRequest, type Usage } from '../src/index.ts'
import { ask } from './play.ts'

const said = (text: string) => ({ role: 'user' as const, content: [{ type: 'text' as const, text }] })
const usage = (change: Partial<Usage>): Usage => ({
  input: 0,
  cacheRead: 0,
  cacheWrite: 0,
  output: 5,
  reasoning: 0,
  ...change,
})
const asked = (request: Partial<ModelRequest>, counts: Partial<Usage> | undefined, model = 'p/m'): AskedRequest => ({
  model,
  request: { ...ask, ...request },
  ...(counts !== undefined && { usage: usage(counts) }),
})
const before = asked({ messages: [said('one')] }, { input: 100, cacheWrite: 9900 })
const longer = { messages: [said('one'), said('two')] }

test('what was read is a hit, also when the server counts in blocks', () => {
  expect(diagnoseCache(before, asked(longer, { input: 300, cacheRead: 9728 })).type).toBe('hit')
  expect(cacheText(diagnoseCache(before, asked(longer, { cacheRead: 9728 })))).toBeUndefined()
})

test('what was not read though nothing changed is lost', () => {
  const diagnosis = diagnoseCache(before, asked(longer, { input: 10_100 }))
  expect(diagnosis).toEqual({ type: 'lost', expected: 10_000, read: 0 })
  expect(cacheText(diagnosis)).toContain('0 of 10000 tokens')
})

test.each<[string, AskedRequest, unknown, string]>([
  ['the model', asked(longer, { input: 9 }, 'p/other'), { at: 'model' }, 'its model'],
  ['the system', asked({ ...longer, system: 'Other.' }, { input: 9 }), { at: 'system' }, 'its system'],
  ['the thinking', asked({ ...longer, thinking: 'low' }, { input: 9 }), { at: 'thinking' }, 'its thinking'],
  [
    'the tools',
    asked({ ...longer, tools: [{ name: 'a', description: '', parameters: {} }] }, { input: 9 }),
    { at: 'tools' },
    'its tools',
  ],
  [
    'a message',
    asked({ messages: [said('ONE'), said('two')] }, { input: 9 }),
    { at: 'message', index: 0 },
    'message 1',
  ],
  ['a shorter one', asked({ messages: [] }, { input: 9 }), { at: 'message', index: 0 }, 'message 1'],
])('%s changed', (_, now, from, words) => {
  const diagnosis = diagnoseCache(before, now)
  expect(diagnosis).toMatchObject({ type: 'changed', from })
  expect(cacheText(diagnosis)).toContain(`from ${words} on`)
})

test('without usage, of a server without a cache, or for little nothing is said', () => {
  expect(diagnoseCache(before, asked(longer, undefined)).type).toBe('unknown')
  expect(diagnoseCache(asked({}, { input: 9000 }), asked({}, { input: 9000 })).type).toBe('unknown')
  expect(diagnoseCache(asked({}, { input: 1000 }), asked({}, { input: 1000 })).type).toBe('too_small')
})
