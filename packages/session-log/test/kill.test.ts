import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { createSession, openSession, readSession, verifySession } from '../src/index.ts'
import { failure, fileOf, folder, header, linesOn, note } from './helpers.ts'
import { startChild } from './processes.ts'

const run = promisify(execFile)

const KILLS = Number(process.env['REVE_KILLS'] ?? 40)

test(`${KILLS} times SIGKILL at a random instant: every acknowledged line is there, and nothing is half there`, async () => {
  const file = join(folder(), 'session.jsonl')
  await (await createSession(file, { cwd: 'w' })).close()
  const acknowledged: (readonly [id: unknown, seq: unknown])[] = []
  let before = readFileSync(file)
  for (let kill = 0; kill < KILLS; kill++) {
    const child = startChild('append', file)
    await child.heard(2)
    await sleep(Math.random() * 60)
    child.process.kill('SIGKILL')
    expect((await child.ended).signal).toBe('SIGKILL')
    acknowledged.push(...child.said.flatMap(({ id, seq }) => (id === undefined ? [] : [[id, seq] as const])))

    // Before anything mends it, it is readable, and what was there is untouched.
    await readSession(file)
    expect(before.equals(readFileSync(file).subarray(0, before.length))).toBe(true)
    const log = await openSession(file)
    const seqs = new Map(log.lines.map((line) => [line.id, line.seq]))
    expect(acknowledged.filter(([id, seq]) => seqs.get(String(id)) !== seq)).toEqual([])
    expect(log.path(log.leaf('main'))).toHaveLength(log.lines.length)
    await log.append([note(`after kill ${kill}`)])
    await log.close()
    expect(await verifySession(file)).toMatchObject({ ok: true, tail: 'whole' })
    before = readFileSync(file)
  }
  expect(acknowledged.length).toBeGreaterThan(KILLS)
}, 600_000)

test('the lock: a second process is refused with the holder’s pid, a reader is not, and SIGKILL frees it', async () => {
  const file = fileOf(header)
  const holder = startChild('hold', file)
  await holder.heard(1)
  const error = await failure(openSession(file))
  expect(error).toMatchObject({ code: 'locked', pid: holder.process.pid, file })
  expect(error.message).toContain(`process ${holder.process.pid}`)
  expect((await readSession(file)).header.id).toBe('s_1')
  expect((await verifySession(file)).ok).toBe(true)

  const second = startChild('hold', file)
  const { code, stderr } = await second.ended
  expect(code).toBe(1)
  expect(stderr).toContain(`process ${holder.process.pid}`)

  holder.process.kill('SIGKILL')
  await holder.ended
  await (await openSession(file)).close()
})

test('a stopped holder still holds; it goes on when it is continued, and SIGKILL frees what it held', async () => {
  const file = fileOf(header)
  const holder = startChild('append', file)
  await holder.heard(10)
  for (let round = 0; round < 3; round++) {
    holder.process.kill('SIGSTOP')
    await stopped(holder.process.pid)
    const frozen = readFileSync(file)
    const error = await failure(openSession(file))
    expect(error).toMatchObject({ code: 'locked', pid: holder.process.pid })
    expect(error.message).toContain(`process ${holder.process.pid}`)
    // Whatever it was stopped in, what is on disk can be read and stays as it is.
    expect((await readSession(file)).lines.length).toBeGreaterThan(0)
    expect(await verifySession(file)).toMatchObject({ ok: true })
    expect(readFileSync(file).equals(frozen)).toBe(true)
    const heard = holder.said.length
    holder.process.kill('SIGCONT')
    await holder.heard(heard + 10)
  }
  holder.process.kill('SIGSTOP')
  await stopped(holder.process.pid)
  holder.process.kill('SIGKILL')
  expect((await holder.ended).signal).toBe('SIGKILL')
  await using log = await openSession(file)
  const ids = new Set(log.lines.map(({ id }) => id))
  expect(holder.said.filter(({ id }) => typeof id === 'string' && !ids.has(id))).toEqual([])
})

test('reading never fails because another process writes, and sees more and more of the same', async () => {
  const file = join(folder(), 'session.jsonl')
  await (await createSession(file, { cwd: 'w' })).close()
  const writer = startChild('append', file)
  await writer.heard(3)
  let last: readonly string[] = []
  for (let reads = 0; reads < 12; reads++) {
    const acknowledged = writer.said.flatMap(({ id }) => (typeof id === 'string' ? [id] : []))
    const ids = (await readSession(file)).lines.map(({ id }) => id)
    const seen = new Set(ids)
    expect(acknowledged.filter((id) => !seen.has(id))).toEqual([])
    expect(ids.slice(0, last.length)).toEqual(last)
    expect(ids.length).toBeGreaterThan(0)
    expect((await verifySession(file)).ok).toBe(true)
    last = ids
    await writer.heard(writer.said.length + 1)
  }
  writer.process.kill('SIGKILL')
  await writer.ended
  expect((await readSession(file)).lines.slice(0, last.length).map(({ id }) => id)).toEqual(last)
})

/** Resolves when the system says that the process is stopped: a signal takes its time. */
async function stopped(pid: number | undefined): Promise<void> {
  for (;;) {
    const { stdout } = await run('ps', ['-o', 'stat=', '-p', String(pid)])
    if (stdout.trim().startsWith('T')) return
  }
}

test('a file that may grow no further: a real short write, and a whole file after reopening', async () => {
  const file = fileOf(header)
  // 64 blocks of 512 bytes; the signal that comes with the limit is ignored, so that the write reports it.
  const child = startChild('fill', file, "trap '' XFSZ; ulimit -f 64")
  const { stderr } = await child.ended
  const last = child.said.at(-1)
  expect({ ...last, stderr }).toMatchObject({ failed: 'io', stderr: '' })
  expect(last?.['message']).toMatch(/only \d+ of \d+ bytes were written/)
  const ids = child.said.flatMap(({ id }) => (typeof id === 'string' ? [id] : []))
  expect(ids.length).toBeGreaterThan(10)
  const log = await openSession(file)
  expect(log.repaired).toBeUndefined()
  expect(log.lines.map(({ id }) => id)).toEqual(ids)
  await log.append([note('after')])
  await log.close()
  expect(linesOn(file)).toHaveLength(ids.length + 2)
})
