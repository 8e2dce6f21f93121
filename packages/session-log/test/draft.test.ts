import { isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createSession, type Draft, type Json, openSession, type SessionLog } from '../src/index.ts'
import { failure, folder, note } from './helpers.ts'

const fresh = (): Promise<SessionLog> => createSession(join(folder(), 'session.jsonl'), { cwd: 'w' })
/** A value that the types forbid, as an untyped caller may pass it. */
const smuggle = (value: unknown): Json => JSON.parse('[]', () => value)
const record = (payload: Json, over: Partial<Extract<Draft, { kind: 'record' }>> = {}): Draft => ({
  kind: 'record',
  lane: 'main',
  type: 'note',
  payload: Object(payload),
  ...over,
})
const cycle: Record<string, unknown> = {}
cycle['self'] = cycle
const deep = (levels: number): Json => (levels === 0 ? 0 : [deep(levels - 1)])

describe('bad drafts are refused and nothing is written', () => {
  const cases: Record<string, readonly Draft[]> = {
    ...Object.fromEntries(
      ['kind', 'id', 'seq', 'ts', 'lane', 'type', 'parentId'].map((key) => [
        `reserved key ${key}`,
        [record({ [key]: 1 })],
      ]),
    ),
    'an unknown parent': [note(1, { parentId: 'e_nobody' })],
    'a record as parent': [record({}, { id: 'r_1' }), note(1, { parentId: 'r_1' })],
    'itself as parent': [note(1, { id: 'e_1', parentId: 'e_1' })],
    'an id twice in one append': [note(1, { id: 'e_1' }), note(2, { id: 'e_1' })],
    'an id that is taken': [note(1, { id: 'e_taken' })],
    'an id that a record took': [record({}, { id: 'e_taken' })],
    'an empty id': [note(1, { id: '' })],
    'an id with a newline': [note(1, { id: 'a\nb' })],
    'an empty lane': [note(1, { lane: '' })],
    'an endless type': [note(1, { type: 'x'.repeat(257) })],
    'a leaf that is not there': [record({ leafId: 'e_nobody' }, { type: 'lane_leaf_set' })],
    'a lane_leaf_set without leaf': [record({}, { type: 'lane_leaf_set' })],
    'a fact without value': [record({ key: 'a' }, { type: 'fact_set' })],
    'a null message': [note(1, { type: 'message', payload: { message: null } })],
    'a payload that is a list': [record(smuggle([1]))],
    NaN: [note(Number.NaN)],
    Infinity: [note({ a: [Infinity] })],
    'a bigint': [note(smuggle(1n))],
    'a function': [note(smuggle(() => 1))],
    'a date': [note(smuggle(new Date(0)))],
    'a map': [note(smuggle(new Map([[1, 2]])))],
    'undefined in a list': [note(smuggle([undefined]))],
    'a cycle': [note(smuggle(cycle))],
    'too deep a nesting': [note(deep(600))],
    'a good draft and a bad one': [note(1), note(Number.NaN)],
    'a line that is too long': [note('x'.repeat(64 * 1024 * 1024))],
  }
  test.each(Object.entries(cases))('%s', async (_name, drafts) => {
    await using log = await fresh()
    await log.append([note(0, { id: 'e_taken' })])
    const before = readFileSync(log.file)
    const error = await failure(log.append(drafts))
    expect(error.code).toBe('bad_draft')
    expect(error.message).toContain(log.file)
    expect(readFileSync(log.file)).toEqual(before)
    expect(log.lines).toHaveLength(1)
    const [line] = await log.append([note('fine')])
    expect(line?.seq).toBe(2)
  })
})

test('lone surrogates become U+FFFD, in values, keys, ids and lanes: the file is valid UTF-8 and names no half character', async () => {
  const log = await fresh()
  const [line] = await log.append([
    { kind: 'entry', lane: 'l\ud800', type: 'custom', id: 'e_\udc00', payload: { ['k\ud83d']: ['a\udfffb', 'ok 😀'] } },
  ])
  await log.close()
  const bytes = readFileSync(log.file)
  expect(isUtf8(bytes)).toBe(true)
  expect(bytes.toString()).not.toMatch(/\\ud[89a-f]/i)
  expect(line).toMatchObject({ lane: 'l\ufffd', id: 'e_\ufffd', 'k\ufffd': ['a\ufffdb', 'ok 😀'] })
  await using again = await openSession(log.file)
  expect(again.lines).toEqual([line])
})

test('undefined properties are left out, -0 is 0, depth within bounds is fine', async () => {
  await using log = await fresh()
  const [line] = await log.append([note(smuggle({ a: undefined, b: -0, c: deep(400) }))])
  expect(line?.['data']).toStrictEqual({ b: 0, c: deep(400) })
})

test('the parent is the leaf as all accepted appends leave it: entries, lane_leaf_set, other lanes', async () => {
  await using log = await fresh()
  await Promise.all([
    log.append([note(1, { id: 'e_1' }), note(2, { id: 'e_2' })]),
    log.append([record({ leafId: 'e_1' }, { type: 'lane_leaf_set' })]),
    log.append([note(3, { id: 'e_3' }), note(4, { id: 'e_4', lane: 'side' })]),
    log.append([
      record({ leafId: 'e_3' }, { type: 'lane_leaf_set', lane: 'side' }),
      note(5, { id: 'e_5', lane: 'side' }),
    ]),
    log.append([record({ leafId: null }, { type: 'lane_leaf_set' }), note(6, { id: 'e_6' })]),
  ])
  expect(log.lines.flatMap((line) => (line.kind === 'entry' ? [[line.id, line['parentId']]] : []))).toEqual([
    ['e_1', null],
    ['e_2', 'e_1'],
    ['e_3', 'e_1'],
    ['e_4', null],
    ['e_5', 'e_3'],
    ['e_6', null],
  ])
})
