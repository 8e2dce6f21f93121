import type { Message } from '@reve/providers/model'
import { isEntry, openSession, type SessionLog, type SessionView } from '@reve/session-log'
import { existsSync } from 'node:fs'
import { copyFile, readFile } from 'node:fs/promises'
import { expect } from 'vitest'
import { createHarness, pendingMessages, type RecoveryReport, type Tool } from '../src/index.ts'
import { asText } from './as-text.ts'
import { harnessOptions, lanes, silentModel, type Told, toolsOf } from './kill-world.ts'
import { checkProjection, recordsOf, said } from './support.ts'

/** What a session's processes told before they died. */
export type Heard = { readonly accepted: Set<string>; readonly returned: Set<string> }

/** Adds what a dead child had told. */
export function listen({ accepted, returned }: Heard, told: readonly Told[]): void {
  for (const one of told) {
    if (one.type === 'accepted') accepted.add(one.text)
    if (one.type === 'returned') for (const text of one.texts) returned.add(text)
    if (one.type === 'ended') expect(['completed', 'aborted']).toContain(one.outcome)
  }
}

/** What a death left to do: so that a test can see that its kills met something. */
export type Found = {
  readonly open: number
  readonly inFlight: number
  readonly unknown: number
}

const messageOf = (line: { readonly [key: string]: unknown }) => line['message'] as Message | undefined
const results = (view: SessionView) =>
  view.lines.filter(isEntry).filter((line) => messageOf(line)?.role === 'toolResult')

/** Where each accepted message is: what stands in the log, read without the code under test. */
function fates(view: SessionView) {
  const delivered = new Map<string, number>()
  for (const line of view.lines.filter(isEntry)) {
    const message = messageOf(line)
    if (message?.role === 'user') delivered.set(said(message), (delivered.get(said(message)) ?? 0) + 1)
  }
  const cancelledIds = recordsOf(view, 'message_cancelled').map(({ entryId }) => entryId)
  const queued = recordsOf(view, 'message_queued').map((line) => ({ text: said(messageOf(line)), id: line['entryId'] }))
  const cancelled = new Set(queued.filter(({ id }) => cancelledIds.includes(id)).map(({ text }) => text))
  expect(new Set(cancelledIds).size).toBe(cancelledIds.length)
  return { delivered, cancelled, queued }
}

/**
 * A dead session, on a copy of its file: recovered, recovered again, opened again and recovered once more; then held
 * against what its processes had told and against the effects in the world.
 */
export async function checkDeath(
  job: { readonly file: string; readonly effects: string },
  heard: Heard,
): Promise<Found> {
  if (!existsSync(job.file)) {
    expect([...heard.accepted]).toEqual([])
    return { open: 0, inFlight: 0, unknown: 0 }
  }
  const copy = `${job.file}.copy`
  await copyFile(job.file, copy)
  const keys = existsSync(job.effects) ? (await readFile(job.effects, 'utf8')).split('\n').slice(0, -1) : []
  expect(new Set(keys).size, 'an effect that must not happen twice').toBe(keys.length)

  // Today every tool says that it is safe; what was recorded as not must not run again all the same.
  const again: string[] = []
  const tools = toolsOf(`${job.effects}.copy`, () => 0).map((tool): Tool => ({
    ...tool,
    replay: 'safe',
    run: (args, context) => {
      again.push(tool.name)
      return tool.run(args, context)
    },
  }))
  const on = (log: SessionLog) => createHarness({ ...harnessOptions, log, model: silentModel, tools })
  const log = await openSession(copy)
  const started = recordsOf(log, 'tool_started')
  const settledBefore = new Set(results(log).map(({ id }) => id))
  const inFlight = started.filter(({ resultEntryId }) => !settledBefore.has(asText(resultEntryId)))
  const pendingBefore = lanes.flatMap((lane) => pendingMessages(log, lane).map(({ message }) => said(message)))
  const open = recordsOf(log, 'operation_started').length - recordsOf(log, 'operation_finished').length

  const harness = on(log)
  const report = await harness.recover()
  const recovered = await readFile(copy)
  expect(await harness.recover()).toEqual({ lanes: [] })
  expect(recovered.equals(await readFile(copy)), 'a second recovery appends nothing').toBe(true)
  expect(report.lanes).toHaveLength(open)
  expect(again.filter((name) => name !== 'look')).toEqual([])
  for (const lane of lanes) checkProjection(harness.messages(lane))
  checkResults(log, keys, inFlight, report)
  checkMessages(log, heard, pendingBefore, report)
  await log.close()

  const third = await openSession(copy)
  expect(await on(third).recover()).toEqual({ lanes: [] })
  await third.close()
  expect(recovered.equals(await readFile(copy)), 'nor does one in a third process').toBe(true)
  const unknown = report.lanes.flatMap((lane) => lane.unknown).length
  return { open, inFlight: inFlight.length, unknown }
}

