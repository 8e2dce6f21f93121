import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { openAppendFile } from '../src/append-file.ts'
import { createSession, type Draft, openSession, readSession, verifySession } from '../src/index.ts'
import { brittle, bytesOf, errno, fact, failure, fileOf, folder, header, linesOn, note } from './helpers.ts'

const fresh = () => join(folder(), 'session.jsonl')

describe('append', () => {
  test('fills in id, seq, ts and the lane’s leaf; memory is what the disk says', async () => {
    const file = fresh()
    let clock = Date.UTC(2026, 0, 5, 10)
    await using log = await createSession(file, { cwd: 'w', id: 's_9', now: () => clock++ })
    const lines = await log.append([
      note('a'),
      fact('name', 'n'),
      note('b', { lane: 'side', parentId: null }),
      note('c'),
    ])
    expect(lines).toEqual([
      {
        kind: 'entry',
        id: lines[0]?.id,
        seq: 1,
        ts: '2026-01-05T10:00:00.001Z',
        lane: 'main',
        type: 'custom',
        parentId: null,
        customType: 'note',
        data: 'a',
      },
      {
        kind: 'record',
        id: lines[1]?.id,
        seq: 2,
        ts: lines[0]?.ts,
        lane: 'main',
        type: 'fact_set',
        key: 'name',
        value: 'n',
      },
      {
        kind: 'entry',
        id: lines[2]?.id,
        seq: 3,
        ts: lines[0]?.ts,
        lane: 'side',
        type: 'custom',
        parentId: null,
        customType: 'note',
        data: 'b',
      },
      {
        kind: 'entry',
        id: lines[3]?.id,
        seq: 4,
        ts: lines[0]?.ts,
        lane: 'main',
        type: 'custom',
        parentId: lines[0]?.id,
        customType: 'note',
        data: 'c',
      },
    ])
    expect(lines.map(({ id }) => id.slice(0, 2))).toEqual(['e_', 'r_', 'e_', 'e_'])
    expect(linesOn(file)).toEqual([log.header, ...lines])
    expect(log.lines).toEqual(lines)
    expect(log.fact('name')).toBe('n')
  })

  test('uses the ids and parents that are given', async () => {
    const file = fresh()
    await using log = await createSession(file, { cwd: 'w' })
    await log.append([note(1, { id: 'e_a' }), note(2, { id: 'e_b' }), note(3, { id: 'e_c', parentId: 'e_a' })])
    expect(log.children('e_a').map(({ id }) => id)).toEqual(['e_b', 'e_c'])
    expect(log.leaf('main')).toBe('e_c')
  })

  test('what the caller changes afterwards changes nothing', async () => {
    const file = fresh()
    await using log = await createSession(file, { cwd: 'w' })
    const data = { list: [1] }
    const done = log.append([note(data)])
    data.list.push(2)
    const [line] = await done
    expect(line?.['data']).toEqual({ list: [1] })
    expect(linesOn(file)[1]?.['data']).toEqual({ list: [1] })
  })

  test('nothing is in memory before it is on disk', async () => {
    const disk = brittle()
    await using log = await createSession(fresh(), { cwd: 'w', openFile: disk.openFile })
    let seen = -1
    disk.broken.write = async () => {
      seen = log.lines.length
      return 'go on'
    }
    await log.append([note(1)])
    expect(seen).toBe(0)
    expect(log.lines).toHaveLength(1)
  })
})

