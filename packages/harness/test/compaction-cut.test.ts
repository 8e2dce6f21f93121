import type { AssistantMessage, Message } from '@reve/providers/model'
import type { EntryLine } from '@reve/session-log'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type CompactionBudget, compactionBudget, type Cut, needsCompaction, planCut } from '../src/compaction-cut.ts'
import { estimateMessages } from '../src/estimate.ts'
import { callsOf } from '../src/messages.ts'
import { project } from '../src/project.ts'
import { toJson } from '../src/records.ts'
import { messageEntry } from '../src/settle.ts'
import { checkProjection, newLog, reopen, said } from './support.ts'

const model = 'm/a'
const user = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] })
const answer = (text: string, ids: readonly string[] = [], more: Partial<AssistantMessage> = {}): AssistantMessage => ({
  role: 'assistant',
  model,
  content: [
    ...(text === '' ? [] : [{ type: 'text' as const, text }]),
    ...ids.map((id) => ({ type: 'toolCall' as const, id, name: 't', arguments: {} })),
  ],
  stopReason: ids.length > 0 ? 'toolUse' : 'stop',
  ...more,
})
const result = (toolCallId: string, text: string): Message => ({
  role: 'toolResult',
  toolCallId,
  toolName: 't',
  content: [{ type: 'text', text }],
  isError: false,
})
/** A text of about so many tokens. */
const words = (tokens: number): string => ' word'.repeat(Math.round(tokens / 1.2))

type Item = Message | 'custom' | { readonly summary: string; readonly keeps: string | null }

/** The path, and on top of it entries that are numbered on: `e0`, `e1`. */
function grown(path: readonly EntryLine[], ...items: readonly Item[]): readonly EntryLine[] {
  const added = items.map((item, at): EntryLine => {
    const index = path.length + at
    const stamp = {
      kind: 'entry',
      id: `e${index}`,
      seq: index + 1,
      ts: '2026-01-01T00:00:00.000Z',
      lane: 'main',
      parentId: index === 0 ? null : `e${index - 1}`,
    } as const
    if (item === 'custom') return { ...stamp, type: 'custom', customType: 'x', data: null }
    if ('role' in item) return { ...stamp, type: 'message', message: toJson(item) }
    return { ...stamp, type: 'compaction', summary: item.summary, firstKeptEntryId: item.keeps }
  })
  return [...path, ...added]
}

const pathOf = (...items: readonly Item[]): readonly EntryLine[] => grown([], ...items)
const compacted = (path: readonly EntryLine[], keeps: string | null, summary: string): readonly EntryLine[] =>
  grown(path, { summary, keeps })

function budgetOf(keepRecentTokens: number, contextWindow = 100_000): CompactionBudget {
  return { contextWindow, reserveTokens: Math.floor(contextWindow / 10), keepRecentTokens }
}

function cutOf(path: readonly EntryLine[], budget: CompactionBudget, aggressive = false) {
  const cut = planCut(path, { model, budget, aggressive })
  if (cut.type !== 'cut') throw new Error(`nothing to cut: ${cut.reason}`)
  return cut
}

const nothing: Cut = { type: 'nothing', reason: 'too_short' }

