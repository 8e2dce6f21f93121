import type { AssistantMessage, Message, Usage } from '@reve/providers/model'
import type { EntryLine, JsonObject } from '@reve/session-log'
import fc from 'fast-check'
import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { contextTokens, endOfTokens, estimateMessage, estimateMessages, estimateText } from '../src/estimate.ts'
import { readMessage } from '../src/messages.ts'
import { project } from '../src/project.ts'
import { toJson } from '../src/records.ts'

const digests = (encoding: 'hex' | 'base64') =>
  Array.from({ length: 8 }, (_, index) => createHash('sha256').update(String(index)).digest(encoding)).join('')

/** The highest count of three public tokenizers, measured once. */
const samples: readonly (readonly [name: string, highest: number, text: string])[] = [
  [
    'prose',
    32,
    'The directory is the agent: one folder holds its identity, its tools, its memory and its whole history, and whoever copies the folder has copied the agent.',
  ],
  [
    'code',
    49,
    'export function sum(values: readonly number[]): number {\n  let total = 0\n  for (const value of values) {\n    if (!Number.isNaN(value)) total += value * 2\n  }\n  return total\n}\n',
  ],
  [
    'json',
    37,
    '{"path":"packages/harness/src/run.ts","offset":120,"limit":40,"options":{"recursive":true,"exclude":["node_modules","dist"]}}',
  ],
  ['base64', 252, digests('base64')],
  ['hex', 301, digests('hex')],
  ['listing', 240, '-rw-r--r-- 1 root root 14933 Dec  1 02:22 harness.ts\n'.repeat(10)],
  ['chinese', 33, '这个函数读取文件并返回其内容。如果文件不存在，它会抛出一个错误，并说明应该做什么。'],
  ['japanese', 38, 'この関数はファイルを読み込み、その内容を返します。存在しない場合はエラーを投げます。'],
  ['korean', 33, '이 함수는 파일을 읽고 그 내용을 반환합니다. 파일이 없으면 오류를 던집니다.'],
  ['russian', 42, 'Эта функция читает файл и возвращает его содержимое. Если файла нет, она бросает ошибку.'],
  [
    'german',
    29,
    'Diese Funktion liest die Datei und gibt ihren Inhalt zurück. Wenn sie fehlt, wirft sie einen Fehler.',
  ],
  ['arabic', 72, 'تقرأ هذه الدالة الملف وتعيد محتواه. إذا لم يكن الملف موجودًا فإنها ترمي خطأ.'],
  ['emoji', 22, '😀🎉🚀🔥👍🙏💡🧪'],
]

const anyText = fc.string({
  unit: fc.constantFrom('a', 'B', '7', '-', '-', ' ', ' ', '\n', 'é', '文', '😀', '\ud800', '\udc00'),
})

describe('text', () => {
  test.each(samples)('%s: near what tokenizers count', (_name, highest, text) => {
    const ratio = estimateText(text) / highest
    expect(ratio).toBeGreaterThan(0.7)
    expect(ratio).toBeLessThan(1.5)
  })

  test('only the empty text is nothing', () => {
    expect(estimateText('')).toBe(0)
    for (const text of [' ', '\n', 'a', '.', '\ud800', '文']) expect(estimateText(text)).toBe(1)
  })

  test('joined texts never cost more than both apart, and never less than one of them', () => {
    fc.assert(
      fc.property(anyText, anyText, (a, b) => {
        const joined = estimateText(a + b)
        expect(joined).toBeLessThanOrEqual(estimateText(a) + estimateText(b))
        expect(joined).toBeGreaterThanOrEqual(estimateText(a))
      }),
      { numRuns: 1000 },
    )
  })

  test('a part of so many tokens is the longest that fits, and ends between code points', () => {
    fc.assert(
      fc.property(anyText, fc.nat({ max: 8 }), fc.nat(), (raw, tokens, seed) => {
        const text = raw.toWellFormed()
        const starts = [...text].reduce((all, point) => [...all, (all.at(-1) ?? 0) + point.length], [0])
        const from = starts[seed % starts.length] ?? 0
        const end = endOfTokens(text, from, tokens)
        expect(starts).toContain(end)
        expect(end > from).toBe(from < text.length)
        // One code point is always taken.
        if (end > (starts[starts.indexOf(from) + 1] ?? from))
          expect(estimateText(text.slice(from, end))).toBeLessThanOrEqual(tokens)
        const further = starts[starts.indexOf(end) + 1]
        if (further !== undefined) expect(estimateText(text.slice(from, further))).toBeGreaterThan(tokens)
      }),
      { numRuns: 1000 },
    )
  })
})

