import type { JsonObject } from '@reve/providers/model'
import type { Draft } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import { type CorruptionReason, reduce } from '../src/index.ts'
import { record } from '../src/records.ts'
import { messageEntry } from '../src/settle.ts'
import { newLog, rig } from './support.ts'

const prompt = { role: 'user', content: [{ type: 'text', text: 'Go' }] } as const
const user = messageEntry('main', 'e_user', prompt)
const assistant = (id = 'e_answer') =>
  messageEntry('main', id, {
    role: 'assistant',
    model: 'm/1',
    content: [
      { type: 'toolCall', id: 'c1', name: 'echo', arguments: { a: 1 } },
      { type: 'toolCall', id: 'c2', name: 'echo', arguments: {} },
    ],
    stopReason: 'toolUse',
  })
const result = (id: string | undefined, toolCallId: string) =>
  messageEntry('main', id, {
    role: 'toolResult',
    toolCallId,
    toolName: 'echo',
    content: [{ type: 'text', text: 'r' }],
    isError: false,
  })

const started = (more: JsonObject = {}) =>
  raw('operation_started', {
    runId: 'run_1',
    intent: { kind: 'run', prompt, promptEntryId: 'e_user' },
    sourceLeafId: null,
    ...more,
  })
const finished = record('main', 'operation_finished', { runId: 'run_1', outcome: 'completed' })
const toolStarted = (more: JsonObject = {}) =>
  raw('tool_started', {
    runId: 'run_1',
    assistantEntryId: 'e_answer',
    toolIndex: 0,
    toolCallId: 'c1',
    toolName: 'echo',
    arguments: { a: 1 },
    resultEntryId: 'e_result',
    replay: 'safe',
    ...more,
  })

function raw(type: string, payload: JsonObject): Draft {
  return { kind: 'record', lane: 'main', type, payload }
}

async function viewOf(...drafts: readonly Draft[]) {
  const log = await newLog()
  await log.append(drafts)
  return log
}

async function planOf(...drafts: readonly Draft[]) {
  const plan = reduce(await viewOf(...drafts), () => 'safe')
  const [operation] = plan.type === 'plan' ? plan.operations : []
  if (operation === undefined) throw new Error(JSON.stringify(plan))
  return operation
}

/** `append message e_user`, `replay e_result`, `append operation_finished`. */
const outline = (steps: Awaited<ReturnType<typeof planOf>>['steps']) =>
  steps.map((step) =>
    step.type === 'replay' ? `replay ${step.resultEntryId}` : `append ${step.draft.type} ${step.draft.id ?? ''}`.trim(),
  )

describe('a plan', () => {
  test('is empty for a log without operations, and for closed ones', async () => {
    expect(reduce(await viewOf(), () => 'safe')).toEqual({ type: 'plan', operations: [] })
    expect(reduce(await viewOf(started(), user, finished), () => 'safe')).toEqual({ type: 'plan', operations: [] })
  })

  test('writes the user entry that the intent promised, where the operation began', async () => {
    const { steps } = await planOf(started())
    expect(outline(steps)).toEqual(['append message e_user', 'append operation_finished'])
    expect(steps[0]).toMatchObject({ draft: { parentId: null, payload: { message: prompt } } })
  })

  test('settles each call of an answer in source order', async () => {
    const operation = await planOf(started(), user, assistant(), toolStarted())
    expect(outline(operation.steps)).toEqual(['replay e_result', 'append message', 'append operation_finished'])
    expect(operation.unknown).toEqual([])
    expect(JSON.stringify(operation.steps[1])).toContain('Not executed')
  })

  test('leaves what is settled alone, also results that had no intent', async () => {
    const done = [started(), user, assistant(), toolStarted(), result('e_result', 'c1')]
    expect(outline((await planOf(...done)).steps)).toEqual(['append message', 'append operation_finished'])
    expect(outline((await planOf(...done, result(undefined, 'c2'))).steps)).toEqual(['append operation_finished'])
  })

  test.each([
    ['never', 'safe'],
    ['safe', 'never'],
    ['never', 'never'],
    ['safe', undefined],
    ['never', undefined],
  ] as const)('recorded %s, declared %s: never run again', async (replay, declared) => {
    const view = await viewOf(started(), user, assistant(), toolStarted({ replay }), result(undefined, 'c2'))
    const plan = reduce(view, () => declared)
    const operation = plan.type === 'plan' ? plan.operations[0] : undefined
    expect(outline(operation?.steps ?? [])).toEqual(['append message e_result', 'append operation_finished'])
    expect(operation?.unknown).toEqual([{ toolName: 'echo', toolCallId: 'c1' }])
    const text = JSON.stringify(operation?.steps[0])
    expect(text).toContain('may or may not have happened')
    expect(text.includes('no longer exists')).toBe(declared === undefined)
  })

  test('does not run again what somebody had asked to stop', async () => {
    const abort = record('main', 'abort_requested', { runId: 'run_1' })
    const { steps } = await planOf(started(), user, assistant(), toolStarted(), abort)
    expect(outline(steps)[0]).toBe('append message e_result')
  })

  test('settles an orphan in the middle of an operation, not only at its end', async () => {
    const answer = messageEntry('main', 'e_last', {
      role: 'assistant',
      model: 'm/1',
      content: [{ type: 'text', text: 'on' }],
      stopReason: 'stop',
    })
    const { steps } = await planOf(started(), user, assistant(), toolStarted(), result(undefined, 'c2'), answer)
    expect(outline(steps)).toEqual(['replay e_result', 'append operation_finished'])
  })

  test('owes nothing to the calls of an aborted answer', async () => {
    const partial = messageEntry('main', 'e_answer', {
      role: 'assistant',
      model: 'm/1',
      content: [{ type: 'toolCall', id: 'c1', name: 'echo', malformed: '{' }],
      stopReason: 'aborted',
    })
    expect(outline((await planOf(started(), user, partial)).steps)).toEqual(['append operation_finished'])
  })

  test('only closes an operation of a kind that it does not know', async () => {
    const { steps } = await planOf(started({ intent: { kind: 'dream', about: 'x' } }))
    expect(outline(steps)).toEqual(['append operation_finished'])
  })

  test('knows lanes apart', async () => {
    const other = {
      ...started({ runId: 'run_2', intent: { kind: 'run', prompt, promptEntryId: 'e_2' } }),
      lane: 'side',
    }
    const plan = reduce(await viewOf(started(), other), () => 'safe')
    expect(plan.type === 'plan' && plan.operations.map(({ lane, runId }) => [lane, runId])).toEqual([
      ['main', 'run_1'],
      ['side', 'run_2'],
    ])
  })

  test('is not disturbed by records and entries of others', async () => {
    const custom: Draft = { kind: 'entry', lane: 'main', type: 'custom', payload: { customType: 'x', data: null } }
    const { steps } = await planOf(started(), raw('from_the_future', { runId: 7 }), user, custom)
    expect(outline(steps)).toEqual(['append operation_finished'])
  })
})