describe('the budget', () => {
  test('of a large window', () => {
    expect(compactionBudget(200_000, 8192, {})).toEqual({
      contextWindow: 200_000,
      reserveTokens: 16_384,
      keepRecentTokens: 20_000,
    })
  })

  test('reserves what one answer may have', () => {
    expect(compactionBudget(200_000, 32_000, {}).reserveTokens).toBe(32_000)
    expect(compactionBudget(200_000, 128_000, {}).reserveTokens).toBe(50_000)
  })

  test('of a small window is a quarter each', () => {
    expect(compactionBudget(8000, 4096, {})).toEqual({
      contextWindow: 8000,
      reserveTokens: 2000,
      keepRecentTokens: 2000,
    })
  })

  test('takes settings, as far as a compaction still makes room', () => {
    const window = 100_000
    expect(compactionBudget(window, 8192, { reserveTokens: 30_000, keepRecentTokens: 0 })).toEqual({
      contextWindow: window,
      reserveTokens: 30_000,
      keepRecentTokens: 0,
    })
    expect(compactionBudget(window, 8192, { reserveTokens: 90_000, keepRecentTokens: 90_000 })).toEqual({
      contextWindow: window,
      reserveTokens: 50_000,
      keepRecentTokens: 25_000,
    })
  })

  test('is of whole numbers that fit the window, whatever comes in', () => {
    const any = fc.oneof(fc.double(), fc.integer(), fc.constantFrom(0, 1, 3, -1, Number.NaN, Infinity, -Infinity))
    fc.assert(
      fc.property(any, any, fc.option(any), fc.option(any), (window, maxTokens, reserve, keep) => {
        const budget = compactionBudget(window, maxTokens, {
          ...(reserve !== null && { reserveTokens: reserve }),
          ...(keep !== null && { keepRecentTokens: keep }),
        })
        for (const tokens of Object.values(budget)) {
          expect(Number.isSafeInteger(tokens)).toBe(true)
          expect(tokens).toBeGreaterThanOrEqual(0)
        }
        expect(budget.contextWindow).toBeGreaterThan(0)
        expect(budget.reserveTokens + 2 * budget.keepRecentTokens).toBeLessThanOrEqual(budget.contextWindow)
      }),
    )
  })

  test('says when there is too little left; an unknown window never does', () => {
    const budget = { contextWindow: 1000, reserveTokens: 100, keepRecentTokens: 0 }
    expect(needsCompaction(900, budget)).toBe(false)
    expect(needsCompaction(901, budget)).toBe(true)
    for (const window of [0, -5, Number.NaN])
      expect(needsCompaction(10_000_000, compactionBudget(window, 8192, {}))).toBe(false)
  })
})

