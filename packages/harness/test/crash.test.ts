import { type JsonObject, type Message, type Model, type ScriptedTurn } from '@reve/providers/model'
import { createSession, isEntry, type Line, openSession, type SessionView } from '@reve/session-log'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createHarness, type Harness, reduce, type Tool } from '../src/index.ts'
import { summarySystem } from '../src/summary-prompt.ts'
import { checkProjection, said, scriptOn, shape, tempFolder, watchedFile } from './support.ts'

/*
 * The crash matrix. A run is recorded whole: the bytes of the file after every line (and in the middle of it), and before
 * and after every effect. Each of these states is what a process that dies there leaves behind: it is opened by a new
 * "process", recovered twice, continued, and compared with the run that nobody interrupted.
 */

type Snapshot = { readonly label: string; readonly bytes: Buffer }
type Scenario = {
  readonly turns: readonly ScriptedTurn[]
  /** Of the model, in tokens; half of it at most is used by what is kept and reserved. */
  readonly window?: number
  /** The server finds everything too large that has no summary. */
  readonly overflows?: true
  readonly drive: (
    harness: Harness,
    hooks: {
      readonly inTool: (act: () => Promise<unknown>) => void
      readonly inSummary: (act: () => Promise<unknown>) => void
    },
  ) => Promise<unknown>
}

const call = (name: 'safe' | 'never' | 'end', say: string) => ({ name, arguments: { say } })
const long = (say: string) => say.padEnd(1500, ' and so on')
const go: Scenario['drive'] = (harness) => harness.prompt('Go')

const scenarios: { readonly [name: string]: Scenario } = {
  'no tool': { turns: [{ text: 'Hello.', usage: { output: 1 } }], drive: go },
  'one tool that must not run twice': {
    turns: [{ text: 'So.', calls: [call('never', 'a')] }, { text: 'Done.' }],
    drive: go,
  },
  'one safe tool': { turns: [{ calls: [call('safe', 'a')] }, { text: 'Done.' }], drive: go },
  'three tools': {
    turns: [{ calls: [call('safe', 'a'), call('never', 'b'), call('safe', 'c')] }, { text: 'Done.' }],
    drive: go,
  },
  'two turns with tools, and reasoning': {
    turns: [
      { reasoning: 'hm', calls: [call('safe', 'a')] },
      { text: 'More.', calls: [call('never', 'b')] },
      { text: 'Done.' },
    ],
    drive: go,
  },
  'calls that do not run': {
    turns: [
      { calls: [{ name: 'gone' }, { name: 'safe', malformed: '{' }, { name: 'never', arguments: { say: 1 } }] },
      { text: 'Done.' },
    ],
    drive: go,
  },
  'a truncated answer': { turns: [{ stop: 'length', calls: [call('never', 'a')] }, { text: 'Done.' }], drive: go },
  'a tool that ends the run': { turns: [{ calls: [call('end', 'a')] }], drive: go },
  retries: {
    turns: [
      { calls: [call('safe', 'a')], fail: { code: 'server', times: 2 } },
      { text: 'Done.', fail: { times: 1 } },
    ],
    drive: go,
  },
  'a failure': { turns: [{ calls: [call('safe', 'a')] }, { fail: { code: 'auth' } }], drive: go },
  'two prompts and a message for the next run': {
    turns: [{ text: 'one' }, { calls: [call('safe', 'a')] }, { text: 'two' }],
    drive: async (harness) => {
      await harness.prompt('Go')
      await harness.nextRun('by the way')
      await harness.prompt('Go on')
    },
  },
  steering: {
    turns: [{ calls: [call('never', 'a')] }, { text: 'Seen.' }, { text: 'Done.' }],
    drive: (harness, { inTool }) => {
      inTool(() => Promise.all([harness.steer('left'), harness.followUp('and then?'), harness.steer('right')]))
      return harness.prompt('Go')
    },
  },
  'parallel tools': {
    turns: [{ text: 'All.', calls: [call('safe', 'a'), call('safe', 'b'), call('safe', 'c')] }, { text: 'Done.' }],
    drive: go,
  },
  'compaction at the threshold': {
    window: 1000,
    turns: [
      { text: 'One.', calls: [call('safe', long('a'))] },
      { text: 'Two.', calls: [call('never', long('b'))] },
      { text: 'Three.', calls: [call('safe', 'c')] },
      { text: 'Done.' },
    ],
    drive: go,
  },
  'compaction on overflow': {
    overflows: true,
    turns: [{ text: 'One.' }, { text: 'Done.' }],
    drive: go,
  },
  'compaction by hand': {
    turns: [{ text: 'One.', calls: [call('safe', 'a')] }, { text: 'Two.' }, { text: 'Done.' }],
    drive: async (harness) => {
      await harness.prompt('Go')
      await harness.compact({ instructions: 'keep the names' })
      await harness.prompt('Go on')
    },
  },
  'abort in a compaction': {
    window: 1000,
    turns: [
      { text: 'One.', calls: [call('safe', long('a'))] },
      { text: 'Two.', calls: [call('safe', long('b'))] },
      { text: 'never said' },
    ],
    drive: async (harness, { inSummary }) => {
      inSummary(() => harness.abort())
      await harness.prompt('Go')
    },
  },
  navigation: {
    turns: [{ text: 'One.' }, { text: 'Two.' }],
    drive: async (harness) => {
      await harness.prompt('Go')
      await harness.navigate(null)
      await harness.prompt('Instead')
    },
  },
  abort: {
    turns: [{ calls: [call('safe', 'a'), call('safe', 'b')] }, { text: 'never said' }],
    drive: (harness, { inTool }) => {
      inTool(async () => {
        await harness.steer('left')
        await harness.abort()
      })
      return harness.prompt('Go')
    },
  },
}

