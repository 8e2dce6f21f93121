import type { Message } from '@reve/providers/model'
import type { EntryLine } from '@reve/session-log'
import { estimateMessages } from './estimate.ts'
import { callsOf, readMessage } from './messages.ts'
import { project, sinceCompaction } from './project.ts'

/**
 * How a context window is shared out, in tokens: `reserveTokens` are for the next answer, `keepRecentTokens` of the newest
 * messages stay as they are when the older ones become a summary. Whole numbers, none negative.
 */
export type CompactionBudget = {
  readonly contextWindow: number
  readonly reserveTokens: number
  readonly keepRecentTokens: number
}

const defaultReserve = 16_384
const defaultKeep = 20_000

/**
 * The budget for a model. By default the reserve is 16,384 tokens, or `maxTokens` where that is more (servers count the
 * output cap against the window), and 20,000 are kept; of a small window a quarter each at most. Settings may go further:
 * the reserve up to half of the window, the kept part up to half of the rest, so that a compaction always makes room.
 * A window that is no positive number is taken as endless.
 */
export function compactionBudget(
  contextWindow: number,
  maxTokens: number,
  settings: { readonly reserveTokens?: number; readonly keepRecentTokens?: number },
): CompactionBudget {
  const window = whole(contextWindow, 0) || Number.MAX_SAFE_INTEGER
  const quarter = Math.floor(window / 4)
  const reserve = Math.min(quarter, Math.max(defaultReserve, whole(maxTokens, 0)))
  const reserveTokens = Math.min(Math.floor(window / 2), whole(settings.reserveTokens, reserve))
  const keep = whole(settings.keepRecentTokens, Math.min(quarter, defaultKeep))
  return {
    contextWindow: window,
    reserveTokens,
    keepRecentTokens: Math.min(Math.floor((window - reserveTokens) / 2), keep),
  }
}

function whole(value: number | undefined, otherwise: number): number {
  if (value === undefined || !Number.isFinite(value)) return otherwise
  return Math.min(Math.max(0, Math.floor(value)), Number.MAX_SAFE_INTEGER)
}

/** Whether a request of so many tokens leaves less than the reserve. */
export function needsCompaction(tokens: number, budget: CompactionBudget): boolean {
  return tokens + budget.reserveTokens > budget.contextWindow
}

/**
 * What a compaction does: `head`, as `project` shows it, becomes a summary, and what begins at the entry
 * `firstKeptEntryId` stays (null: nothing does). `previousSummary` is that of the compaction before: the new one has to
 * carry it on. Token counts are estimates.
 */
export type Cut =
  | {
      readonly type: 'cut'
      readonly firstKeptEntryId: string | null
      readonly head: readonly Message[]
      readonly previousSummary?: string
      readonly headTokens: number
      readonly keptTokens: number
    }
  /** What there is fits in what would be kept, or is a single message. */
  | { readonly type: 'nothing'; readonly reason: 'too_short' }

/**
 * Where to cut the conversation on `path` (root first; only what stands since the newest compaction counts). The cut is
 * before a user's message or before an answer, never between an answer and its results.
 *
 * As much is kept as fits `keepRecentTokens`, the last turn at least when it fits beside the reserve. From there the
 * cut moves back to the user's message that began the turn, unless that would keep more than twice as much or leave
 * nothing to summarise: a long run after one prompt is cut between its answers, and the summary has to carry the prompt.
 *
 * `aggressive` is for a server that refused the request as too large, whatever the estimates say: half of all is
 * kept, and something is cut off whenever there are two messages.
 *
 * @throws HarnessError `corrupt_session`, as `project` does.
 */
export function planCut(
  path: readonly EntryLine[],
  options: { readonly model: string; readonly budget: CompactionBudget; readonly aggressive?: boolean },
): Cut {
  const { summary: previousSummary, entries } = sinceCompaction(path)
  const turns = turnsOf(
    entries.filter(({ type }) => type === 'message'),
    options.model,
  )
  const start = startOfKept(turns, options.budget, options.aggressive === true)
  const head = turns.slice(0, start).flatMap(({ messages }) => messages)
  const isLoneMessage = turns.length === 1 && head.length === 1
  if (head.length === 0 || isLoneMessage) return { type: 'nothing', reason: 'too_short' }
  return {
    type: 'cut',
    firstKeptEntryId: turns[start]?.firstEntryId ?? null,
    head,
    ...(previousSummary !== undefined && { previousSummary }),
    headTokens: tokensOf(turns.slice(0, start)),
    keptTokens: tokensOf(turns.slice(start)),
  }
}

