import { createScriptedModel, type JsonObject, type Message } from '@reve/providers/model'
import { openSession, readSession, SessionLogError, type SessionView } from '@reve/session-log'
import fc from 'fast-check'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  createHarness,
  type Declared,
  HarnessError,
  type OperationPlan,
  pendingMessages,
  project,
  type RecoveryStep,
  reduce,
} from '../src/index.ts'
import { asText } from './as-text.ts'
import { header, lanes, type Raw, resultMessage, toolNames, ts, withDraft, writeHistory } from './properties-writer.ts'
import { checkProjection, recordsOf, said, watchedFile } from './support.ts'

let folder = ''
let files = 0
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'harness-properties-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function fileOf(lines: readonly Raw[]): Promise<string> {
  const file = join(folder, `${files++}.jsonl`)
  await writeFile(file, [header, ...lines].map((line) => `${JSON.stringify(line)}\n`).join(''))
  return file
}

/** What a session file of these lines says. */
const viewOf = async (lines: readonly Raw[]): Promise<SessionView> => readSession(await fileOf(lines))

/** A history, and how much of it is on disk. */
const deaths = fc
  .gen()
  .map(writeHistory)
  .chain((lines) =>
    fc.record({
      lines: fc.constant(lines),
      // Half of them die in the middle of something.
      length: fc.oneof(fc.nat({ max: lines.length }), fc.constantFrom(...middles(lines))),
    }),
  )
  .map(({ lines, length }) => lines.slice(0, length))

/** Lengths after which a call is in flight. */
function middles(lines: readonly Raw[]): readonly number[] {
  const found = lines.flatMap(({ type }, index) => (type === 'tool_started' ? [index + 1] : []))
  return found.length > 0 ? found : [lines.length]
}

/** What today's tools say of replays. */
const declarations = fc.tuple(...toolNames.map(() => fc.constantFrom('safe', 'safe', 'never', undefined))).map(
  (said): Declared =>
    (name) =>
      said[toolNames.findIndex((other) => other === name)],
)

type PlacedStep = { readonly lane: string; readonly step: RecoveryStep }
const stepsOf = (operations: readonly OperationPlan[]): readonly PlacedStep[] =>
  operations.flatMap(({ lane, steps }) => steps.map((step) => ({ lane, step })))

function planOf(view: SessionView, declared: Declared): readonly OperationPlan[] {
  const plan = reduce(view, declared)
  if (plan.type === 'corrupt') throw new Error(`corrupt: ${JSON.stringify(plan.corruption)}`)
  return plan.operations
}

/** The lines with those that the steps append; a tool that is run again gives its result. */
function carryOut(lines: readonly Raw[], steps: readonly PlacedStep[]): readonly Raw[] {
  return steps.reduce((before, { lane, step }) => {
    if (step.type === 'append') return withDraft(before, step.draft)
    const { toolCallId: id, toolName: name } = step.call
    const message = resultMessage({ id, name }, `again ${step.resultEntryId}`)
    return withDraft(before, { kind: 'entry', lane, type: 'message', id: step.resultEntryId, payload: { message } })
  }, lines)
}

const messagesOf = (view: SessionView, lane: string): readonly Message[] =>
  project(view.path(view.leaf(lane)), { model: 'm/a' })

/** A log without what differs from one writing to the next: ids that were made up, and time. */
function essence(view: SessionView) {
  return {
    talk: lanes.map((lane) => messagesOf(view, lane)),
    records: view.records().map(({ id: _id, seq: _seq, ts: _ts, ...record }) => record),
  }
}

/** Messages by what became of them. */
function fates(view: SessionView) {
  const cancelled = new Set(recordsOf(view, 'message_cancelled').map(({ entryId }) => entryId))
  return recordsOf(view, 'message_queued').map((line) => {
    const id = asText(line['entryId'])
    const waits = pendingMessages(view, line.lane).some(({ entryId }) => entryId === id)
    return {
      id,
      lane: line.lane,
      delivery: line['delivery'],
      fate: [
        ...(view.entry(id) ? ['delivered'] : []),
        ...(cancelled.has(id) ? ['cancelled'] : []),
        ...(waits ? ['waits'] : []),
      ],
    }
  })
}

/** A model that is not asked. */
const nobody = createScriptedModel({ id: 'm/a', turns: [] })

const byLane = (a: { readonly lane: string }, b: { readonly lane: string }): number => a.lane.localeCompare(b.lane)

