import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import {
  createSession,
  type Draft,
  forkSession,
  isEntry,
  labelDraft,
  labels,
  listSessions,
  nameDraft,
  openSession,
  readSession,
  sessionName,
  verifySession,
} from '../src/index.ts'
import { bytesOf, entry, failure, fileOf, folder, header, linesOn, note, record, TS } from './helpers.ts'
import { startChild } from './processes.ts'

const target = () => join(folder(), 'fork.jsonl')
const now = () => Date.parse('2026-03-01T00:00:00.000Z')
const compaction = (seq: number, parentId: string, firstKeptEntryId: string | null) =>
  entry(seq, parentId, { type: 'compaction', summary: `summary ${seq}`, firstKeptEntryId })

/** What a reader of a conversation sees: the newest summary, then what its boundary keeps. */
async function shown(file: string): Promise<readonly unknown[]> {
  const view = await readSession(file)
  const path = view.path(view.leaf('main'))
  const cut = path.findLastIndex(({ type }) => type === 'compaction')
  const from = path.findIndex(({ id }) => id === path[cut]?.['firstKeptEntryId'])
  return [path[cut]?.['summary'], ...path.slice(Math.max(from, 0)).map(({ id }) => id)]
}

/** A session with branches, two lanes, records, facts and labels. */
const rich = () =>
  fileOf(
    { ...header, extra: { kept: ['as it is'] } },
    record(1, { type: 'fact_set', key: 'name', value: 'the source' }),
    entry(2, null, { data: 'ä€😀' }),
    entry(3, 'e_2', { lane: 'side' }),
    record(4, { type: 'fact_set', key: 'label:e_2', value: 'root' }),
    entry(5, 'e_3', { type: 'message', message: { role: 'user', content: 'hi' } }),
    entry(6, 'e_2', { data: 'a branch' }),
    record(7, { type: 'fact_set', key: 'label:e_6', value: 'elsewhere' }),
    record(8, { type: 'fact_set', key: 'label:e_5', value: 'off again' }),
    record(9, { type: 'fact_set', key: 'label:e_5', value: null }),
    record(10, { type: 'operation_started', runId: 'run_1', intent: { kind: 'run' } }),
    entry(20, 'e_5', { ts: '2026-01-06T00:00:00.000Z' }),
    entry(21, 'e_20', { lane: 'side' }),
  )