type World = {
  readonly tools: readonly Tool[]
  readonly ran: { readonly name: string; readonly args: JsonObject; readonly key: string }[]
}

/** Tools of one process; `around` is told of the instants right before and after each effect. */
function world(around: (label: string) => void, inTool: () => Promise<unknown> = () => Promise.resolve()): World {
  const ran: World['ran'][number][] = []
  const tool = (name: string, replay: Tool['replay']): Tool => ({
    name,
    description: name,
    replay,
    parameters: { type: 'object', properties: { say: { type: 'string' } }, required: ['say'] },
    run: async (args, { idempotencyKey }) => {
      around(`before tool ${name}`)
      await inTool()
      ran.push({ name, args, key: idempotencyKey })
      around(`after tool ${name}`)
      return { content: `${name}: ${JSON.stringify(args['say'])}`, ...(name === 'end' && { terminate: true }) }
    },
  })
  return { tools: [tool('safe', 'safe'), tool('never', 'never'), tool('end', 'never')], ran }
}

function modelOf(
  scenario: Scenario,
  log: SessionView,
  around: (label: string) => void,
  inSummary = () => Promise.resolve<unknown>(undefined),
): Model {
  const inner = scriptOn(log, scenario.turns, {
    ...(scenario.window !== undefined && { contextWindow: scenario.window }),
  })
  return {
    ...inner,
    async *stream(request, { signal }) {
      const isSummary = request.system === summarySystem
      around(`before ${isSummary ? 'summary' : 'request'}`)
      if (isSummary) await inSummary()
      const tooLarge = scenario.overflows === true && !isSummary && !said(request.messages[0]).includes('<summary>')
      if (tooLarge && request.messages.length > 1) {
        const failure = { code: 'overflow', message: 'too long', retryable: false } as const
        return { type: 'failed', failure, outputShown: false }
      }
      const outcome = yield* inner.stream(request, { signal })
      around(`after ${isSummary ? 'summary' : 'request'}`)
      return outcome
    },
  }
}

const options = {
  system: '',
  effects: { sleep: () => Promise.resolve() },
  compaction: { reserveTokens: 100, keepRecentTokens: 100 },
}

/** Something to do at the next opportunity, and at no later one. */
function once() {
  let planned = (): Promise<unknown> => Promise.resolve()
  return {
    plan: (wanted: () => Promise<unknown>): void => void (planned = wanted),
    act: async (): Promise<unknown> => {
      const now = planned
      planned = () => Promise.resolve()
      return now()
    },
  }
}

/** Plays a scenario to its end and keeps every state of the file on the way. */
async function record(scenario: Scenario, folder: string) {
  const file = join(folder, 'whole.jsonl')
  const snapshots: Snapshot[] = []
  let bytes = Buffer.alloc(0)
  const instant = (label: string): void => void snapshots.push({ label, bytes })
  const openFile = watchedFile((what, written) => {
    if (what !== 'write') return
    for (let rest = Buffer.from(written); rest.length > 0;) {
      const end = rest.indexOf(0x0a) + 1
      const line: Line = JSON.parse(rest.subarray(0, end).toString())
      snapshots.push({
        label: `in the middle of ${shape(line)}`,
        bytes: Buffer.concat([bytes, rest.subarray(0, end >> 1)]),
      })
      bytes = Buffer.concat([bytes, rest.subarray(0, end)])
      instant(`after ${shape(line)}`)
      rest = rest.subarray(end)
    }
  })
  await using log = await createSession(file, { cwd: 'workspace', openFile })
  bytes = await readFile(file)
  instant('after the header')
  const inTool = once()
  const inSummary = once()
  const { tools } = world(instant, inTool.act)
  const harness = createHarness({ ...options, log, model: modelOf(scenario, log, instant, inSummary.act), tools })
  await scenario.drive(harness, { inTool: inTool.plan, inSummary: inSummary.plan })
  return { snapshots, messages: harness.messages() }
}

