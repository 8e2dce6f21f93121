import { messageOf } from '@reve/base'
import { createScriptedModel, type Model } from '@reve/providers/model'
import { createSession, openSession, type SessionLog, verifySession } from '@reve/session-log'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type Harness, pendingMessages, type Tool } from '../src/index.ts'
import { aborted, checkProjection, gate, recordsOf, rig, said, trace } from './support.ts'

/** Mounts a disk of so many KiB on the folder. */
const mount = (folder: string, kib: number): readonly [string, readonly string[]] => [
  'mount',
  ['-t', 'tmpfs', '-o', `size=${kib}k`, 'tmpfs', folder],
]

/** Why no small disk can be mounted here; undefined when it can. */
function cannotMount(): string | undefined {
  if (process.platform !== 'linux') return 'the small disk is a tmpfs of Linux'
  const folder = mkdtempSync(join(tmpdir(), 'harness-probe-'))
  try {
    const { status, stderr, error } = spawnSync(...mount(folder, 64), { encoding: 'utf8' })
    if (status !== 0) return `a tmpfs cannot be mounted: ${(error?.message ?? stderr).trim()}`
    execFileSync('umount', [folder])
    return undefined
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const why = cannotMount()
if (why !== undefined) console.warn(`full-disk.test.ts is skipped: ${why}`)

/** A session on a disk of its own, with a ballast on it: without that there is room again. */
async function smallDisk(): Promise<{ readonly log: SessionLog; readonly ballast: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'harness-disk-'))
  execFileSync(...mount(folder, 192))
  onTestFinished(() => {
    execFileSync('umount', ['--lazy', folder])
    rmSync(folder, { recursive: true })
  })
  const log = await createSession(join(folder, 'session.jsonl'), { cwd: 'workspace' })
  onTestFinished(() => log.close())
  const ballast = join(folder, 'ballast')
  await writeFile(ballast, Buffer.alloc(100 * 1024))
  return { log, ballast }
}

const never = new Promise<never>(() => undefined)
const faulted = { name: 'HarnessError', code: 'log_faulted' }

/** What holds of a harness whose disk is full. */
async function checkRefuses(harness: Harness, log: SessionLog): Promise<void> {
  const lines = log.lines.length
  expect(harness.status()).toMatchObject({ state: 'needs_recovery' })
  await expect(harness.prompt('more')).rejects.toMatchObject(faulted)
  await expect(harness.nextRun('more')).rejects.toMatchObject(faulted)
  await expect(harness.recover()).rejects.toMatchObject(faulted)
  await harness.close()
  expect(log.lines).toHaveLength(lines)
}

/** The session in the next process, with room again. */
async function withRoom(log: SessionLog, ballast: string): Promise<SessionLog> {
  await log.close()
  await rm(ballast)
  expect(await verifySession(log.file)).toMatchObject({ ok: true })
  const again = await openSession(log.file)
  onTestFinished(() => again.close())
  return again
}

/** Ends every answer, however many there were. */
const enough = Array.from({ length: 400 }, () => ({ text: 'Enough.' }))