describe('a fork', () => {
  test('is the path with its ids, parents and times, on lane main, counted from 1, with its labels; the source stays', async () => {
    const source = rich()
    const before = readFileSync(source)
    const file = target()
    const report = await forkSession(source, file, { now, name: ' a try ' })
    expect(readFileSync(source)).toEqual(before)
    expect(report).toEqual({
      target: file,
      id: expect.stringMatching(/^s_/),
      forkedFrom: { id: 's_1', entryId: 'e_20' },
      entries: 4,
      labels: 1,
    })
    const ts = '2026-03-01T00:00:00.000Z'
    const id = expect.stringMatching(/^r_/)
    const fact = { kind: 'record', id, ts, lane: 'main', type: 'fact_set' }
    expect(linesOn(file)).toEqual([
      { ...header, id: report.id, ts, extra: { kept: ['as it is'] }, forkedFrom: { id: 's_1', entryId: 'e_20' } },
      { ...fact, seq: 1, key: 'name', value: 'a try' },
      { ...entry(2, null, { data: 'ä€😀' }), seq: 2 },
      { ...entry(3, 'e_2'), seq: 3 },
      { ...entry(5, 'e_3', { type: 'message', message: { role: 'user', content: 'hi' } }), seq: 4 },
      { ...entry(20, 'e_5', { ts: '2026-01-06T00:00:00.000Z' }), seq: 5 },
      { ...fact, seq: 6, key: 'label:e_2', value: 'root' },
    ])
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole', entries: 4, records: 2 })
    // It is a session like any other.
    await using log = await openSession(file)
    expect([log.lanes(), log.leaf('main'), sessionName(log), [...labels(log)]]).toEqual([
      ['main'],
      'e_20',
      'a try',
      [['e_2', 'root']],
    ])
    const [line] = await log.append([note('goes on')])
    expect(line).toMatchObject({ parentId: 'e_20', seq: 7 })
  })

  test('has a name only when it is given one', async () => {
    const file = target()
    await forkSession(rich(), file)
    expect(sessionName(await readSession(file))).toBeUndefined()
    expect(await failure(forkSession(rich(), target(), { name: 'two\nlines' }))).toMatchObject({ code: 'bad_draft' })
  })

  test('starts at an entry in the middle, at the leaf of a lane, or where the lane was sent', async () => {
    const source = rich()
    const ids = async (options: Parameters<typeof forkSession>[2]) => {
      const file = target()
      await forkSession(source, file, options)
      const view = await readSession(file)
      return view.path(view.leaf('main')).map(({ id }) => id)
    }
    expect(await ids({ at: 'e_3' })).toEqual(['e_2', 'e_3'])
    expect(await ids({ at: 'e_6' })).toEqual(['e_2', 'e_6'])
    expect(await ids({ lane: 'side' })).toEqual(['e_2', 'e_3', 'e_5', 'e_20', 'e_21'])
    expect(await ids({ lane: 'side', at: 'e_2' })).toEqual(['e_2'])
    const log = await openSession(source)
    await log.append([{ kind: 'record', lane: 'main', type: 'lane_leaf_set', payload: { leafId: 'e_5' } }])
    await log.close()
    expect(await ids({})).toEqual(['e_2', 'e_3', 'e_5'])
  })

  test('of nothing is a header', async () => {
    for (const [source, options] of [
      [rich(), { at: null }],
      [fileOf(header), {}],
    ] as const) {
      const file = target()
      expect(await forkSession(source, file, options)).toMatchObject({ entries: 0, forkedFrom: { entryId: null } })
      expect(linesOn(file)).toHaveLength(1)
      await (await openSession(file)).close()
    }
  })

  test('of a fork says whose child it is, and keeps the conversation', async () => {
    const [first, second] = [target(), target()]
    const parent = await forkSession(rich(), first)
    const child = await forkSession(first, second, { at: 'e_5' })
    expect(child.forkedFrom).toEqual({ id: parent.id, entryId: 'e_5' })
    expect(child.id).not.toBe(parent.id)
    const view = await readSession(second)
    expect(view.header['forkedFrom']).toEqual(child.forkedFrom)
    expect(view.header['extra']).toEqual({ kept: ['as it is'] })
    expect(view.path('e_5').map(({ id }) => id)).toEqual(['e_2', 'e_3', 'e_5'])
    expect([...labels(view)]).toEqual([['e_2', 'root']])
  })

  test('takes a label over as it is, also one that we would not write', async () => {
    const value = ` ${'x'.repeat(300)}\u0007`
    const file = target()
    await forkSession(fileOf(header, entry(1, null), record(2, { type: 'fact_set', key: 'label:e_1', value })), file)
    expect([...labels(await readSession(file))]).toEqual([['e_1', value]])
  })

  test('keeps its compaction boundary', async () => {
    const source = fileOf(
      header,
      entry(1, null),
      entry(2, 'e_1'),
      compaction(3, 'e_2', 'e_2'),
      entry(4, 'e_3'),
      entry(5, 'e_4'),
      compaction(6, 'e_5', 'e_4'),
      entry(7, 'e_6'),
    )
    for (const [at, seen] of [
      ['e_7', ['summary 6', 'e_4', 'e_5', 'e_6', 'e_7']],
      ['e_6', ['summary 6', 'e_4', 'e_5', 'e_6']],
      ['e_5', ['summary 3', 'e_2', 'e_3', 'e_4', 'e_5']],
      ['e_2', [undefined, 'e_1', 'e_2']],
    ] as const) {
      const file = target()
      await forkSession(source, file, { at })
      expect(await shown(file)).toEqual(seen)
    }
  })
})