const usage = (prompt: Partial<Usage>): Usage => ({
  input: 0,
  cacheRead: 0,
  cacheWrite: 0,
  output: 0,
  reasoning: 0,
  ...prompt,
})
const user = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] })
const answer = (text: string, more: Partial<AssistantMessage> = {}): AssistantMessage => ({
  role: 'assistant',
  model: 'm/a',
  content: [{ type: 'text', text }],
  stopReason: 'stop',
  ...more,
})
const call = { type: 'toolCall', id: 'c1', name: 'read', arguments: { path: 'a.txt' } } as const
const result = (text: string): Message => ({
  role: 'toolResult',
  toolCallId: 'c1',
  toolName: 'read',
  content: [{ type: 'text', text }],
  isError: false,
})

describe('a message', () => {
  test('an image costs the same whatever its bytes', () => {
    const image = (data: string): Message => ({
      role: 'user',
      content: [{ type: 'image', mimeType: 'image/png', data }],
    })
    expect(estimateMessage(image('A'.repeat(100_000)))).toBe(estimateMessage(image('AA==')))
    expect(estimateMessage(image('AA=='))).toBeGreaterThan(1000)
  })

  test('reasoning costs what goes back to the model, and nothing when it cannot go back', () => {
    const thought = (opaque?: JsonObject): Message =>
      answer('', { content: [{ type: 'reasoning', text: 'long thought '.repeat(100), ...(opaque && { opaque }) }] })
    expect(estimateMessage(thought())).toBe(estimateMessage(answer('')))
    expect(estimateMessage(thought({ signature: digests('base64') }))).toBeGreaterThan(150)
  })

  test('calls cost their arguments, malformed ones too', () => {
    const calling = (path: string): Message => answer('', { content: [{ ...call, arguments: { path } }] })
    expect(estimateMessage(calling('a b '.repeat(1000)))).toBeGreaterThan(estimateMessage(calling('a')) + 1000)
    const malformed: Message = answer('', {
      content: [{ type: 'toolCall', id: 'c1', name: 'read', malformed: '{"path": a b '.repeat(1000) }],
    })
    expect(estimateMessage(malformed)).toBeGreaterThan(1000)
  })

  test('some cost what each costs', () => {
    expect(estimateMessages([])).toBe(0)
    expect(estimateMessages([user('hi'), answer('ho')])).toBe(
      estimateMessage(user('hi')) + estimateMessage(answer('ho')),
    )
  })
})

type Item = Message | { readonly summary: string; readonly keeps: number | null }

/** Entries `e0`, `e1` and on; a compaction keeps from the entry of that number. */
function pathOf(...items: readonly Item[]): readonly EntryLine[] {
  return items.map((item, index) => {
    const stamp = {
      kind: 'entry',
      id: `e${index}`,
      seq: index + 1,
      ts: '2026-01-01T00:00:00.000Z',
      lane: 'main',
      parentId: index === 0 ? null : `e${index - 1}`,
    } as const
    if ('role' in item) return { ...stamp, type: 'message', message: toJson(item) }
    const firstKeptEntryId = item.keeps === null ? null : `e${item.keeps}`
    return { ...stamp, type: 'compaction', summary: item.summary, firstKeptEntryId }
  })
}

