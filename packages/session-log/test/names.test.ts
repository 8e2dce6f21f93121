import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createSession, listSessions, nameDraft, openSession, restateName, sessionName } from '../src/index.ts'
import { fact, folder, note } from './helpers.ts'

const listedName = async (place: string) => {
  const [summary] = await listSessions(place)
  return summary?.kind === 'session' ? summary.name : summary?.problem
}

describe('names', () => {
  test('the last one counts; a value that is no text is no name', async () => {
    await using log = await createSession(join(folder(), 's.jsonl'), { cwd: 'w' })
    expect(sessionName(log)).toBeUndefined()
    await log.append([nameDraft('first'), nameDraft('  Groß 😀 ')])
    expect(sessionName(log)).toBe('Groß 😀')
    await log.append([fact('name', 7)])
    expect(sessionName(log)).toBeUndefined()
  })

  test.each(['', '  ', 'a\rb', 'bell\u0007', 'x'.repeat(201)])('%j is refused', (name) => {
    expect(() => nameDraft(name)).toThrow(
      expect.objectContaining({ code: 'bad_draft', message: expect.stringMatching(/^the name: it /) }),
    )
  })
})

describe('restateName', () => {
  const long = (kib: number) => Array.from({ length: kib }, (_, i) => note(`${i}`.padEnd(1000, 'ä')))

  test('a name that the middle of a long file hides is said again, once', async () => {
    const place = folder()
    const log = await createSession(join(place, 's.jsonl'), { cwd: 'w' })
    expect(await restateName(log)).toBe(false)
    await log.append([...long(60), nameDraft('in the middle'), ...long(5)])
    expect(await restateName(log)).toBe(false)
    await log.append(long(100))
    expect(await listedName(place)).toBeUndefined()

    expect(await restateName(log)).toBe(true)
    expect(await listedName(place)).toBe('in the middle')
    const count = log.lines.length
    expect(await restateName(log)).toBe(false)
    expect(log.lines).toHaveLength(count)
    await log.close()

    // An owner that was killed could not do it: the next one does.
    await using again = await openSession(log.file)
    await again.append(long(200))
    expect(await restateName(again)).toBe(true)
    expect(await listedName(place)).toBe('in the middle')
  })

  test('at every size, a name is in sight after it', async () => {
    const place = folder()
    await using log = await createSession(join(place, 's.jsonl'), { cwd: 'w' })
    await log.append([nameDraft('old'), ...long(70), nameDraft('Groß 😀')])
    for (let round = 0; round < 80; round++) {
      await log.append([note('€'.repeat((round * 379) % 3000))])
      await restateName(log)
      expect(await listedName(place)).toBe('Groß 😀')
    }
  })
})