describe('the cut', () => {
  test('keeps what fits, and the rest becomes the head', () => {
    const path = pathOf(user(`one${words(500)}`), answer('two'), user('three'), answer('four'))
    const cut = cutOf(path, budgetOf(12))
    expect(cut).toMatchObject({ firstKeptEntryId: 'e2' })
    expect(cut.head).toEqual(project(path.slice(0, 2), { model }))
    expect('previousSummary' in cut).toBe(false)
    expect(cut.headTokens).toBe(estimateMessages(cut.head))
    expect(cut.keptTokens).toBe(estimateMessages(project(path.slice(2), { model })))
  })

  test('what fits whole is not cut', () => {
    const path = pathOf(user('one'), answer('two'), user('three'), answer('four'))
    expect(planCut(path, { model, budget: budgetOf(10_000) })).toEqual(nothing)
    expect(planCut([], { model, budget: budgetOf(0) })).toEqual(nothing)
    expect(planCut(pathOf('custom'), { model, budget: budgetOf(0) })).toEqual(nothing)
  })

  test('is never between an answer and its results', () => {
    const path = pathOf(
      user(`one${words(500)}`),
      answer('two', ['c1', 'c2']),
      result('c1', words(80)),
      result('c2', words(80)),
      answer('three'),
    )
    // The last result would fit, its answer would not.
    expect(cutOf(path, budgetOf(100)).firstKeptEntryId).toBe('e4')
    expect(cutOf(path, budgetOf(300)).firstKeptEntryId).toBe('e1')
  })

  test('goes back to the message that began the turn', () => {
    const path = pathOf(
      user('one'),
      answer(`two${words(500)}`),
      user('three'),
      answer('four', ['c1']),
      result('c1', words(50)),
      answer(words(80)),
    )
    expect(cutOf(path, budgetOf(100)).firstKeptEntryId).toBe('e2')
    expect(cutOf(path, budgetOf(80)).firstKeptEntryId).toBe('e5')
  })

  test('goes back over all that the user said in a row', () => {
    const path = pathOf(user('one'), answer(words(500)), user('by the way'), user('three'), answer(words(60)))
    expect(cutOf(path, budgetOf(100)).firstKeptEntryId).toBe('e2')
    expect(cutOf(pathOf(user(words(500)), user('three'), answer(words(60))), budgetOf(65)).firstKeptEntryId).toBe('e1')
  })

  test('stays in the turn when that would keep too much', () => {
    const path = pathOf(user('one'), answer('two'), user('three'), answer(words(900)), answer(words(80)))
    expect(cutOf(path, budgetOf(100)).firstKeptEntryId).toBe('e4')
  })

  test('a long run after one prompt is cut between answers, and the summary gets the prompt', () => {
    const run = Array.from({ length: 300 }, (_, index) => [
      answer(`step ${index}`, [`c${index}`]),
      result(`c${index}`, words(50)),
    ]).flat()
    const path = pathOf(user('Do it all.'), ...run)
    const cut = cutOf(path, budgetOf(1000))
    expect(said(cut.head[0])).toBe('Do it all.')
    expect(cut.keptTokens).toBeLessThanOrEqual(1000)
    expect(cut.keptTokens).toBeGreaterThan(800)
    const kept = path.find(({ id }) => id === cut.firstKeptEntryId)
    expect(kept).toMatchObject({ message: { role: 'assistant' } })
  })

  test('keeps the last turn even when it is larger than what should be kept', () => {
    const path = pathOf(user('one'), answer('two'), user(words(5000)))
    expect(cutOf(path, budgetOf(100)).firstKeptEntryId).toBe('e2')
  })

  test('keeps nothing when the last turn does not fit beside the reserve', () => {
    const path = pathOf(user('one'), answer('two', ['c1']), result('c1', words(5000)))
    expect(cutOf(path, budgetOf(100, 5000))).toMatchObject({ firstKeptEntryId: null, keptTokens: 0 })
    expect(cutOf(path, budgetOf(100, 5000)).head).toHaveLength(3)
    expect(planCut(pathOf(user(words(5000))), { model, budget: budgetOf(100, 5000) })).toEqual(nothing)
  })

  test('keeps nothing when nothing is to be kept, if there are two messages', () => {
    const path = pathOf(user('one'), 'custom', answer('two'))
    expect(cutOf(path, budgetOf(0))).toMatchObject({ firstKeptEntryId: null })
    expect(cutOf(path, budgetOf(0)).head.map(said)).toEqual(['one', 'two'])
    expect(planCut(pathOf(user('one')), { model, budget: budgetOf(0) })).toEqual(nothing)
    expect(cutOf(pathOf(answer('', ['c1']), result('c1', 'r')), budgetOf(0)).head).toHaveLength(2)
  })

  test('begins at a message, not at what no model sees', () => {
    const thought = answer('', [], { content: [{ type: 'reasoning', text: 'hm' }] })
    const cutShort = answer('', ['c9'], { stopReason: 'aborted' })
    const path = pathOf(user(words(500)), answer('two'), 'custom', thought, cutShort, result('c9', 'r'), user('three'))
    expect(cutOf(path, budgetOf(7)).firstKeptEntryId).toBe('e6')
  })

  test('heals what it cuts off', () => {
    const path = pathOf(user('one'), answer('two', ['c1']), result('orphan', 'r'), user('three'), answer('four'))
    const { head } = cutOf(path, budgetOf(40))
    checkProjection(head, model)
    expect(head.map(({ role }) => role)).toEqual(['user', 'assistant', 'toolResult'])
  })

  test('a result that was written late holds its answer back', () => {
    const path = pathOf(
      user(words(500)),
      answer('one', ['c1']),
      user('meanwhile'),
      answer('two'),
      result('c1', 'late'),
      answer('three'),
    )
    expect(cutOf(path, budgetOf(30)).firstKeptEntryId).toBe('e5')
    expect(cutOf(path, budgetOf(200)).firstKeptEntryId).toBe('e1')
  })

  test('call ids that come again belong to the newest answer', () => {
    const step = (text: string) => [answer(text, ['c1']), result('c1', `of ${text}`)]
    const path = pathOf(user(words(500)), ...step('one'), ...step('two'), ...step('three'))
    expect(cutOf(path, budgetOf(70)).firstKeptEntryId).toBe('e3')
  })
})

