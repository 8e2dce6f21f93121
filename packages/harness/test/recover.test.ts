import { createSession, openSession, type SessionLog } from '@reve/session-log'
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Tool } from '../src/index.ts'
import {
  aborted,
  checkProjection,
  echoTool,
  gate,
  newLog,
  recordsOf,
  reopen,
  rig,
  said,
  tempFolder,
} from './support.ts'

const turns = [{ text: 'So.', calls: [{ name: 'echo', arguments: { say: 'a' } }] }, { text: 'Done.' }]

/** A log whose process died inside of its tool. */
async function deadInTool(replay: 'safe' | 'never'): Promise<SessionLog> {
  const folder = await tempFolder()
  const log = await createSession(join(folder, 'dying.jsonl'), { cwd: 'workspace' })
  const inside = gate()
  const tool: Tool = {
    ...echoTool(replay),
    run: async (_, { signal }) => {
      inside.open()
      await aborted(signal)
      return { content: '' }
    },
  }
  const { harness } = rig(log, { turns, tools: [tool], limits: { abortGraceMs: 1 } })
  const run = harness.prompt('Go')
  await inside.opened
  await harness.steer('left')
  await harness.nextRun('by the way')
  const file = join(folder, 'dead.jsonl')
  await copyFile(log.file, file)
  await harness.close()
  await run
  await log.close()
  const dead = await openSession(file)
  onTestFinished(() => dead.close())
  return dead
}

describe('recovery', () => {
  test('tells what it did, and the conversation goes on', async () => {
    const log = await deadInTool('never')
    const { harness, events } = rig(log, { turns, tools: [echoTool('never')] })
    expect(harness.status()).toMatchObject({ state: 'needs_recovery' })
    await expect(harness.prompt('x')).rejects.toMatchObject({ code: 'needs_recovery' })
    await expect(harness.continue()).rejects.toMatchObject({ code: 'needs_recovery' })
    const report = await harness.recover()
    const runId = recordsOf(log, 'operation_started')[0]?.['runId']
    expect(report).toEqual({
      lanes: [
        {
          lane: 'main',
          runId,
          operation: 'run',
          outcome: 'aborted',
          reason: 'recovered',
          unknown: [{ toolName: 'echo', toolCallId: 'call_1_1' }],
          replayed: [],
          returned: [{ role: 'user', content: [{ type: 'text', text: 'left' }] }],
          canContinue: true,
        },
      ],
    })
    expect(recordsOf(log, 'operation_finished')).toMatchObject([{ runId, outcome: 'aborted', reason: 'recovered' }])
    expect(recordsOf(log, 'message_cancelled')).toHaveLength(1)
    expect(events.at(-1)).toMatchObject({ type: 'recovered', runId, canContinue: true })
    expect(harness.status()).toMatchObject({ state: 'idle', waiting: 1 })
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'Done.' })
    expect(harness.messages().map(said)).toEqual([
      'Go',
      'So.',
      expect.stringContaining('may or may not'),
      'by the way',
      'Done.',
    ])
  })

  test('runs a safe tool again: once, with the recorded arguments, under the promised id', async () => {
    const log = await deadInTool('safe')
    const echo = echoTool('safe')
    const { harness, events } = rig(log, { turns, tools: [echo] })
    const [first, second] = await Promise.all([harness.recover(), harness.recover()])
    expect(first).toBe(second)
    expect(first.lanes[0]).toMatchObject({ unknown: [], replayed: [{ toolName: 'echo', toolCallId: 'call_1_1' }] })
    const start = recordsOf(log, 'tool_started')
    expect(start).toHaveLength(1)
    expect(echo.runs).toEqual([{ args: { say: 'a' }, key: start[0]?.['resultEntryId'] }])
    expect(events.map(({ type }) => type)).toEqual(['tool_started', 'message', 'tool_finished', 'recovered'])
    expect(await harness.recover()).toEqual({ lanes: [] })
  })

  test('settles a tool that is gone, by name, and one that takes other arguments today', async () => {
    const gone = rig(await deadInTool('safe'), { turns })
    expect((await gone.harness.recover()).lanes[0]?.unknown).toHaveLength(1)
    expect(said(gone.harness.messages()[2])).toContain('"echo" no longer exists')

    const changed = { ...echoTool('safe'), parameters: { type: 'object', required: ['what'] } }
    const other = rig(await deadInTool('safe'), { turns, tools: [changed] })
    expect((await other.harness.recover()).lanes[0]).toMatchObject({ unknown: [{ toolName: 'echo' }], replayed: [] })
    expect(changed.runs).toEqual([])
    checkProjection(other.harness.messages())
  })

  test('a replay that hangs can be aborted', async () => {
    const log = await deadInTool('safe')
    const inside = gate()
    const tool: Tool = {
      ...echoTool('safe'),
      run: () => {
        inside.open()
        return new Promise(() => undefined)
      },
    }
    const { harness } = rig(log, { turns, tools: [tool], limits: { abortGraceMs: 1 } })
    const recovery = harness.recover()
    await inside.opened
    await expect(harness.prompt('x')).rejects.toMatchObject({ code: 'needs_recovery' })
    await harness.abort()
    await recovery
    expect(harness.messages()[2]).toMatchObject({ interrupted: true })
    expect(harness.status()).toMatchObject({ state: 'idle' })
  })

  test('leaves a lane that runs in this process alone', async () => {
    const log = await newLog()
    const inside = gate()
    const done = gate()
    const tool: Tool = {
      ...echoTool(),
      run: async () => {
        inside.open()
        await done.opened
        return { content: 'ok' }
      },
    }
    const { harness } = rig(log, { turns, tools: [tool] })
    const run = harness.prompt('Go')
    await inside.opened
    expect(await harness.recover()).toEqual({ lanes: [] })
    done.open()
    expect(await run).toMatchObject({ outcome: 'completed' })
    expect(recordsOf(await reopen(log), 'operation_finished')).toHaveLength(1)
  })

  test('after a defect in this process, the same harness can recover', async () => {
    const log = await newLog()
    let broken = true
    const { harness } = rig(log, {
      turns: [{ text: 'ok' }],
      effects: {
        newId: (prefix) => {
          if (prefix === 'e_' && broken && log.lines.length > 0) throw new Error('no ids')
          return prefix + Math.random().toString(36).slice(2)
        },
      },
    })
    await expect(harness.prompt('Go')).rejects.toThrow('no ids')
    expect(harness.status()).toMatchObject({ state: 'needs_recovery' })
    broken = false
    expect((await harness.recover()).lanes).toHaveLength(1)
    expect(await harness.continue()).toMatchObject({ outcome: 'completed', text: 'ok' })
  })
})
