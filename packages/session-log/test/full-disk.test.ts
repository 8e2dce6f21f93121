import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { openAppendFile } from '../src/append-file.ts'
import { createSession, openSession, readSession, type SessionLog, verifySession } from '../src/index.ts'
import { failure, linesOn, note } from './helpers.ts'

/** A file system of 256 KiB, for as long as the test runs; or why there is none. */
function mountSmall(): { readonly place: string; readonly unmount: () => void } | { readonly refused: string } {
  const place = mkdtempSync(join(tmpdir(), 'session-log-full-'))
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', place], { stdio: 'pipe' })
  } catch (error) {
    rmSync(place, { recursive: true })
    return { refused: error instanceof Error ? error.message : String(error) }
  }
  return {
    place,
    unmount: () => {
      execFileSync('umount', ['-l', place])
      rmSync(place, { recursive: true })
    },
  }
}

const probe = mountSmall()
if ('unmount' in probe) probe.unmount()
else process.stderr.write(`skipped, a small file system cannot be mounted here: ${probe.refused}\n`)

function smallDisk(): string {
  const disk = mountSmall()
  if ('refused' in disk) throw new Error(disk.refused)
  onTestFinished(disk.unmount)
  return disk.place
}

/** Appends until the disk says no. */
async function fill(log: SessionLog, bytes: number) {
  const acknowledged: string[] = []
  for (;;) {
    try {
      for (const { id } of await log.append([note('x'.repeat(bytes)), note('y')])) acknowledged.push(id)
    } catch (error) {
      return { acknowledged, error }
    }
  }
}

describe.skipIf('refused' in probe)('a full disk', () => {
  test.each([
    { name: 'small lines', bytes: 700 },
    { name: 'lines longer than a page', bytes: 9000 },
    { name: 'one line longer than the disk', bytes: 400_000 },
  ])('$name: typed, faulted, nothing half in the file, nothing lost, and it goes on with space', async ({ bytes }) => {
    const place = smallDisk()
    const file = join(place, 'session.jsonl')
    const log = await createSession(file, { cwd: 'w' })
    await log.append([note('first', { id: 'e_first' })])
    const { acknowledged, error } = await fill(log, bytes)
    expect(error).toMatchObject({ code: 'io', file })
    expect(String(error)).toMatch(/ENOSPC|only \d+ of \d+ bytes/)
    expect((await failure(log.append([note('more')]))).code).toBe('faulted')
    const ids = ['e_first', ...acknowledged]
    expect(log.lines.map(({ id }) => id)).toEqual(ids)

    // Whole lines and nothing else, also for whoever looks now.
    expect(
      linesOn(file)
        .slice(1)
        .map(({ id }) => id),
    ).toEqual(ids)
    expect((await readSession(file)).torn).toBe(false)
    await log.close()

    // Still full: opening a whole file takes no space.
    const full = await openSession(file)
    expect(full.repaired).toBeUndefined()
    expect(full.lines).toHaveLength(ids.length)
    await full.close()

    execFileSync('mount', ['-o', 'remount,size=2m', place])
    const again = await openSession(file)
    const [line] = await again.append([note('after')], { durability: 'fsync' })
    await again.close()
    expect(
      linesOn(file)
        .slice(1)
        .map(({ id }) => id),
    ).toEqual([...ids, line?.id])
    expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole' })
  })

  test('a session that cannot be created leaves nothing behind', async () => {
    const place = smallDisk()
    writeFileSync(join(place, 'filler'), Buffer.alloc(4096))
    const filler = await openAppendFile(join(place, 'filler'))
    try {
      for (;;) await filler.write(Buffer.alloc(4096))
    } catch (error) {
      expect(error).toMatchObject({ code: 'ENOSPC' })
    }
    const file = join(place, 'session.jsonl')
    expect((await failure(createSession(file, { cwd: 'w' }))).code).toBe('io')
    expect(statSync(file, { throwIfNoEntry: false })).toBeUndefined()
    await filler.truncate(0)
    await filler.close()
    await (await createSession(file, { cwd: 'w' })).close()
    expect(readFileSync(file, 'utf8').split('\n')).toHaveLength(2)
  })
})