/** What a file says of its calls, read without any of the code under test. */
function callsOnDisk(view: SessionView) {
  const entries = view.lines.filter(isEntry)
  const results = new Set<unknown>(entries.flatMap((line) => (shape(line) === 'toolResult' ? [line.id] : [])))
  const starts = view.records().filter(({ type }) => type === 'tool_started')
  const inFlight = starts.filter((start) => !results.has(start['resultEntryId']))
  const calls = entries.flatMap((line) => {
    const message = line['message'] as Message | undefined
    return message?.role === 'assistant' ? message.content.filter(({ type }) => type === 'toolCall') : []
  })
  return {
    inFlight,
    lost: inFlight.filter(({ replay }) => replay !== 'safe'),
    notStarted: calls.length - results.size - inFlight.length,
    abortRequested: view.records().some(({ type }) => type === 'abort_requested'),
  }
}

/** Opens a state as the next process would, with tools and model of its own, and keeps every state of the file from then on. */
async function next(file: string, scenario: Scenario) {
  const states: Buffer[] = []
  let bytes = await readFile(file)
  const openFile = watchedFile((what, written) => {
    for (const line of what === 'write'
      ? Buffer.from(written)
          .toString()
          .split(/(?<=\n)/)
      : []) {
      bytes = Buffer.concat([bytes, Buffer.from(line)])
      states.push(bytes)
    }
  })
  const log = await openSession(file, { openFile })
  bytes = await readFile(file)
  states.length = 0
  const { tools, ran } = world(() => undefined)
  const model = modelOf(scenario, log, () => undefined)
  return { log, ran, states, harness: createHarness({ ...options, log, model, tools }) }
}

/**
 * One state of a file, through death, recovery and continuation.
 *
 * @returns whether nothing was ambiguous, so that the conversation had to become the whole one.
 */
async function checkState(name: string, bytes: Buffer, folder: string, index: number, whole: readonly Message[]) {
  const scenario = scenarios[name]
  if (scenario === undefined) throw new Error(`no scenario ${name}`)
  const file = join(folder, `${index}.jsonl`)
  await writeFile(file, bytes)
  const first = await next(file, scenario)
  const before = callsOnDisk(first.log)
  const queued = queuedTexts(first.log)
  const open = first.harness.status().state === 'needs_recovery'
  const report = await first.harness.recover()

  // Every promise is kept, the operation is closed, and the conversation is one that an API takes.
  expect(report.lanes).toHaveLength(open ? 1 : 0)
  expect(callsOnDisk(first.log).inFlight).toEqual([])
  expect(reduce(first.log, () => 'safe')).toEqual({ type: 'plan', operations: [] })
  checkProjection(first.harness.messages())
  // What must not run twice did not; what may ran once, with the recorded arguments, under the promised id.
  const replayed = before.abortRequested ? [] : before.inFlight.filter(({ replay }) => replay === 'safe')
  expect(first.ran).toEqual(
    replayed.map((start) => ({ name: start['toolName'], args: start['arguments'], key: start['resultEntryId'] })),
  )
  expect(report.lanes.flatMap(({ unknown }) => unknown)).toHaveLength(before.inFlight.length - replayed.length)
  for (const { toolCallId } of before.lost) {
    const result = first.harness
      .messages()
      .find((message) => message.role === 'toolResult' && message.toolCallId === toolCallId)
    expect(result).toMatchObject({ interrupted: true, isError: true })
    expect(said(result)).toContain('may or may not have happened')
  }
  // Whatever was accepted is in the conversation, or given back, or still waits: exactly once.
  const talk = first.harness.messages().flatMap((message) => (message.role === 'user' ? [said(message)] : []))
  const cancelled = open ? report.lanes.flatMap(({ returned }) => returned.map(said)) : cancelledTexts(first.log)
  const waiting = queued.next.filter((text) => !talk.includes(text))
  for (const text of queued.all) {
    expect([...talk, ...cancelled, ...waiting].filter((other) => other === text)).toEqual([text])
  }

  // A recovery that dies itself is recovered from, to the same conversation.
  const healed = first.harness.messages()
  for (const [at, state] of first.states.slice(0, -1).entries()) {
    const half = join(folder, `${index}-${at}.jsonl`)
    await writeFile(half, state)
    const again = await next(half, scenario)
    const rest = await again.harness.recover()
    expect(again.harness.messages()).toEqual(healed)
    expect(reduce(again.log, () => 'safe')).toEqual({ type: 'plan', operations: [] })
    expect(rest.lanes.flatMap(({ returned }) => returned.map(said))).toEqual(cancelled)
    await again.log.close()
  }

  // Recovering again, here or in a third process, appends nothing.
  const lines = first.log.lines.length
  expect(await first.harness.recover()).toEqual({ lanes: [] })
  expect(first.log.lines).toHaveLength(lines)
  const status = first.harness.status()
  await first.log.close()
  const recovered = await readFile(file)
  const second = await next(file, scenario)
  expect(await second.harness.recover()).toEqual({ lanes: [] })
  expect(await readFile(file)).toEqual(recovered)
  expect(second.ran).toEqual([])
  expect(second.harness.status()).toEqual(status)

  // And on it goes.
  const steered = queued.all.some((text) => !queued.next.includes(text))
  await finish(second.harness, name, second.log)
  checkProjection(second.harness.messages())
  const unambiguous = before.lost.length === 0 && before.notStarted === 0 && !before.abortRequested && !steered
  const same = unambiguous && !changesItsMind.has(name)
  if (same) expect(second.harness.messages()).toEqual(whole)
  await second.log.close()
  return same
}

