import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openSession, salvageSession, verifySession } from '../src/index.ts'
import { bytesOf, entry, failure, fileOf, folder, header, note, record } from './helpers.ts'

const good = bytesOf(header, entry(1, null), record(2), entry(3, 'e_1', { data: '€'.repeat(1_000_000) }))

describe('salvageSession', () => {
  test('copies the lines before the first that is refused; the copy opens, the source keeps every byte', async () => {
    const bytes = bytesOf(good, '{"kind":"ent\n', entry(5, 'e_3'))
    const file = fileOf(bytes)
    const target = join(folder(), 'saved.jsonl')
    const report = await salvageSession(file, target)
    expect(report).toMatchObject({
      target,
      lines: 4,
      bytes: good.length,
      droppedBytes: bytes.length - good.length,
      problem: { line: 5, code: 'not_json' },
    })
    expect(readFileSync(file)).toEqual(bytes)
    expect(readFileSync(target)).toEqual(good)
    expect(statSync(target).mode & 0o777).toBe(0o600)
    await using log = await openSession(target)
    await log.append([note('goes on')])
    expect(log.path(log.leaf('main'))).toHaveLength(3)
  })

  const tails: Record<string, { readonly bytes: Buffer; readonly kept: Buffer }> = {
    'a torn tail': { bytes: bytesOf(good, '{"kind":'), kept: good },
    'nothing wrong': { bytes: good, kept: good },
    'a last line without LF': { bytes: good.subarray(0, -1), kept: good },
    'a refused second line': { bytes: bytesOf(header, header), kept: bytesOf(header) },
  }
  test.each(Object.entries(tails))('%s', async (_name, { bytes, kept }) => {
    const file = fileOf(bytes)
    const target = join(folder(), 'saved.jsonl')
    await salvageSession(file, target)
    expect(readFileSync(target)).toEqual(kept)
    expect(await verifySession(target)).toMatchObject({ ok: true, tail: 'whole' })
    expect(readFileSync(file)).toEqual(bytes)
  })

  test('never replaces anything, and leaves no temporary file', async () => {
    const file = fileOf(good, 'x\n', header)
    const place = folder()
    const taken = join(place, 'taken.jsonl')
    const empty = join(place, 'empty.jsonl')
    const dir = join(place, 'dir.jsonl')
    const dangling = join(place, 'dangling.jsonl')
    writeFileSync(taken, 'mine')
    writeFileSync(empty, '')
    mkdirSync(dir)
    symlinkSync(join(place, 'nowhere'), dangling)
    for (const target of [taken, empty, dir, dangling, file])
      expect((await failure(salvageSession(file, target))).code).toBe('exists')
    expect(readFileSync(taken, 'utf8')).toBe('mine')
    expect(statSync(empty).size).toBe(0)
    expect(existsSync(join(place, 'nowhere'))).toBe(false)
    expect(readdirSync(place).sort()).toEqual(['dangling.jsonl', 'dir.jsonl', 'empty.jsonl', 'taken.jsonl'])
  })

  test('a source that is no session, or not there, makes no target', async () => {
    const target = join(folder(), 'saved.jsonl')
    expect((await failure(salvageSession(fileOf('diary\n'), target))).code).toBe('not_a_session')
    expect((await failure(salvageSession(fileOf({ ...header, version: 5 }), target))).code).toBe('newer_version')
    expect((await failure(salvageSession(`${target}.nope`, target))).code).toBe('not_found')
    expect((await failure(salvageSession(fileOf(good), join(target, 'deeper.jsonl')))).code).toBe('not_found')
    expect(existsSync(target)).toBe(false)
  })
})
