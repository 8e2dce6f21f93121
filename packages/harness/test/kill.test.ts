import { createScriptedModel } from '@reve/providers/model'
import { openSession, type SessionLog, verifySession } from '@reve/session-log'
import { randomInt } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createHarness, type Tool } from '../src/index.ts'
import { checkDeath, type Found, type Heard, listen } from './kill-check.ts'
import { startChild } from './kill-process.ts'
import { type Job, lanes, makeEffect, pause, randomOf, silentModel } from './kill-world.ts'
import { checkProjection, said, tempFolder, trace } from './support.ts'

const kills = Number(process.env['REVE_KILLS'] ?? 200)
const seed = Number(process.env['REVE_KILLS_SEED'] ?? randomInt(2 ** 31))
const killsOfOneSession = 20

describe('a process that is killed with SIGKILL inside of a tool', () => {
  /** Starts a child, waits until it is inside of its tool, kills it without warning. */
  async function killInTool(replay: Tool['replay']): Promise<{ readonly log: SessionLog; readonly effects: string }> {
    const folder = await tempFolder()
    const job: Job = {
      mode: 'hold',
      file: join(folder, 'session.jsonl'),
      effects: join(folder, 'effects.txt'),
      seed: 1,
      life: 0,
      replay,
    }
    const child = startChild(folder)
    await child.start(job, 'inside')
    await child.kill()
    const log = await openSession(job.file)
    onTestFinished(() => log.close())
    return { log, effects: job.effects }
  }

  const holdTool = (effects: string, replay: Tool['replay']): Tool => ({
    name: 'hold',
    description: 'makes an effect',
    parameters: { type: 'object' },
    replay,
    run: (_, { idempotencyKey }) => {
      makeEffect(effects, idempotencyKey)
      return Promise.resolve({ content: 'made' })
    },
  })
  const model = createScriptedModel({ turns: [{}, { text: 'Done.' }] })

  test('whose effect must not happen twice: it is not run again, its outcome is unknown', async () => {
    const { log, effects } = await killInTool('never')
    expect(trace(log).at(-1)).toBe('tool_started')
    const before = await readFile(effects, 'utf8')
    const harness = createHarness({ log, model, tools: [holdTool(effects, 'never')], system: '' })
    const report = await harness.recover()
    expect(report.lanes).toMatchObject([{ unknown: [{ toolName: 'hold' }], replayed: [], canContinue: true }])
    expect(await harness.recover()).toEqual({ lanes: [] })
    expect(await readFile(effects, 'utf8')).toBe(before)
    expect(harness.messages()[2]).toMatchObject({ interrupted: true, isError: true })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Done.' })
    checkProjection(harness.messages())
  })

  test('whose effect is safe: it is run again, once, under the same key', async () => {
    const { log, effects } = await killInTool('safe')
    const [key] = (await readFile(effects, 'utf8')).split('\n')
    const harness = createHarness({ log, model, tools: [holdTool(effects, 'safe')], system: '' })
    expect((await harness.recover()).lanes).toMatchObject([{ unknown: [], replayed: [{ toolName: 'hold' }] }])
    expect(await harness.recover()).toEqual({ lanes: [] })
    expect(await readFile(effects, 'utf8')).toBe(`${key}\n${key}\n`)
    expect(await harness.continue()).toMatchObject({ outcome: 'completed' })
    expect(harness.messages().map(said)).toEqual(['Hold', 'I hold.', 'made', 'Done.'])
  })
})

describe('two lanes at work', () => {
  /** One session, killed again and again, then brought to its end. */
  async function killedSession(session: number, count: number, cache: string): Promise<readonly Found[]> {
    const folder = await tempFolder()
    const random = randomOf(seed + session)
    const base = {
      file: join(folder, 'session.jsonl'),
      effects: join(folder, 'effects.txt'),
      seed: seed + session,
      replay: 'never',
    } as const
    const heard: Heard = { accepted: new Set(), returned: new Set() }
    const found: Found[] = []
    let before = Buffer.alloc(0)
    let child = startChild(cache)
    for (let life = 0; life < count; life++) {
      try {
        await child.start({ ...base, mode: 'work', life }, 'open')
        const delay = Math.floor(random() * 250)
        await pause(delay)
        await child.kill()
        const { told } = child
        // The next one loads its modules while this one is looked at.
        child = startChild(cache)
        listen(heard, told)
        found.push(await checkDeath(base, heard))
        const bytes = existsSync(base.file) ? await readFile(base.file) : Buffer.alloc(0)
        expect(before.equals(bytes.subarray(0, before.length)), 'what was written stays as it was').toBe(true)
        before = bytes.subarray(0, bytes.lastIndexOf(0x0a) + 1)
      } catch (error) {
        if (error instanceof Error)
          error.message = `REVE_KILLS_SEED=${seed}, session ${session}, life ${life}: ${error.message}`
        throw error
      }
    }

    await child.start({ ...base, mode: 'finish', life: count }, 'finished')
    expect(await child.ended).toMatchObject({ code: 0, stderr: '' })
    listen(heard, child.told)
    expect(child.told.filter(({ type }) => type === 'ended')).toMatchObject(lanes.map(() => ({ outcome: 'completed' })))
    expect(await verifySession(base.file)).toMatchObject({ ok: true, tail: 'whole' })
    expect(await checkDeath(base, heard)).toMatchObject({ open: 0, inFlight: 0, unknown: 0 })
    const log = await openSession(base.file)
    const harness = createHarness({ log, model: silentModel, tools: [], system: '' })
    for (const lane of lanes) {
      expect(harness.status(lane)).toEqual({ state: 'idle', waiting: 0 })
      expect(harness.messages(lane).at(-1)).toMatchObject({ role: 'assistant', stopReason: 'stop' })
    }
    await log.close()
    return found
  }

  test(
    `${kills} times SIGKILL at a random instant: nothing accepted is lost, nothing happens twice, nothing is said that is not so`,
    async () => {
      const cache = await tempFolder()
      // Compiled modules are kept at a good end: from here on a child starts in a fraction of the time.
      const first = startChild(cache)
      await first.start({ mode: 'exit', file: '', effects: '', seed, life: 0, replay: 'never' }, 'ready')
      expect(await first.ended).toMatchObject({ code: 0, stderr: '' })
      const sessions = Array.from({ length: Math.ceil(kills / killsOfOneSession) }, (_, n) => n)
      const found: Found[] = []
      await Promise.all(
        [0, 1].map(async (worker) => {
          for (const session of sessions.filter((n) => n % 2 === worker)) {
            const count = Math.min(killsOfOneSession, kills - session * killsOfOneSession)
            found.push(...(await killedSession(session, count, cache)))
          }
        }),
      )
      const sum = (of: keyof Found): number => found.reduce((all, one) => all + one[of], 0)
      expect(found).toHaveLength(kills)
      // The kills did hit something; of 200, more than a hundred do.
      if (kills >= 100) {
        expect(sum('open')).toBeGreaterThan(kills / 2)
        expect(sum('inFlight')).toBeGreaterThan(kills / 10)
        expect(sum('unknown')).toBeGreaterThan(0)
      }
    },
    60_000 + kills * 2000,
  )
})