const runs = { numRuns: 200 } as const

describe('a log that was cut off anywhere', () => {
  test('has a plan; carried out, it leaves nothing to do, and the conversations are ones that an API takes', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, declarations, async (lines, declared) => {
        const log = await viewOf(carryOut(lines, stepsOf(planOf(await viewOf(lines), declared))))
        expect(planOf(log, declared)).toEqual([])
        expect(planOf(log, () => 'safe')).toEqual([])
        for (const lane of lanes) checkProjection(messagesOf(log, lane), 'm/a')
        // Every promise is kept, once: ids are unique in a log.
        for (const { resultEntryId, toolCallId } of recordsOf(log, 'tool_started'))
          expect(log.entry(asText(resultEntryId))?.['message']).toMatchObject({ role: 'toolResult', toolCallId })
        const finished = recordsOf(log, 'operation_finished').map(({ runId }) => asText(runId))
        expect(finished.toSorted()).toEqual(
          recordsOf(log, 'operation_started')
            .map(({ runId }) => asText(runId))
            .toSorted(),
        )
      }),
      runs,
    )
  })

  test('carried out in part, its plan becomes the rest of itself', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, declarations, fc.nat({ max: 8 }), async (lines, declared, part) => {
        const steps = stepsOf(planOf(await viewOf(lines), declared))
        const half = carryOut(lines, steps.slice(0, part))
        const rest = stepsOf(planOf(await viewOf(half), declared))
        expect(rest).toHaveLength(Math.max(steps.length - part, 0))
        expect(essence(await viewOf(carryOut(half, rest)))).toEqual(essence(await viewOf(carryOut(lines, steps))))
      }),
      runs,
    )
  })

  test('runs a tool again only if the record and today’s tool say safe and nobody asked to stop; what is lost is told', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, declarations, async (lines, declared) => {
        const log = await viewOf(lines)
        const aborted = new Set(recordsOf(log, 'abort_requested').map(({ runId }) => runId))
        const inFlight = recordsOf(log, 'tool_started').filter((start) => !log.entry(asText(start['resultEntryId'])))
        const operations = planOf(log, declared)
        const replays = stepsOf(operations).flatMap(({ step }) => (step.type === 'replay' ? [step] : []))
        const expected = inFlight.filter(
          ({ runId, replay, toolName }) =>
            !aborted.has(runId) && replay === 'safe' && declared(asText(toolName)) === 'safe',
        )
        const key = (id: unknown, args: unknown): string => `${String(id)} ${JSON.stringify(args)}`
        expect(replays.map((step) => key(step.resultEntryId, step.arguments)).toSorted()).toEqual(
          expected.map((start) => key(start['resultEntryId'], start['arguments'])).toSorted(),
        )
        const lost = inFlight.filter((start) => !expected.includes(start))
        const unknown = operations.flatMap((operation) => operation.unknown.map((call) => call.toolCallId))
        expect(unknown.toSorted()).toEqual(lost.map(({ toolCallId }) => asText(toolCallId)).toSorted())
        const after = await viewOf(carryOut(lines, stepsOf(operations)))
        for (const start of lost) {
          const message = after.entry(asText(start['resultEntryId']))?.['message']
          expect(message).toMatchObject({ isError: true, interrupted: true })
          expect(said(message as Message)).toContain('may or may not have happened')
        }
      }),
      runs,
    )
  })

  test('loses no message that was accepted: it is in the conversation, or given back, or waits', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, declarations, async (lines, declared) => {
        const cut = await viewOf(lines)
        const before = fates(cut)
        const operations = planOf(cut, declared)
        const open = new Set(operations.map(({ lane }) => lane))
        const log = await viewOf(carryOut(lines, stepsOf(operations)))
        const returned = operations.flatMap((operation) => operation.returned.map(said))
        for (const [index, { id, lane, delivery, fate }] of fates(log).entries()) {
          expect(fate).toHaveLength(1)
          if (fate[0] === 'waits' && open.has(lane)) expect(delivery).toBe('next_run')
          if (before[index]?.fate[0] !== 'waits') expect(fate).toEqual(before[index]?.fate)
          else if (fate[0] === 'cancelled') {
            const queued = recordsOf(log, 'message_queued').find(({ entryId }) => entryId === id)
            expect(returned).toContain(said(queued?.['message'] as Message))
          }
        }
        // A prompt that was promised is there.
        for (const { intent } of recordsOf(log, 'operation_started')) {
          const { promptEntryId, prompt } = intent as { readonly promptEntryId?: string; readonly prompt?: unknown }
          if (promptEntryId !== undefined) expect(log.entry(promptEntryId)?.['message']).toEqual(prompt)
        }
      }),
      runs,
    )
  })

  test('is told by the harness itself: recover() does what the plan says', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, async (lines) => {
        const operations = planOf(await viewOf(lines), () => undefined)
        const planned = await viewOf(carryOut(lines, stepsOf(operations)))
        await using log = await openSession(await fileOf(lines), { openFile: watchedFile(() => undefined) })
        const harness = createHarness({ log, model: nobody, tools: [], system: '' })
        const report = await harness.recover()
        expect(
          report.lanes
            .map(({ lane, runId, unknown, returned }) => ({ lane, runId, unknown, returned }))
            .toSorted(byLane),
        ).toEqual(
          operations.map(({ lane, runId, unknown, returned }) => ({ lane, runId, unknown, returned })).toSorted(byLane),
        )
        for (const lane of lanes) expect(harness.messages(lane)).toEqual(messagesOf(planned, lane))
        const count = log.lines.length
        expect(await harness.recover()).toEqual({ lanes: [] })
        expect(log.lines).toHaveLength(count)
      }),
      runs,
    )
  })
})