describe('group commit', () => {
  test('appends of one moment share one write and one sync, in order', async () => {
    const file = fresh()
    const disk = brittle()
    await using log = await createSession(file, { cwd: 'w', openFile: disk.openFile })
    const appended = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        log.append([note(i), fact('last', i)], { durability: i === 50 ? 'fsync' : 'flush' }),
      ),
    )
    expect(disk.writes).toHaveLength(1)
    expect(disk.calls.sync).toBe(1)
    expect(appended.flat()).toEqual(log.lines)
    expect(linesOn(file).slice(1)).toEqual(log.lines)
    expect(log.path(log.leaf('main')).map((entry) => entry['data'])).toEqual(Array.from({ length: 100 }, (_, i) => i))
  })

  test('what arrives during a write waits for the next one, all of it together', async () => {
    const disk = brittle()
    await using log = await createSession(fresh(), { cwd: 'w', openFile: disk.openFile })
    const gate = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    disk.broken.write = async () => {
      begun.resolve()
      await gate.promise
      return 'go on'
    }
    const first = log.append([note('first')])
    await begun.promise
    const later = ['a', 'b', 'c'].map((data) => log.append([note(data)]))
    gate.resolve()
    await Promise.all([first, ...later])
    expect(disk.writes).toHaveLength(2)
    expect(log.path(log.leaf('main')).map((entry) => entry['data'])).toEqual(['first', 'a', 'b', 'c'])
  })

  test('flush does not sync, fsync does, and the default is an option', async () => {
    const disk = brittle()
    const log = await createSession(fresh(), { cwd: 'w', openFile: disk.openFile })
    await log.append([note(1)])
    expect(disk.calls.sync).toBe(0)
    await log.append([note(2)], { durability: 'fsync' })
    await log.append([], { durability: 'fsync' })
    expect(disk.calls.sync).toBe(1)
    await log.append([note(3)])
    await log.close()
    expect(disk.calls.sync).toBe(2)
    const strict = await openSession(log.file, { durability: 'fsync', openFile: disk.openFile })
    await strict.append([note(3)])
    await strict.append([note(4)])
    expect(disk.calls.sync).toBe(4)
    await strict.append([note(5)], { durability: 'flush' })
    expect(disk.calls.sync).toBe(4)
    await strict.close()
  })

  test('a bad append among good ones fails alone, and what it would have named is not there', async () => {
    const file = fresh()
    await using log = await createSession(file, { cwd: 'w' })
    const results = await Promise.allSettled([
      log.append([note(1, { id: 'e_1' })]),
      log.append([note(2, { id: 'e_2' }), note(3, { parentId: 'nobody' })]),
      log.append([note(4, { id: 'e_4', parentId: 'e_2' })]),
      log.append([note(5, { id: 'e_5' })]),
    ])
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected', 'fulfilled'])
    expect(log.path('e_5').map(({ id }) => id)).toEqual(['e_1', 'e_5'])
    expect(log.lines.map(({ seq }) => seq)).toEqual([1, 2])
    expect((await verifySession(file)).ok).toBe(true)
  })
})

describe('a disk that fails faults the log', () => {
  const failures: Record<string, (disk: ReturnType<typeof brittle>) => void> = {
    'a short write': (disk) => (disk.broken.write = async () => 40),
    'a short write between two lines of the append': (disk) => (disk.broken.write = async () => 200),
    'a write of nothing': (disk) => (disk.broken.write = async () => 0),
    ENOSPC: (disk) => (disk.broken.write = () => Promise.reject(errno('ENOSPC'))),
    'EIO after some bytes': (disk) =>
      (disk.broken.write = async () => {
        await disk.file().write(Buffer.from('{"kind":"entry","id":"e_'))
        throw errno('EIO')
      }),
    EBADF: (disk) => (disk.broken.write = () => Promise.reject(errno('EBADF'))),
    'a sync that fails': (disk) => (disk.broken.sync = errno('EIO')),
  }
  const all = Object.entries(failures).flatMap(([name, breakIt]) => [
    { name, breakIt, truncatable: true },
    { name: `${name}, and the file cannot be brought back`, breakIt, truncatable: false },
  ])
  test.each(all)('$name', async ({ breakIt, truncatable }) => {
    const file = fresh()
    const disk = brittle()
    const log = await createSession(file, { cwd: 'w', openFile: disk.openFile })
    await log.append([note('kept', { id: 'e_kept' })])
    const before = readFileSync(file)
    breakIt(disk)
    if (!truncatable) disk.broken.truncate = errno('EIO')

    const failing = [
      log.append([note(1, { id: 'e_x' }), note(2, { id: 'e_y' })], { durability: 'fsync' }),
      log.append([note(3)]),
    ]
    const [first, second] = await Promise.all(failing.map(failure))
    expect(first?.code).toBe('io')
    expect(second?.code).toBe('io')
    // A sync that fails may fail again after the bytes were taken back: then nothing is claimed.
    const claims = truncatable && disk.broken.sync === undefined
    expect(first?.message).toContain(claims ? 'was brought back' : 'could not be brought back')
    // The disk is well again, and still nothing is accepted.
    delete disk.broken.write
    delete disk.broken.sync
    const refused = await failure(log.append([note(4)]))
    expect(refused.code).toBe('faulted')
    expect(refused.cause).toBe(first)
    expect(log.lines.map(({ id }) => id)).toEqual(['e_kept'])
    expect(!truncatable || readFileSync(file).equals(before)).toBe(true)
    await log.close()

    const again = await openSession(file)
    const [line] = await again.append([note('after')])
    await again.close()
    // Every line in the file is whole, what was acknowledged is there, and the new line is the last one.
    expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole' })
    expect(linesOn(file)[1]).toMatchObject({ id: 'e_kept' })
    expect(linesOn(file).at(-1)).toEqual(line)
    expect(readFileSync(file).subarray(0, before.length)).toEqual(before)
  })

  test('appends that waited behind the failed one are refused as faulted', async () => {
    const disk = brittle()
    await using log = await createSession(fresh(), { cwd: 'w', openFile: disk.openFile })
    const begun = Promise.withResolvers<void>()
    const gate = Promise.withResolvers<void>()
    disk.broken.write = async () => {
      begun.resolve()
      await gate.promise
      throw errno('ENOSPC')
    }
    const first = failure(log.append([note(1)]))
    await begun.promise
    const second = failure(log.append([note(2)]))
    gate.resolve()
    expect((await first).code).toBe('io')
    expect((await second).code).toBe('faulted')
    expect(disk.writes).toHaveLength(1)
  })

  test('a full disk for real', async ({ skip }) => {
    const full = '/dev/full'
    if (!statSync(full, { throwIfNoEntry: false })?.isCharacterDevice()) skip('no /dev/full here')
    const file = fileOf(header)
    const device = await openAppendFile(full)
    const log = await openSession(file, {
      openFile: async (path) => ({ ...(await openAppendFile(path)), write: (bytes) => device.write(bytes) }),
    })
    const error = await failure(log.append([note(1)]))
    expect(error).toMatchObject({ code: 'io', cause: { code: 'ENOSPC' } })
    await log.close()
    await device.close()
    expect(readFileSync(file)).toEqual(bytesOf(header))
  })
})

