import { existsSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type ChannelStore, openChannelStore } from '../../src/channels/store.ts'
import type { StateValue } from '../../src/channels/state.ts'

let ids = 0
function open(
  file = join(mkdtempSync(join(tmpdir(), 'channels-')), '.reve/channels.db'),
  now = 0,
): ChannelStore & { file: string } {
  const store = openChannelStore(file, {
    now: () => now,
    newId: () => `m_${++ids}`,
    limits: { waiting: 3, characters: 100 },
  })
  onTestFinished(() => store.close())
  return { ...store, file }
}
const codeOf = (work: () => unknown): unknown => {
  try {
    return work()
  } catch (error) {
    return error instanceof Error && 'code' in error ? error.code : error
  }
}

describe('the inbox', () => {
  test('keeps messages in their order, through each state, over restarts', () => {
    const { file, close, ...first } = open()
    const [a, b] = [first.inboxOf('a'), first.inboxOf('b')]
    const one = a.receive({ text: 'one', from: 'Ann', key: 'k1' })
    const two = b.receive({ text: 'two' })
    expect(two.seq).toBeGreaterThan(one.seq)
    first.take(one.id, 'main-1.jsonl')
    close()
    const store = open(file)
    expect(store.next()).toMatchObject({
      id: one.id,
      channel: 'a',
      text: 'one',
      from: 'Ann',
      key: 'k1',
      target: 'main-1.jsonl',
    })
    store.answer(one.id, { ok: true, text: 'yes' })
    store.answer(one.id, { ok: false, text: 'a second answer' })
    expect(store.next()).toMatchObject({ id: two.id, target: undefined, from: undefined, key: undefined })
    expect([store.unreplied('b'), store.unreplied('a')]).toMatchObject([
      undefined,
      { message: { id: one.id }, answer: { ok: true, text: 'yes' } },
    ])
    store.replied(one.id)
    store.take(one.id, 'x')
    expect([store.unreplied('a'), store.inboxOf('a').find(one.id)]).toEqual([
      undefined,
      { state: 'answered', answer: { ok: true, text: 'yes' }, replied: true },
    ])
    expect(store.inboxOf('b').find(one.id)).toBeUndefined()
    expect(store.inboxOf('b').find(two.id)).toEqual({ state: 'waiting' })
  })

  test('takes a message once by its key, and no other text under it', () => {
    const inbox = open().inboxOf('a')
    const first = inbox.receive({ text: 'x', key: 'k' })
    expect(inbox.receive({ text: 'x', key: 'k' })).toEqual({ ...first, new: false })
    expect(codeOf(() => inbox.receive({ text: 'y', key: 'k' }))).toBe('key_reused')
    expect(codeOf(() => inbox.receive({ text: 'x', key: 'k', from: 'other' }))).toBe('key_reused')
    expect(inbox.receive({ text: 'x' }).new && inbox.receive({ text: 'x' }).new).toBe(true)
  })

  test('is bounded', () => {
    const store = open()
    const inbox = store.inboxOf('a')
    for (const text of ['1', '2', '3']) inbox.receive({ text, key: text })
    expect(codeOf(() => inbox.receive({ text: '4' }))).toBe('inbox_full')
    expect(inbox.receive({ text: '1', key: '1' }).new).toBe(false)
    expect(store.inboxOf('b').receive({ text: 'x' }).new).toBe(true)
    store.answer(store.next()?.id ?? '', { ok: true, text: '' })
    expect(inbox.receive({ text: '4' }).new).toBe(true)
    const other = store.inboxOf('c')
    expect(
      [
        { text: 'x'.repeat(101) },
        { text: ' \n' },
        { text: 'x', key: '' },
        { text: 'x', from: 'x'.repeat(257) },
        { text: 'x', key: '\ud800' },
      ].map((message) => codeOf(() => other.receive(message))),
    ).toEqual(['too_large', 'invalid_message', 'invalid_message', 'invalid_message', 'invalid_message'])
    expect(store.next()?.channel).not.toBe('c')
  })

  test('and what its channel keeps are one transaction', () => {
    const store = open()
    const inbox = store.inboxOf('a')
    inbox.receive({ text: 'one', key: '1' }, (state) => state.set('read', 1))
    expect(() =>
      inbox.receive({ text: 'two', key: '2' }, (state) => {
        state.set('read', 2)
        throw new Error('no')
      }),
    ).toThrow('no')
    expect([inbox.state.get('read'), store.next()?.text, inbox.receive({ text: 'two', key: '2' }).new]).toEqual([
      1,
      'one',
      true,
    ])
  })

  test('forgets after a month what is done with, and nothing else', () => {
    const { file, close, ...store } = open()
    const done = store.inboxOf('a').receive({ text: 'x' })
    store.answer(done.id, { ok: true, text: '' })
    store.replied(done.id)
    const waits = store.inboxOf('a').receive({ text: 'x' })
    close()
    const later = open(file, 31 * 24 * 3600_000).inboxOf('a')
    expect([later.find(done.id), later.find(waits.id)]).toEqual([undefined, { state: 'waiting' }])
  })
})