type Mutation = { readonly how: 'drop' | 'duplicate' | 'move' | 'change'; readonly at: number; readonly to: number }
const mutations = fc.array(
  fc.record<Mutation>({
    how: fc.constantFrom('drop', 'duplicate', 'move', 'change'),
    at: fc.nat({ max: 10_000 }),
    to: fc.nat({ max: 10_000 }),
  }),
  { minLength: 1, maxLength: 3 },
)

/** A log that no process wrote. What the file format itself refuses is mended, so that the harness gets to see it. */
function mutate(lines: readonly Raw[], { how, at, to }: Mutation): readonly Raw[] {
  const index = at % lines.length
  const line = lines[index]
  if (line === undefined) return lines
  switch (how) {
    case 'drop':
      return lines
        .toSpliced(index, 1)
        .map((other) => (other['parentId'] === line.id ? { ...other, parentId: line['parentId'] ?? null } : other))
    case 'duplicate':
      return lines.toSpliced(to % (lines.length + 1), 0, { ...line, id: `${line.id}_${to}` })
    case 'move': {
      const without = lines.toSpliced(index, 1)
      return without.toSpliced(to % lines.length, 0, line)
    }
    case 'change': {
      const fields = Object.keys(line).filter((key) => !(key in envelope))
      const field = fields[to % Math.max(fields.length, 1)]
      const junk = [null, 7, 'e_1', 'run_1', {}, [], ...lines.map(({ id }) => id)]
      return field === undefined
        ? lines
        : lines.with(index, { ...line, [field]: junk[(at + to) % junk.length] ?? null })
    }
    default:
      return how satisfies never
  }
}

const envelope: JsonObject = { kind: 0, id: 0, seq: 0, ts: 0, lane: 0, type: 0, parentId: 0 }

describe('a log that no crash can leave', () => {
  test('is refused with its place, or has a plan that can be carried out; nothing is thrown that is not typed', async () => {
    const seen = new Set<string>()
    await fc.assert(
      fc.asyncProperty(deaths, mutations, declarations, async (history, changes, declared) => {
        const lines = changes.reduce(mutate, history).map((line, index) => ({ ...line, seq: index + 1 }))
        try {
          await viewOf(lines)
        } catch (error) {
          if (!(error instanceof SessionLogError)) throw error
          expect(error.code).toBe('corrupt')
          seen.add('refused by the log')
          return
        }
        await checkMutated(lines, declared, seen)
      }),
      { numRuns: 1000 },
    )
    expect(seen.has('plan')).toBe(true)
    expect(seen.size).toBeGreaterThan(6)
  })

  async function checkMutated(lines: readonly Raw[], declared: Declared, seen: Set<string>): Promise<void> {
    const view = await viewOf(lines)
    const plan = reduce(view, declared)
    if (plan.type === 'corrupt') {
      const { at, reason, message } = plan.corruption
      seen.add(reason)
      expect(view.lines[at.line - 2]?.seq).toBe(at.seq)
      expect(message.isWellFormed()).toBe(true)
      return
    }
    seen.add('plan')
    const log = await viewOf(carryOut(lines, stepsOf(plan.operations)))
    expect(reduce(log, declared)).toEqual({ type: 'plan', operations: [] })
    for (const lane of lanes) {
      // What waits can still be delivered.
      for (const { entryId } of pendingMessages(log, lane)) expect(log.entry(entryId)).toBeUndefined()
      try {
        checkProjection(messagesOf(log, lane), 'm/a')
      } catch (error) {
        if (!(error instanceof HarnessError)) throw error
        expect(error.code).toBe('corrupt_session')
        seen.add('unreadable conversation')
      }
    }
  }
})