describe('the next request', () => {
  const bare = { model: 'm/a', system: '', tools: [] }
  const size = (...items: readonly Item[]) => contextTokens(pathOf(...items), bare)
  const estimated = (...items: readonly Item[]) => ({
    tokens: estimateMessages(project(pathOf(...items), { model: 'm/a' })),
    source: 'estimate',
  })

  test('nothing is nothing', () => {
    expect(size()).toEqual({ tokens: 0, source: 'estimate' })
  })

  test('real usage counts for all up to its answer, estimates for what came after', () => {
    const counted = answer('ho', {
      usage: usage({ input: 1000, cacheRead: 20_000, cacheWrite: 300, output: 40, reasoning: 30 }),
    })
    expect(size(user('hi'), counted)).toEqual({ tokens: 21_340, source: 'usage' })
    expect(size(user('hi'), counted, user('more'))).toEqual({
      tokens: 21_340 + estimateMessage(user('more')),
      source: 'usage',
    })
  })

  test('the newest usage counts, not the largest', () => {
    const of = (input: number) => answer('ho', { usage: usage({ input }) })
    expect(size(user('hi'), of(9000), user('more'), of(5000)).tokens).toBe(5000)
  })

  test('the results of a counted answer are added, a missing one with the note that stands for it', () => {
    const calling = answer('', { content: [call], stopReason: 'toolUse', usage: usage({ input: 500, output: 50 }) })
    const large = result('line of output\n'.repeat(500))
    expect(size(user('hi'), calling, large)).toEqual({ tokens: 550 + estimateMessage(large), source: 'usage' })
    expect(estimateMessage(large)).toBeGreaterThan(1000)
    expect(size(user('hi'), calling).tokens).toBeGreaterThan(550)
  })

  test('a counted answer that is not sent again does not hide what follows it', () => {
    const thought = answer('', { content: [{ type: 'reasoning', text: 'hm' }], usage: usage({ input: 500 }) })
    expect(size(user('hi'), thought, user('go on'))).toEqual({
      tokens: 500 + estimateMessage(user('go on')),
      source: 'usage',
    })
  })

  test('absent, all-zero and promptless usage is no usage', () => {
    for (const none of [{}, { usage: usage({}) }, { usage: usage({ output: 12 }) }]) {
      const path = [user('hi'), answer('ho', none), user('more')] as const
      expect(size(...path)).toEqual(estimated(...path))
    }
  })

  test('an aborted answer measures nothing', () => {
    const aborted = answer('ho', { stopReason: 'aborted', usage: usage({ input: 7000 }) })
    expect(size(user('hi'), aborted)).toEqual(estimated(user('hi'), aborted))
    const counted = answer('ho', { usage: usage({ input: 400 }) })
    expect(size(user('hi'), counted, user('more'), aborted)).toMatchObject({ source: 'usage' })
    expect(size(user('hi'), counted, user('more'), aborted).tokens).toBeLessThan(500)
  })

  test('usage in the tail that a compaction kept measured the old context', () => {
    const counted = answer('ho', { usage: usage({ input: 190_000 }) })
    const path = [user('hi'), counted, { summary: 'It was short.', keeps: 0 }] as const
    expect(size(...path)).toEqual(estimated(...path))
    expect(size(...path).tokens).toBeLessThan(200)
    const after = answer('on', { usage: usage({ input: 3000, output: 1 }) })
    expect(size(...path, user('go on'), after)).toEqual({ tokens: 3001, source: 'usage' })
  })

  test('an estimate holds the system prompt and the tools, usage has them already', () => {
    const parts = {
      model: 'm/a',
      system: 'Be brief. '.repeat(100),
      tools: [{ name: 'read', description: 'reads a file '.repeat(100), parameters: { type: 'object' } }],
    }
    const path = pathOf(user('hi'))
    const plain = contextTokens(path, bare).tokens
    const withSystem = contextTokens(path, { ...parts, tools: [] }).tokens
    expect(withSystem).toBeGreaterThan(plain + 200)
    expect(contextTokens(path, parts).tokens).toBeGreaterThan(withSystem + 200)
    const counted = pathOf(user('hi'), answer('ho', { usage: usage({ input: 700 }) }))
    expect(contextTokens(counted, parts).tokens).toBe(700)
  })

  test('is a whole number, however a server counts', () => {
    expect(size(user('hi'), answer('ho', { usage: usage({ input: 10.25, output: 0.5 }) }), user('on')).tokens).toBe(
      11 + estimateMessage(user('on')),
    )
  })

  test('estimates what is new only: a longer path reads nothing of the earlier messages again', () => {
    const path = pathOf(user('one'), answer('', { content: [call] }), result('two'), answer('three'), user('four'))
    let reads = 0
    for (const entry of path.slice(0, -1)) {
      const read = readMessage(entry)
      if (read.type !== 'message') throw new Error('no message')
      for (const part of read.message.content) {
        for (const [key, value] of Object.entries(part)) {
          if (key !== 'text' && key !== 'arguments') continue
          Object.defineProperty(part, key, { enumerable: true, get: () => ((reads += 1), value) })
        }
      }
    }
    const readsOf = (act: () => unknown): number => {
      reads = 0
      act()
      return reads
    }
    const before = path.slice(0, -1)
    const projecting = readsOf(() => project(before, bare))
    expect(readsOf(() => contextTokens(before, bare))).toBeGreaterThan(projecting)
    expect(readsOf(() => contextTokens(path, bare))).toBe(projecting)
  })
})