describe('after a compaction', () => {
  const before = pathOf(user('zero'), answer('one'), user('two'), answer('three'))
  const path = grown(compacted(before, 'e2', 'It was about zero.'), user(words(300)), answer('five'))

  test('only what it kept and what came after counts, and its summary is handed on', () => {
    const cut = cutOf(path, budgetOf(20))
    expect(cut.previousSummary).toBe('It was about zero.')
    expect(cut.head.map(said).slice(0, 2)).toEqual(['two', 'three'])
    expect(cut.firstKeptEntryId).toBe('e6')
  })

  test('the newest counts when there are several', () => {
    const again = grown(compacted(path, 'e6', 'It was about zero to four.'), user('seven'), answer('eight'))
    const cut = cutOf(again, budgetOf(0))
    expect(cut.previousSummary).toBe('It was about zero to four.')
    expect(cut.head.map(said)).toEqual(['five', 'seven', 'eight'])
  })

  test('a kept part may begin before an older compaction', () => {
    const again = compacted(path, 'e3', 'It was about zero to two.')
    expect(cutOf(again, budgetOf(0)).head.map(said)).toEqual(['three', words(300), 'five'])
  })

  test('a single new message is not summarised again', () => {
    const again = grown(compacted(before, null, 'It was about zero.'), user('four'))
    expect(planCut(again, { model, budget: budgetOf(0) })).toEqual(nothing)
    expect(planCut(again, { model, budget: budgetOf(100), aggressive: true })).toEqual(nothing)
  })

  test('one that keeps what is not before it is refused, as is an unreadable message', () => {
    expect(() => cutOf(compacted(before, 'e9', 's'), budgetOf(0))).toThrow(
      expect.objectContaining({ code: 'corrupt_session', message: expect.stringMatching(/"e4".*"e9"/) }),
    )
    const broken = before.map((entry, index) => (index === 3 ? { ...entry, message: { role: 'tool' } } : entry))
    expect(() => cutOf(broken, budgetOf(0))).toThrow(expect.objectContaining({ code: 'corrupt_session' }))
  })
})

describe('after an overflow', () => {
  test('half as much is kept', () => {
    const turns = Array.from({ length: 20 }, (_, index) => [user(`q${index}`), answer(words(88))]).flat()
    const path = pathOf(...turns)
    expect(cutOf(path, budgetOf(1000)).keptTokens).toBeGreaterThan(850)
    const cut = cutOf(path, budgetOf(1000), true)
    expect(cut.keptTokens).toBeLessThanOrEqual(500)
    expect(cut.keptTokens).toBeGreaterThan(350)
  })

  test('something is cut off although all seems to fit', () => {
    const path = pathOf(user('one'), answer('two'), user('three'))
    expect(cutOf(path, budgetOf(10_000), true).firstKeptEntryId).toBe('e2')
    expect(cutOf(pathOf(answer('two', ['c1']), result('c1', 'r')), budgetOf(10_000), true)).toMatchObject({
      firstKeptEntryId: null,
    })
  })

  test('a turn of more than half of the room is not kept', () => {
    const path = pathOf(user('one'), answer('two', ['c1']), result('c1', words(3000)))
    expect(cutOf(path, budgetOf(500, 5000)).firstKeptEntryId).toBe('e1')
    expect(cutOf(path, budgetOf(500, 5000), true).firstKeptEntryId).toBe(null)
  })

  test('compacting again and again ends at a single message', () => {
    let path = pathOf(...Array.from({ length: 40 }, (_, index) => [user(`q${index}`), answer(words(50))]).flat())
    let rounds = 0
    for (;;) {
      const cut = planCut(path, { model, budget: budgetOf(2000), aggressive: true })
      if (cut.type === 'nothing') break
      path = compacted(path, cut.firstKeptEntryId, `round ${rounds}`)
      rounds++
      expect(rounds).toBeLessThan(100)
    }
    expect(project(path, { model }).length).toBeLessThanOrEqual(2)
  })
})