describe('what a channel keeps', () => {
  test('is any JSON, by key, and nobody else sees it', () => {
    fc.assert(
      fc.property(
        fc.string({ minLength: 1, maxLength: 50 }),
        fc.jsonValue(),
        (() => {
          const store = open()
          return (key: string, value: unknown) => {
            const state = store.inboxOf('a').state
            state.set(key, value as StateValue)
            expect(state.get(key)).toEqual(JSON.parse(JSON.stringify(value)))
            expect(store.inboxOf('b').state.get(key)).toBeUndefined()
            state.set(key, undefined)
            expect([state.get(key), state.keys()]).toEqual([undefined, []])
          }
        })(),
      ),
      { numRuns: 50 },
    )
  })

  test('is changed in one step, also by two processes', () => {
    const { file, ...one } = open()
    const two = open(file)
    const add = (store: ChannelStore) =>
      store.inboxOf('a').state.update('n', (n) => (typeof n === 'number' ? n + 1 : 1))
    for (let n = 0; n < 10; n++) add(n % 2 === 0 ? one : two)
    expect(one.inboxOf('a').state.get('n')).toBe(10)
  })

  test('is refused when it is none, or too much', () => {
    const { state } = open().inboxOf('a')
    const circle: Record<string, StateValue> = {}
    circle['self'] = circle
    expect([
      codeOf(() => state.set('', 1)),
      codeOf(() => state.set('x'.repeat(300), 1)),
      codeOf(() => state.set('x', Number.NaN)),
      codeOf(() => state.set('x', circle)),
      codeOf(() => state.set('x', 'x'.repeat(1 << 20))),
    ]).toEqual(['invalid_value', 'invalid_value', 'invalid_value', 'invalid_value', 'too_large'])
    expect(state.keys()).toEqual([])
  })
})

describe('the file', () => {
  test('is for its owner alone', () => {
    const { file, ...store } = open()
    store.inboxOf('a').receive({ text: 'x' })
    for (const name of [file, `${file}-wal`, `${file}-shm`])
      expect([name, statSync(name).mode & 0o777]).toEqual([name, 0o600])
    expect(statSync(join(file, '..')).mode & 0o777).toBe(0o700)
  })

  test('of a newer version, or of another program, is left as it is', () => {
    const folder = mkdtempSync(join(tmpdir(), 'channels-'))
    const newer = join(folder, 'newer.db')
    open(newer).close()
    const sqlite = new Sqlite(newer)
    sqlite.pragma('user_version = 2')
    sqlite.close()
    const foreign = join(folder, 'foreign.db')
    const other = new Sqlite(foreign)
    other.exec('CREATE TABLE t (x)')
    other.pragma('user_version = 1')
    other.close()
    const text = join(folder, 'text.db')
    writeFileSync(text, 'no database, but long enough to have a header of one hundred bytes '.repeat(3))
    for (const file of [newer, foreign, text]) {
      const before = readFileSync(file)
      expect([file, codeOf(() => open(file))]).toEqual([file, 'foreign_file'])
      expect(readFileSync(file).equals(before)).toBe(true)
      expect(existsSync(`${file}-wal`)).toBe(false)
    }
    expect(codeOf(() => open(folder))).toBe('io')
  })
})