/** What cannot be cut: a user's message, or an answer with its results. */
type Turn = {
  readonly firstEntryId: string
  readonly isUser: boolean
  readonly messages: readonly Message[]
  readonly tokens: number
}

/** The index of the first turn that is kept; `turns.length` to keep nothing, 0 to keep all. */
function startOfKept(turns: readonly Turn[], budget: CompactionBudget, aggressive: boolean): number {
  const share = aggressive ? 2 : 1
  const room = Math.floor((budget.contextWindow - budget.reserveTokens) / share)
  const keep = Math.min(room, Math.floor(budget.keepRecentTokens / share))
  const last = turns.at(-1)
  if (last === undefined || keep === 0 || last.tokens > room) return turns.length
  let start = turns.length - 1
  let kept = last.tokens
  for (let turn = turns[start - 1]; turn !== undefined && kept + turn.tokens <= keep; turn = turns[start - 1]) {
    kept += turn.tokens
    start--
  }
  // All seems to fit, yet the server says that it does not: the last turn alone, and if that is all there is, nothing.
  if (start === 0 && aggressive) return Math.max(1, turns.length - 1)
  return widened(turns, start, kept, Math.min(room, 2 * keep))
}

/** Back to where the user's turn begins, with all that the user said in a row. */
function widened(turns: readonly Turn[], start: number, kept: number, limit: number): number {
  let best = start
  let tokens = kept
  for (let index = start - 1; index > 0; index--) {
    const [turn, next] = [turns[index], turns[index + 1]]
    if (turn === undefined || (next?.isUser === true && !turn.isUser)) break
    tokens += turn.tokens
    if (tokens > limit) break
    if (turn.isUser) best = index
  }
  return best
}

function tokensOf(turns: readonly Turn[]): number {
  return turns.reduce((sum, { tokens }) => sum + tokens, 0)
}

/** The turns in order, without those that a model does not see. Their messages together are the projection of all. */
function turnsOf(entries: readonly EntryLine[], model: string): readonly Turn[] {
  const starts = turnStarts(entries)
  return starts.flatMap((start, index): readonly Turn[] => {
    const messages = project(entries.slice(start, starts[index + 1]), { model })
    const firstEntryId = entries[start]?.id
    if (messages.length === 0 || firstEntryId === undefined) return []
    return [{ firstEntryId, isUser: messages[0]?.role === 'user', messages, tokens: estimateMessages(messages) }]
  })
}

/**
 * Where entries may be parted: before what is no result, unless a later result belongs to an earlier call. Results find
 * their calls as in `project`: ids come again, the newest answer that still waits for one gets it.
 */
function turnStarts(entries: readonly EntryLine[]): readonly number[] {
  const waiting = new Map<string, number[]>()
  /** By answer, where its last result stands. */
  const lastResults = new Map<number, number>()
  for (const [index, entry] of entries.entries()) {
    const message = messageOf(entry)
    if (message?.role === 'assistant' && message.stopReason !== 'aborted') {
      for (const { id } of callsOf(message)) waiting.set(id, [...(waiting.get(id) ?? []), index])
    }
    const answer = message?.role === 'toolResult' ? waiting.get(message.toolCallId)?.pop() : undefined
    if (answer !== undefined) lastResults.set(answer, index)
  }
  const starts: number[] = []
  let closed = -1
  for (const [index, entry] of entries.entries()) {
    if (index > closed && messageOf(entry)?.role !== 'toolResult') starts.push(index)
    closed = Math.max(closed, lastResults.get(index) ?? -1)
  }
  return starts
}

function messageOf(entry: EntryLine): Message | undefined {
  const read = readMessage(entry)
  return read.type === 'message' ? read.message : undefined
}