describe('properties', () => {
  const text = fc.oneof(
    fc.constant(''),
    fc.string({ unit: fc.constantFrom('a', '😀', '\ud800', '\n'), maxLength: 4 }),
    fc.integer({ min: 1, max: 200 }).map(words),
  )
  // Few ids, so that they come again in later turns and without calls.
  const callId = fc.constantFrom('c1', 'c2', 'c3')
  const anyAnswer = fc
    .tuple(
      text,
      fc.uniqueArray(callId, { maxLength: 3 }),
      fc.constantFrom<AssistantMessage['stopReason']>('stop', 'length', 'toolUse', 'aborted'),
      fc.constantFrom('m/a', 'm/b'),
      fc.boolean(),
    )
    .map(([said, ids, stopReason, by, thinks]): Message => {
      const { content } = answer(said, ids)
      const thought = { type: 'reasoning', text: 'hm', opaque: { signature: 'c2ln' } } as const
      return answer('', [], { model: by, stopReason, content: thinks ? [thought, ...content] : content })
    })
  /** Anything in any order: more than a log of ours can hold. */
  const anyItems = fc.array(
    fc.oneof(
      text.map(user),
      anyAnswer,
      fc.tuple(callId, text).map(([id, output]) => result(id, output)),
      fc.constant('custom' as const),
    ),
    { maxLength: 14 },
  )
  const anyTurn = fc.oneof(
    text.map((said) => [user(said)]),
    fc
      .tuple(text, fc.uniqueArray(callId, { maxLength: 3 }), text)
      .map(([said, ids, output]) => [answer(said, ids), ...ids.map((id) => result(id, output))]),
  )
  const options = fc.record({
    budget: fc
      .tuple(fc.constantFrom(400, 2000, 100_000), fc.nat({ max: 600 }))
      .map(([window, keep]) => budgetOf(keep, window)),
    aggressive: fc.boolean(),
    model: fc.constant(model),
  })

  /** The messages since the newest compaction, without its summary. */
  function shown(path: readonly EntryLine[]): readonly Message[] {
    const messages = project(path, { model })
    return path.some(({ type }) => type === 'compaction') ? messages.slice(1) : messages
  }

  test('head and kept part are all messages in order, over five compactions; the newest summary stands first', () => {
    let cuts = 0
    fc.assert(
      fc.property(fc.array(fc.tuple(anyItems, options), { minLength: 5, maxLength: 5 }), (rounds) => {
        let path: readonly EntryLine[] = []
        let newest: string | undefined
        for (const [round, [items, parts]] of rounds.entries()) {
          path = grown(path, ...items)
          const visible = shown(path)
          const cut = planCut(path, parts)
          if (cut.type === 'nothing') {
            if (parts.aggressive) expect(visible.length).toBeLessThan(2)
            continue
          }
          cuts++
          expect(cut.previousSummary).toBe(newest)
          newest = `summary of round ${round}`
          const after = compacted(path, cut.firstKeptEntryId, newest)
          const [summary, ...kept] = project(after, { model })
          expect(said(summary)).toContain(newest)
          expect([...cut.head, ...kept]).toEqual(visible)
          expect(cut.head.length).toBeGreaterThan(0)
          expect(visible.length).toBeGreaterThan(1)
          expect(kept[0]?.role).not.toBe('toolResult')
          checkProjection(cut.head, model)
          checkProjection(kept, model)
          expect([cut.headTokens, cut.keptTokens]).toEqual([estimateMessages(cut.head), estimateMessages(kept)])
          path = after
        }
      }),
      { numRuns: 400 },
    )
    expect(cuts).toBeGreaterThan(400)
  })

  test('no more is kept than twice the wish, but for a last turn that is larger', () => {
    fc.assert(
      fc.property(fc.array(anyTurn, { maxLength: 10 }), options, (items, parts) => {
        const path = pathOf(...items.flat())
        const cut = planCut(path, parts)
        if (cut.type === 'nothing' || cut.firstKeptEntryId === null) return
        const kept = shown(compacted(path, cut.firstKeptEntryId, 's'))
        const turns = kept.filter(({ role }) => role !== 'toolResult').length
        if (turns > 1) expect(cut.keptTokens).toBeLessThanOrEqual(2 * parts.budget.keepRecentTokens)
        expect(cut.keptTokens).toBeLessThanOrEqual(parts.budget.contextWindow - parts.budget.reserveTokens)
      }),
      { numRuns: 400 },
    )
  })
})

test('a long conversation is planned in one pass', () => {
  const turns = Array.from({ length: 10_000 }, (_, index) => [
    user(`q${index}`),
    answer('a', ['c1']),
    result('c1', 'r'),
  ])
  const path = pathOf(...turns.flat())
  const cut = cutOf(path, budgetOf(1000))
  expect(cut.head.length).toBeGreaterThan(29_000)
})

test('on a log, through a restart', async () => {
  const log = await newLog()
  const messages = [user(`one${words(400)}`), answer('two', ['c1']), result('c1', 'r'), user('three'), answer('four')]
  for (const message of messages) await log.append([messageEntry('main', undefined, message)])
  const path = log.path(log.leaf('main'))
  const cut = cutOf(path, budgetOf(12))
  const payload = { summary: 'It was about one.', firstKeptEntryId: cut.firstKeptEntryId }
  await log.append([{ kind: 'entry', lane: 'main', type: 'compaction', payload }])
  const again = await reopen(log)
  const after = again.path(again.leaf('main'))
  expect(project(after, { model }).map(said)).toEqual([expect.stringContaining('It was about one.'), 'three', 'four'])
  expect(cut.head.flatMap((message) => (message.role === 'assistant' ? callsOf(message) : []))).toHaveLength(1)
  expect(cutOf(after, budgetOf(0)).previousSummary).toBe('It was about one.')
})
