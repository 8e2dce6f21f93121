import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { AssistantMessage, Message } from '../src/index.ts'
import { normalise } from '../src/normalise.ts'

const reader = { api: 'openai-completions', provider: 'p', modelId: 'm' } as const
const calling = (...ids: readonly string[]): AssistantMessage => ({
  role: 'assistant',
  model: 'p/m',
  content: ids.map((id) => ({ type: 'toolCall', id, name: 'f', arguments: {} })),
  stopReason: 'toolUse',
})
const result = (id: string, text = 'ok'): Message => ({
  role: 'toolResult',
  toolCallId: id,
  toolName: 'f',
  content: [{ type: 'text', text }],
  isError: false,
})
const user = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] })

describe('calls and results', () => {
  test('a missing result says that the outcome is unknown', () => {
    expect(normalise([calling('a', 'b'), result('b')], reader, 64)).toMatchObject([
      {
        results: [
          { id: 'a', isError: true, content: [{ text: expect.stringContaining('unknown') }] },
          { id: 'b', isError: false },
        ],
      },
    ])
  })
  test('a result without a call, and a second one, are dropped', () => {
    expect(
      normalise([user('x'), result('z'), calling('a'), result('a', 'first'), result('a', 'second')], reader, 64),
    ).toMatchObject([{ role: 'user' }, { results: [{ content: [{ text: 'first' }] }] }])
  })
  test('a steer between call and result comes after both', () => {
    expect(normalise([calling('a'), user('steer'), result('a', 'late')], reader, 64)).toMatchObject([
      { results: [{ content: [{ text: 'late' }] }] },
      { role: 'user' },
    ])
  })
  test('an id used in two answers is made two, each with its own result', () => {
    const turns = normalise([calling('a'), result('a', 'one'), calling('a'), result('a', 'two')], reader, 64)
    expect(turns).toMatchObject([
      { results: [{ content: [{ text: 'one' }] }] },
      { results: [{ content: [{ text: 'two' }] }] },
    ])
    expect(
      new Set(turns.flatMap((turn) => (turn.role === 'assistant' ? turn.results.map(({ id }) => id) : []))).size,
    ).toBe(2)
  })
  test('a name that no tool can have is made one that the APIs take', () => {
    const called = (name: string): AssistantMessage => ({
      ...calling(),
      content: [{ type: 'toolCall', id: 'a', name, arguments: {} }],
    })
    expect(normalise([called('functions.read ä')], reader, 64)).toMatchObject([
      { content: [{ name: 'functions_read__' }] },
    ])
    expect(normalise([called('x'.repeat(99))], reader, 64)).toMatchObject([{ content: [{ name: 'x'.repeat(64) }] }])
  })
  test('ids of the reader itself stay where they are asked to, but for one that is there already', () => {
    const own = normalise([calling('functions.f:0'), calling('functions.f:0')], reader, 40, /^[!-~]+$/)
    const ids = own.flatMap((turn) => (turn.role === 'assistant' ? turn.results.map(({ id }) => id) : []))
    expect(ids[0]).toBe('functions.f:0')
    expect(ids[1]).toMatch(/^functions_f_0_[0-9a-f]{8}$/)
  })
  test('an aborted answer keeps its text only', () => {
    const aborted: AssistantMessage = {
      role: 'assistant',
      model: 'p/m',
      content: [
        { type: 'reasoning', text: 'hm', opaque: { 'openai-completions': { reasoning_content: 'hm' } } },
        { type: 'text', text: 'half' },
        { type: 'toolCall', id: 'a', name: 'f', malformed: '{' },
      ],
      stopReason: 'aborted',
    }
    expect(normalise([aborted, result('a')], reader, 64)).toEqual([
      { role: 'assistant', content: [{ type: 'text', text: 'half' }], results: [] },
    ])
  })
})

test('any conversation: every call one result, unique ids that fit, nothing empty, and the same prefix when it grows', () => {
  const id = fc.oneof(fc.constantFrom('a', 'b', '', 'ä b', 'x'.repeat(90)), fc.string())
  const textPart = fc.record({
    type: fc.constant('text' as const),
    text: fc.oneof(fc.constantFrom('', ' ', 'hi'), fc.string()),
  })
  const call = fc.record({
    type: fc.constant('toolCall' as const),
    id,
    name: fc.constant('f'),
    arguments: fc.constant({}),
  })
  const message: fc.Arbitrary<Message> = fc.oneof(
    fc.record({ role: fc.constant('user' as const), content: fc.array(textPart, { maxLength: 3 }) }),
    fc.record({
      role: fc.constant('assistant' as const),
      model: fc.constant('p/m'),
      content: fc.array(fc.oneof(textPart, call), { maxLength: 4 }),
      stopReason: fc.constantFrom('stop' as const, 'toolUse' as const, 'aborted' as const),
    }),
    fc.record({
      role: fc.constant('toolResult' as const),
      toolCallId: id,
      toolName: fc.constant('f'),
      content: fc.array(textPart, { maxLength: 2 }),
      isError: fc.boolean(),
    }),
  )
  fc.assert(
    fc.property(fc.array(message, { maxLength: 12 }), (messages) => {
      const turns = normalise(messages, reader, 40)
      expect(turns.length).toBeGreaterThan(0)
      const ids: string[] = []
      for (const turn of turns) {
        expect(turn.content.length).toBeGreaterThan(0)
        if (turn.role === 'user') continue
        const calls = turn.content.flatMap((part) => (part.type === 'toolCall' ? [part.id] : []))
        expect(turn.results.map((each) => each.id)).toEqual(calls)
        ids.push(...calls)
        for (const each of turn.results) expect(each.content.length).toBeGreaterThan(0)
      }
      expect(new Set(ids).size).toBe(ids.length)
      for (const each of ids) expect(each).toMatch(/^[A-Za-z0-9_-]{1,40}$/)
    }),
    { numRuns: 500 },
  )
})
