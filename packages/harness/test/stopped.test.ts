import { createScriptedModel } from '@reve/providers/model'
import { openSession, readSession } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { createHarness } from '../src/index.ts'
import { type Child, startChild } from './kill-process.ts'
import type { Job } from './kill-world.ts'
import { checkProjection, said, tempFolder, trace } from './support.ts'

/** A process that holds a session, stopped in the middle of a tool. */
async function stoppedInTool(): Promise<{ readonly child: Child; readonly job: Job }> {
  const folder = await tempFolder()
  const job: Job = {
    mode: 'hold',
    file: join(folder, 'session.jsonl'),
    effects: join(folder, 'effects.txt'),
    seed: 1,
    life: 0,
    replay: 'never',
  }
  const child = startChild(folder)
  await child.start(job, 'inside')
  child.process.kill('SIGSTOP')
  return { child, job }
}

const keysIn = async (effects: string) => (await readFile(effects, 'utf8')).split('\n').slice(0, -1)

test('a stopped process keeps its session; let go on, it ends its run well', async () => {
  const { child, job } = await stoppedInTool()
  const before = await readFile(job.file)
  for (let n = 0; n < 3; n++) {
    await expect(openSession(job.file)).rejects.toMatchObject({ code: 'locked', pid: child.process.pid })
  }
  // Who only looks is not held up, and sees the run inside of its tool.
  expect(trace(await readSession(job.file)).at(-1)).toBe('tool_started')
  expect(before.equals(await readFile(job.file))).toBe(true)

  await writeFile(`${job.effects}.release`, '')
  child.process.kill('SIGCONT')
  expect(await child.ended).toEqual({ code: 0, signal: null, stderr: '' })
  expect(child.told.at(-1)).toEqual({ type: 'ended', lane: 'main', outcome: 'completed' })
  expect(await keysIn(job.effects)).toHaveLength(1)
  const log = await openSession(job.file)
  onTestFinished(() => log.close())
  const harness = createHarness({ log, model: createScriptedModel({ turns: [] }), tools: [], system: '' })
  expect(await harness.recover()).toEqual({ lanes: [] })
  expect(harness.messages().map(said)).toEqual(['Hold', 'I hold.', 'let go', 'Done.'])
})

test('a stopped process that is killed leaves its session to the next', async () => {
  const { child, job } = await stoppedInTool()
  await expect(openSession(job.file)).rejects.toMatchObject({ code: 'locked', pid: child.process.pid })
  await child.kill()
  const log = await openSession(job.file)
  onTestFinished(() => log.close())
  const model = createScriptedModel({ turns: [{}, { text: 'Done.' }] })
  const harness = createHarness({ log, model, tools: [], system: '' })
  expect((await harness.recover()).lanes).toMatchObject([{ unknown: [{ toolName: 'hold' }], canContinue: true }])
  expect(await harness.recover()).toEqual({ lanes: [] })
  expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Done.' })
  checkProjection(harness.messages())
  expect(await keysIn(job.effects)).toHaveLength(1)
})