describe.skipIf(why !== undefined)('a disk that is full', () => {
  /** A run that fills it, with parts of so many characters; what the last line is that went in. */
  async function fillUp(size: number): Promise<string> {
    const { log, ballast } = await smallDisk()
    const fill: Tool = {
      name: 'fill',
      description: 'says a lot',
      parameters: { type: 'object' },
      replay: 'never',
      run: () => Promise.resolve({ content: 'y'.repeat(size * 2) }),
    }
    const turns = Array.from({ length: 400 }, (_, n) => ({
      text: 'x'.repeat(size),
      calls: [{ name: 'fill', arguments: { n } }],
    }))
    const { harness, events } = rig(log, { turns, tools: [fill], limits: { maxTurns: 400 } })
    const error = await harness.prompt('Fill it').then(
      () => undefined,
      (caught: unknown) => caught,
    )
    expect(error).toMatchObject(faulted)
    expect(messageOf(error)).toMatch(/ENOSPC|bytes were written/)
    expect(events.some(({ type }) => type === 'run_finished')).toBe(false)
    await checkRefuses(harness, log)

    const again = await withRoom(log, ballast)
    expect(again.lines).toEqual(log.lines)
    const next = rig(again, { turns: enough, tools: [fill] })
    expect((await next.harness.recover()).lanes).toHaveLength(1)
    expect(await next.harness.recover()).toEqual({ lanes: [] })
    for (const event of events) if (event.type === 'message') expect(again.entry(event.entryId)).toBeDefined()
    checkProjection(next.harness.messages())
    expect(await next.harness.prompt('Go on')).toMatchObject({ outcome: 'completed', text: 'Enough.' })
    return trace(log).at(-1) ?? ''
  }

  test('by a run: that is typed, nothing that was told is lost, and on it goes with room again', async () => {
    const lastLines = new Set<string>()
    for (let size = 80; size < 4200; size += 257) {
      try {
        lastLines.add(await fillUp(size))
      } catch (error) {
        if (error instanceof Error) error.message = `with parts of ${size} characters: ${error.message}`
        throw error
      }
    }
    // It was met in the middle of more than one kind of step.
    expect(lastLines.size).toBeGreaterThan(2)
  })

  /** Two lanes inside of what they do, until their signal aborts; then the disk is full. */
  async function twoLanesInFlight(heeds: boolean) {
    const { log, ballast } = await smallDisk()
    const inside = { main: gate(), side: gate() }
    const stopped: string[] = []
    const tool: Tool = {
      name: 'wait',
      description: 'waits for the abort',
      parameters: { type: 'object' },
      replay: 'never',
      run: async (_, { signal }) => {
        inside.main.open()
        await aborted(signal)
        stopped.push('tool')
        return heeds ? { content: 'stopped' } : never
      },
    }
    const scripted = createScriptedModel({ turns: [{ calls: [{ name: 'wait' }] }] })
    const model: Model = {
      ...scripted,
      async *stream(request, options) {
        if (said(request.messages.at(-1)) !== 'ask') return yield* scripted.stream(request, options)
        inside.side.open()
        await aborted(options.signal)
        stopped.push('model')
        return heeds ? yield* scripted.stream(request, options) : never
      },
    }
    const { harness } = rig(log, { model, tools: [tool], limits: { abortGraceMs: 20 } })
    const runs = [harness.prompt('call'), harness.prompt('ask', { lane: 'side' })]
    const ends = Promise.allSettled(runs)
    await Promise.all([inside.main.opened, inside.side.opened])
    const { entryId } = await harness.steer('small')
    return { log, ballast, harness, ends, stopped, entryId }
  }

  test.each([
    ['that heed their signal', true],
    ['that hang', false],
  ])(
    'by a steer, with a tool and a model in flight %s: both are stopped, both runs say why',
    async (_, heeds) => {
      const { log, ballast, harness, ends, stopped, entryId } = await twoLanesInFlight(heeds)
      await expect(harness.steer('x'.repeat(200_000))).rejects.toMatchObject(faulted)
      for (const end of await ends) expect(end).toMatchObject({ status: 'rejected', reason: faulted })
      expect(stopped.toSorted()).toEqual(['model', 'tool'])
      await checkRefuses(harness, log)

      const again = await withRoom(log, ballast)
      const next = rig(again, { turns: enough })
      const { lanes } = await next.harness.recover()
      expect(lanes.map(({ lane }) => lane).toSorted()).toEqual(['main', 'side'])
      expect(lanes.flatMap(({ unknown }) => unknown)).toMatchObject([{ toolName: 'wait' }])
      // The small one was accepted, the large one was not.
      expect(lanes.flatMap(({ returned }) => returned.map(said))).toEqual(['small'])
      expect(recordsOf(again, 'message_cancelled')).toMatchObject([{ entryId }])
      expect(await next.harness.continue()).toMatchObject({ outcome: 'completed', text: 'Enough.' })
      expect(await next.harness.continue({ lane: 'side' })).toMatchObject({ outcome: 'completed' })
    },
    20_000,
  )

  test.each([
    ['that heed their signal', true],
    ['that hang', false],
  ])(
    'so that an abort cannot be recorded: it stops what it can, %s',
    async (_, heeds) => {
      const { log, ballast, harness, ends, stopped } = await twoLanesInFlight(heeds)
      await writeFile(`${ballast}.more`, Buffer.alloc(4096 * 64)).catch(() => undefined)
      // Up to the page that is open there is room, so that it takes some.
      const accepted = Array.from({ length: 60 }, () => harness.nextRun('z'.repeat(100), { lane: 'third' }))
      expect((await Promise.allSettled(accepted)).some(({ status }) => status === 'rejected')).toBe(true)
      await expect(harness.abort()).rejects.toMatchObject(faulted)
      await expect(harness.abort({ lane: 'side' })).rejects.toMatchObject(faulted)
      for (const end of await ends) expect(end).toMatchObject({ status: 'rejected', reason: faulted })
      expect(stopped.toSorted()).toEqual(['model', 'tool'])
      await rm(`${ballast}.more`)
      const again = await withRoom(log, ballast)
      expect((await rig(again).harness.recover()).lanes).toHaveLength(2)
      expect(pendingMessages(again, 'third')).toHaveLength(
        (await Promise.allSettled(accepted)).filter(({ status }) => status === 'fulfilled').length,
      )
    },
    20_000,
  )
})
