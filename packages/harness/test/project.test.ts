import type { AssistantMessage, JsonObject, Message, ToolResultMessage } from '@reve/providers/model'
import { type EntryLine, isEntry, readSession } from '@reve/session-log'
import fc from 'fast-check'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { project, waitsForModel } from '../src/index.ts'
import { messageOfLine } from '../src/messages.ts'
import { toJson } from '../src/records.ts'
import { checkProjection, echoTool, newLog, rig, said, tempFolder } from './support.ts'

const models = ['m/a', 'm/b'] as const
const text = fc.string({
  unit: fc.constantFrom('a', 'é', '😀', '\ud800', '\udc00', ' ', '\n', '"', '\\'),
  maxLength: 6,
})
const textPart = fc.record({ type: fc.constant('text' as const), text })
const image = fc.record({
  type: fc.constant('image' as const),
  mimeType: fc.constant('image/png'),
  data: fc.constant('AA=='),
})
const opaque = fc.record({ signature: fc.base64String(), n: fc.integer() })
const reasoning = fc.oneof(
  fc.record({ type: fc.constant('reasoning' as const), text, opaque }),
  fc.record({ type: fc.constant('reasoning' as const), text }),
)
// Few ids, so that they come again in later turns and without calls.
const callId = fc.constantFrom('c1', 'c2', 'c3')

const user: fc.Arbitrary<Message> = fc.record({
  role: fc.constant('user' as const),
  content: fc.array(fc.oneof(textPart, image), { maxLength: 2 }),
})
const assistant: fc.Arbitrary<AssistantMessage> = fc.record({
  role: fc.constant('assistant' as const),
  model: fc.constantFrom(...models),
  content: fc
    .tuple(
      fc.array(fc.oneof(textPart, reasoning), { maxLength: 3 }),
      fc.uniqueArray(callId, { maxLength: 3 }),
      fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }),
    )
    .map(([parts, ids, malformed]) => [
      ...parts,
      ...ids.map((id, index) => ({
        type: 'toolCall' as const,
        id,
        name: 't',
        ...(malformed[index] === true ? { malformed: '{\ud800' } : { arguments: { 'k\udc00': 'v\ud800' } }),
      })),
    ]),
  stopReason: fc.constantFrom('stop', 'length', 'toolUse', 'aborted'),
})
const result: fc.Arbitrary<ToolResultMessage> = fc.record({
  role: fc.constant('toolResult' as const),
  toolCallId: callId,
  toolName: fc.constant('t'),
  content: fc.array(textPart, { maxLength: 2 }),
  isError: fc.boolean(),
})

/** A path of any messages in any order, with other entries in between. */
const anyPath = fc
  .array(fc.oneof(user, assistant, result, fc.constant('custom' as const)), { maxLength: 12 })
  .map(entriesOf)

/** The turns of one run as the harness writes them: each call settled before the next request. */
const runTurns = fc.array(
  fc.tuple(
    assistant.filter(({ stopReason }) => stopReason !== 'aborted'),
    fc.array(user, { maxLength: 2 }),
    fc.array(text, { minLength: 3, maxLength: 3 }),
  ),
  { maxLength: 5 },
)

function entriesOf(messages: readonly (Message | JsonObject | 'custom')[]): readonly EntryLine[] {
  return messages.map((message, index) => {
    const stamp = {
      kind: 'entry',
      id: `e${index}`,
      seq: index + 1,
      ts: '2026-01-01T00:00:00.000Z',
      lane: 'main',
      parentId: index === 0 ? null : `e${index - 1}`,
    } as const
    return message === 'custom'
      ? { ...stamp, type: 'custom', customType: 'x', data: null }
      : { ...stamp, type: 'message', message: toJson(message) }
  })
}

