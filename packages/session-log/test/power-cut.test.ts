import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { createSession, type Draft, openSession, readSession, salvageSession, SessionLogError } from '../src/index.ts'
import { bytesOf, failure, fileOf, folder, header, note, record } from './helpers.ts'
import { type Choose, SimDisk } from './sim-disk.ts'

type Append = { readonly texts: readonly number[]; readonly fsync: boolean; readonly wait: boolean }

const append: fc.Arbitrary<Append> = fc.record({
  texts: fc.array(fc.oneof(fc.nat(60), fc.nat(900), fc.nat(9000)), { minLength: 1, maxLength: 4 }),
  fsync: fc.boolean(),
  wait: fc.boolean(),
})
/** What the disk does when it may choose: endless, the same for the same seed. */
const choices = fc.infiniteStream(fc.nat(2 ** 30))
const chooser =
  (stream: Iterator<number>): Choose =>
  (below) =>
    (stream.next().value ?? 0) % below

const draft = (length: number, index: number): Draft =>
  index % 3 === 2
    ? { kind: 'record', lane: 'main', type: 'usage', payload: { filler: 'r'.repeat(length) } }
    : { kind: 'entry', lane: 'main', type: 'message', payload: { message: { text: 'ä'.repeat(length >> 1) } } }

/** What the log promised, and everything that it was ever asked to write. */
type Promised = { durable: number; readonly offered: Map<string, string> }

/** Appends until done or dead. Notes the highest `seq` that is promised to survive. */
async function work(
  file: string,
  disk: SimDisk,
  appends: readonly Append[],
  calls: number,
  choose: Choose,
): Promise<Promised> {
  const promised: Promised = { durable: 0, offered: new Map() }
  const log = await openSession(file, { openFile: disk.openFile(calls, choose) })
  let count = log.lines.length
  let id = 0
  let last: Promise<unknown> = Promise.resolve()
  for (const { texts, fsync, wait } of appends) {
    const drafts = texts.map((length) => ({ ...draft(length, count++), id: `n_${++id}` }))
    for (const each of drafts) promised.offered.set(each.id, JSON.stringify(each.payload))
    const done = log.append(drafts, { durability: fsync ? 'fsync' : 'flush' }).then(
      (lines) => {
        if (fsync) promised.durable = Math.max(promised.durable, lines.at(-1)?.seq ?? 0)
      },
      (error: unknown) => {
        if (!(error instanceof SessionLogError)) throw error
        expect(['io', 'faulted']).toContain(error.code)
      },
    )
    last = Promise.all([last, done])
    if (wait) await last
  }
  await last
  // The machine is off: nobody closes anything. The lock alone must go, as it does with its process.
  await log.close().catch((error: unknown) => expect(error).toBeInstanceOf(SessionLogError))
  return promised
}

/** The lines before a bad one, by way of salvage. */
async function salvaged(file: string) {
  const target = join(folder(), 'saved.jsonl')
  await salvageSession(file, target)
  return readSession(target)
}

test('power goes at any moment and takes any subset of the unsynced blocks: what was synced is there, and nothing was made up (property)', async () => {
  let refusals = 0
  let mended = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(append, { minLength: 1, maxLength: 10 }),
      fc.constantFrom(512, 4096),
      fc.nat(24),
      fc.nat(3),
      choices,
      async (appends, blockBytes, calls, mendCalls, stream) => {
        const choose = chooser(stream)
        const file = join(folder(), 'session.jsonl')
        await (await createSession(file, { cwd: 'w' })).close()
        const disk = new SimDisk(file, blockBytes)
        const { durable, offered } = await work(file, disk, appends, calls, choose)

        const survivors = (lines: readonly { readonly id: string; readonly seq: number }[]) => {
          // Everything up to the last promise, in one piece, and no line that nobody appended.
          expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, index) => index + 1))
          expect(lines.length).toBeGreaterThanOrEqual(durable)
          for (const { kind: _k, id, seq: _s, ts: _t, lane: _l, type: _y, parentId: _p, ...payload } of lines.map(
            (line): Record<string, unknown> & { readonly id: string } => ({ ...line }),
          ))
            expect(JSON.stringify(payload)).toBe(offered.get(id))
        }

        // Twice: the second time power goes while the tail is being mended.
        disk.cut(choose)
        const afterFirst = readFileSync(file)
        try {
          await (await openSession(file, { openFile: disk.openFile(mendCalls, choose) })).close()
        } catch (error) {
          if (!(error instanceof SessionLogError)) throw error
          expect(['corrupt', 'io']).toContain(error.code)
          if (error.code === 'corrupt') {
            refusals++
            expect(readFileSync(file)).toEqual(afterFirst)
            survivors((await salvaged(file)).lines)
            return
          }
        }
        disk.cut(choose)
        const log = await openSession(file, { openFile: disk.openFile(Infinity, choose) })
        if (log.repaired !== undefined) mended++
        survivors(log.lines)
        const [line] = await log.append([note('after')], { durability: 'fsync' })
        await log.close()
        disk.cut(choose)
        const again = await readSession(file)
        expect([again.torn, again.lines.at(-1)]).toEqual([false, line])
        survivors(again.lines.slice(0, -1))
      },
    ),
    { numRuns: 400 },
  )
  // The disk did its worst: both ways out were seen.
  expect(refusals).toBeGreaterThan(0)
  expect(mended).toBeGreaterThan(0)
})

test('the disk of this test does lose blocks: a middle one, and the end of the file', async () => {
  const lines = Array.from({ length: 12 }, (_, index) => record(index + 1, { filler: 'x'.repeat(700) }))
  const outcomes = new Set<string>()
  for (let seed = 0; seed < 64; seed++) {
    const file = fileOf(header)
    const disk = new SimDisk(file, 512)
    const port = await disk.openFile(Infinity, () => 0)(file)
    await port.write(bytesOf(...lines.slice(0, 4)))
    await port.sync()
    await port.write(bytesOf(...lines.slice(4)))
    let state = seed
    disk.cut((below) => (state = (state * 48271 + 11) % 2147483647) % below)
    const synced = bytesOf(header, ...lines.slice(0, 4))
    expect(readFileSync(file).subarray(0, synced.length)).toEqual(synced)
    try {
      const view = await readSession(file)
      expect(view.lines.length).toBeGreaterThanOrEqual(4)
      outcomes.add(view.torn ? 'torn' : 'whole')
    } catch (error) {
      if (!(error instanceof SessionLogError)) throw error
      outcomes.add(error.code)
    }
  }
  expect([...outcomes].sort()).toEqual(['corrupt', 'torn', 'whole'])
})

test('a tail that was cut stays cut: the mend is synced before anything is appended', async () => {
  const file = fileOf(header, record(1), '{"kind":"rec')
  const disk = new SimDisk(file, 512)
  const log = await openSession(file, { openFile: disk.openFile(Infinity, () => 0) })
  await log.append([note(1)])
  // Everything since the last sync is lost: the append, size and all; not the mend.
  disk.cut(() => 0)
  expect(readFileSync(file)).toEqual(bytesOf(header, record(1)))
  await log.close()
  writeFileSync(file, bytesOf(header, '{"kind":"entry"}\n', record(2)))
  expect((await failure(openSession(file))).code).toBe('corrupt')
})
