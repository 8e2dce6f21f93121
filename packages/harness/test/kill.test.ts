import { createScriptedModel } from '@reve/providers/model'
import { openSession } from '@reve/session-log'
import { spawn } from 'node:child_process'
import { appendFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createHarness, type Tool } from '../src/index.ts'
import { checkProjection, said, tempFolder, trace } from './support.ts'

const child = fileURLToPath(new URL('fixtures/child.ts', import.meta.url))

/** Starts the child, waits until it is inside of its tool, kills it without warning. */
async function killInTool(replay: 'safe' | 'never') {
  const folder = await tempFolder()
  const file = join(folder, 'session.jsonl')
  const effects = join(folder, 'effects.txt')
  const process_ = spawn(process.execPath, ['--conditions=@reve/source', child, file, effects, replay], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ended = new Promise<NodeJS.Signals | null>((resolve) => process_.on('close', (_, signal) => resolve(signal)))
  let errors = ''
  process_.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text))
  const inside = new Promise<string>((resolve) => process_.stdout.setEncoding('utf8').on('data', resolve))
  const first = await Promise.race([inside, ended])
  if (first !== 'inside\n') throw new Error(`the child did not get there: ${errors}`)
  process_.kill('SIGKILL')
  expect(await ended).toBe('SIGKILL')
  const log = await openSession(file)
  onTestFinished(() => log.close())
  return { log, effects }
}

const appendTool = (effects: string, replay: 'safe' | 'never'): Tool => ({
  name: 'append',
  description: 'appends a line',
  parameters: { type: 'object' },
  replay,
  run: async ({ line }) => {
    await appendFile(effects, `${typeof line === 'string' ? line : ''}\n`)
    return { content: 'appended' }
  },
})

const model = createScriptedModel({ turns: [{}, { text: 'Done.' }] })

describe('a process that is killed with SIGKILL inside of a tool', () => {
  test('whose effect must not happen twice: it is not run again, its outcome is unknown', async () => {
    const { log, effects } = await killInTool('never')
    expect(trace(log).at(-1)).toBe('tool_started')
    const harness = createHarness({ log, model, tools: [appendTool(effects, 'never')], system: '' })
    const report = await harness.recover()
    expect(report.lanes).toMatchObject([{ unknown: [{ toolName: 'append' }], replayed: [], canContinue: true }])
    expect(await harness.recover()).toEqual({ lanes: [] })
    expect(await readFile(effects, 'utf8')).toBe('by the dead one\n')
    expect(harness.messages()[2]).toMatchObject({ interrupted: true, isError: true })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Done.' })
    checkProjection(harness.messages())
  })

  test('whose effect is safe: it is run again, once, with the recorded arguments', async () => {
    const { log, effects } = await killInTool('safe')
    const harness = createHarness({ log, model, tools: [appendTool(effects, 'safe')], system: '' })
    expect((await harness.recover()).lanes).toMatchObject([{ unknown: [], replayed: [{ toolName: 'append' }] }])
    expect(await harness.recover()).toEqual({ lanes: [] })
    expect(await readFile(effects, 'utf8')).toBe('by the dead one\nby the dead one\n')
    expect(await harness.continue()).toMatchObject({ outcome: 'completed' })
    expect(harness.messages().map(said)).toEqual(['Append a line', 'I append.', 'appended', 'Done.'])
  })
})
