import { isRetryable } from './model.ts'
import type {
  AssistantMessage,
  JsonObject,
  Model,
  ModelEvent,
  ModelFailure,
  ModelOutcome,
  ModelRequest,
  Price,
  StopReason,
  ToolCallPart,
  Usage,
} from './model.ts'

/** One call of a scripted turn. Neither `arguments` nor `malformed` means no arguments (`{}`). */
export type ScriptedCall = {
  readonly name: string
  readonly arguments?: JsonObject
  /** Raw text in place of arguments: the call arrives malformed. */
  readonly malformed?: string
  /** Default `call_<turn>_<n>`, both from 1. */
  readonly id?: string
}

/** How a scripted turn fails. `code` defaults to `server`, `retryable` to what the code usually means. */
export type ScriptedFailure = Partial<ModelFailure> & {
  /** Attempts at this turn that fail before one succeeds, counted in this process and per `sessionId`. Default: every one. */
  readonly times?: number
  /** Fail after all of the turn's output instead of before it: a drop in mid-stream. */
  readonly afterText?: boolean
}

/** One answer of a scripted model: reasoning, then text, then calls. */
export type ScriptedTurn = {
  readonly text?: string
  readonly reasoning?: string
  readonly calls?: readonly ScriptedCall[]
  /** Milliseconds before the first event. */
  readonly delayMs?: number
  /** Characters (code points) a delta; default: one delta for each part. */
  readonly chunk?: number
  /** Default: `toolUse` with calls, else `stop`. */
  readonly stop?: Exclude<StopReason, 'aborted'>
  /** Missing classes are 0; without any the answer carries no usage. */
  readonly usage?: Partial<Usage>
  readonly fail?: ScriptedFailure
}

/** What `createScriptedModel` takes. */
export type ScriptedModelOptions = {
  /** Default `scripted/script`. */
  readonly id?: string
  readonly turns: readonly ScriptedTurn[]
  /** Default 200 000. */
  readonly contextWindow?: number
  /** Default 8 192. */
  readonly maxTokens?: number
  readonly price?: Price
  /** Resolves after `ms` milliseconds or at the abort, whichever is first. Default: a real timer. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>
}

/**
 * A model that plays a list of turns: deterministic, offline, without a key. It keeps no position: the turn is chosen by
 * the number of assistant messages in the request, so that it goes on correctly in a new process (a compaction, which
 * takes answers out of the request, therefore takes it back by as many turns). Past the last turn it fails with `script`.
 */
export function createScriptedModel(options: ScriptedModelOptions): Model {
  const id = options.id ?? 'scripted/script'
  const sleep = options.sleep ?? sleepUntil
  const failures = new Map<string, number>()

  async function* stream(
    request: ModelRequest,
    { signal }: { readonly signal: AbortSignal },
  ): AsyncGenerator<ModelEvent, ModelOutcome, void> {
    const content: AssistantMessage['content'][number][] = []
    const aborted = (): ModelOutcome => ({
      type: 'aborted',
      partial: { role: 'assistant', model: id, content, stopReason: 'aborted' },
    })
    if (signal.aborted) return aborted()

    const position = request.messages.filter((message) => message.role === 'assistant').length
    const turn = options.turns[position]
    if (turn === undefined) {
      const count = options.turns.length
      const message = `${id}: the script has ${count} ${count === 1 ? 'turn' : 'turns'} and turn ${position + 1} was asked for; add a turn to it`
      return { type: 'failed', failure: { code: 'script', message, retryable: false }, outputShown: false }
    }
    if (turn.delayMs !== undefined && turn.delayMs > 0) {
      await sleep(turn.delayMs, signal)
      if (signal.aborted) return aborted()
    }

    const failing = nextFailure(turn.fail, `${request.sessionId ?? ''}\0${position}`, failures)
    if (failing !== undefined && failing.afterText !== true) {
      return { type: 'failed', failure: failureOf(id, failing), outputShown: false }
    }

    let shown = false
    for (const part of partsOf(turn, position + 1)) {
      let done = ''
      for (const delta of pieces(part.text, turn.chunk)) {
        yield part.event(delta)
        shown = true
        done += delta
        if (signal.aborted) {
          if (done.length < part.text.length) content.push(part.partial(done))
          else content.push(part.whole)
          return aborted()
        }
      }
      content.push(part.whole)
    }

    const usage: Usage | undefined = turn.usage && {
      input: 0,
      cacheRead: 0,
      cacheWrite: 0,
      output: 0,
      reasoning: 0,
      ...turn.usage,
    }
    if (failing !== undefined) {
      return { type: 'failed', failure: failureOf(id, failing), outputShown: shown, ...(usage && { usage }) }
    }
    const stopReason = turn.stop ?? ((turn.calls?.length ?? 0) > 0 ? 'toolUse' : 'stop')
    return { type: 'answer', message: { role: 'assistant', model: id, content, stopReason, ...(usage && { usage }) } }
  }

  return {
    id,
    contextWindow: options.contextWindow ?? 200_000,
    maxTokens: options.maxTokens ?? 8192,
    ...(options.price && { price: options.price }),
    stream,
  }
}

type Part = AssistantMessage['content'][number]
type ScriptedPart = {
  readonly text: string
  readonly whole: Part
  readonly event: (delta: string) => ModelEvent
  readonly partial: (done: string) => Part
}

function partsOf(turn: ScriptedTurn, turnNumber: number): readonly ScriptedPart[] {
  const parts: ScriptedPart[] = []
  for (const type of ['reasoning', 'text'] as const) {
    const text = turn[type]
    if (text === undefined || text === '') continue
    parts.push({
      text,
      whole: { type, text },
      event: (delta) => ({ type, delta }),
      partial: (done) => ({ type, text: done }),
    })
  }
  for (const [index, call] of (turn.calls ?? []).entries()) {
    const head = { type: 'toolCall', id: call.id ?? `call_${turnNumber}_${index + 1}`, name: call.name } as const
    const whole: ToolCallPart =
      call.malformed === undefined
        ? { ...head, arguments: call.arguments ?? {} }
        : { ...head, malformed: call.malformed }
    parts.push({
      text: call.malformed ?? JSON.stringify(call.arguments ?? {}),
      whole,
      event: (delta) => ({ type: 'toolCall', index, name: call.name, delta }),
      partial: (done) => ({ ...head, malformed: done }),
    })
  }
  return parts
}

/** The failure of this attempt, if it has one; counts it. */
function nextFailure(
  fail: ScriptedFailure | undefined,
  key: string,
  failures: Map<string, number>,
): ScriptedFailure | undefined {
  if (fail?.times === undefined) return fail
  const before = failures.get(key) ?? 0
  if (before >= fail.times) return undefined
  failures.set(key, before + 1)
  return fail
}

function failureOf(id: string, fail: ScriptedFailure): ModelFailure {
  const { times: _times, afterText: _afterText, code = 'server', message, retryable, ...rest } = fail
  return {
    code,
    message: message ?? `${id}: the script fails this turn (${code})`,
    retryable: retryable ?? isRetryable(code),
    ...rest,
  }
}

/** Cuts between code points, so that no delta ends in half a character. */
function pieces(text: string, size: number | undefined): readonly string[] {
  if (size === undefined || size < 1) return [text]
  const points = Array.from(text)
  const out: string[] = []
  for (let at = 0; at < points.length; at += size) out.push(points.slice(at, at + size).join(''))
  return out
}

function sleepUntil(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
  })
}