const payload = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.string({ unit: 'binary' }))
const step = fc.record({
  lane: fc.constantFrom('main', 'side'),
  pick: fc.nat(),
  payload,
  label: fc.option(fc.nat()),
  compact: fc.boolean(),
})

test('whatever the tree: the fork at any entry has its very path, boundaries and labels (property)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), fc.nat(), async (steps, pick) => {
      const log = await createSession(join(folder(), 's.jsonl'), { cwd: 'w' })
      for (const { lane, pick, payload, label, compact } of steps) {
        const entries = log.lines.filter(isEntry)
        const parentId = entries.length === 0 || pick % 7 === 0 ? null : (entries[pick % entries.length]?.id ?? null)
        const before = log.path(parentId)
        const draft: Draft = {
          kind: 'entry',
          lane,
          parentId,
          ...(compact
            ? {
                type: 'compaction',
                payload: { summary: 's', firstKeptEntryId: before[pick % (before.length || 1)]?.id ?? null },
              }
            : { type: 'custom', payload: { customType: 'any', data: JSON.parse(JSON.stringify(payload)) } }),
        }
        await log.append([draft])
        const labelled = log.lines.filter(isEntry)
        if (label !== null)
          await log.append([
            labelDraft(labelled[label % labelled.length]?.id ?? '', label % 5 === 0 ? null : `l${label}`),
          ])
      }
      await log.append([nameDraft('source')])
      const entries = log.lines.filter(isEntry)
      const at = entries[pick % entries.length]?.id ?? null
      const file = target()
      await forkSession(log.file, file, { at })
      await log.close()

      const view = await readSession(file)
      expect(view.torn).toBe(false)
      const path = view.path(view.leaf('main'))
      expect(path.map(({ seq: _seq, lane: _lane, ...rest }) => rest)).toEqual(
        log.path(at).map(({ seq: _seq, lane: _lane, ...rest }) => rest),
      )
      expect(view.lines.filter(isEntry)).toEqual(path)
      expect(view.lines.map(({ seq }) => seq)).toEqual(view.lines.map((_line, index) => index + 1))
      expect(new Set(view.lines.map(({ lane }) => lane))).toEqual(new Set(['main']))
      expect([...labels(view)]).toEqual([...labels(log)].filter(([id]) => view.entry(id) !== undefined))
      for (const [index, entry] of path.entries()) {
        const kept = entry['firstKeptEntryId']
        if (typeof kept === 'string') expect(path.slice(0, index).map(({ id }) => id)).toContain(kept)
      }
    }),
    { numRuns: 60 },
  )
})

