import type { Json, JsonObject, ToolCallPart, ToolResultMessage } from '@reve/providers/model'
import { createHash } from 'node:crypto'

/** How many times in a row the same may happen before the model is told, and before the run is stopped; 0: never. */
export type LoopLimits = { readonly nudgeAfter: number; readonly stopAfter: number }

/** One call of a turn and its result; the guard's own note is not part of the result. */
export type TurnCall = {
  readonly call: Pick<ToolCallPart, 'name'> & ({ readonly arguments: JsonObject } | { readonly malformed: string })
  readonly result: Pick<ToolResultMessage, 'content' | 'isError'>
}

/** What the guard remembers between turns; its size does not grow. */
export type LoopState = {
  /** Signatures of the last turns, newest first. */
  readonly recent: readonly string[]
  /** For each period: how many turns in a row equalled the turn one period before them. */
  readonly matches: readonly number[]
  /** How often the last turn, or the cycle that ends with it, has happened in a row. */
  readonly count: number
}

/** What to do after a turn. `note` is for the model, `message` for a person. */
export type LoopVerdict =
  | { readonly type: 'go_on' }
  | { readonly type: 'nudge'; readonly count: number; readonly note: string }
  | { readonly type: 'stop'; readonly count: number; readonly message: string }

/** Before the first turn. */
export const noLoop: LoopState = { recent: [], matches: [], count: 0 }

/** A loop is one turn over and over, or a cycle of two or three. */
const periods = [1, 2, 3] as const

/**
 * Takes note of a turn: its calls with their results. Turns are the same when they made the same calls (order of keys
 * aside) and got the same results, whether those were errors or not. A turn without calls ends a loop.
 */
export function observeTurn(
  state: LoopState,
  turn: readonly TurnCall[],
  limits: LoopLimits,
): { readonly state: LoopState; readonly verdict: LoopVerdict } {
  if (turn.length === 0) return { state: noLoop, verdict: { type: 'go_on' } }
  const signature = signTurn(turn)
  const matches = periods.map((period, index) =>
    state.recent[period - 1] === signature ? (state.matches[index] ?? 0) + 1 : 0,
  )
  const counts = periods.map((period, index) => Math.floor((matches[index] ?? 0) / period) + 1)
  const count = Math.max(...counts)
  const period = periods[counts.indexOf(count)] ?? 1
  const recent = [signature, ...state.recent].slice(0, Math.max(...periods))
  return { state: { recent, matches, count }, verdict: judgeCount(count, state.count, period, limits) }
}

function judgeCount(count: number, before: number, period: number, limits: LoopLimits): LoopVerdict {
  const what = period === 1 ? 'the same calls' : `the same ${period} turns`
  const { nudgeAfter, stopAfter } = limits
  if (stopAfter > 0 && count >= stopAfter) {
    const message = `the model made ${what} ${count} times in a row, each time with the same results; steer it elsewhere or raise the limit`
    return { type: 'stop', count, message }
  }
  // Only where the count gets there: a cycle stays at one count for several turns.
  if (nudgeAfter > 0 && count >= nudgeAfter && before < nudgeAfter) {
    const note = `[You have made ${what} ${count} times in a row, each time with the same results. Once more will not change them: try something else, or say what is in the way.]`
    return { type: 'nudge', count, note }
  }
  return { type: 'go_on' }
}

/** The calls of a turn as a set: the order in which they were made, and how often, does not count. */
function signTurn(turn: readonly TurnCall[]): string {
  return digest([...new Set(turn.map(signCall))].sort())
}

function signCall({ call, result }: TurnCall): string {
  const args: Json = 'malformed' in call ? { malformed: call.malformed } : { arguments: call.arguments }
  const content = result.content.map((part) =>
    part.type === 'text' ? [part.type, part.text] : [part.type, part.mimeType, part.data],
  )
  return digest([call.name, args, content, result.isError])
}

function digest(value: Json): string {
  return createHash('sha256').update(JSON.stringify(value, sorted)).digest('base64')
}

/** For `JSON.stringify`: keys in one order, so that equal values have equal texts. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}
