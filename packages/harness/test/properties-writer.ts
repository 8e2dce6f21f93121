import type { JsonObject } from '@reve/providers/model'
import type { Draft } from '@reve/session-log'
import fc from 'fast-check'

/*
 * A model of the harness's writer: it makes up what two lanes do and gives the lines that a session file would have. Any
 * prefix of them is what a process leaves that dies there. It shares no code with the writer itself.
 */

/** A line of a session file after its header. */
export type Raw = JsonObject & {
  readonly kind: 'record' | 'entry'
  readonly id: string
  readonly seq: number
  readonly lane: string
  readonly type: string
}

/** The value of `fc.gen()`. */
type Choices = fc.GeneratorValue

export const lanes = ['main', 'side'] as const
export const toolNames = ['reader', 'writer', 'gone'] as const
export const ts = '2026-01-01T00:00:00.000Z'
export const header: JsonObject = { kind: 'header', version: 4, id: 's_1', cwd: 'workspace', ts }

export const userMessage = (text: string): JsonObject => ({ role: 'user', content: [{ type: 'text', text }] })
export const resultMessage = (call: Pick<Call, 'id' | 'name'>, text: string, more: JsonObject = {}): JsonObject => ({
  role: 'toolResult',
  toolCallId: call.id,
  toolName: call.name,
  content: [{ type: 'text', text }],
  isError: false,
  ...more,
})

type Call = { readonly id: string; readonly name: string; readonly index: number; readonly refused: boolean }
type Waiting = { readonly entryId: string; readonly delivery: string; readonly message: JsonObject }