describe.each(Object.entries(scenarios))('%s', (name, scenario) => {
  test('dies at every line, and before and after every effect', async () => {
    const folder = await tempFolder()
    const { snapshots, messages } = await record(scenario, folder)
    let equal = 0
    for (const [index, { label, bytes }] of snapshots.entries()) {
      try {
        if (await checkState(name, bytes, folder, index, messages)) equal++
      } catch (error) {
        if (error instanceof Error) error.message = `died ${label} (state ${index}): ${error.message}`
        throw error
      }
    }
    if (!changesItsMind.has(name)) expect(equal).toBeGreaterThan(10)
  })
})

/** Where a message or an abort that never came, because its process died, makes another conversation. */
const changesItsMind: ReadonlySet<string> = new Set(['steering', 'abort', 'abort in a compaction'])

const textOf = (line: Line): string => said(line['message'] as Message | undefined)

function queuedTexts(view: SessionView) {
  const lines = view.records().filter(({ type }) => type === 'message_queued')
  return { all: lines.map(textOf), next: lines.filter(({ delivery }) => delivery === 'next_run').map(textOf) }
}

function cancelledTexts(view: SessionView): readonly string[] {
  const gone = new Set(view.records().flatMap((line) => (line.type === 'message_cancelled' ? [line['entryId']] : [])))
  return view
    .records()
    .filter((line) => line.type === 'message_queued' && gone.has(line['entryId']))
    .map(textOf)
}

/** What the user (or the program) does after a restart: continue what waits, then say what was not said yet. */
async function finish(harness: Harness, name: string, log: SessionView): Promise<void> {
  if (name === 'navigation') return finishNavigation(harness, log)
  const last = () => harness.messages().at(-1)
  const spoken = () => harness.messages().flatMap((message) => (message.role === 'user' ? [said(message)] : []))
  const two = name.startsWith('two prompts')
  const byHand = name === 'compaction by hand'
  const prompts = two || byHand ? ['Go', 'Go on'] : ['Go']
  const compacted = () => log.path(log.leaf('main')).some(({ type }) => type === 'compaction')
  for (const prompt of prompts) {
    if (prompt === 'Go on' && byHand && !compacted()) await harness.compact()
    if (prompt === 'Go on' && two && !spoken().includes('by the way') && harness.status().waiting === 0)
      await harness.nextRun('by the way')
    // A summary stands for what was said first.
    if (!spoken().includes(prompt) && !(prompt === 'Go' && compacted())) await harness.prompt(prompt)
    else if (last()?.role !== 'assistant') {
      const again = await harness.continue().catch((error: unknown) => {
        // Results that ended their run leave nothing to continue, nor does a summary of what was over.
        if (name !== 'a tool that ends the run' && !byHand) throw error
      })
      // Attempts of dead processes count: the limit is reached sooner, then a person may insist.
      if (again?.reason === 'retries_exhausted') await harness.continue()
    }
  }
}

async function finishNavigation(harness: Harness, log: SessionView): Promise<void> {
  const went = log.records().some(({ type }) => type === 'lane_leaf_set')
  const spoken = () => harness.messages().some((message) => message.role === 'user')
  if (spoken() && harness.messages().at(-1)?.role === 'user') await harness.continue()
  else if (!spoken() && !went) await harness.prompt('Go')
  if (!went) await harness.navigate(null)
  if (!spoken()) await harness.prompt('Instead')
}