describe('refuses', () => {
  test('an entry or a lane that is not there', async () => {
    const source = rich()
    const file = target()
    for (const options of [{ at: 'e_9' }, { at: 'r_10' }, { at: '' }, { lane: 'nobody' }]) {
      const error = await failure(forkSession(source, file, options))
      expect(error).toMatchObject({ code: 'unknown_entry', file: source })
    }
    expect(readdirSync(dirname(file))).toEqual([])
  })

  test('a place where anything is, and leaves no temporary file', async () => {
    const source = rich()
    const before = readFileSync(source)
    const place = folder()
    const taken = join(place, 'taken.jsonl')
    writeFileSync(taken, 'mine')
    writeFileSync(join(place, 'empty.jsonl'), '')
    mkdirSync(join(place, 'dir.jsonl'))
    symlinkSync(join(place, 'nowhere'), join(place, 'dangling.jsonl'))
    const names = ['dangling.jsonl', 'dir.jsonl', 'empty.jsonl', 'taken.jsonl']
    for (const file of [...names.map((name) => join(place, name)), source]) {
      expect(await failure(forkSession(source, file))).toMatchObject({ code: 'exists', file })
    }
    expect(readdirSync(place).sort()).toEqual(names)
    expect(readFileSync(taken, 'utf8')).toBe('mine')
    expect(readFileSync(source)).toEqual(before)
  })

  test('two forks to one name: one wins, whole', async () => {
    const source = rich()
    const file = target()
    const attempts = await Promise.allSettled([1, 2, 3, 4].map(() => forkSession(source, file)))
    expect(attempts.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole' })
    expect(readdirSync(dirname(file))).toEqual(['fork.jsonl'])
  })

  test('a corrupt source, with its line; what is no session; a folder that is not there', async () => {
    const file = target()
    const corrupt = fileOf(header, entry(1, null), '{"kind":"ent\n', entry(3, 'e_1'))
    expect(await failure(forkSession(corrupt, file))).toMatchObject({ code: 'corrupt', line: 3, file: corrupt })
    expect(await failure(forkSession(fileOf('diary\n'), file))).toMatchObject({ code: 'not_a_session' })
    expect(await failure(forkSession(fileOf({ ...header, version: 5 }), file))).toMatchObject({ code: 'newer_version' })
    expect(await failure(forkSession(join(folder(), 'no.jsonl'), file))).toMatchObject({ code: 'not_found' })
    const nowhere = join(folder(), 'no', 'fork.jsonl')
    expect(await failure(forkSession(rich(), nowhere))).toMatchObject({ code: 'not_found', file: nowhere })
    expect(existsSync(file)).toBe(false)
  })

  test('an entry that this package would not write', async () => {
    const deep = `${'['.repeat(600)}${']'.repeat(600)}`
    const line = JSON.stringify(entry(1, null)).replace('"data":1', `"data":${deep}`)
    const file = target()
    expect(await failure(forkSession(fileOf(header, `${line}\n`), file))).toMatchObject({ code: 'bad_draft', file })
    expect(readdirSync(dirname(file))).toEqual([])
  })
})

describe('the source', () => {
  test('may have a torn tail, or a last line without LF, and keeps it', async () => {
    for (const [tail, entries] of [
      ['{"kind":"entry","id":"e_', 1],
      [bytesOf(entry(3, 'e_1')).subarray(0, -1), 2],
    ] as const) {
      const source = fileOf(header, entry(1, null), tail)
      const before = readFileSync(source)
      const file = target()
      expect(await forkSession(source, file)).toMatchObject({ entries })
      expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole' })
      expect(readFileSync(source)).toEqual(before)
    }
  })

  test('may be at work in another process', async () => {
    const source = fileOf(header)
    const child = startChild('append', source)
    await child.heard(20)
    const place = folder()
    for (let round = 0; round < 4; round++) {
      const said = child.said.length
      const file = join(place, `${round}.jsonl`)
      const { entries } = await forkSession(source, file)
      expect(entries).toBeGreaterThan(0)
      expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole', entries })
      await child.heard(said + 1)
    }
  })
})

test('a fork that is killed in the middle leaves no half session, and can be made again', async () => {
  const data = 'x'.repeat(100_000)
  const lines = Array.from({ length: 40 }, (_, i) => entry(i + 1, i === 0 ? null : `e_${i}`, { data, ts: TS }))
  const source = fileOf(header, ...lines, record(100, { type: 'fact_set', key: 'label:e_40', value: 'end' }))
  const file = target()
  const place = dirname(file)
  const child = spawn(
    process.execPath,
    ['--conditions=@reve/source', fileURLToPath(new URL('fork-child.ts', import.meta.url)), source, file],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  onTestFinished(() => void child.kill('SIGKILL'))
  const ended = new Promise((resolve) => child.on('exit', (_code, signal) => resolve(signal)))
  await new Promise((resolve) => child.stdout.once('data', resolve))
  child.kill('SIGKILL')
  expect(await ended).toBe('SIGKILL')

  const [left = '', ...others] = readdirSync(place)
  expect(left).toMatch(/^fork\.jsonl\..*\.tmp$/)
  expect(others).toEqual([])
  const { size } = statSync(join(place, left))
  expect(size).toBeGreaterThan(1_000_000)
  expect(size).toBeLessThan(4_000_000)
  expect(await listSessions(place)).toEqual([])

  expect(await forkSession(source, file)).toMatchObject({ entries: 40, labels: 1 })
  expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole' })
  expect((await listSessions(place)).map((summary) => summary.file)).toEqual([file])
})
