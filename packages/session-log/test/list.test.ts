import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { createSession, findSession, forkSession, type Json, listSessions, openSession } from '../src/index.ts'
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

describe('when a session was last used', () => {
  const listed = async (file: string) => (await listSessions(join(file, '..')))[0]?.modified

  test('is what its last line says, if that is in sight, else what the file says', async () => {
    const file = join(folder(), 's.jsonl')
    const long = entry(2, 'e_1', { data: 'x'.repeat(200_000), ts: '2026-02-02T00:00:00.000Z' })
    writeFileSync(file, bytesOf(header, entry(1, null), long))
    utimesSync(file, new Date('2026-02-03T00:00:00.000Z'), new Date('2026-02-03T00:00:00.000Z'))
    expect(await listed(file)).toBe('2026-02-03T00:00:00.000Z')
    writeFileSync(file, bytesOf(header, entry(1, null), long, record(3, { ts: '2026-02-02T00:00:01.000Z' })))
    expect(await listed(file)).toBe('2026-02-02T00:00:01.000Z')
  })

  test('is no earlier than when it was made: a fork holds older lines', async () => {
    const source = join(folder(), 's.jsonl')
    writeFileSync(source, bytesOf(header, entry(1, null)))
    const file = join(folder(), 'fork.jsonl')
    await forkSession(source, file, { now: () => Date.parse('2026-03-01T00:00:00.000Z') })
    expect(await listed(file)).toBe('2026-03-01T00:00:00.000Z')
    expect(await listed(source)).toBe(TS)
  })
})

describe('the title', () => {
  const titled = async (...messages: readonly Json[]) => {
    const file = join(folder(), 's.jsonl')
    const lines = messages.map((message, i) => entry(i + 1, null, { type: 'message', message }))
    writeFileSync(file, bytesOf(header, record(0.1, { seq: 1 }), ...lines.map((line, i) => ({ ...line, seq: i + 2 }))))
    const [summary] = await listSessions(join(file, '..'))
    return summary?.kind === 'session' ? summary.title : summary
  }
  const user = (content: Json): Json => ({ role: 'user', content })

  test.each([
    ['a string', [user(' \n make it work\nplease ')], 'make it work\nplease'],
    [
      'text parts',
      [user([{ type: 'text', text: 'look' }, { type: 'image' }, { type: 'text', text: 'here' }])],
      'look\nhere',
    ],
    ['the first user message', [{ role: 'assistant', content: 'no' }, user('first'), user('second')], 'first'],
    ['no text', [user([{ type: 'image' }])], undefined],
    ['a content that is none', [user(7)], undefined],
    ['no user', [{ role: 'assistant', content: 'no' }], undefined],
    ['200 characters of any size', [user(`a${'😀'.repeat(300)}`)], `a${'😀'.repeat(199)}`],
    ['small and big ones', [user(`${'😀'.repeat(100)}${'b'.repeat(300)}`)], `${'😀'.repeat(100)}${'b'.repeat(100)}`],
    ['more than the window holds', [user('x'.repeat(200_000))], undefined],
  ])('%s', async (_name, messages, title) => {
    expect(await titled(...messages)).toBe(title)
  })

  test('is well-formed, whatever the file holds', async () => {
    const file = join(folder(), 's.jsonl')
    const line = JSON.stringify(entry(1, null, { type: 'message', message: user('HERE') }))
    writeFileSync(file, bytesOf(header, `${line.replace('HERE', 'half \\ud83d')}\n`))
    expect(await listSessions(join(file, '..'))).toMatchObject([{ title: 'half \ufffd' }])
  })
})

describe('findSession', () => {
  test('finds by the id of the header; broken files and other names are passed over', async () => {
    const place = folder()
    writeFileSync(join(place, 'a.jsonl'), bytesOf({ ...header, id: 's_a' }))
    writeFileSync(
      join(place, 'b.jsonl'),
      bytesOf({ ...header, id: 's_b', more: 'x'.repeat(10_000) }, entry(1, null), 'damage\n'),
    )
    writeFileSync(join(place, 'copy of b.jsonl'), bytesOf({ ...header, id: 's_b' }))
    writeFileSync(join(place, 'empty.jsonl'), '')
    writeFileSync(join(place, 'diary.jsonl'), 'dear diary\n')
    writeFileSync(join(place, 'newer.jsonl'), bytesOf({ ...header, id: 's_a', version: 5 }))
    writeFileSync(join(place, 'c.txt'), bytesOf({ ...header, id: 's_c' }))
    mkdirSync(join(place, 'folder.jsonl'))
    expect(await findSession(place, 's_a')).toBe(join(place, 'a.jsonl'))
    expect(await findSession(place, 's_b')).toBe(join(place, 'b.jsonl'))
    for (const id of ['s_c', 's_', '', 'e_1']) expect(await findSession(place, id)).toBeUndefined()
    expect(await findSession(join(place, 'no'), 's_a')).toBeUndefined()
  })
})

/** Runs `list-child.ts` in a process that may have few files open. */
function inChild(...args: readonly string[]) {
  const script = fileURLToPath(new URL('list-child.ts', import.meta.url))
  const run = spawnSync(
    'sh',
    ['-c', 'ulimit -n 64; exec "$@"', 'sh', process.execPath, '--conditions=@reve/source', script, ...args],
    { encoding: 'utf8', maxBuffer: 2 ** 26 },
  )
  expect(run.stderr).toBe('')
  return v.parse(v.object({ found: v.unknown(), bytesRead: v.number() }), JSON.parse(run.stdout))
}

/** A folder of sessions with a megabyte of nothing (a hole) between head and tail. */
function manySessions(count: number): string {
  const place = folder()
  const hello = entry(1, null, { type: 'message', message: { role: 'user', content: 'hello' } })
  const name = record(9, { type: 'fact_set', key: 'name', value: 'the end' })
  for (let i = 0; i < count; i++) {
    const file = join(place, `${i}.jsonl`)
    writeFileSync(file, bytesOf({ ...header, id: `s_${i}` }, hello))
    truncateSync(file, 2 ** 20)
    appendFileSync(file, bytesOf('\n', name))
  }
  return place
}

test('a thousand sessions are listed with few files open', () => {
  const place = manySessions(1000)
  const listed = Array.from({ length: 1000 }, () => ({ kind: 'session', title: 'hello', name: 'the end' }))
  expect(inChild(place).found).toMatchObject(listed)
})

const counts = existsSync('/proc/self/io')
if (!counts) process.stdout.write('skipped: this system does not count what a process reads (/proc/self/io)\n')

test.skipIf(!counts)('listing reads the ends of each file only, finding one only the headers', () => {
  const place = manySessions(100)
  expect(inChild(place).bytesRead).toBeLessThan(100 * 140 * 1024)
  const { found, bytesRead } = inChild(place, 's_77')
  expect(found).toBe(join(place, '77.jsonl'))
  expect(bytesRead).toBeLessThan(100 * 5 * 1024)
})

test('what is listed opens', async () => {
  const place = folder()
  await (await createSession(join(place, 'a.jsonl'), { cwd: 'w' })).close()
  for (const { file } of await listSessions(place)) await (await openSession(file)).close()
})
