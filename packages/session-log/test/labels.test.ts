import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createSession, type Json, labelDraft, labels, openSession, readSession } from '../src/index.ts'
import { entry, fileOf, folder, header, note, record } from './helpers.ts'

describe('labels', () => {
  test('one an entry, the last one counts, null takes it off, and they survive reopening', async () => {
    const log = await createSession(join(folder(), 's.jsonl'), { cwd: 'w' })
    await log.append([note(1, { id: 'e_1' }), note(2, { id: 'e_2' }), note(3, { id: 'e_3' })])
    await log.append([labelDraft('e_1', 'start'), labelDraft('e_2', 'off again'), labelDraft('e_3', ' the 😀 end ')])
    await log.append([labelDraft('e_2', null), labelDraft('e_1', 'the start', 'side')])
    const expected = [
      ['e_3', 'the 😀 end'],
      ['e_1', 'the start'],
    ]
    expect([...labels(log)]).toEqual(expected)
    await log.close()
    await using again = await openSession(log.file)
    expect([...labels(again)]).toEqual(expected)
    // A label is no part of the tree.
    expect(again.path(again.leaf('main')).map(({ id }) => id)).toEqual(['e_1', 'e_2', 'e_3'])
  })

  test('of entries that are not there, and values that are no text, nothing is told', async () => {
    const fact = (seq: number, key: string, value: Json) => record(seq, { type: 'fact_set', key, value })
    const view = await readSession(
      fileOf(
        header,
        entry(1, null),
        ...[fact(2, 'label:e_9', 'nobody'), fact(3, 'label:', 'nothing')],
        ...[fact(4, 'label:e_1', 7), fact(5, 'other:e_1', 'x'), record(6, { key: 'label:e_1', value: 'x' })],
      ),
    )
    expect(labels(view).size).toBe(0)
  })

  test.each([
    ['an empty one', ''],
    ['white space', ' \t\n '],
    ['two lines', 'a\nb'],
    ['an escape', 'a\u001b[2J'],
    ['a C1 control', 'a\u009bm'],
    ['a line separator', 'a\u2028b'],
    ['too many characters', '😀'.repeat(201)],
  ])('%s is refused', (_name, label) => {
    expect(() => labelDraft('e_1', label)).toThrow(
      expect.objectContaining({ code: 'bad_draft', message: expect.stringMatching(/^the label: it /) }),
    )
  })

  test('200 characters are allowed, whatever their size; half of one becomes U+FFFD', () => {
    expect(labelDraft('e_1', '😀'.repeat(200)).payload).toEqual({ key: 'label:e_1', value: '😀'.repeat(200) })
    expect(labelDraft('e_1', 'a\ud83d').payload['value']).toBe('a\ufffd')
  })
})