describe('a conversation', () => {
  test('of a history grows at its end: what was sent at a turn boundary is a prefix of all that is sent later', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, async (lines) => {
        const log = await viewOf(lines)
        for (const lane of lanes) {
          const path = log.path(log.leaf(lane))
          const whole = project(path, { model: 'm/a' })
          // A summary begins a conversation anew.
          const from = path.findLastIndex(({ type }) => type === 'compaction') + 1
          for (let end = Math.max(from, 1); end <= path.length; end++) {
            const sent = project(path.slice(0, end), { model: 'm/a' })
            // In the middle of its calls a turn is not sent.
            if (sent.some((message) => said(message).includes('the result of this call is missing'))) continue
            expect(whole.slice(0, sent.length)).toEqual(sent)
          }
        }
      }),
      runs,
    )
  })

  const text = fc.string({ unit: fc.constantFrom('a', '😀', '\ud800', '\udc00', ' '), maxLength: 4 })
  const ids = fc.constantFrom('c0', 'c1', 'c2')
  const parts = fc.array(fc.record({ type: fc.constant('text' as const), text }), { maxLength: 2 })
  /** Answers, orphans, results that come twice or late, in any order. */
  const talk: fc.Arbitrary<readonly Message[]> = fc.array(
    fc.oneof(
      fc.record({ role: fc.constant('user' as const), content: parts }),
      fc.record({
        role: fc.constant('toolResult' as const),
        toolCallId: ids,
        toolName: fc.constant('t'),
        content: parts,
        isError: fc.boolean(),
      }),
      fc
        .tuple(parts, fc.uniqueArray(ids, { maxLength: 3 }), fc.constantFrom('m/a', 'm/b'))
        .map(([said, calls, model]): Message => ({
          role: 'assistant',
          model,
          content: [
            ...said,
            { type: 'reasoning', text: 'hm' },
            ...calls.map((id) => ({ type: 'toolCall' as const, id, name: 't', arguments: { '\ud800': '\udc00' } })),
          ],
          stopReason: 'toolUse',
        })),
    ),
    { maxLength: 14 },
  )
  const pathOf = (messages: readonly Message[]) =>
    messages.map((message, index) => ({
      ...({ kind: 'entry', id: `e${index}`, seq: index + 1, ts, lane: 'main', type: 'message' } as const),
      parentId: index === 0 ? null : `e${index - 1}`,
      message: { ...message },
    }))

  test('once healed is healed: its projection projects to itself', () => {
    fc.assert(
      fc.property(talk, (messages) => {
        const healed = project(pathOf(messages), { model: 'm/a' })
        checkProjection(healed, 'm/a')
        expect(project(pathOf(healed), { model: 'm/a' })).toEqual(healed)
      }),
      { numRuns: 1000 },
    )
  })

  test('of any entries grows at its end too, once all its calls have results', () => {
    fc.assert(
      fc.property(talk, talk, (before, after) => {
        const sent = project(pathOf(before), { model: 'm/a' })
        fc.pre(!sent.some((message) => said(message).includes('the result of this call is missing')))
        expect(project(pathOf([...before, ...after]), { model: 'm/a' }).slice(0, sent.length)).toEqual(sent)
      }),
      { numRuns: 1000 },
    )
  })

  test('without any of its records is the same, on the same leaf', async () => {
    await fc.assert(
      fc.asyncProperty(deaths, async (lines) => {
        const log = await viewOf(lines)
        const bare = await viewOf(lines.filter(({ kind }) => kind === 'entry'))
        expect(bare.records()).toEqual([])
        for (const lane of lanes) {
          // A navigation is a record, and without it the lane goes on from its last entry.
          if (recordsOf(log, 'lane_leaf_set').some((line) => line.lane === lane)) continue
          expect(bare.leaf(lane)).toBe(log.leaf(lane))
          expect(messagesOf(bare, lane)).toEqual(messagesOf(log, lane))
        }
      }),
      runs,
    )
  })
})