/** Every promise has one result, and no result says of the world what is not so. */
function checkResults(
  log: SessionView,
  keys: readonly string[],
  inFlight: ReturnType<typeof recordsOf>,
  report: RecoveryReport,
): void {
  const happened = new Set(keys)
  const settled = Map.groupBy(results(log), ({ id }) => id)
  const unknown = report.lanes.flatMap((lane) => lane.unknown.map(({ toolCallId }) => `${lane.runId} ${toolCallId}`))
  for (const start of recordsOf(log, 'tool_started')) {
    const { resultEntryId, toolCallId, toolName, lane } = start
    const key = asText(resultEntryId)
    expect(settled.get(key), `results of ${asText(toolName)} ${key}`).toHaveLength(1)
    const line = settled.get(key)?.[0]
    const result = line && messageOf(line)
    if (result?.role !== 'toolResult') throw new Error('no result')
    expect({ call: result.toolCallId, lane: line?.lane }).toEqual({ call: toolCallId, lane })
    if (toolName !== 'effect') continue
    if (!result.isError) expect(happened.has(key), `${key} is said to be done`).toBe(true)
    if (said(result).includes('Not executed')) expect(happened.has(key), `${key} is said not to have run`).toBe(false)
    if (!inFlight.includes(start)) continue
    // Whether its effect is in the world or not: nobody can know.
    expect(result).toMatchObject({ isError: true, interrupted: true })
    expect(said(result)).toContain('may or may not have happened')
    expect(unknown).toContain(`${asText(start['runId'])} ${asText(toolCallId)}`)
  }
}

/** Every message that was accepted is in the conversation, or was taken back, or waits: one of them. */
function checkMessages(
  log: SessionView,
  { accepted, returned }: Heard,
  pendingBefore: readonly string[],
  report: RecoveryReport,
): void {
  const { delivered, cancelled, queued } = fates(log)
  // No run is left that could take a steer; what was said to a compaction that has ended waits for the next run.
  for (const { lane } of report.lanes)
    expect(pendingMessages(log, lane).filter(({ delivery }) => delivery !== 'next_run')).toEqual([])
  const waits = new Set(lanes.flatMap((lane) => pendingMessages(log, lane).map(({ message }) => said(message))))
  for (const text of new Set([...accepted, ...queued.map(({ text }) => text), ...delivered.keys()])) {
    const fate = [
      ...Array.from({ length: delivered.get(text) ?? 0 }, () => 'delivered'),
      ...(cancelled.has(text) ? ['cancelled'] : []),
      ...(waits.has(text) ? ['waiting'] : []),
    ]
    expect({ text, fate }).toEqual({ text, fate: [expect.any(String)] })
  }
  for (const text of returned) expect(cancelled.has(text), `${text} was given back`).toBe(true)
  // What recovery takes from the queue is given back or goes in.
  const back = report.lanes.flatMap((lane) => lane.returned.map(said))
  for (const text of pendingBefore)
    expect({ text, back: back.includes(text) }).toEqual({ text, back: cancelled.has(text) })
}