describe('invariants', () => {
  test('1, 2, 3, 6: every call has one result directly after its turn, no result is without a call, all text is well-formed, nothing is empty', () => {
    fc.assert(
      fc.property(anyPath, (path) => {
        const messages = project(path, { model: 'm/a' })
        checkProjection(messages, 'm/a')
        for (const { content } of messages)
          for (const part of content) if (part.type === 'text') expect(part.text).not.toBe('')
      }),
      { numRuns: 500 },
    )
  })

  test('4: reasoning goes back to its own model, byte for byte, and to no other', () => {
    fc.assert(
      fc.property(anyPath, fc.constantFrom(...models), (path, model) => {
        const sent = project(path, { model }).flatMap((message) =>
          message.role === 'assistant'
            ? message.content.flatMap((part) => (part.type === 'reasoning' ? [[message.model, part.opaque]] : []))
            : [],
        )
        const written = path.flatMap((entry) => {
          const message = messageOfLine(entry)
          if (message?.role !== 'assistant' || message.model !== model || message.stopReason === 'aborted') return []
          if (message.content.every((part) => part.type === 'reasoning' || (part.type === 'text' && part.text === '')))
            return []
          return message.content.flatMap((part) => (part.type === 'reasoning' ? [[model, part.opaque]] : []))
        })
        expect(sent).toEqual(written)
      }),
      { numRuns: 300 },
    )
  })

  test('5: an aborted answer is its text and a note, without calls', () => {
    fc.assert(
      fc.property(assistant, (answer) => {
        const [shown, ...rest] = project(entriesOf([{ ...answer, stopReason: 'aborted' }]), { model: answer.model })
        expect(rest).toEqual([])
        const own = answer.content.flatMap((part) => (part.type === 'text' ? [part.text.toWellFormed()] : [])).join('')
        if (own.trim() === '') expect(shown).toBeUndefined()
        else expect(shown?.content).toEqual([{ type: 'text', text: expect.stringMatching(/\n\n\[[^\n]+\]$/) }])
        if (own.trim() !== '') expect(said(shown).startsWith(own.trimEnd())).toBe(true)
      }),
    )
  })

  test('7: within a run each request extends the one before', () => {
    fc.assert(
      fc.property(user, runTurns, (prompt, turns) => {
        const messages: Message[] = [prompt]
        const boundaries = [1]
        for (const [answer, said, outputs] of turns) {
          messages.push(answer)
          const calls = answer.content.flatMap((part) => (part.type === 'toolCall' ? [part] : []))
          for (const [index, { id, name }] of calls.entries()) {
            messages.push({
              role: 'toolResult',
              toolCallId: id,
              toolName: name,
              content: [{ type: 'text', text: outputs[index] ?? '' }],
              isError: false,
            })
          }
          messages.push(...said)
          boundaries.push(messages.length)
        }
        const path = entriesOf(messages)
        const whole = project(path, { model: 'm/a' })
        for (const end of boundaries) {
          const request = project(path.slice(0, end), { model: 'm/a' })
          expect(whole.slice(0, request.length)).toEqual(request)
        }
      }),
      { numRuns: 300 },
    )
  })

  test('8: the newest compaction stands for what is before it, but for its tail', () => {
    const path = entriesOf([
      { role: 'user', content: [{ type: 'text', text: 'before' }] },
      { role: 'user', content: [{ type: 'text', text: 'kept' }] },
      'custom',
      { role: 'user', content: [{ type: 'text', text: 'after' }] },
    ])
    const compact = (firstKeptEntryId: string | null) =>
      path.map((entry, index): EntryLine =>
        index === 2 ? { ...entry, type: 'compaction', summary: 'It was long.', firstKeptEntryId } : entry,
      )
    expect(project(compact('e1'), { model: 'm/a' }).map(said)).toEqual([
      expect.stringContaining('It was long.'),
      'kept',
      'after',
    ])
    expect(project(compact(null), { model: 'm/a' }).map(said)).toEqual([
      expect.stringContaining('It was long.'),
      'after',
    ])
    expect(() => project(compact('e3'), { model: 'm/a' })).toThrow(/e3/)
  })

  test('9: a log without its records projects to the same', async () => {
    const log = await newLog()
    const { harness } = rig(log, {
      turns: [
        { text: 'a', calls: [{ name: 'echo', arguments: { say: '1' } }, { name: 'nope' }] },
        { text: 'b', fail: { times: 1 } },
        { text: 'c' },
      ],
      tools: [echoTool()],
      effects: { sleep: () => Promise.resolve() },
    })
    await harness.prompt('one')
    await harness.nextRun('by the way')
    await harness.prompt('two')
    const file = join(await tempFolder(), 'entries.jsonl')
    await writeFile(
      file,
      [log.header, ...log.lines.filter(isEntry)].map((line) => `${JSON.stringify(line)}\n`).join(''),
    )
    const bare = await readSession(file)
    expect(bare.records()).toEqual([])
    expect(project(bare.path(bare.leaf('main')), { model: 'scripted/script' })).toEqual(harness.messages())
  })
})

test('a result written late, after other turns, still stands directly after its own', () => {
  const answer = (text: string, ids: readonly string[]): AssistantMessage => ({
    role: 'assistant',
    model: 'm/a',
    stopReason: 'toolUse',
    content: [
      { type: 'text', text },
      ...ids.map((id) => ({ type: 'toolCall' as const, id, name: 't', arguments: {} })),
    ],
  })
  const resultOf = (toolCallId: string, text: string): ToolResultMessage => ({
    role: 'toolResult',
    toolCallId,
    toolName: 't',
    content: [{ type: 'text', text }],
    isError: false,
  })
  const path = entriesOf([
    answer('one', ['c1', 'c2']),
    resultOf('c2', 'r2'),
    answer('two', ['c1']),
    resultOf('c1', 'r1 of two'),
    resultOf('c1', 'r1 of one'),
    resultOf('c1', 'orphan'),
  ])
  expect(project(path, { model: 'm/a' }).map(said)).toEqual(['one', 'r1 of one', 'r2', 'two', 'r1 of two'])
})

test('an entry whose message cannot be read is named', () => {
  const path = entriesOf([{ role: 'user', content: null }])
  expect(() => project(path, { model: 'm/a' })).toThrow(
    expect.objectContaining({ code: 'corrupt_session', message: expect.stringMatching(/"e0".*seq 1.*content/) }),
  )
})

test('what waits for the model', () => {
  const waits = (...messages: readonly Message[]) => waitsForModel(entriesOf(messages), { model: 'm/a' })
  const hi: Message = { role: 'user', content: [{ type: 'text', text: 'hi' }] }
  const answer: Message = {
    role: 'assistant',
    model: 'm/a',
    content: [{ type: 'text', text: 'ho' }],
    stopReason: 'stop',
  }
  const calling: Message = { ...answer, content: [{ type: 'toolCall', id: 'c1', name: 't', arguments: {} }] }
  expect(waits()).toBe(false)
  expect(waits(hi)).toBe(true)
  expect(waits(hi, answer)).toBe(false)
  expect(waits(hi, calling)).toBe(true)
  expect(waits(hi, { ...answer, stopReason: 'aborted' })).toBe(false)
  expect(waits(hi, { ...calling, stopReason: 'aborted' })).toBe(true)
})