describe('close', () => {
  test('waits for what was accepted, refuses the rest, and still answers questions', async () => {
    const file = fresh()
    const log = await createSession(file, { cwd: 'w' })
    const pending = log.append([note(1, { id: 'e_1' })])
    const closed = log.close()
    expect((await failure(log.append([note(2)]))).code).toBe('closed')
    await closed
    await pending
    await log.close()
    expect(log.leaf('main')).toBe('e_1')
    expect(linesOn(file)).toHaveLength(2)
  })

  test('a sync that fails at close is told, and the lock is free', async () => {
    const disk = brittle()
    const log = await createSession(fresh(), { cwd: 'w', openFile: disk.openFile })
    await log.append([note(1)])
    disk.broken.sync = errno('EIO')
    expect((await failure(log.close())).code).toBe('io')
    await (await openSession(log.file)).close()
  })

  test('a second opener of the same process is refused until then', async () => {
    const log = await createSession(fresh(), { cwd: 'w' })
    expect(await failure(openSession(log.file))).toMatchObject({ code: 'locked', pid: process.pid })
    await log.close()
    await (await openSession(log.file)).close()
  })
})

test('a file that something changes without the lock is not opened', async () => {
  const file = fileOf(header)
  const disk = brittle()
  const error = await failure(
    openSession(file, {
      openFile: async (path) => {
        const output = await disk.openFile(path)
        await output.write(Buffer.from('{}\n'))
        return output
      },
    }),
  )
  expect(error.code).toBe('io')
  expect(readFileSync(file)).toEqual(bytesOf(header, {}))
})

test('reading while a writer writes sees whole lines only, and never fails', async () => {
  const log = await createSession(fresh(), { cwd: 'w' })
  const writer = { done: false }
  const writing = (async () => {
    for (let i = 0; i < 400; i++) await log.append([note('x'.repeat(i * 50)), note(i)])
    writer.done = true
  })()
  let reads = 0
  let last = 0
  while (!writer.done) {
    const view = await readSession(log.file)
    expect(view.lines).toEqual(log.lines.slice(0, view.lines.length))
    expect(view.lines.length).toBeGreaterThanOrEqual(last)
    last = view.lines.length
    reads++
  }
  await writing
  await log.close()
  expect(reads).toBeGreaterThan(0)
  expect((await readSession(log.file)).lines).toEqual(log.lines)
})

test('whatever is appended is read back the same (property)', async () => {
  const draft = fc.record<Draft & object>({
    kind: fc.constant('record' as const),
    lane: fc.constantFrom('main', 'side'),
    type: fc.constantFrom('a', 'b'),
    payload: fc
      .dictionary(
        fc.string({ unit: 'binary' }).map((key) => `k${key}`),
        fc.jsonValue({ stringUnit: 'binary' }),
      )
      .map((value) => JSON.parse(JSON.stringify(value))),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(draft, { maxLength: 4 }), { maxLength: 6 }), async (appends) => {
      const file = fileOf(header)
      const log = await openSession(file)
      const lines = (await Promise.all(appends.map((drafts) => log.append(drafts)))).flat()
      await log.close()
      expect((await readSession(file)).lines).toEqual(lines)
      expect(
        lines.map(({ kind: _kind, id: _id, seq: _seq, ts: _ts, lane: _lane, type: _type, ...payload }) => payload),
      ).toEqual(appends.flat().map(({ payload }) => payload))
    }),
    { numRuns: 40 },
  )
})
