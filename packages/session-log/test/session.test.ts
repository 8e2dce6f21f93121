import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createSession, openSession } from '../src/index.ts'
import { bytesOf, errno, failure, fileOf, folder, header, linesOn, note, TS } from './helpers.ts'

describe('createSession', () => {
  test('a private file with the header, and nothing else but the lock', async () => {
    const place = folder()
    const file = join(place, 'talk.jsonl')
    await using log = await createSession(file, {
      cwd: '/workspace',
      id: 's_7',
      now: () => Date.parse(TS),
      extra: { agent: { name: 'ada' } },
    })
    expect(log.header).toEqual({
      kind: 'header',
      version: 4,
      id: 's_7',
      cwd: '/workspace',
      ts: TS,
      agent: { name: 'ada' },
    })
    expect(readFileSync(file)).toEqual(bytesOf(log.header))
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(statSync(file).nlink).toBe(1)
    expect(readdirSync(place).sort()).toEqual(['talk.jsonl', 'talk.jsonl.lock'])
    expect([log.lines, log.lanes(), log.leaf('main'), log.repaired]).toEqual([[], [], null, undefined])
  })

  test('an empty file in the place is taken', async () => {
    const file = join(folder(), 'talk.jsonl')
    writeFileSync(file, '')
    await (await createSession(file, { cwd: 'w' })).close()
    expect(linesOn(file)).toHaveLength(1)
  })

  test('what is there already is refused, byte for byte', async () => {
    const file = fileOf('not a session')
    const dangling = join(folder(), 'dangling.jsonl')
    symlinkSync(join(folder(), 'nowhere'), dangling)
    const dir = join(folder(), 'dir.jsonl')
    mkdirSync(dir)
    for (const place of [file, dangling, dir])
      expect((await failure(createSession(place, { cwd: 'w' }))).code).toBe('exists')
    expect(readFileSync(file, 'utf8')).toBe('not a session')
    expect(existsSync(`${file}.lock`)).toBe(false)
    expect(readdirSync(join(dangling, '..')).filter((name) => name.endsWith('.tmp'))).toEqual([])
  })

  test('two that create the same file: one does', async () => {
    const file = join(folder(), 'talk.jsonl')
    const results = await Promise.allSettled(['a', 'b', 'c'].map((id) => createSession(file, { cwd: 'w', id })))
    const made = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
    expect(made).toHaveLength(1)
    expect(linesOn(file)).toEqual([made[0]?.header])
    const refusals = results.flatMap((result) => (result.status === 'rejected' ? [String(result.reason.code)] : []))
    expect(refusals.filter((code) => code !== 'exists' && code !== 'locked')).toEqual([])
    await made[0]?.close()
  })

  test('a folder that is not there; a header that nobody could read', async () => {
    const file = join(folder(), 'no', 'talk.jsonl')
    expect((await failure(createSession(file, { cwd: 'w' }))).code).toBe('not_found')
    const place = join(folder(), 'talk.jsonl')
    for (const options of [
      { cwd: 'w', id: '' },
      { cwd: 'w', id: 'a\nb' },
      { cwd: 'w', extra: { version: 9 } },
      { cwd: 'w', extra: { v: 9 } },
      { cwd: 'w', extra: { storageVersion: 9 } },
      { cwd: 'w', extra: { type: 'session' }, id: '' },
      { cwd: 'w', extra: { big: 'x'.repeat(2 ** 20) } },
      { cwd: 'w', extra: { n: Number.NaN } },
    ]) {
      expect((await failure(createSession(place, options))).code).toBe('bad_draft')
    }
    expect(readdirSync(join(place, '..'))).toEqual([])
  })

  test('what was created opens, whatever its header holds', async () => {
    const file = join(folder(), 'talk.jsonl')
    const log = await createSession(file, { cwd: 'ö\ud800\n', extra: { type: 'mine' } })
    await log.close()
    await using again = await openSession(file)
    expect(again.header).toEqual(log.header)
    expect(again.header.cwd).toBe('ö\ufffd\n')
  })
})

describe('openSession', () => {
  test('goes on counting where the file ends', async () => {
    const file = fileOf(header, { kind: 'record', id: 'r_1', seq: 41, ts: TS, lane: 'main', type: 'x' })
    await using log = await openSession(file)
    const lines = await log.append([note(1), note(2)])
    expect(lines.map(({ seq }) => seq)).toEqual([42, 43])
  })

  test('one lock for all names that links give a file', async () => {
    const place = folder()
    const file = join(place, 'talk.jsonl')
    const log = await createSession(file, { cwd: 'w' })
    const linked = join(folder(), 'other.jsonl')
    const through = join(folder(), 'through')
    symlinkSync(file, linked)
    symlinkSync(place, through)
    for (const name of [
      file,
      linked,
      join(through, 'talk.jsonl'),
      join(place, '.', '..', place.split('/').at(-1) ?? '', 'talk.jsonl'),
    ]) {
      expect(await failure(openSession(name))).toMatchObject({
        code: 'locked',
        pid: process.pid,
        file: realpathSync(file),
      })
    }
    await log.close()
    await using again = await openSession(linked)
    expect(again.file).toBe(realpathSync(file))
    expect((await failure(openSession(file))).code).toBe('locked')
  })

  test('a refusal and a failure give the lock back', async () => {
    const file = fileOf(header, '{"a"\n', header)
    await failure(openSession(file))
    writeFileSync(file, bytesOf(header))
    expect((await failure(openSession(file, { openFile: () => Promise.reject(errno('EACCES')) }))).code).toBe('io')
    await (await openSession(file)).close()
  })

  test('a tail that cannot be mended is an error, and the lock is free', async () => {
    const file = fileOf(header, '{"kind":')
    const before = readFileSync(file)
    const openFile = async () => ({
      write: () => Promise.reject(errno('EROFS')),
      sync: () => Promise.reject(errno('EROFS')),
      truncate: () => Promise.reject(errno('EROFS')),
      size: async () => before.length,
      close: async () => undefined,
    })
    expect(await failure(openSession(file, { openFile }))).toMatchObject({ code: 'io', file })
    expect(readFileSync(file)).toEqual(before)
    await (await openSession(file)).close()
  })

  test('a hard link is another name without a link to follow: it opens on its own', async () => {
    const file = fileOf(header)
    const other = join(folder(), 'hard.jsonl')
    linkSync(file, other)
    await using log = await openSession(other)
    expect(log.file).toBe(realpathSync(other))
  })
})