/** What two lanes write, interleaved. */
export function writeHistory(choices: Choices): readonly Raw[] {
  const lines: Raw[] = []
  const leaves = new Map<string, string | null>()
  const counts = new Map<string, number>()
  const newId = (prefix: string): string => {
    const count = (counts.get(prefix) ?? 0) + 1
    counts.set(prefix, count)
    return `${prefix}_${count}`
  }
  /** 0 up to `n - 1`; smaller when a failure is made small. */
  const below = (n: number): number => choices(fc.nat, { max: n - 1 })
  const chance = (percent: number): boolean => below(100) >= 100 - percent

  function record(lane: string, type: string, payload: JsonObject): void {
    lines.push({ kind: 'record', id: newId('r'), seq: lines.length + 1, ts, lane, type, ...payload })
    if (type === 'lane_leaf_set') leaves.set(lane, typeof payload['leafId'] === 'string' ? payload['leafId'] : null)
  }
  function entry(
    lane: string,
    payload: JsonObject,
    more: { readonly id?: string; readonly parentId?: string | null } = {},
  ): string {
    const { id = newId('e'), parentId = leaves.get(lane) ?? null } = more
    const type = 'message' in payload ? 'message' : 'summary' in payload ? 'compaction' : 'custom'
    lines.push({ kind: 'entry', id, seq: lines.length + 1, ts, lane, type, parentId, ...payload })
    leaves.set(lane, id)
    return id
  }
  const entryIds = (): readonly string[] => lines.flatMap(({ kind, id }) => (kind === 'entry' ? [id] : []))
  function pathOf(lane: string): readonly Raw[] {
    const path: Raw[] = []
    for (let id = leaves.get(lane) ?? null; id !== null;) {
      const line = lines.find((other) => other.id === id)
      if (line === undefined) break
      path.unshift(line)
      id = typeof line['parentId'] === 'string' ? line['parentId'] : null
    }
    return path
  }

  /** One lane, line by line. */
  function* live(lane: string): Generator<void> {
    let waiting: Waiting[] = []
    let lastRun: string | undefined
    let runId = ''
    let aborting = false

    function accept(delivery: string): void {
      const message = { entryId: newId('e'), delivery, message: userMessage(`${lane} ${delivery} ${newId('m')}`) }
      waiting.push(message)
      record(lane, 'message_queued', message)
    }
    function* cancel(): Generator<void> {
      const left = waiting.filter(({ delivery }) => delivery !== 'next_run')
      waiting = waiting.filter(({ delivery }) => delivery === 'next_run')
      for (const { entryId, delivery } of left) {
        record(lane, 'message_cancelled', { entryId, delivery })
        yield
      }
    }
    /** What others do while a run goes by. */
    function* meanwhile(): Generator<void> {
      yield
      while (chance(12)) {
        if (aborting) accept('next_run')
        else accept(['next_run', 'steer', 'follow_up'][below(3)] ?? 'steer')
        yield
      }
      if (aborting || !chance(5)) return
      aborting = true
      record(lane, 'abort_requested', { runId })
      yield
      yield* cancel()
    }
    function* deliver(delivery: string, one = false): Generator<void> {
      const fitting = waiting.filter((message) => message.delivery === delivery).slice(0, one ? 1 : undefined)
      waiting = waiting.filter((message) => !fitting.includes(message))
      for (const { entryId, message } of fitting) {
        entry(lane, { message }, { id: entryId })
        yield
      }
    }
    const usage = (entryId: string): void =>
      record(lane, 'usage', {
        runId,
        entryId,
        usage: chance(50) ? null : { input: 5, cacheRead: 0, cacheWrite: 0, output: 2, reasoning: 0 },
      })
    function* attempts(step: number, resultEntryId: () => string, more: JsonObject = {}): Generator<void, string> {
      for (let attempt = 1; ; attempt++) {
        const id = resultEntryId()
        record(lane, 'task_attempt', { runId, step, attempt, resultEntryId: id, ...more })
        yield* meanwhile()
        if (attempt === 3 || !chance(20)) return id
        record(lane, 'task_failed', { runId, step, attempt, error: { code: 'server', message: 'no', retryable: true } })
        yield
        usage(id)
        yield* meanwhile()
      }
    }
    function* finish(outcome: string): Generator<void> {
      yield* cancel()
      record(lane, 'operation_finished', { runId, outcome })
      yield
    }
    function* compaction(reason: string, summaryEntryId: string): Generator<void> {
      const kept = pathOf(lane).flatMap(({ id, message }) => (isUser(message) ? [id] : []))
      const firstKeptEntryId = chance(30) ? null : (kept[below(Math.max(kept.length, 1))] ?? null)
      record(lane, 'compaction_started', { runId, reason, summaryEntryId, firstKeptEntryId, tokensBefore: 9 })
      yield
      yield* attempts(0, () => summaryEntryId, { purpose: 'summary' })
      const outcome = aborting ? 'aborted' : chance(20) ? 'failed' : 'completed'
      if (outcome === 'completed') entry(lane, { summary: 'so far', firstKeptEntryId }, { id: summaryEntryId })
      yield
      usage(summaryEntryId)
      yield
      record(lane, 'compaction_finished', { runId, summaryEntryId, outcome })
      yield* meanwhile()
    }

    function* call(
      one: Call,
      assistantEntryId: string,
      stage: 'intent' | 'result',
      resultEntryId: string,
    ): Generator<void> {
      if (stage === 'intent') {
        const replay = one.name === 'reader' ? 'safe' : 'never'
        record(lane, 'tool_started', {
          ...{ runId, assistantEntryId, resultEntryId, replay },
          ...{ toolIndex: one.index, toolCallId: one.id, toolName: one.name, arguments: { n: one.index } },
        })
      } else {
        const terminate = chance(10) ? { terminate: true } : {}
        entry(lane, { message: resultMessage(one, `gave ${resultEntryId}`), ...terminate }, { id: resultEntryId })
      }
      yield* meanwhile()
    }
    function* refuse(one: Call): Generator<void> {
      entry(lane, { message: resultMessage(one, 'Not executed', { isError: true }) })
      yield* meanwhile()
    }
    function* makeCalls(calls: readonly Call[], assistantEntryId: string): Generator<void> {
      const atOnce = calls.length > 1 && calls.every(({ name }) => name === 'reader') && chance(70)
      const ids = calls.map(() => newId('e'))
      const id = (one: Call): string => ids[one.index] ?? ''
      if (atOnce) for (const one of calls) if (!one.refused) yield* call(one, assistantEntryId, 'intent', id(one))
      for (const one of calls) {
        if (one.refused || (aborting && !atOnce)) {
          yield* refuse(one)
          continue
        }
        if (!atOnce) yield* call(one, assistantEntryId, 'intent', id(one))
        yield* call(one, assistantEntryId, 'result', id(one))
      }
    }
    /** Whether the run goes on after it. */
    function* turn(step: number): Generator<void, boolean> {
      yield* deliver('steer', chance(30))
      if (chance(8)) yield* compaction('threshold', newId('e'))
      if (aborting) return false
      const id = yield* attempts(step, () => newId('e'))
      const stopReason = aborting ? 'aborted' : chance(8) ? 'length' : 'toolUse'
      // The same ids in each turn, as some servers give them.
      const calls = Array.from({ length: below(4) }, (_, index): Call => {
        const name = toolNames[below(3)] ?? 'gone'
        const refused = stopReason === 'length' || name === 'gone' || chance(10)
        return { id: `c${index}`, name, index, refused }
      })
      const content = [
        ...(chance(70) ? [{ type: 'text', text: `answer ${id}` }] : []),
        ...(chance(20) ? [{ type: 'reasoning', text: 'hm', opaque: { n: 1 } }] : []),
        ...calls.map((one) => ({ type: 'toolCall', id: one.id, name: one.name, arguments: { n: one.index } })),
      ]
      if (stopReason !== 'aborted' || content.length > 0) {
        entry(lane, { message: { role: 'assistant', model: 'm/a', content, stopReason } }, { id })
        yield
      }
      usage(id)
      yield* meanwhile()
      if (stopReason === 'aborted') return false
      yield* makeCalls(calls, id)
      if (aborting) return false
      if (calls.length > 0 || waiting.some(({ delivery }) => delivery === 'steer')) return true
      if (!waiting.some(({ delivery }) => delivery === 'follow_up')) return false
      yield* deliver('follow_up')
      return true
    }
    function* run(): Generator<void> {
      const queued = waiting
      waiting = []
      const others = entryIds()
      const elsewhere = chance(10) ? others[below(Math.max(others.length, 1))] : undefined
      const sourceLeafId = elsewhere ?? leaves.get(lane) ?? null
      const promptEntryId = newId('e')
      const prompt = userMessage(`${lane} prompt ${newId('m')}`)
      const what = lastRun !== undefined && chance(25) ? { continues: lastRun } : { prompt, promptEntryId }
      record(lane, 'operation_started', {
        runId,
        intent: { kind: 'run', ...what, ...(queued.length > 0 && { queued: queued.map(({ entryId }) => entryId) }) },
        sourceLeafId,
      })
      lastRun = runId
      const input = [
        ...queued.map(({ entryId, message }) => [entryId, message] as const),
        ...('prompt' in what ? [[promptEntryId, prompt] as const] : []),
      ]
      for (const [index, [id, message]] of input.entries()) {
        yield
        entry(lane, { message }, { id, ...(index === 0 && { parentId: sourceLeafId }) })
      }
      yield* meanwhile()
      let goesOn = !aborting
      for (let step = 1; goesOn && step <= 4; step++) goesOn = yield* turn(step)
      yield* finish(aborting ? 'aborted' : goesOn ? 'failed' : 'completed')
    }

    for (let left = 1 + below(3); left > 0; left--) {
      aborting = false
      runId = newId('run')
      while (chance(25)) {
        accept('next_run')
        yield
      }
      if (chance(15)) record(lane, 'of_a_later_version', { runId })
      if (chance(10)) entry(lane, { customType: 'note', data: null })
      const started = (intent: JsonObject): void =>
        record(lane, 'operation_started', { runId, intent, sourceLeafId: leaves.get(lane) ?? null })
      const what = below(8)
      if (what === 7) {
        const others = entryIds()
        const leafId = others[below(Math.max(others.length, 1))] ?? null
        started({ kind: 'navigation', leafId })
        yield
        record(lane, 'lane_leaf_set', { leafId })
        yield
        yield* finish('completed')
      } else if (what === 6) {
        const summaryEntryId = newId('e')
        started({ kind: 'compaction', summaryEntryId })
        yield* meanwhile()
        if (!aborting) yield* compaction('manual', summaryEntryId)
        // What was said meanwhile waits for what comes after it.
        if (aborting) yield* cancel()
        record(lane, 'operation_finished', { runId, outcome: aborting ? 'aborted' : 'completed' })
        yield
      } else yield* run()
    }
  }

  const lives = lanes.map(live)
  let alive: readonly Generator<void>[] = lives
  while (alive.length > 0) {
    const one = alive[below(alive.length)]
    if (one?.next().done === true) alive = alive.filter((other) => other !== one)
  }
  return lines
}

/** The lines and one more, as the log would write it. */
export function withDraft(lines: readonly Raw[], draft: Draft): readonly Raw[] {
  const { kind, lane, type, payload } = draft
  const id = draft.id ?? `n_${lines.length + 1}`
  const leaf = lines.findLast((line) => line.lane === lane && (line.kind === 'entry' || line.type === 'lane_leaf_set'))
  const leafId = leaf?.kind === 'entry' ? leaf.id : (leaf?.['leafId'] ?? null)
  const parent = draft.kind === 'entry' ? { parentId: draft.parentId === undefined ? leafId : draft.parentId } : {}
  return [...lines, { kind, id, seq: lines.length + 1, ts, lane, type, ...parent, ...payload }]
}

function isUser(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'role' in message && message.role === 'user'
}
