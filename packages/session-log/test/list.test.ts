import { mkdirSync, statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createSession, listSessions, openSession } from '../src/index.ts'
import { bytesOf, entry, fact, folder, header, note, record, TS } from './helpers.ts'

test('the sessions of a folder, the last modified first; broken ones with their problem; nothing else', async () => {
  const place = folder()
  let clock = Date.parse(TS)
  const now = () => clock
  const old = await createSession(join(place, 'old.jsonl'), { cwd: 'a', id: 's_old', now })
  clock += 60_000
  const named = await createSession(join(place, 'named.jsonl'), { cwd: 'b', id: 's_named', now })
  clock += 60_000
  await named.append([fact('name', 'first'), fact('name', 'Groß 😀'), fact('other', 'x')])
  clock += 60_000
  await old.append([note(1)])
  await named.close()
  writeFileSync(join(place, 'diary.jsonl'), 'dear diary\n')
  writeFileSync(join(place, 'newer.jsonl'), bytesOf({ ...header, version: 5 }))
  writeFileSync(join(place, 'notes.txt'), 'no')
  mkdirSync(join(place, 'folder.jsonl'))
  for (const name of ['diary.jsonl', 'newer.jsonl', 'folder.jsonl']) utimesSync(join(place, name), 1000, 1000)

  // The writer is at work all the while.
  const listed = await listSessions(place)
  expect(listed.slice(0, 2)).toEqual([
    {
      kind: 'session',
      file: old.file,
      id: 's_old',
      cwd: 'a',
      created: TS,
      modified: '2026-01-05T10:03:00.000Z',
      bytes: statSync(old.file).size,
    },
    {
      kind: 'session',
      file: named.file,
      id: 's_named',
      cwd: 'b',
      created: '2026-01-05T10:01:00.000Z',
      modified: '2026-01-05T10:02:00.000Z',
      bytes: statSync(named.file).size,
      name: 'Groß 😀',
    },
  ])
  expect(listed.slice(2)).toMatchObject([
    { kind: 'broken', file: join(place, 'diary.jsonl'), bytes: 11, problem: { code: 'not_a_session' } },
    { kind: 'broken', file: join(place, 'folder.jsonl'), problem: { code: 'not_a_session' } },
    { kind: 'broken', file: join(place, 'newer.jsonl'), problem: { code: 'newer_version' } },
  ])
  await old.close()
})

test('a folder that is not there has none', async () => {
  expect(await listSessions(join(folder(), 'no'))).toEqual([])
})

test.each([1, 60, 63, 64, 65, 100, 127, 128, 129, 200])(
  'only head and tail are read, whatever the size (%i KiB of middle)',
  async (kib) => {
    const file = join(folder(), 's.jsonl')
    const ts = '2026-02-01T00:00:00.000Z'
    const name = (seq: number, value: string) => record(seq, { type: 'fact_set', key: 'name', value, ts })
    const middle = Array.from({ length: kib }, (_, i) => entry(i + 2, null, { data: '€'.repeat(300) }))
    writeFileSync(file, bytesOf(header, name(1, 'head'), ...middle, name(5000, 'tail'), '{"kind":"rec'))
    expect(await listSessions(join(file, '..'))).toMatchObject([
      { kind: 'session', id: 's_1', name: 'tail', modified: ts },
    ])
  },
)

test('a gigabyte of middle is not looked at', async () => {
  const file = join(folder(), 's.jsonl')
  writeFileSync(file, bytesOf(header, record(1, { type: 'fact_set', key: 'name', value: 'huge' })))
  // A hole: zeros without a block behind them.
  truncateSync(file, 2 ** 30)
  expect(await listSessions(join(file, '..'))).toMatchObject([{ kind: 'session', name: 'huge', bytes: 2 ** 30 }])
})

test('what is listed opens', async () => {
  const place = folder()
  await (await createSession(join(place, 'a.jsonl'), { cwd: 'w' })).close()
  for (const { file } of await listSessions(place)) await (await openSession(file)).close()
})