const corrupt: readonly (readonly [CorruptionReason, line: number, readonly Draft[]])[] = [
  ['malformed_record', 2, [raw('operation_started', { intent: {} })]],
  ['malformed_record', 2, [started({ intent: { kind: 'run' } })]],
  ['malformed_record', 5, [started(), user, assistant(), toolStarted({ arguments: [1] })]],
  ['malformed_record', 2, [raw('message_queued', { entryId: 'e' })]],
  ['malformed_message', 3, [started(), { ...user, payload: { message: { role: 'user', content: null } } }]],
  ['second_operation', 3, [started(), started({ runId: 'run_2' })]],
  ['run_started_twice', 5, [started(), user, finished, started()]],
  ['unknown_run', 2, [finished]],
  ['unknown_run', 3, [started(), record('main', 'abort_requested', { runId: 'run_9' })]],
  ['record_after_finish', 5, [started(), user, finished, record('main', 'abort_requested', { runId: 'run_1' })]],
  ['record_after_finish', 5, [started(), user, finished, toolStarted()]],
  ['unknown_prompt', 2, [started(), assistant('e_user')]],
  ['unknown_prompt', 2, [started(), assistant()]],
  ['unknown_prompt', 3, [user, started()]],
  ['unknown_queued', 2, [started({ intent: { kind: 'run', prompt, promptEntryId: 'e_user', queued: ['e_nowhere'] } })]],
  ['unknown_assistant', 4, [started(), user, toolStarted()]],
  ['unknown_assistant', 4, [started(), user, toolStarted({ assistantEntryId: 'e_user' })]],
  ['unknown_call', 5, [started(), user, assistant(), toolStarted({ toolIndex: 2 })]],
  ['unknown_call', 5, [started(), user, assistant(), toolStarted({ toolCallId: 'c2' })]],
  ['call_started_twice', 6, [started(), user, assistant(), toolStarted(), toolStarted({ resultEntryId: 'e_other' })]],
  [
    'call_started_twice',
    6,
    [started(), user, assistant(), toolStarted(), toolStarted({ toolIndex: 1, toolCallId: 'c2' })],
  ],
  ['foreign_result', 5, [started(), user, assistant(), toolStarted({ resultEntryId: 'e_user' })]],
  ['foreign_result', 5, [started(), user, assistant(), toolStarted(), result('e_result', 'c2')]],
]

describe('a log that no crash can leave is refused, with its line', () => {
  test.each(corrupt)('%s', async (reason, line, drafts) => {
    const view = await viewOf(...drafts)
    const plan = reduce(view, () => 'safe')
    expect(plan).toMatchObject({
      type: 'corrupt',
      corruption: { reason, at: { line, seq: view.lines[line - 2]?.seq } },
    })
    const { harness } = rig(view)
    const lines = view.lines.length
    await expect(harness.recover()).rejects.toMatchObject({
      code: 'corrupt_session',
      at: { line },
      message: expect.stringContaining(`line ${line}`),
    })
    await harness.prompt('x').then(
      () => expect.fail('a corrupt session took a prompt'),
      (error: unknown) => expect(['corrupt_session', 'needs_recovery']).toContain((error as { code?: string }).code),
    )
    expect(view.lines).toHaveLength(lines)
  })
})
